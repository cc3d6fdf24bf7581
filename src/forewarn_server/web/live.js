// The current fleet: read once, then updated by the stream. Other modules create elements.

import { follow, get, query, setTime } from "./api.js";

/** Maximum number of live operations in the page; the least urgent operations are dropped first. */
const HELD_MAX = 1000;
const ENDED_MAX = 50;
const ORDER = { running: 0, announced: 1, planned: 2 };

export const live = {
  layout: -1,
  states: {},
  hostCount: 0,
  letters: new Uint8Array(0),
  racks: [],
  counts: {},
  operations: new Map(),
  ended: [],
  connection: "connecting",
  /** When the service was last heard, in milliseconds of `performance.now`. */
  heard: 0,
  refused: [],
};

const listeners = new Set();
let stopping = null;
let reading = null;
let again = false;

/** Calls a function with the kind of each change, such as `all`, `hosts` or `time`. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function notify(what, more) {
  for (const listener of [...listeners]) listener(what, more);
}

/** Reads the whole overview, and follows its changes. */
export async function start() {
  stop();
  left = false;
  const place = await read();
  stopping = new AbortController();
  follow("/v1/overview/watch", place, {
    onEvent: take,
    onState: connection,
    signal: stopping.signal,
  });
}

export function stop() {
  stopping?.abort();
  stopping = null;
}

/** Seconds after which a hidden tab closes its stream, because all tabs share six connections. */
const HIDDEN_S_MAX = 10;
let hiding = 0;

function resume() {
  clearTimeout(hiding);
  if (live.layout >= 0 && !stopping && !left) start().catch(() => {});
}

addEventListener("pagehide", stop);
addEventListener("pageshow", resume);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) hiding = setTimeout(stop, HIDDEN_S_MAX * 1000);
  else resume();
});

/** Stops following until `start`, because nobody is signed in. */
let left = false;
export function leave() {
  left = true;
  stop();
}

function connection(state) {
  if (live.connection !== state) {
    live.connection = state;
    notify("connection");
  }
}

async function read() {
  const reply = await get("/v1/overview");
  setTime(reply.now);
  live.heard = performance.now();
  live.layout = reply.layout;
  live.states = reply.states;
  live.hostCount = reply.hosts;
  live.letters = unpack(reply.host_states, reply.hosts);
  live.racks = reply.racks;
  live.counts = reply.counts;
  live.operations = new Map(reply.operations.map((each) => [each.id, each]));
  live.refused = reply.refused;
  notify("all");
  return reply.place;
}

/** Milliseconds before a failed read is repeated. */
const REREAD_MS = 2000;

function reread() {
  if (reading) {
    again = true;
    return;
  }
  reading = read()
    .catch(() => setTimeout(() => stopping && reread(), REREAD_MS))
    .finally(() => {
      reading = null;
      if (again) {
        again = false;
        reread();
      }
    });
}

/** Reads the operations again, because the page lacks some of the next operations. */
let topping = 0;
function top() {
  const total = Object.values(live.counts).reduce((sum, count) => sum + count, 0);
  if (live.operations.size >= Math.min(total, 100) || performance.now() - topping < 2000) return;
  topping = performance.now();
  reread();
}

function take(event, reply) {
  setTime(reply.now);
  live.heard = performance.now();
  const before = live.refused;
  live.refused = reply.refused;
  if (String(before) !== String(live.refused)) notify("refused");
  if (event === "reload") reread();
  else if (event === "change") change(reply);
  else if (event === "time") notify("time");
}

function change(reply) {
  for (const [place, letter] of reply.hosts) live.letters[place] = letter.charCodeAt(0);
  if (reply.hosts.length) notify("hosts", reply.hosts);
  for (const [place, rack] of reply.racks) live.racks[place] = rack;
  live.counts = reply.counts;
  if (reply.racks.length) notify("racks", reply.racks);
  for (const each of reply.operations) {
    if (each.state in ORDER) live.operations.set(each.id, each);
    else {
      live.operations.delete(each.id);
      live.ended = [each, ...live.ended.filter((other) => other.id !== each.id)].slice(
        0,
        ENDED_MAX,
      );
    }
  }
  if (live.operations.size > HELD_MAX) {
    const kept = sorted().slice(0, HELD_MAX / 2);
    live.operations = new Map(kept.map((each) => [each.id, each]));
  }
  if (reply.operations.length) notify("operations", reply.operations);
  top();
}

/** Whether something is wrong with an operation: such ones come first. */
export const isWrong = (each) => each.alert !== "none" || each.cause === "hardware-failure";

/** Live operations, the most urgent first. */
export function sorted() {
  const when = (each) =>
    Date.parse((each.state === "running" ? each.started : each.not_before) ?? "") || 0;
  return [...live.operations.values()].sort(
    (one, other) =>
      Number(isWrong(other)) - Number(isWrong(one)) ||
      ORDER[one.state] - ORDER[other.state] ||
      when(one) - when(other) ||
      one.number - other.number,
  );
}

/** Returns the numbers of hosts and of VMs by letter, on all racks or on the racks of a zone. */
export function totals(racks = live.racks) {
  const found = { hosts: {}, vms: {} };
  for (const rack of racks) {
    let disturbed = 0;
    for (const [letter, count] of Object.entries(rack.hosts))
      found.hosts[letter] = (found.hosts[letter] ?? 0) + count;
    for (const [letter, count] of Object.entries(rack.disturbed)) {
      found.vms[letter] = (found.vms[letter] ?? 0) + count;
      disturbed += count;
    }
    found.vms.h = (found.vms.h ?? 0) + rack.vms - disturbed;
  }
  return found;
}

const names = { layout: -1, known: new Map(), asked: new Set() };
const NAMES_AT_ONCE = 1000;

/** Returns the host at a place if its name is loaded; otherwise loads the name and notifies `names`. */
export function hostAt(place) {
  if (names.layout !== live.layout) {
    names.layout = live.layout;
    names.known.clear();
    names.asked.clear();
  }
  const found = names.known.get(place);
  if (found) return found;
  const first = Math.floor(place / NAMES_AT_ONCE) * NAMES_AT_ONCE;
  if (!names.asked.has(first)) {
    names.asked.add(first);
    const layout = names.layout;
    get(query("/v1/overview/hosts", { from: first, limit: NAMES_AT_ONCE }))
      .then((reply) => {
        if (layout !== names.layout || reply.layout !== layout) return;
        if (names.known.size > 50 * NAMES_AT_ONCE) names.known.clear();
        reply.hosts.forEach((host, index) => names.known.set(first + index, host));
        notify("names");
      })
      .catch(() => names.asked.delete(first));
  }
  return null;
}

function unpack(text, count) {
  const found = new Uint8Array(text ? count : 0);
  let place = 0;
  for (const [, letter, repeats] of text.matchAll(/([a-z])(\d+)/g)) {
    found.fill(letter.charCodeAt(0), place, (place += Number(repeats)));
  }
  return found;
}
