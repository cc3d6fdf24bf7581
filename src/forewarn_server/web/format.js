// Formats times, durations and words for people.

import { now } from "./api.js";
import { coded, h } from "./dom.js";

/** Formats milliseconds as `9 s`, `4 min 09 s`, `1 h 04 min`, `3 d 2 h` or `3 d`. */
export function span(ms) {
  const seconds = Math.max(Math.round(ms / 1000), 0);
  const [days, hours, minutes] = [
    Math.floor(seconds / 86400),
    Math.floor(seconds / 3600) % 24,
    Math.floor(seconds / 60) % 60,
  ];
  if (days) return hours ? `${days} d ${hours} h` : `${days} d`;
  if (hours) return `${hours} h ${String(minutes).padStart(2, "0")} min`;
  if (minutes) return `${minutes} min ${String(seconds % 60).padStart(2, "0")} s`;
  return `${seconds} s`;
}

/** Formats the time until or since a moment. */
export function countdown(text) {
  const ms = Date.parse(text) - now();
  return ms >= 0 ? `in ${span(ms)}` : `${span(-ms)} ago`;
}

const ZONE = "forewarn-zone";

/** Whether the page shows times in this machine's zone instead of UTC. */
export const isLocal = () => localStorage.getItem(ZONE) === "local";

/** Switches every time on the page between UTC and local time. */
export function switchZone() {
  localStorage.setItem(ZONE, isLocal() ? "utc" : "local");
}

/** Formats a moment in the selected zone, with the date unless it is today. */
export function moment(text) {
  if (!text) return "—";
  const [day, time, zone] = stamp(Date.parse(text));
  return h(
    "time",
    { dateTime: text },
    `${day === stamp(now())[0] ? "" : `${day} `}${time} ${zone}`,
  );
}

/** Returns date, time and zone of milliseconds: `2026-11-21`, `03:15:00`, `UTC` or `UTC+02:00`. */
export function stamp(ms) {
  const ahead = isLocal() ? -new Date(ms).getTimezoneOffset() : 0;
  const text = new Date(ms + ahead * 60000).toISOString();
  const two = (number) => String(Math.trunc(number)).padStart(2, "0");
  const size = Math.abs(ahead);
  const offset = isLocal() ? `${ahead < 0 ? "-" : "+"}${two(size / 60)}:${two(size % 60)}` : "";
  return [text.slice(0, 10), text.slice(11, 19), `UTC${offset}`];
}

/** Returns a time with its zone, as the API reads it. */
export function written(ms) {
  const [day, time, zone] = stamp(ms);
  return `${day}T${time}${zone.slice(3) || "Z"}`;
}

/** Returns a running countdown. */
export function ticking(text, prefix = "") {
  return h(
    "span",
    { className: "ticking", data: { until: text, prefix } },
    prefix + countdown(text),
  );
}

export { naturally } from "./arrange.js";

/** Updates every countdown on the page. */
export function tick() {
  for (const each of /** @type {NodeListOf<HTMLElement>} */ (
    document.querySelectorAll(".ticking")
  )) {
    const text = each.dataset.prefix + countdown(each.dataset.until);
    if (each.textContent !== text) each.firstChild.nodeValue = text;
  }
}

/** Formats an event's interruption, in seconds. */
export function interruption(seconds) {
  if (seconds < 0) return "unknown";
  return seconds === 0 ? "none" : span(seconds * 1000);
}

export const count = (number) => number.toLocaleString("en");

export const plural = (number, word, many = `${word}s`) =>
  `${count(number)} ${number === 1 ? word : many}`;

/** `host-reboot` -> `Host reboot`. */
export const words = (text) =>
  (text.charAt(0).toUpperCase() + text.slice(1).replaceAll("-", " ")).replace(
    /\bvm(?=s?\b)/gi,
    "VM",
  );

/** Whether an operation stands for a failed host, whose VMs are down. */
export const isFailure = (each) => each.cause === "hardware-failure" && each.state === "running";

/** Returns an operation's state, or its trouble: blocked, overdue, stuck or down. */
export const stateOf = (each) => {
  if (each.alert !== "none") return each.alert;
  return isFailure(each) ? "down" : each.state;
};

/** Returns a small coloured label for a state or an impact. */
export const chip = (text, kind = text) =>
  h("span", { className: `chip ${String(kind).toLowerCase()}` }, text);

export const link = (kind, name, text = name) =>
  name ? h("a", { href: `#/${kind}/${encodeURIComponent(name)}` }, text) : "";

/** Returns a sentence as nodes: backticks mark code, and ids of operations and maintenances are links. */
export const linked = (text) =>
  coded(text, (plain) =>
    plain
      .split(/\b(op-\d+|m-\d+)\b/)
      .map((each, index) =>
        index % 2 ? link(each.startsWith("op") ? "operations" : "maintenances", each) : each,
      ),
  );
