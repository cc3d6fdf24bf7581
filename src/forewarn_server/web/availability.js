// Availability of VMs in a month, with each disturbance and its event.

import { get, may, now, query } from "./api.js";
import { fill, h, head, section, soft, table } from "./dom.js";
import { chip, link, moment, plural, span } from "./format.js";
import { askedMonth, monthOf, monthSpan } from "./report.js";

/** VMs and disturbances that the view shows; the command line lists all. */
const ROWS_MAX = 500;

const percent = (value) => (value === null ? "—" : `${value} %`);

export async function availability(main, asked) {
  const months = [monthOf(now()), monthOf(now(), 1)];
  const [month, wrong] = askedMonth(asked);
  const owner = asked.get("owner") ?? "";
  const address = (change) => query("#/availability", { month, owner, ...change });
  const tab = (label, other) =>
    h(
      "a",
      { href: address({ month: other }), aria: other === month ? { current: "page" } : {} },
      label,
    );
  const form = h(
    "form",
    { className: "filters", role: "search", aria: { label: "Month and owner" } },
    h(
      "label",
      {},
      "Month",
      h("input", { name: "month", value: month, placeholder: "2026-10", autocomplete: "off" }),
    ),
    may("list_maintenances")
      ? h("label", {}, "Owner", h("input", { name: "owner", value: owner, autocomplete: "off" }))
      : "",
    h("button", { type: "submit" }, "Show"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = address(Object.fromEntries(new FormData(form)));
  });
  const shown = await get(query("/v1/availability", { ...monthSpan(month), owner })).then(
    found,
    (error) => section("No figures", h("p", {}, error.message), soft(error.advice)),
  );
  fill(
    main,
    head(
      `Availability in ${month}`,
      h(
        "nav",
        { className: "tabs", aria: { label: "Months" } },
        tab("This month", months[0]),
        tab("Last month", months[1]),
      ),
    ),
    h("section", { className: "card" }, form, wrong, shown),
  );
}

function found(reply) {
  const vms = reply.vms.toSorted((one, other) => other.disturbed_ms - one.disturbed_ms);
  const times = reply.disturbances.toSorted((one, other) => (one.from < other.from ? 1 : -1));
  const left = Math.max(vms.length, times.length) > ROWS_MAX;
  if (!vms.length) return soft("No records for this month.");
  return [
    h(
      "p",
      { className: "big-clock" },
      percent(reply.available_percent),
      h("span", { className: "soft" }, " available"),
    ),
    h(
      "p",
      {},
      `${plural(vms.length, "VM")}, disturbed for ${span(reply.disturbed_ms)} of ${span(reply.counted_ms)} in total, from `,
      moment(reply.from),
      " to ",
      moment(reply.to),
      ".",
    ),
    vms.length
      ? table(
          "VMs",
          ["VM", "Group", "Owner", "Available", "Disturbed", "Counted"],
          vms
            .slice(0, ROWS_MAX)
            .map((each) => [
              link("vms", each.vm),
              link("groups", each.group),
              each.owner || "no owner",
              percent(each.available_percent),
              span(each.disturbed_ms),
              span(each.counted_ms),
            ]),
        )
      : "",
    h("h2", {}, "Disturbances"),
    times.length
      ? table(
          "Disturbances",
          ["VM", "Work", "From", "To", "Lasted"],
          times
            .slice(0, ROWS_MAX)
            .map((each) => [
              link("vms", each.vm),
              [chip(each.type), " ", link("operations", each.operation)],
              moment(each.from),
              moment(each.to),
              [span(each.ms), each.measured ? " (measured)" : ""],
            ]),
        )
      : soft("None."),
    soft(
      left ? "Some rows are not shown. " : "",
      h("code", {}, "forewarn availability"),
      " has the same figures, and exports the records behind them.",
    ),
  ];
}
