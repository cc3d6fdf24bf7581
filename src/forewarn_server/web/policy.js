// View of the maintenance policy with its windows.

import { button, dialog } from "./actions.js";
import { call, get, getText, query } from "./api.js";
import { commandOfText } from "./commands.js";
import { fill, h, head, labelled, note, section, soft, table } from "./dom.js";
import { moment, span, stamp } from "./format.js";
import { kept } from "./records.js";

const DAYS = 14;
const DAY = 86400000;

export function policy(main) {
  return kept(main, {
    read: async () => {
      const [windows, text] = await Promise.all([
        get(query("/v1/windows", { days: DAYS })),
        getText("/v1/policy?format=toml"),
      ]);
      return { windows, text };
    },
    concerns: () => false,
    draw: ({ windows, text }) =>
      fill(
        main,
        head(
          "Policy",
          button("apply_policy", "Change policy", "first", () => change(text)),
        ),
        section(
          `When work may run in the next ${DAYS} days`,
          calendar(windows),
          table(
            "Open times",
            ["Window", "Hosts", "Opens", "Closes", "For"],
            windows.spans.map((each) => [
              each.window || "always",
              each.hosts || "every host",
              moment(each.opens),
              moment(each.closes),
              span(Date.parse(each.closes) - Date.parse(each.opens)),
            ]),
          ),
        ),
        section(
          "Policy in force",
          text.trim()
            ? h("pre", { className: "document", tabIndex: 0, aria: { label: "Policy" } }, text)
            : soft("Empty: only the guarantees that always hold."),
        ),
      ),
  });
}

/** Shows one row for each window, with a column for each day and filled open times. */
function calendar({ from, to, spans }) {
  const [start, end] = [Date.parse(from), Date.parse(to)];
  const names = [...new Set(spans.map((each) => each.window))];
  const share = (at) => ((Date.parse(at) - start) / (end - start)) * 100;
  return h(
    "div",
    { className: "timeline calendar", aria: { hidden: "true" } },
    h(
      "div",
      { className: "lane axis" },
      h("span", { className: "lane-name soft" }, stamp(start)[2]),
      h("span", { className: "track" }, dayTicks(start, end)),
    ),
    names.map((name) =>
      h(
        "div",
        { className: "lane" },
        h("span", { className: "lane-name" }, name || "always"),
        h(
          "span",
          { className: "track" },
          spans
            .filter((each) => each.window === name)
            .map((each) => {
              const piece = h("span", { className: "piece open" });
              piece.style.left = `${share(each.opens)}%`;
              piece.style.width = `${share(each.closes) - share(each.opens)}%`;
              return piece;
            }),
        ),
      ),
    ),
  );
}

/** Returns the days of a calendar, which begin at midnight in the selected zone. */
function dayTicks(start, end) {
  const [day, time] = stamp(start);
  const midnight = start - (Date.parse(`${day}T${time}Z`) - Date.parse(day));
  const ticks = [];
  for (let at = midnight + DAY; at < end; at += DAY) {
    const tick = h("span", { className: "tick" }, stamp(at)[0].slice(5));
    tick.style.left = `${((at - start) / (end - start)) * 100}%`;
    ticks.push(tick);
  }
  return ticks;
}

/** Edits the policy as a TOML file, with a preview of the changes. */
function change(before) {
  const text = h("textarea", { id: "policy-text", rows: 16, spellcheck: false });
  text.value = before;
  const send = (dry) =>
    call("PUT", query("/v1/policy", { dry_run: dry ? "true" : "" }), text.value, {
      media: "application/toml",
    });
  const members = (reply) => reply.changed.join(", ") || "nothing";
  dialog({
    title: "Change the policy",
    text: "Running maintenances get a new plan that follows the new policy.",
    confirm: "Apply policy",
    extra: [labelled(text, "Policy (TOML)")],
    preview: async () => h("p", {}, `This would change: ${members(await send(true))}.`),
    ask: () => send(false),
    command: () => commandOfText("apply_policy", "toml", text.value),
    done: (reply) => {
      note(`Policy changed: ${members(reply)}.`);
      dispatchEvent(new Event("acted"));
    },
  });
}
