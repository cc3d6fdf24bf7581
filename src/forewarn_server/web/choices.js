// Choice of the start of declared work: a calendar of openings, another time, now, or hand back.

import { dialog } from "./actions.js";
import { call, get, may, now, part, query, Refusal } from "./api.js";
import { quoted } from "./commands.js";
import { fill, h, note, press, soft } from "./dom.js";
import { countdown, isLocal, plural, stamp, written } from "./format.js";
import { timeHint, timePicker, wrongTime } from "./times.js";

const DAY_MS = 86_400_000;
/** Milliseconds without a change of the form before the choice is checked. */
const PAUSE_MS = 300;
const QUARTER_MS = 900_000;
/** The first start of an opening is offered some minutes later, so that it is not over at once. */
const ROUNDED_MS = 300_000;
const WAYS = [
  ["at", "At a time"],
  ["now", "As soon as possible"],
  ["release", "Hand back: at any time"],
];

/** Opens the choice of a start for one owner's VMs on a host. */
export async function choose(each, one) {
  const path = `/v1/declarations/${part(each.id)}`;
  const emergency = each.severity === "emergency";
  const shared = one.shared && !emergency; // in an emergency, a choice only brings work forward
  const openings =
    may("list_openings") && !emergency
      ? await get(query(`${path}/openings`, { host: one.host })).then(
          (reply) => reply.openings,
          () => null,
        )
      : null;
  const at = h("input", {
    id: "choice-at",
    name: "at",
    value: one.chosen_start ? written(Date.parse(one.chosen_start)) : "",
    placeholder: "+4h, or 2027-01-15T08:00:00Z",
    autocomplete: "off",
    spellcheck: false,
  });
  const approve = h("input", { id: "choice-approve", type: "checkbox", checked: one.approves });
  const ways = wayPicker(
    emergency ? WAYS.filter(([way]) => way !== "at") : WAYS,
    one.decision ?? (emergency ? "now" : "at"),
  );
  const enter = (ms) => {
    ways.set("at");
    at.value = written(ms);
    at.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const times = h(
    "div",
    {},
    openings ? calendar(openings, enter) : "",
    h(
      "div",
      { className: "field" },
      h("label", { htmlFor: at.id }, "Start"),
      at,
      timeHint(at),
      h("div", { className: "buttons" }, timePicker(at, "Start")),
    ),
  );
  const approval = h(
    "div",
    { className: "field check" },
    approve,
    h("label", { htmlFor: approve.id }, "Also approve the event in advance"),
  );
  const show = () => {
    times.hidden = ways.get() !== "at";
    approval.hidden = ways.get() === "release";
  };
  const form = () => ({
    vm: one.vms[0], // of this owner only; the host may have VMs of others
    ...(ways.get() === "at" ? { at: at.value.trim() } : { [ways.get()]: true }),
    ...(approve.checked && ways.get() !== "release" ? { approve: true } : {}),
  });
  const send = (dry) =>
    call("POST", `${path}/choices`, { choices: [form()], ...(dry ? { dry_run: true } : {}) });
  const missing = () => ways.get() === "at" && !at.value.trim();
  const asking = () => soft("Press an opening, or enter a start.");
  // Shown from the start, so that the dialog does not move under the first press.
  const verdict = h("div", { role: "status" }, missing() ? asking() : "");
  let turn = 0;
  /** Shows whether the choice is possible, and returns it. */
  const check = async () => {
    const mine = ++turn;
    if (missing()) {
      fill(verdict, asking());
      return false;
    }
    if (ways.get() === "at" && wrongTime(at.value.trim())) {
      fill(verdict); // the field explains it
      return false;
    }
    const [result] = (await send(true)).results;
    if (mine === turn) fill(verdict, result.possible ? possible(result) : refused(result, enter));
    return result.possible;
  };
  let timer = 0;
  const body = h("div", {}, ways.element, times, approval, verdict);
  const later = () => {
    show();
    clearTimeout(timer);
    timer = setTimeout(() => check().catch(() => fill(verdict)), PAUSE_MS);
  };
  for (const kind of ["input", "change"]) body.addEventListener(kind, later);
  dialog({
    title: `When ${one.host} is worked on`,
    text: [
      `For ${one.vms.join(", ")}.`,
      shared
        ? "Other owners have VMs on the host: it is worked on before the deadline only if all choose the same."
        : "",
      emergency ? "In an emergency, a time cannot be chosen." : "",
    ]
      .filter(Boolean)
      .join(" "),
    confirm: "Choose",
    extra: [body],
    ask: async () => {
      clearTimeout(timer);
      if (await check()) return send(false);
      verdict.scrollIntoView({ behavior: "instant", block: "center" });
      throw Object.assign(new Refusal(409, {}), { shown: true });
    },
    command: () => commandOf(each, form()),
    done: ({ results: [result] }) => {
      note(`${one.host}: ${said(result)}`);
      dispatchEvent(new Event("acted"));
    },
  });
  later();
}

/** @param {any} form */
const commandOf = (each, form) => {
  const { vm, at, now: soon, release, approve } = form;
  return [
    `forewarn declaration ${release ? "release" : "choose"} ${each.id} --vm ${quoted(vm)}`,
    at && `--at ${quoted(at)}`,
    soon && "--now",
    approve && "--approve",
  ]
    .filter(Boolean)
    .join(" ");
};

/** Returns the ways to choose, as radio buttons. */
function wayPicker(offered, first) {
  const inputs = offered.map(([value]) =>
    h("input", { type: "radio", name: "way", value, checked: value === first }),
  );
  const element = h(
    "fieldset",
    { className: "field" },
    h("legend", {}, "The work starts"),
    h(
      "ul",
      { className: "ticks" },
      offered.map(([, label], index) =>
        h("li", {}, h("label", {}, inputs[index], h("span", {}, label))),
      ),
    ),
  );
  return {
    element,
    get: () => inputs.find((each) => each.checked).value,
    set: (way) => (inputs.find((each) => each.value === way).checked = true),
  };
}

const long = (ms) =>
  new Date(`${stamp(ms)[0]}T00:00:00Z`).toLocaleDateString("en-GB", {
    weekday: "long",
    day: "numeric",
    month: "long",
    year: "numeric",
    timeZone: "UTC",
  });

/** Says a start with its day, in the selected zone, and in UTC. Source: T-16. */
export function sayStart(text) {
  const ms = Date.parse(text);
  const [, time, zone] = stamp(ms);
  const utc = isLocal() ? ` (${text.slice(0, 16).replace("T", " ")} UTC)` : "";
  return `${long(ms)}, ${time.slice(0, 5)} ${zone}${utc}`;
}

/** Says what a choice does; on a shared host, the other owners must choose the same. */
const said = (result) => {
  const what = {
    at: () => `the work starts on ${sayStart(result.start)}`,
    now: () =>
      `the work starts once its notice is over${result.earliest ? `, on ${sayStart(result.earliest)} at the earliest` : ""}`,
    release: () => "handed back; the work may start at any time",
  }[result.decision]();
  const conditions = [
    result.agreed === false ? "the other owners on the host choose the same time or release" : "",
    result.held ? "you press Resume, because you hold the host after your test" : "",
  ].filter(Boolean);
  return conditions.length
    ? `${what}, but only if ${conditions.join(", and ")}; otherwise after the deadline.`
    : `${what}.`;
};

const possible = (result) => [
  h("p", {}, h("b", {}, "Possible: "), said(result)),
  result.start ? soft(countdown(result.start)) : "",
];

const refused = (result, enter) => [
  h("p", { className: "bad" }, h("b", {}, "Not possible: "), `${result.text}.`),
  result.decision === "at" ? nearest(result, enter) : "",
];

const nearest = ({ openings }, enter) =>
  openings.length
    ? h(
        "div",
        { className: "buttons", role: "group", aria: { label: "The nearest openings" } },
        "The nearest openings: ",
        openings.map((each) => startButton(firstOf(each), enter, sayStart(each.start))),
      )
    : soft("There is no opening before the hand-back deadline.");

const startButton = (ms, enter, label) =>
  press(label, () => enter(ms), {
    spoken: `Start on ${sayStart(new Date(ms).toISOString())}`,
    data: { opening: new Date(ms).toISOString() },
  });

/** Returns the first start of an opening that is still possible in some minutes. */
function firstOf(each) {
  const [from, to] = [Math.max(Date.parse(each.start), now()), Date.parse(each.latest)];
  const rounded = Math.ceil(from / ROUNDED_MS) * ROUNDED_MS;
  return rounded <= to ? rounded : Date.parse(each.start);
}

/** Returns a calendar of the days with openings, and the starts of the chosen day. */
function calendar(openings, enter) {
  const days = byDay(openings);
  if (!days.size) return soft("There is no opening before the hand-back deadline.");
  const times = h("div", { className: "openings", role: "group", aria: { live: "polite" } });
  const pick = (day) => {
    for (const [name, button] of buttons) {
      button.setAttribute("aria-pressed", String(name === day));
      button.tabIndex = name === day ? 0 : -1;
    }
    times.setAttribute("aria-label", `Starts on ${day}`);
    fill(
      times,
      days.get(day).map((each) => startsIn(each, day, enter)),
    );
  };
  const names = [...days.keys()].sort();
  const buttons = new Map(names.map((name) => [name, dayButton(name, () => pick(name))]));
  const grid = h("div", { className: "month", role: "group", aria: { label: "Days" } });
  grid.addEventListener("keydown", (event) => {
    const to = dayAfter(names, document.activeElement?.getAttribute("data-day"), event.key);
    if (!to) return;
    event.preventDefault();
    pick(to);
    buttons.get(to).focus();
  });
  fill(
    grid,
    ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"].map((name) =>
      h("span", { className: "soft", aria: { hidden: "true" } }, name),
    ),
    weeks(names).map(
      (day) =>
        buttons.get(day) ??
        h("span", { className: "soft", aria: { hidden: "true" } }, day.slice(8)),
    ),
  );
  pick(names[0]);
  return h(
    "div",
    { className: "field" },
    h("h3", {}, `Openings, in ${isLocal() ? "local time" : "UTC"}`),
    grid,
    times,
  );
}

const dayButton = (day, pick) =>
  press([h("span", { className: "month-name" }, monthOf(day)), day.slice(8)], pick, {
    look: "day-button",
    spoken: long(noon(day)),
    data: { day },
  });

/** Returns noon of a day in the selected zone, in milliseconds. */
function noon(day) {
  const ms = Date.parse(`${day}T12:00:00Z`);
  return isLocal() ? ms + new Date(ms).getTimezoneOffset() * 60_000 : ms;
}

const monthOf = (day) =>
  new Date(`${day}T00:00:00Z`).toLocaleDateString("en-GB", { month: "short", timeZone: "UTC" });

/** Returns the openings of each day, in the selected zone. */
function byDay(openings) {
  const days = new Map();
  for (const each of openings) {
    const [first, last] = [firstOf(each), Date.parse(each.latest)];
    const names = new Set([stamp(first)[0], stamp(last)[0]]);
    for (let ms = first; ms < last; ms += DAY_MS) names.add(stamp(ms)[0]);
    for (const name of names) days.set(name, [...(days.get(name) ?? []), each]);
  }
  return days;
}

/** Returns all days of the weeks from the first name to the last. */
function weeks(names) {
  const monday = (ms) => ms - ((new Date(ms).getUTCDay() + 6) % 7) * DAY_MS;
  const from = monday(Date.parse(names[0]));
  const to = monday(Date.parse(names.at(-1))) + 7 * DAY_MS;
  const days = [];
  for (let ms = from; ms < to; ms += DAY_MS) days.push(new Date(ms).toISOString().slice(0, 10));
  return days;
}

/** Returns the day to which a key moves: the next one with openings in its direction. */
function dayAfter(names, day, key) {
  if (!day) return "";
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -7, ArrowDown: 7 }[key];
  if (key === "Home") return names[0];
  if (key === "End") return names.at(-1);
  if (!step) return "";
  const wanted = new Date(Date.parse(day) + step * DAY_MS).toISOString().slice(0, 10);
  return step > 0 ? names.find((each) => each >= wanted) : names.findLast((each) => each <= wanted);
}

/** Returns the starts of an opening on a day: its first one, and each full hour. */
function startsIn(each, day, enter) {
  const [first, last] = [firstOf(each), Date.parse(each.latest)];
  const starts = stamp(first)[0] === day ? [first] : [];
  const from = noon(day) - DAY_MS / 2 - 2 * QUARTER_MS * 4; // a day may have 25 hours
  for (let ms = from; ms <= from + DAY_MS * 1.2; ms += QUARTER_MS) {
    const [name, time] = stamp(ms);
    if (name === day && time.slice(3, 5) === "00" && ms > first && ms <= last) starts.push(ms);
  }
  return h(
    "div",
    { className: "opening-day" },
    starts.map((ms) => startButton(ms, enter, stamp(ms)[1].slice(0, 5))),
    each.room === null
      ? ""
      : h("span", { className: "soft" }, `room for ${plural(each.room, "host")}`),
  );
}
