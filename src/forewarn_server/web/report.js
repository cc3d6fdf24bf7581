// Report of a month's events: by owner, and with filters for late starts, short notice and failures.

import { get, getList, now, query } from "./api.js";
import { bars, columns } from "./charts.js";
import { buttonGroup, coded, fill, h, head, press, section, soft, table } from "./dom.js";
import { chip, count, interruption, link, moment, span } from "./format.js";

const ROWS_MAX = 500;
const DAY = 86400000;

const short = (each) =>
  ["on-time", "late"].includes(each.start) && (each.notice_given_s ?? 0) < each.notice_promised_s;
/** Name of a filter in the address -> its label and condition. */
const SELECTIONS = {
  all: { label: "All", fits: () => true },
  late: { label: "Late", fits: (each) => each.start === "late" },
  short: { label: "Short notice", fits: short },
  failed: { label: "Failed", fits: (each) => each.result === "failed" },
};

/** The month `back` months before a day, as `2026-10`. */
export function monthOf(ms, back = 0) {
  const day = new Date(ms);
  return new Date(Date.UTC(day.getUTCFullYear(), day.getUTCMonth() - back))
    .toISOString()
    .slice(0, 7);
}

/** Returns the month that an address asks for, or the present one, with a message if it is none. */
export function askedMonth(asked) {
  const text = asked.get("month") ?? "";
  const month = monthOf(now());
  if (!text || /^\d{4}-(0[1-9]|1[0-2])$/.test(text)) return [text || month, ""];
  const wrong = h("p", { className: "bad", role: "alert" });
  return [
    month,
    fill(wrong, `${text} is not a month; ${month} is shown. Write a month as 2026-10.`),
  ];
}

/** Returns the begin of a month, and its end or now. */
export function monthSpan(month) {
  const from = `${month}-01T00:00:00Z`;
  const end = Date.parse(`${monthOf(Date.parse(from) + 32 * DAY)}-01T00:00:00Z`);
  return { from, to: new Date(Math.min(end, Math.floor(now() / 1000) * 1000)).toISOString() };
}

/** Reads how promises were kept in a month, by owner or day; null if the fleet is too large. */
function promisesOf(month, owner, by) {
  const { from, to } = monthSpan(month);
  if (Date.parse(from) > now()) return Promise.resolve(null);
  return get(query("/v1/promises", { from, to, owner, by })).catch(() => null);
}

/** Shows for each owner how many events started with their notice, and how VMs were disturbed. */
function byOwner(found, outcomes) {
  const parts = found?.parts.filter((each) => each.events) ?? [];
  if (!parts.length || !outcomes.length) return "";
  const rows = parts.map((each) => ({
    label: each.name || "no owner",
    text: [
      `${count(each.with_notice)} of ${count(each.promised)} with notice`,
      each.approval_median_ms === null
        ? ""
        : `approved after ${span(each.approval_median_ms)} (median)`,
      `each VM disturbed for ${span(each.disturbed_per_vm_ms ?? 0)}`,
    ]
      .filter(Boolean)
      .join(", "),
    parts: [
      { look: "done", value: each.with_notice },
      { look: "f", value: each.promised - each.with_notice },
      { look: "h", value: each.events - each.promised },
    ],
  }));
  return section("Events by owner", bars("Events by owner", rows));
}

/** Shows for each day how long VMs were disturbed, and how soon events were approved. */
function byDay(found) {
  const days = found?.parts ?? [];
  const disturbed = days.reduce((sum, each) => sum + each.disturbed_ms, 0);
  if (!disturbed) return "";
  const column = (value, text) => (each) => ({
    title: `${each.from.slice(0, 10)}: ${text(each)}`,
    label: each.from.slice(5, 10),
    value: value(each) ?? 0,
  });
  const approved = days.some((each) => each.approval_median_ms !== null);
  return h(
    "div",
    { className: "columns" },
    section(
      "Disturbed time of VMs by day",
      columns(
        `VMs were disturbed for ${span(disturbed)} in total.`,
        days.map(
          column(
            (each) => each.disturbed_ms,
            (each) => span(each.disturbed_ms),
          ),
        ),
      ),
    ),
    approved
      ? section(
          "Time until approval by day",
          columns(
            `Median of the month: ${span(found.total.approval_median_ms)}.`,
            days.map(
              column(
                (each) => each.approval_median_ms,
                (each) =>
                  each.approval_median_ms === null
                    ? "no approval"
                    : `median ${span(each.approval_median_ms)}`,
              ),
            ),
            "a",
          ),
        )
      : "",
  );
}

/** Saves a text as a file. */
export function save(name, media, text) {
  const url = URL.createObjectURL(new Blob([text], { type: media }));
  h("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

/** Offers the events of the report as files, which the browser makes itself. */
function downloads(month, events) {
  const cell = (value) => {
    const text = Array.isArray(value) ? value.join(" ") : String(value ?? "");
    const safe = /^[=+@\t\r-]/.test(text) ? `'${text}` : text; // a spreadsheet must not compute it
    return `"${safe.replaceAll('"', '""')}"`;
  };
  const csv = () => {
    const titles = Object.keys(events[0] ?? {});
    return [titles, ...events.map((each) => titles.map((name) => each[name]))]
      .map((line) => line.map(cell).join(","))
      .join("\r\n");
  };
  return buttonGroup(
    "Download",
    press("Download CSV", () => save(`events-${month}.csv`, "text/csv", csv()), {
      data: { download: "csv" },
    }),
    press(
      "Download JSON",
      () => save(`events-${month}.json`, "application/json", JSON.stringify(events, null, 2)),
      { data: { download: "json" } },
    ),
  );
}

/** Reads the outcomes of a month; the command line reports larger months. */
function outcomesOf(month, owner) {
  const since = `${month}-01T00:00:00Z`;
  const until = `${monthOf(Date.parse(since) + 32 * DAY)}-01T00:00:00Z`;
  return getList("/v1/outcomes", { since, until, owner }, "outcomes", "before");
}

export async function report(main, asked) {
  const months = [monthOf(now()), monthOf(now(), 1)];
  const [month, wrong] = askedMonth(asked);
  const owner = asked.get("owner") ?? "";
  const only = SELECTIONS[asked.get("only")] ? asked.get("only") : "all";
  const address = (change) => query("#/report", { month, owner, only, ...change });
  const tab = (label, current, change) =>
    h("a", { href: address(change), aria: current ? { current: "page" } : {} }, label);
  const form = h(
    "form",
    { className: "filters", role: "search", aria: { label: "Filters of the report" } },
    h(
      "label",
      {},
      "Month",
      h("input", { name: "month", value: month, placeholder: "2026-10", autocomplete: "off" }),
    ),
    h("label", {}, "Owner", h("input", { name: "owner", value: owner, autocomplete: "off" })),
    h("button", { type: "submit" }, "Filter"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = address(Object.fromEntries(new FormData(form)));
  });
  const [{ records: outcomes, more }, ofOwners, ofDays] = await Promise.all([
    outcomesOf(month, owner),
    promisesOf(month, owner, "owner"),
    promisesOf(month, owner, "day"),
  ]);
  const selected = outcomes.filter(SELECTIONS[only].fits);
  fill(
    main,
    head(
      `Events of ${month}`,
      h(
        "nav",
        { className: "tabs", aria: { label: "Months" } },
        tab("This month", month === months[0], { month: months[0] }),
        tab("Last month", month === months[1], { month: months[1] }),
        h("a", { href: query("#/availability", { month, owner }) }, "Availability"),
      ),
    ),
    byOwner(ofOwners, outcomes),
    byDay(ofDays),
    h(
      "section",
      { className: "card" },
      form,
      wrong,
      h(
        "nav",
        { className: "tabs", aria: { label: "Selections" } },
        Object.entries(SELECTIONS).map(([name, { label, fits }]) =>
          tab(`${label} ${count(outcomes.filter(fits).length)}`, name === only, { only: name }),
        ),
      ),
      selected.length ? downloads(month, selected) : "",
      selected.length
        ? table("Events", COLUMNS, selected.slice(0, ROWS_MAX).map(row))
        : soft(outcomes.length ? "None." : "No events ended."),
      soft(
        more || selected.length > ROWS_MAX ? "Some events are not shown. " : "",
        coded("`forewarn event report` writes the whole report, also as a CSV or HTML file."),
      ),
    ),
  );
}

const COLUMNS = [
  "Group",
  "Operation",
  "Work",
  "Started",
  "Notice",
  "Approved by",
  "Ended",
  "Result",
];

/** Says how long an event was Started, and for how long its VMs were interrupted. */
function lasted(each) {
  if (each.lasted_s === null) return "";
  const started = `Started for ${interruption(each.lasted_s)}`;
  return each.interruption_ms === null
    ? started
    : `${started}, interrupted for ${span(each.interruption_ms)}`;
}

function row(each) {
  const late = each.start === "late" ? Date.parse(each.started) - Date.parse(each.not_before) : 0;
  return [
    link("groups", each.group),
    [link("operations", each.operation), " of ", link("hosts", each.host)],
    chip(each.type),
    [
      each.started ? [moment(each.started), " "] : "",
      chip(late ? `${span(late)} late` : each.start, each.start === "late" ? "failed" : ""),
    ],
    each.notice_given_s === null
      ? "—"
      : `${interruption(each.notice_given_s)} of ${interruption(each.notice_promised_s)}`,
    each.approved_by.join(", ") || (each.not_asked ? "not asked" : "nobody"),
    [moment(each.ended), h("div", { className: "soft" }, lasted(each))],
    [chip(each.result), each.reason ? h("div", { className: "soft" }, each.reason) : ""],
  ];
}
