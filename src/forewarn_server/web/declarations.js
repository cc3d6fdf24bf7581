// Declared maintenances: for each resource what happens without a choice, and until when to choose.

import { button, rowButton } from "./actions.js";
import { get, getList, getText, may } from "./api.js";
import { choose } from "./choices.js";
import { askLater, deferralOf, orderOf } from "./deferrals.js";
import { buttonGroup, fill, h, head, note, press, section, soft, table } from "./dom.js";
import { reportButton } from "./faults.js";
import { chip, link, moment, naturally, plural, span, ticking, words } from "./format.js";
import { kept } from "./records.js";
import { save } from "./report.js";
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
        head(
          title,
          buttonGroup(
            title,
            found.length ? press("Calendar file", calendar, { look: "" }) : "",
            reportButton(),
          ),
        ),
        found.length ? found.map(declaration) : section("Declared", soft(NOTHING)),
        title === "Home" ? section("Announced work", announced(events)) : "",
        tickets
          ? section(
              "Tickets",
              tickets.length ? ticketTable(tickets) : soft("No open tickets."),
              h("p", {}, h("a", { href: "#/tickets" }, "All tickets")),
            )
          : "",
      ),
  });
}

/** Saves the declared maintenances for a calendar program. */
const calendar = () =>
  getText("/v1/declarations.ics").then(
    (text) => save("declared-maintenance.ics", "text/calendar", text),
    (error) => note(error.message, "refused"),
  );

const NOTHING = "Nothing is declared: no work waits for a choice of its owner.";

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
  const all = may("list_maintenances"); // the caller sees more than one owner
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
      ` Each host is worked on for ${span(each.window_s * 1000)}; VMs are ${interrupted(each)}. `,
      "Choose by ",
      moment(each.hand_back_deadline),
      " ",
      ticking(each.hand_back_deadline),
      ".",
      missing(resources),
    ),
    orderOf(each),
    table(
      `Resources of ${each.id}`,
      ["Host", ...(all ? ["Owner"] : []), "VMs", "State", "If you do nothing", "Action"],
      resources
        .slice(0, SHOWN_MAX)
        .map((one) => [
          may("list_hosts") ? link("hosts", one.host) : one.host,
          ...(all ? [one.owner || "no owner"] : []),
          one.vms.map((name) => [link("vms", name), " "]),
          chip(words(one.state), LOOKS[one.state] ?? one.state),
          h("div", {}, happens(each, one), deferralOf(each, one)),
          actions(each, one),
        ]),
    ),
    more > 0 ? soft(`${plural(more, "more resource")}: see \`forewarn declaration show\`.`) : "",
  );
}

const interrupted = ({ interruption_s: seconds }) =>
  seconds > 0
    ? `interrupted for ${span(seconds * 1000)}`
    : seconds === 0
      ? "not interrupted"
      : "interrupted for as long as the work lasts";

/** State -> how its chip looks. */
const LOOKS = { open: "waiting", due: "waiting", displaced: "failed" };
/** States in which the owner can no longer choose. */
const OVER = new Set(["announced", "started", "done", "failed", "due"]);

/** Says how many resources wait for a choice. */
function missing(resources) {
  const counts = ["open", "displaced"].map(
    (state) => resources.filter((one) => one.state === state).length,
  );
  const parts = [
    counts[0] ? `${plural(counts[0], "host")} without a choice` : "",
    counts[1] ? `${plural(counts[1], "host")} whose chosen time cannot be kept` : "",
  ].filter(Boolean);
  return parts.length ? h("b", {}, ` ${parts.join(", ")}.`) : "";
}

/** Says what happens to a resource if nobody does anything more. */
function happens(each, one) {
  const start = one.start ? [moment(one.start), " ", ticking(one.start)] : "";
  const planned = start
    ? ["The work starts at ", start, "."]
    : one.decision === "now"
      ? "The work starts as soon as other work of the maintenance has ended."
      : ["The work starts some time after ", moment(one.hand_back_deadline), "."];
  const choice = one.chosen_start ? moment(one.chosen_start) : "as soon as possible";
  const approved = one.approves ? "; the choice approves the event" : "";
  const by = one.chosen_by ? soft(`Chosen by ${one.chosen_by}${approved}.`) : "";
  switch (one.state) {
    case "announced":
      return ["The work is announced: it starts at ", start || "an unknown time", "."];
    case "started":
      return ["The work has started", start ? [": ", moment(one.start)] : "", "."];
    case "done":
      return "The work is done.";
    case "failed":
      return "The work has failed.";
    case "displaced":
      return [
        "No plan can keep ",
        choice,
        " any more: choose again. ",
        one.start && one.start !== one.chosen_start ? planned : "",
        by,
      ];
    case "waiting-for-other-work":
      return [
        "You chose ",
        choice,
        ", but other owners on the host have not chosen the same. Otherwise: after ",
        moment(one.hand_back_deadline),
        ".",
        by,
      ];
    case "released":
      return ["Handed back: the work may start at any time.", by];
    case "held":
      return ["Held after the test: no choice counts until the hand-back deadline. ", planned, by];
    case "withdrawn":
      return "The maintenance has ended without work on this host.";
    case "due":
      return ["The deadline has passed. ", planned, by];
    default:
      return [planned, by];
  }
}

function actions(each, one) {
  const found = [action(each, one), later(each, one)].filter(Boolean);
  return found.length ? buttonGroup(`Actions on ${one.host}`, found) : "";
}

const later = (each, one) =>
  OVER.has(one.state) || one.deferral?.state === "asked" || each.severity === "emergency"
    ? ""
    : button(
        "ask_deferral",
        "Ask for a later deadline",
        "small",
        () => askLater(each, one),
        `Ask for a later deadline for ${one.owner ? `${one.owner} on ` : ""}${one.host}`,
      );

function action(each, one) {
  if (OVER.has(one.state) || !may("choose_starts")) return "";
  return button(
    "choose_starts",
    one.decision ? "Choose again" : "Choose a time",
    "small",
    () => choose(each, one).catch((error) => note(error.message, "refused")),
    `Choose a time for ${one.owner ? `${one.owner} on ` : ""}${one.host}`,
  );
}
