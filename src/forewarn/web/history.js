// View of history with filters, newest entry first.

import { described } from "./actions.js";
import { get, may, query } from "./api.js";
import { fill, framed, h, head, soft } from "./dom.js";
import { link, linked, moment } from "./format.js";
import { listen } from "./live.js";

const PAGE = 100;
const SHORT = 25;

function row(each) {
  return h(
    "tr",
    {},
    h("td", { className: "when-cell" }, moment(each.at)),
    h(
      "td",
      {},
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

const table = (body) => framed("History", ["When", "What", "Action"], body, "history");

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

const FILTERS = [
  ["host", "Host"],
  ["vm", "VM"],
  ["group", "Group"],
  ["operation", "Operation"],
  ["event", "Event"],
  ["action", "Action"],
];

export async function history(main, asked) {
  const filter = Object.fromEntries(FILTERS.map(([name]) => [name, asked.get(name) ?? ""]));
  const actions = await knownActions();
  const form = h(
    "form",
    { className: "filters", role: "search", aria: { label: "Filters of history" } },
    FILTERS.map(([name, label]) =>
      h(
        "label",
        {},
        label,
        name === "action"
          ? h(
              "select",
              { name },
              h("option", { value: "" }, "any"),
              actions.map((each) => h("option", { selected: each === filter.action }, each)),
            )
          : h("input", { name, value: filter[name], autocomplete: "off", spellcheck: false }),
      ),
    ),
    h("button", { type: "submit" }, "Filter"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = query("#/history", Object.fromEntries(new FormData(form)));
  });
  const body = h("tbody");
  const more = h("button", { type: "button", className: "plain" }, "Older");
  const refusal = h("p", { role: "alert" });
  let before = "",
    newest = 0;
  const read = async () => {
    try {
      const reply = await get(
        query("/v1/history", { ...filter, order: "newest", limit: PAGE, before }),
      );
      newest ||= reply.entries[0]?.sequence ?? 0;
      body.append(...reply.entries.map(row));
      before = reply.next ?? "";
      more.hidden = !reply.next;
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
    h("section", { className: "card" }, form, refusal, table(body), more),
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
      body.prepend(...reply.entries.reverse().map(row));
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
