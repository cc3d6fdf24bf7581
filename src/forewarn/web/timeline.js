// Timeline of work by maintenance and wave: notice is light, running work dark, planned waves
// outlined.

import { get, now, part } from "./api.js";
import { fill, h, unpressed } from "./dom.js";
import { naturally, stamp, words } from "./format.js";
import { live } from "./live.js";

const LANES_MAX = 60;
const PLANS_MAX = 10;
const REDRAW_MS = 5000;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/**
 * Label and length of the shown time, a third of which is in the past.
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
  if (state !== "live" && state !== "planned") return [];
  const { maintenances } = await get("/v1/maintenances?live=true&limit=100");
  return Promise.all(
    maintenances.slice(0, PLANS_MAX).map((each) => get(`/v1/maintenances/${part(each.id)}`)),
  );
}

/** Draws operations and plans; a table next to the timeline has the same content. */
export function timeline() {
  const picture = h("div", { className: "timeline", aria: { hidden: "true" } });
  let zoom = null;
  let shown = { operations: [], plans: [] };
  const buttons = ZOOMS.map(([label, length]) =>
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
    ),
  );
  const redraw = () => {
    const lanes = lanesOf(shown.operations, shown.plans);
    const length = zoom ?? fitting(lanes);
    buttons.forEach((each, index) =>
      each.setAttribute("aria-pressed", String(ZOOMS[index][1] === length)),
    );
    element.hidden = !lanes.length;
    fill(picture, drawn(lanes, length));
  };
  const element = h(
    "div",
    { hidden: true },
    h(
      "div",
      { className: "buttons", role: "group", aria: { label: "Time shown" } },
      h("span", { className: "soft" }, "Show"),
      buttons,
    ),
    picture,
  );
  const timer = setInterval(() => unpressed().then(redraw), REDRAW_MS);
  return {
    element,
    draw: (operations, plans) => {
      shown = { operations, plans };
      redraw();
    },
    close: () => clearInterval(timer),
  };
}

/** Returns the shortest time that shows the end, or else the start, of all live work. */
function fitting(lanes) {
  const ahead = Math.max(0, ...lanes.flatMap((each) => each.pieces.map((one) => one.to - now())));
  return (ZOOMS.find(([, length]) => length * (1 - PAST) >= ahead) ?? ZOOMS.at(-1))[1];
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
      look: each.state,
      from: start,
      to: Date.parse(each.ended ?? "") || Math.max(now(), start),
    });
  return { label: each.target, href: `#/operations/${each.id}`, pieces, look: "" };
}

function drawn(lanes, length) {
  const from = now() - length * PAST;
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
