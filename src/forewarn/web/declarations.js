// Declared maintenances: for each resource what happens without a choice, and until when to choose.

import { act, button, dialog, rowButton } from "./actions.js";
import { call, get, getList, may, now, part, query } from "./api.js";
import { fill, h, head, labelled, press, section, soft, table } from "./dom.js";
import {
  chip,
  interruption,
  link,
  moment,
  naturally,
  plural,
  span,
  ticking,
  words,
} from "./format.js";
import { kept } from "./records.js";
import { ticketTable } from "./tickets.js";

/** Resources of one declaration that the view shows. */
const SHOWN_MAX = 200;

/** The first view of an owner: declared and announced work, with the choices of the owner. */
export const home = (main) => declarations(main, "Home");

export function declarations(main, title = "Declared maintenances") {
  return kept(main, {
    read: async () => {
      const [reply, events, tickets] = await Promise.all([
        may("list_declarations") ? get("/v1/declarations") : { declarations: [] },
        title === "Home" ? getList("/v1/events", {}, "events") : { records: [] },
        may("list_tickets") ? getList("/v1/tickets", { live: true }, "tickets", "before") : null,
      ]);
      return { ...reply, events: events.records, tickets: tickets?.records };
    },
    concerns: () => true,
    often: true,
    draw: ({ declarations: found, events, tickets }) =>
      fill(
        main,
        head(title, may("open_ticket") ? button("open_ticket", "Report a fault", "", report) : ""),
        found.length ? found.map(declaration) : section("Declared", soft(NOTHING)),
        title === "Home" ? section("Announced work", announced(events)) : "",
        tickets ? section("Tickets", ticketTable(tickets)) : "",
      ),
  });
}

const NOTHING = "Nothing is declared: no work waits for a choice of its owner.";

const report = () => act("open_ticket", { label: "Report a fault" });

/** Lists the events of the caller's groups, the next start first. */
function announced(events) {
  if (!events.length) return soft("None.");
  const start = (each) => Date.parse(each.not_before ?? "") || 0;
  return table(
    "Announced work",
    ["Group", "Work", "Starts", "VMs", "State", "Action"],
    events
      .toSorted((one, other) => start(one) - start(other))
      .map((each) => [
        link("groups", each.group),
        [chip(each.type), " ", link("operations", each.operation)],
        each.not_before
          ? [moment(each.not_before), " ", ticking(each.not_before)]
          : "under way or unknown",
        each.resources.map((name) => [link("vms", name), " "]),
        chip(each.state),
        each.state === "scheduled"
          ? rowButton("approve_operation", "Approve", { name: each.id, object: each.group })
          : "",
      ]),
  );
}

function declaration(each) {
  const resources = each.resources.toSorted(
    (one, other) => naturally(one.owner, other.owner) || naturally(one.host, other.host),
  );
  const more = resources.length - SHOWN_MAX;
  return section(
    [
      `${words(each.cause)}: ${each.reason || "no reason given"} `,
      h(
        "span",
        { className: "soft" },
        may("list_maintenances") ? link("maintenances", each.id) : each.id,
      ),
    ],
    h(
      "p",
      {},
      chip(each.severity, each.severity === "routine" ? "" : "blocked"),
      ` Each host is worked on for ${span(each.window_s * 1000)}; VMs are interrupted: `,
      `${interruption(each.interruption_s)}. Choose by `,
      moment(each.hand_back_deadline),
      " ",
      ticking(each.hand_back_deadline),
      ".",
    ),
    table(
      `Resources of ${each.id}`,
      ["Host", "Owner", "VMs", "If you do nothing", "Choice", "Action"],
      resources
        .slice(0, SHOWN_MAX)
        .map((one) => [
          may("list_hosts") ? link("hosts", one.host) : one.host,
          one.owner || "no owner",
          one.vms.map((name) => [link("vms", name), " "]),
          otherwise(one),
          chosen(one),
          choice(each, one),
        ]),
    ),
    more > 0 ? soft(`${plural(more, "more resource")}: see \`forewarn declaration show\`.`) : "",
  );
}

const OVER = {
  announced: "The work is announced.",
  started: "The work has started.",
  done: "The work is done.",
  failed: "The work has failed.",
};

/** Says what happens without a choice. */
function otherwise(one) {
  if (OVER[one.state]) return [OVER[one.state], one.start ? [" ", moment(one.start)] : ""];
  if (!one.start) return ["The work starts some time after ", moment(one.hand_back_deadline), "."];
  return ["The work starts at ", moment(one.start), " ", ticking(one.start), "."];
}

const DECISIONS = { now: "as soon as possible", release: "handed back: at any time" };

function chosen(one) {
  if (!one.decision) return "none";
  const when = one.chosen_start ? moment(one.chosen_start) : (DECISIONS[one.decision] ?? "");
  return [when, one.chosen_by ? h("div", { className: "soft" }, `by ${one.chosen_by}`) : ""];
}

function choice(each, one) {
  if (OVER[one.state] || !may("choose_starts")) return "";
  return button(
    "choose_starts",
    "Choose",
    "small",
    () => choose(each, one),
    `Choose for ${one.host}`,
  );
}

/** Opens the choice of a start, with the openings as a calendar. */
async function choose(each, one) {
  const path = `/v1/declarations/${part(each.id)}`;
  const found = may("list_openings")
    ? await get(query(`${path}/openings`, { host: one.host })).catch(() => null)
    : null;
  const at = h("input", {
    id: "choice-at",
    name: "at",
    placeholder: "+4h, or 2027-01-15T08:00:00Z",
  });
  const what = h(
    "select",
    { id: "choice-what" },
    h("option", { value: "at" }, "Start at a time"),
    h("option", { value: "now" }, "Start as soon as possible"),
    h("option", { value: "release" }, "Hand back: start at any time"),
  );
  const approve = h("input", { id: "choice-approve", type: "checkbox" });
  const field = labelled(at, "Start");
  what.addEventListener("change", () => (field.hidden = what.value !== "at"));
  const enter = (text) => {
    what.value = "at";
    field.hidden = false;
    at.value = text;
    at.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const form = () => ({
    host: one.host,
    ...(what.value === "at" ? { at: at.value.trim() } : { [what.value]: true }),
    ...(approve.checked ? { approve: true } : {}),
  });
  const send = (dry) =>
    call("POST", `${path}/choices`, { choices: [form()], ...(dry ? { dry_run: true } : {}) });
  dialog({
    title: `When ${one.host} is worked on`,
    text: `For ${one.vms.join(", ")}. Without a choice by the deadline, the work follows the plan.`,
    confirm: "Choose",
    extra: [
      labelled(what, "Choice"),
      field,
      h(
        "div",
        { className: "field check" },
        approve,
        h("label", { htmlFor: approve.id }, "Also approve the event in advance"),
      ),
      found ? openings(found.openings, enter) : "",
    ],
    plan: async () => {
      if (what.value === "at" && !at.value.trim())
        return soft("Enter a start, or press an opening.");
      const { results } = await send(true);
      return results.map((result) =>
        result.possible
          ? h("p", {}, "Possible.")
          : [h("p", { className: "bad" }, result.text), openings(result.openings, enter)],
      );
    },
    ask: () => send(false),
    done: () => dispatchEvent(new Event("acted")),
  });
}

/** Shows the openings by day; pressing one enters its earliest start. */
function openings(list, enter) {
  const days = new Map();
  for (const each of list) {
    const day = each.start.slice(0, 10);
    days.set(day, [...(days.get(day) ?? []), each]);
  }
  if (!days.size) return soft("No opening before the work's deadline.");
  return h(
    "div",
    { className: "openings" },
    [...days].map(([day, found]) =>
      h(
        "div",
        { className: "opening-day" },
        h("h3", {}, day),
        found.map((each) =>
          press(
            [
              each.start.slice(11, 16),
              each.latest && each.latest !== each.start
                ? ` to ${each.latest.slice(0, 16).replace("T", " ")}`
                : "",
              each.room === null ? "" : `, room for ${each.room}`,
            ].join(""),
            () =>
              enter(Date.parse(each.start) < now() ? new Date(now()).toISOString() : each.start),
            { spoken: `Start at ${each.start}`, data: { opening: each.start } },
          ),
        ),
      ),
    ),
  );
}
