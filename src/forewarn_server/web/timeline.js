// Timeline of work by maintenance and wave: notice is light, running work dark, planned waves
// outlined.

import { get, may, now, part } from "./api.js";
import { fill, h, unpressed } from "./dom.js";
import { naturally, stamp, stateOf, words } from "./format.js";
import { live } from "./live.js";

const LANES_MAX = 60;
const PLANS_MAX = 10;
const REDRAW_MS = 5000;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/**
 * Label and length of a time that is shown on demand, a third of it in the past.
 * @type {[string, number][]}
 */
const ZOOMS = [
  ["1 hour", HOUR],
  ["6 hours", 6 * HOUR],
  ["1 day", DAY],
  ["1 week", 7 * DAY],
  ["1 month", 30 * DAY],
];
const STEPS = [5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7200].map(
  (each) => each * MINUTE,
);
const TICKS_MAX = 8;
const PAST = 1 / 3;

/** Live maintenances with their past and planned waves. */
export async function plansOf(state) {
  if ((state !== "live" && state !== "planned") || !may("list_maintenances")) return [];
  const { maintenances } = await get("/v1/maintenances?live=true&limit=100");
  return Promise.all(
    maintenances.slice(0, PLANS_MAX).map((each) => get(`/v1/maintenances/${part(each.id)}`)),
  );
}

/** Draws operations and plans; a table next to the timeline has the same content. */
export const timeline = () =>
  zoomable(([operations, plans]) => lanesOf(operations, plans), aroundNow);

/** Draws the waves of a maintenance and the open times; a table next to it has the same content. */
export const waveChart = () => zoomable(([waves, spans]) => waveLanes(waves, spans), whole);

/** Returns a picture of lanes that can be zoomed, at first to what `fit` chooses. */
function zoomable(lanesFrom, fit) {
  const picture = h("div", { className: "timeline", aria: { hidden: "true" } });
  let zoom = null;
  /** @type {any[] | null} */
  let shown = null;
  const choose = (label, length) =>
    h(
      "button",
      {
        type: "button",
        className: "small",
        data: { zoom: label },
        onclick: () => {
          zoom = length;
          redraw();
        },
      },
      label,
    );
  const choices = [["Fit", null], ...ZOOMS].map(([label, length]) => choose(label, length));
  const redraw = () => {
    if (!shown) return;
    const lanes = lanesFrom(shown);
    const view = zoom ? { from: now() - zoom * PAST, length: zoom } : fit(lanes);
    choices.forEach((each, index) =>
      each.setAttribute("aria-pressed", String((index ? ZOOMS[index - 1][1] : null) === zoom)),
    );
    element.hidden = !lanes.length;
    fill(picture, drawn(lanes, view));
  };
  const element = h(
    "div",
    { hidden: true },
    h(
      "div",
      { className: "buttons", role: "group", aria: { label: "Time shown" } },
      h("span", { className: "soft" }, "Show"),
      choices,
    ),
    picture,
  );
  const timer = setInterval(() => unpressed().then(redraw), REDRAW_MS);
  return {
    element,
    draw: (...found) => {
      shown = found;
      redraw();
    },
    close: () => clearInterval(timer),
  };
}

/** Returns the shortest time around now that shows the end, or else the start, of all live work. */
function aroundNow(lanes) {
  const ahead = Math.max(0, ...lanes.flatMap((each) => each.pieces.map((one) => one.to - now())));
  const [, length] = ZOOMS.find(([, each]) => each * (1 - PAST) >= ahead) ?? ZOOMS.at(-1);
  return { from: now() - length * PAST, length };
}

/** Returns the time that shows every piece but open times, and now. */
function whole(lanes) {
  const pieces = lanes.flatMap((each) => each.pieces.filter((one) => one.look !== "open"));
  const from = Math.min(now(), ...pieces.map((each) => each.from));
  const to = Math.max(now(), ...pieces.map((each) => each.to));
  const length = Math.max((to - from) * 1.04, MINUTE);
  return { from: from - (length - (to - from)) / 2, length };
}

/** Lanes of waves, so that the chart is about as high as the progress beside it. */
const WAVE_LANES_MAX = 12;

/** Returns a lane for each window with its open times, and one for each wave or some of them. */
function waveLanes(waves, spans) {
  if (!waves.length) return [];
  const names = [...new Set(spans.map((each) => each.window))].filter((each) => each);
  const open = names.map((name) => ({
    label: name,
    href: "#/policy",
    look: "wave-lane",
    pieces: spans
      .filter((each) => each.window === name)
      .map((each) => ({
        look: "open",
        from: Date.parse(each.opens),
        to: Date.parse(each.closes),
      })),
  }));
  const band = Math.ceil(waves.length / WAVE_LANES_MAX);
  const lanes = [];
  for (let first = 0; first < waves.length; first += band) {
    const some = waves.slice(first, first + band);
    const [from, to] = [some[0].number, some.at(-1).number];
    lanes.push({
      label: from === to ? `Wave ${from}` : `Waves ${from} to ${to}`,
      href: location.hash,
      look: "",
      pieces: some.flatMap(piecesOf),
    });
  }
  return [...open, ...lanes];
}

/** Returns the notice, the work and the planned time of a wave. */
function piecesOf(wave) {
  const at = (text) => Date.parse(text ?? "");
  const [announced, started, ended] = [at(wave.announced), at(wave.started), at(wave.ended)];
  const [start, end] = [at(wave.latest_start), at(wave.latest_end)];
  const planned = (from) => (end > from ? [{ look: "planned", from, to: end }] : []);
  if (wave.state === "planned") return announced ? planned(announced) : [];
  const pieces = [];
  const noticed = started || ended || Math.max(start || 0, now());
  if (announced && noticed > announced)
    pieces.push({ look: "notice", from: announced, to: noticed });
  if (!started) return [...pieces, ...planned(noticed)];
  const failed = wave.counts.failed > 0;
  pieces.push({
    look: failed ? "failed" : ended ? "succeeded" : "running",
    text: failed ? `${wave.counts.failed} failed` : "",
    from: started,
    to: ended || Math.max(now(), started),
  });
  return ended ? pieces : [...pieces, ...planned(Math.max(now(), started))];
}

/**
 * Returns headings for maintenances and waves, and lanes for operations and planned waves.
 * @returns {any[]}
 */
function lanesOf(operations, plans) {
  /** @type {any[]} */
  const lanes = [];
  const left = new Map();
  for (const each of operations) {
    const known = left.get(each.maintenance) ?? [];
    known.push(each);
    left.set(each.maintenance, known);
  }
  for (const { maintenance, waves } of plans) {
    const mine = left.get(maintenance.id) ?? [];
    left.delete(maintenance.id);
    if (!mine.length && !waves.length) continue;
    lanes.push(heading(maintenance.id, `${maintenance.id} ${words(maintenance.cause)}`));
    for (const wave of waves) {
      const here = mine.filter((each) => wave.hosts.includes(each.host));
      const href = `#/maintenances/${maintenance.id}`;
      const planned = wave.announced && wave.state === "planned";
      const pieces = planned
        ? [
            {
              look: "planned",
              from: Date.parse(wave.announced),
              to: Date.parse(wave.latest_end ?? wave.announced),
            },
          ]
        : [];
      if (planned || here.length)
        lanes.push({ label: `Wave ${wave.number}`, href, pieces, look: "wave-lane" });
      lanes.push(...here.sort(byTarget).map(laneOf));
    }
  }
  for (const [id, mine] of left) {
    const found = mine.sort(byTarget).map(laneOf);
    if (!found.length) continue;
    if (id || lanes.length) lanes.push(heading(id, id || "Other work"));
    lanes.push(...found);
  }
  return lanes.slice(0, LANES_MAX);
}

const byTarget = (one, other) => naturally(one.target, other.target);

const heading = (id, label) => ({
  label,
  href: id ? `#/maintenances/${id}` : "#/work",
  pieces: [],
  look: "heading",
});

function laneOf(each) {
  const start = Date.parse(each.started ?? each.ended ?? each.not_before ?? "") || now();
  const glance = live.operations.get(each.id);
  const unapproved = each.state === "announced" && glance && glance.approved < glance.asked;
  const pieces = [];
  if (each.announced)
    pieces.push({
      look: unapproved ? "unapproved" : "notice",
      text: unapproved ? `not approved: ${glance.approved} of ${glance.asked}` : "",
      from: Date.parse(each.announced),
      to: start,
    });
  if (each.started)
    pieces.push({
      look: stateOf(each),
      from: start,
      to: Date.parse(each.ended ?? "") || Math.max(now(), start),
    });
  return { label: each.target, href: `#/operations/${each.id}`, pieces, look: "" };
}

function drawn(lanes, { from, length }) {
  const share = (at) => ((at - from) / length) * 100;
  const step = STEPS.find((each) => length / each <= TICKS_MAX) ?? STEPS.at(-1);
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at < from + length * 0.97; at += step)
    ticks.push(at);
  const put = (element, at, end = at) => {
    element.style.left = `${Math.max(share(at), 0)}%`;
    if (end > at)
      element.style.width = `max(4px, ${Math.min(share(end), 100) - Math.max(share(at), 0)}%)`;
    return element;
  };
  const label = (at) => {
    const [day, time] = stamp(at);
    return step >= DAY || time.startsWith("00:00") ? day.slice(5) : time.slice(0, 5);
  };
  const seen = ({ from: start, to }) => to >= from && start <= from + length;
  return [
    h(
      "div",
      { className: "lane axis" },
      h("span", { className: "lane-name soft" }, stamp(now())[2]),
      h(
        "span",
        { className: "track" },
        ticks.map((at) => put(h("span", { className: "tick" }, label(at)), at)),
      ),
    ),
    lanes.map(({ label: name, href, pieces, look }) =>
      h(
        "a",
        { className: `lane ${look}`, href, tabIndex: -1 },
        h("span", { className: "lane-name" }, name),
        h(
          "span",
          { className: "track" },
          pieces
            .filter(seen)
            .map((each) =>
              put(
                h(
                  "span",
                  { className: `piece ${each.look}` },
                  each.text ? h("b", {}, each.text) : "",
                ),
                each.from,
                each.to,
              ),
            ),
        ),
      ),
    ),
    h(
      "div",
      { className: "lane now-lane" },
      h("span", { className: "lane-name" }),
      h("span", { className: "track" }, put(h("span", { className: "present" }), now())),
    ),
  ];
}
