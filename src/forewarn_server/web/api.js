// The operator API: requests, refusals, the token, and streams of server-sent events.

const KEY = "forewarn-token";
/** Number of the newest received commit; other processes must not answer with an older state. */
const GENERATION = "Forewarn-Generation";
let generation = 0;
/** @type {(why: string) => void} */
let signIn = () => {};
/** Milliseconds by which the service's clock is ahead of this machine's monotonic clock. */
const clock = { at: Date.now(), seen: performance.now(), speed: 1, held: 0 };

/** Noun of a command that reads -> the view with the same records. */
const VIEWS = {
  access: "Access",
  confirmation: "Confirmations",
  declaration: "Declared maintenances",
  deferral: "Declared maintenances",
  event: "Work",
  group: "Inventory",
  history: "History",
  host: "Inventory",
  maintenance: "Maintenances",
  operation: "Work",
  ticket: "Tickets",
  vm: "Inventory",
};

/** Returns an advice with views in place of the commands that only read the same records. */
const onPage = (advice) =>
  advice.replace(
    /`forewarn ([a-z]+)( token)?( list| show| openings|(?=`))[^`]*`/g,
    (command, noun, _token, _verb, place) => {
      const view = VIEWS[noun];
      return view ? `${place ? "the" : "The"} view ${view}` : command;
    },
  );

/** A refused request, with the service's reason and advice. */
export class Refusal extends Error {
  constructor(status, reply) {
    super(reply.message ?? `The service answered ${status}.`);
    this.status = status;
    this.code = reply.code ?? "";
    this.advice = onPage(reply.advice ?? "");
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
};

/** The signed-in caller, with the permitted operations of the API. */
export const caller = { principal: "", roles: "", can: new Set() };

/** Returns whether the caller may call an operation, at least for some objects. */
export const may = (route) => caller.can.has(route);

/** Reads the caller and the permissions; the page offers only permitted actions. */
export async function recognize() {
  const { principal, bindings, can } = await get("/v1/whoami");
  const roles = bindings.map((each) => (each.owner ? `${each.role} of ${each.owner}` : each.role));
  Object.assign(caller, { principal, roles: roles.join(", "), can: new Set(can) });
}

/** Sets the function that asks for a token when the API requires a token. */
export function onSignIn(action) {
  signIn = action;
}

/** The service's time, ms since the epoch. */
export function now() {
  if (clock.held) return clock.held;
  return clock.at + (performance.now() - clock.seen) * clock.speed;
}

/** Stops the clock while the service's time is unknown, or restarts it. */
export function hold(on) {
  clock.held = 0;
  clock.held = on ? now() : 0;
}

/** Sets the clock to the service's time, and to the speed of an emulator. */
export function setTime(text, speed = clock.speed) {
  const at = Date.parse(text);
  if (Number.isNaN(at)) return;
  clock.at = at;
  clock.seen = performance.now();
  clock.speed = speed;
}

function headers() {
  /** @type {Record<string, string>} */
  const found = {};
  if (token.get()) found.Authorization = `Bearer ${token.get()}`;
  if (generation) found[GENERATION] = String(generation);
  return found;
}

/** @param {{body?: any, media?: string, more?: object, signal?: AbortSignal}} options */
async function send(method, path, options) {
  const { body, media, more, signal } = options;
  const found = { ...headers(), ...more };
  if (body !== undefined) found["Content-Type"] = media ?? "application/json";
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path, { method, headers: found, body: text, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, {
      message: "The service does not answer.",
      advice: "Check whether the service runs.",
    });
  }
  generation = Math.max(generation, Number(answer.headers.get(GENERATION)));
  if (!answer.ok) {
    const reply = await answer.json().catch(() => ({}));
    if (reply.error?.code === "state-behind") generation = 0; // the commit number belongs to another store
    if (answer.status === 401)
      signIn(/token-wrong$/.test(reply.error?.code) ? reply.error.message : "");
    throw new Refusal(answer.status, reply.error ?? {});
  }
  return answer;
}

/** Sends a request, and returns the JSON answer; null without a body. */
export async function call(method, path, body, options = {}) {
  const answer = await send(method, path, { body, ...options });
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

export const get = (path, options) => call("GET", path, undefined, options);

/** Returns what a read answers, or `instead` if the caller may not read it; views go on without. */
export const allowed = (reading, instead) =>
  reading.catch((error) => {
    if (error.status === 403) return instead;
    throw error;
  });

/** Reads an answer as unchanged text. */
export async function getText(path) {
  return (await send("GET", path, {})).text();
}

/** Returns a path with a query, without empty values. */
export function query(path, asked) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(asked)) {
    if (value !== "" && value !== undefined && value !== null) found.set(name, value);
  }
  const text = found.toString();
  return text ? `${path}?${text}` : path;
}

/** Most pages of a list that a view reads at once. */
const PAGES_MAX = 10;

/** Reads the records of a list, page by page; `more` says whether records are left. */
export async function getList(path, asked, name, cursor = "after") {
  const records = [];
  let place = "";
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const reply = await get(query(path, { ...asked, [cursor]: place }));
    records.push(...reply[name]);
    place = reply.next ?? "";
    if (!place) break;
  }
  return { records, more: Boolean(place) };
}

/** Encodes a segment of a path. */
export const part = encodeURIComponent;

/**
 * Follows a stream, and resumes it after an interruption. This function replaces EventSource, which
 * cannot send a token.
 */
export async function follow(path, place, { onEvent, onState, signal }) {
  let last = place;
  let pause = 500;
  while (!signal.aborted) {
    let reader = null;
    try {
      const more = { Accept: "text/event-stream" };
      if (last) more["Last-Event-ID"] = last;
      const answer = await send("GET", path, { more, signal });
      onState("live");
      pause = 500;
      reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await soon(reader.read());
        if (done) break;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) last = take(block, onEvent) || last;
      }
    } catch (error) {
      reader?.cancel().catch(() => {});
      if (signal.aborted) return;
      if (error instanceof Refusal && error.status === 401) return;
      if (error instanceof Refusal && error.status === 429) pause = 5000;
    }
    if (signal.aborted) return;
    onState("lost");
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 2, 8000);
  }
}

/** Seconds of silence after which a connection counts as lost; the service sends the time every 2 s. */
const SILENCE_S_MAX = 8;

const soon = (promise) =>
  Promise.race([
    promise,
    new Promise((_, fail) =>
      setTimeout(() => fail(new Error("the service is silent")), SILENCE_S_MAX * 1000),
    ),
  ]);

function take(block, onEvent) {
  let id = "";
  let event = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) id = line.slice(4);
    else if (line.startsWith("event: ")) event = line.slice(7);
    else if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  if (data.length) onEvent(event, JSON.parse(data.join("\n")));
  return id;
}
