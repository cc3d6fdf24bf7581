// View of history: one search box, a chip for each filter, a time range, and a heading for each day.

import { described } from "./actions.js";
import { get, may, now, query } from "./api.js";
import { fill, framed, h, head, note, soft } from "./dom.js";
import { link, linked, moment, stamp } from "./format.js";
import { listen } from "./live.js";
import { search, suggest } from "./suggest.js";

const PAGE = 100;
const SHORT = 25;
const HOUR = 3_600_000;
/** Name of a time range in the address -> its label and length in hours; 0: all of history. */
const RANGES = {
  hour: ["Hour", 1],
  day: ["Day", 24],
  week: ["Week", 7 * 24],
  month: ["30 days", 30 * 24],
  all: ["All", 0],
};
/** Member of a filter -> its label. */
const FILTERS = {
  host: "Host",
  vm: "VM",
  group: "Group",
  operation: "Operation",
  event: "Event",
  action: "Action",
};
/**
 * Part of an action's name -> icon and colour; other actions have a dot.
 * @type {[RegExp, string, string][]}
 */
const ICONS = [
  [/failed|stuck|damaged|refused/, "✕", "bad"],
  [/overdue|blocked|late|unannounced|not-shown|suspended|paused|stopped|expired/, "!", "warn"],
  [/succeeded|done|passed|over$|healthy|given/, "✓", "good"],
  [/cancelled|removed|revoked|withdrawn|dropped|aborted|disabled/, "–", ""],
  [/added|created|granted|enabled|opened|planned|asked/, "+", ""],
  [/started|begun|resumed|retried|applied/, "▶", ""],
  [/announced|shown|renewed|postponed|put-off/, "◷", ""],
  [/approved|counted/, "☑", "good"],
];

function iconOf(action) {
  const [, icon, look] = ICONS.find(([shape]) => shape.test(action)) ?? [null, "·", ""];
  return h("span", { className: `entry-icon ${look}`, aria: { hidden: "true" } }, icon);
}

function row(each) {
  return h(
    "tr",
    {},
    h("td", { className: "when-cell" }, moment(each.at)),
    h(
      "td",
      {},
      iconOf(each.action),
      linked(each.text),
      h(
        "div",
        { className: "soft" },
        each.actor,
        each.operation ? [" · ", link("operations", each.operation)] : "",
        each.vm ? [" · ", link("vms", each.vm)] : "",
        each.host ? [" · ", link("hosts", each.host)] : "",
      ),
    ),
    h("td", {}, h("code", {}, each.action)),
  );
}

const table = (body, label = "History") =>
  framed(label, ["When", "What", "Action"], body, "history");

/** Shows the latest entries about one object. */
export function historyOf(filter) {
  const body = h("tbody");
  const box = h(
    "div",
    {},
    table(body),
    h("p", {}, h("a", { href: query("#/history", filter) }, "All history")),
  );
  get(query("/v1/history", { ...filter, order: "newest", limit: SHORT }))
    .then((reply) => fill(body, reply.entries.map(row)))
    .catch((error) => fill(box, soft(error.message)));
  return box;
}

/** A list of entries, newest first, with a heading and a table for each day. */
function dayList() {
  const element = h("div", { className: "days" });
  const days = new Map();
  const bodyOf = (at, first) => {
    const [day] = stamp(Date.parse(at));
    if (!days.has(day)) {
      const body = h("tbody");
      const name = new Date(`${day}T12:00:00Z`).toLocaleDateString("en", {
        weekday: "long",
        timeZone: "UTC",
      });
      const box = h(
        "section",
        {},
        h("h2", {}, `${name}, ${day}`),
        table(body, `History of ${day}`),
      );
      if (first) element.prepend(box);
      else element.append(box);
      days.set(day, body);
    }
    return days.get(day);
  };
  return {
    element,
    append: (entries) => entries.forEach((each) => bodyOf(each.at, false).append(row(each))),
    prepend: (entries) => entries.forEach((each) => bodyOf(each.at, true).prepend(row(each))),
  };
}

export async function history(main, asked) {
  const filter = Object.fromEntries(
    Object.keys(FILTERS)
      .filter((name) => asked.get(name))
      .map((name) => [name, asked.get(name)]),
  );
  const range = RANGES[asked.get("range")] ? asked.get("range") : "all";
  const [, hours] = RANGES[range];
  const since = hours ? new Date(now() - hours * HOUR).toISOString() : "";
  const actions = await knownActions();
  const address = (change) => query("#/history", { ...filter, range, ...change });
  const go = (change) => (location.hash = address(change));
  const input = h("input", {
    id: "history-find",
    type: "search",
    placeholder: "A host, VM, group, operation, event or action",
    autocomplete: "off",
    spellcheck: false,
    aria: { label: "Filter history" },
  });
  const form = h(
    "form",
    { className: "filters", role: "search", aria: { label: "Filters of history" } },
    h("div", { className: "history-find" }, input),
    h(
      "nav",
      { className: "tabs", aria: { label: "Time range" } },
      Object.entries(RANGES).map(([name, [label]]) =>
        h(
          "a",
          { href: address({ range: name }), aria: name === range ? { current: "page" } : {} },
          label,
        ),
      ),
    ),
  );
  const find = async (text) => {
    const lower = text.toLowerCase();
    const names = actions.filter((each) => each.includes(lower)).slice(0, 5);
    const found = await search(text).catch(() => []);
    return [
      ...found.filter((each) => each.kind in FILTERS),
      ...names.map((name) => ({ kind: "action", name })),
    ];
  };
  suggest(input, find, ({ kind, name }) => go({ [kind]: name }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (!text) return;
    const [, kind, name] = /^(\w+):(.+)$/.exec(text) ?? [];
    if (kind in FILTERS) go({ [kind]: name.trim() });
    else if (/^[0-9a-f-]{36}$/i.test(text)) go({ event: text });
    else {
      const found = await find(text);
      const best = found.find((each) => each.name === text) ?? found[0];
      if (best) go({ [best.kind]: best.name });
      else note(`Nothing is named ${text}.`, "refused");
    }
  });
  const chips = Object.entries(filter).map(([name, value]) =>
    h(
      "a",
      {
        className: "chip removable",
        href: address({ [name]: "" }),
        aria: { label: `Remove the filter ${FILTERS[name]} ${value}` },
      },
      `${FILTERS[name]} ${value} ×`,
    ),
  );
  const days = dayList();
  const more = h("button", { type: "button", className: "plain" }, "Older");
  const refusal = h("p", { role: "alert" });
  const empty = soft("Nothing happened in this time.");
  empty.hidden = true;
  let before = "",
    newest = 0;
  const read = async () => {
    try {
      const reply = await get(
        query("/v1/history", { ...filter, since, order: "newest", limit: PAGE, before }),
      );
      newest ||= reply.entries[0]?.sequence ?? 0;
      days.append(reply.entries);
      before = reply.next ?? "";
      more.hidden = !reply.next;
      empty.hidden = Boolean(newest);
    } catch (error) {
      fill(refusal, h("b", {}, error.message), " ", error.advice);
      more.hidden = true;
    }
  };
  more.addEventListener("click", read);
  fill(
    main,
    head(
      "History",
      may("list_outcomes")
        ? h("a", { href: "#/report" }, "Report: late, short notice, failed")
        : "",
    ),
    h(
      "section",
      { className: "card" },
      form,
      chips.length ? h("p", { className: "chips" }, chips) : "",
      refusal,
      empty,
      days.element,
      more,
    ),
  );
  await read();
  let waiting = null;
  const unlisten = listen((what) => {
    if ((what !== "operations" && what !== "all") || waiting) return;
    waiting = setTimeout(async () => {
      waiting = null;
      const reply = await get(
        query("/v1/history", { ...filter, after: newest, limit: PAGE }),
      ).catch(() => ({ entries: [] }));
      if (!reply.entries.length) return;
      newest = reply.entries.at(-1).sequence;
      empty.hidden = true;
      days.prepend(reply.entries);
    }, 300);
  });
  return unlisten;
}

let actions = null;

async function knownActions() {
  if (!actions) {
    const { reply } = await described();
    const parameters = reply.paths["/v1/history"].get.parameters;
    const { schema } = parameters.find((each) => each.name === "action");
    actions = schema.oneOf.map((each) => each.const);
  }
  return actions;
}
