// Tickets of break-fix work: a list, and one ticket with its dialogue.

import { rowButton } from "./actions.js";
import { get, getList, may, part } from "./api.js";
import { buttonGroup, fill, h, head, section, soft, table } from "./dom.js";
import { reportButton } from "./faults.js";
import { chip, link, moment, words } from "./format.js";
import { facts, kept } from "./records.js";

/** Route -> label of an action on a live ticket. */
const MOVES = {
  answer_ticket: "Answer",
  ask_ticket: "Ask back",
  work_ticket: "Take up",
  resolve_ticket: "Resolve",
  refuse_ticket: "Refuse",
  link_ticket: "Link",
  close_ticket: "Close",
};

const COLUMNS = ["Ticket", "About", "State", "Owners", "What is wrong", "Opened", "Work"];

export function ticketTable(tickets) {
  if (!tickets.length) return soft("No tickets.");
  return table(
    "Tickets",
    COLUMNS,
    tickets.map((each) => [
      [link("tickets", each.id), " ", h("span", { className: "soft" }, words(each.type))],
      target(each),
      chip(words(each.state), each.state),
      each.owners.join(", ") || "—",
      each.description,
      moment(each.opened),
      link("operations", each.operation) || "—",
    ]),
  );
}

const target = ({ target_kind: kind, target: name }) =>
  kind === "host" || kind === "vm" ? link(`${kind}s`, name) : `${kind} ${name}`;

export function tickets(main) {
  return kept(main, {
    read: () => getList("/v1/tickets", {}, "tickets", "before"),
    concerns: () => true,
    often: true,
    draw: ({ records, more }) =>
      fill(
        main,
        head(
          "Tickets",
          may("ask_ticket") // owners only report
            ? rowButton("open_ticket", "Open a ticket", { object: "" })
            : reportButton(),
        ),
        section(
          "All tickets",
          ticketTable(records),
          more ? soft("Older tickets are left out.") : "",
        ),
      ),
  });
}

export function ticket(main, id) {
  return kept(main, {
    read: () => get(`/v1/tickets/${part(id)}`),
    concerns: () => true,
    often: true,
    draw: (each) =>
      fill(
        main,
        head(
          [
            `${words(each.type)} about ${each.target}`,
            " ",
            h("span", { className: "soft" }, each.id),
          ],
          each.type !== "report" && !may("ask_ticket") // owners act on reports
            ? ""
            : buttonGroup(
                `Actions on ${each.id}`,
                Object.entries(each.closed ? { reopen_ticket: "Reopen" } : MOVES).map(
                  ([route, label]) => rowButton(route, label, { name: each.id }),
                ),
              ),
        ),
        h(
          "div",
          { className: "columns" },
          section(
            "Facts",
            facts([
              ["State", chip(words(each.state), each.state)],
              ["About", target(each)],
              ["Host", link("hosts", each.host)],
              ["Part", words(each.category)],
              ["Owners", each.owners.join(", ")],
              ["What is wrong", each.description],
              [
                "Evidence",
                each.evidence && h("pre", { className: "document", tabIndex: 0 }, each.evidence),
              ],
              ["Done", each.action],
              ["Opened", [moment(each.opened), ` by ${each.actor}`]],
              ["Closed", each.closed ? moment(each.closed) : ""],
              ["Due", each.due ? moment(each.due) : ""],
              ["Work", link("operations", each.operation)],
              ["Maintenance", link("maintenances", each.maintenance)],
              ["Hardware", each.hardware],
              ["External id", each.external],
            ]),
          ),
          section(
            "Dialogue",
            each.texts.length
              ? h(
                  "ol",
                  { className: "plain-list" },
                  each.texts.map((one) =>
                    h(
                      "li",
                      {},
                      h("b", {}, one.by),
                      " ",
                      h("span", { className: "soft" }, moment(one.at)),
                      h("p", {}, one.text),
                    ),
                  ),
                )
              : soft("No texts."),
          ),
        ),
      ),
  });
}
