// The fleet overview: totals, the map, live operations, and racks as a table.

import { offer } from "./actions.js";
import { get, may, now, query } from "./api.js";
import { cells, fill, h, head, keyed, setText, soft } from "./dom.js";
import { chip, count, interruption, plural, stateOf, ticking, words } from "./format.js";
import { heatmap } from "./heatmap.js";
import { underWay } from "./maintenances.js";
import { listen, live, sorted, totals } from "./live.js";

const LISTED_MAX = 60;
/** Entries of one kind that are read for the sum of a day. */
const COUNTED_MAX = 200;
const RACKS_LISTED_MAX = 200;

export function fleet(main) {
  let done = new Set();
  const map = heatmap((name) => (location.hash = `#/hosts/${encodeURIComponent(name)}`), {
    marked: (name) => done.has(name),
  });
  const framed = h("p", { className: "soft framed", hidden: true });
  Object.assign(window, { forewarnMap: map }); // for measurements
  const bars = { hosts: bar("Hosts"), vms: bar("VMs", OF_VMS) };
  const going = underWay((names) => {
    done = names;
    framed.hidden = !names.size;
    setText(framed, `${plural(names.size, "host")} done by maintenances under way: framed.`);
    map.redraw();
  });
  const day = sinceYesterday();
  const work = workList();
  const refused = h("ul");
  const refusals = h(
    "section",
    { className: "card", hidden: true, aria: { label: "Refused by the topology" } },
    h("h2", {}, "Refused by the topology"),
    soft("These machines may get no notice."),
    refused,
  );
  const racks = h("tbody");
  const table = h(
    "details",
    { className: "card racks", ontoggle: () => table.open && drawRacks(racks) },
    h("summary", {}, "Zones and racks as a table"),
    h(
      "div",
      { className: "scroll", tabIndex: 0, role: "region", aria: { label: "Zones and racks" } },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            RACK_COLUMNS.map((each) => h("th", { scope: "col" }, each)),
          ),
        ),
        racks,
      ),
    ),
  );
  fill(
    main,
    head("Fleet", offer.fleet()),
    refusals,
    going.element,
    h(
      "section",
      { className: "totals", aria: { label: "Totals" } },
      bars.hosts.element,
      bars.vms.element,
    ),
    h(
      "div",
      { className: "glance" },
      h(
        "section",
        { className: "card map-card", aria: { label: "Map of the hosts" } },
        map.element,
        framed,
      ),
      h("section", { className: "card under-way", aria: { label: "Open work" } }, work.element),
    ),
    day,
    table,
  );
  const draw = () => {
    const found = totals();
    bars.hosts.draw(found.hosts);
    bars.vms.draw(found.vms);
    if (table.open) drawRacks(racks);
  };
  const drawRefusals = () => {
    refusals.hidden = !live.refused.length;
    fill(
      refused,
      live.refused.map((each) => h("li", {}, each)),
    );
  };
  const all = () => {
    draw();
    drawRefusals();
    work.draw();
    map.update();
  };
  if (live.layout >= 0) all();
  const unlisten = listen((what, more) => {
    if (what === "all") all();
    else if (what === "hosts") map.change(more);
    else if (what === "names") map.redraw();
    else if (what === "racks") draw();
    else if (what === "operations") work.draw();
    else if (what === "refused") drawRefusals();
    else if (what === "theme") map.update();
  });
  return () => {
    unlisten();
    going.close();
    map.close();
  };
}

/** What the states of hosts mean for VMs. */
const OF_VMS = { f: "down", r: "disturbed now", h: "undisturbed" };

const DAY_MS = 86_400_000;
/** Actions of history -> what happened, for the sum of a day. */
const OF_A_DAY = [
  ["host.failed", "host", " failed", "bad"],
  ["operation.failed", "operation", " failed", "bad"],
  ["operation.succeeded", "operation", " done", ""],
  ["operation.cancelled", "operation", " cancelled", ""],
  ["maintenance.done", "maintenance", " done", ""],
];

/** Returns parts of a sentence with commas between them. */
const listed = (parts) => parts.flatMap((each, index) => (index ? [", ", each] : [each]));

/** Returns a line with what happened in the last day; the server counts nothing for it. */
function sinceYesterday() {
  const box = h("p", { className: "soft day" });
  if (!may("list_history")) return box;
  const since = now() - DAY_MS;
  const newest = (action) =>
    get(query("/v1/history", { action, order: "newest", limit: COUNTED_MAX }));
  Promise.all(OF_A_DAY.map(([action]) => newest(action)))
    .then((replies) => {
      const parts = replies.flatMap(({ entries }, index) => {
        const [action, noun, verb, look] = OF_A_DAY[index];
        const found = entries.filter((each) => Date.parse(each.at) >= since).length;
        if (!found) return [];
        const more = found === COUNTED_MAX ? " or more" : "";
        const text = `${plural(found, noun)}${more}${verb}`;
        return [h("a", { href: query("#/history", { action }), className: look }, text)];
      });
      const none = "nothing ended, and nothing failed";
      fill(box, "In the last 24 hours: ", parts.length ? listed(parts) : none, ".");
    })
    .catch(() => {});
  return box;
}

function bar(title, names = {}) {
  const total = h("strong");
  const stripe = h("div", { className: "stripe", aria: { hidden: "true" } });
  const legend = h("ul", { className: "legend" });
  const draw = (found) => {
    const sum = Object.values(found).reduce((one, other) => one + other, 0);
    setText(total, count(sum));
    const shown = Object.keys(live.states).filter((letter) => found[letter] || letter === "h");
    keyed(
      stripe,
      shown,
      (each) => each,
      (each) => h("span", { className: `fill-${each}` }),
      (element, each) => {
        const share = sum ? (found[each] ?? 0) / sum : 0;
        element.style.flexGrow = share && Math.max(share, 0.004);
      },
    );
    keyed(
      legend,
      shown,
      (each) => each,
      (each) =>
        h(
          "li",
          {},
          h("span", { className: `dot fill-${each}`, aria: { hidden: "true" } }),
          h("b"),
          ` ${names[each] ?? live.states[each]}`,
        ),
      (element, each) => setText(element.querySelector("b"), count(found[each] ?? 0)),
    );
  };
  return {
    element: h("div", { className: "card total" }, h("h2", {}, title, " ", total), stripe, legend),
    draw,
  };
}

/** List of announced and running operations with countdowns, updated in place. */
export function workList(filter = () => true) {
  const list = h("ol", { className: "work" });
  const title = h("h2", {}, "Open work");
  const more = h("p", { className: "more" });
  const empty = h(
    "div",
    { className: "empty" },
    h("p", {}, "No open work."),
    soft("Planned, announced and running work appears here."),
  );
  const draw = () => {
    const found = sorted().filter(filter);
    const total = Object.values(live.counts).reduce((sum, each) => sum + each, 0);
    keyed(list, found.slice(0, LISTED_MAX), (each) => each.id, row, change);
    empty.hidden = found.length > 0;
    const parts = Object.entries(live.counts).map(([state, each]) => `${count(each)} ${state}`);
    fill(
      more,
      total > LISTED_MAX
        ? h("a", { href: "#/work" }, `All ${plural(total, "operation")}: ${parts.join(", ")}`)
        : "",
    );
  };
  return { element: h("div", {}, title, empty, list, more), draw };
}

function row(each) {
  return h(
    "li",
    { className: "job" },
    h(
      "a",
      { href: `#/operations/${each.id}` },
      h(
        "span",
        { className: "what" },
        chip(each.impact),
        h("b", {}, each.target),
        h("span", { className: "soft" }, words(each.cause)),
      ),
      h("span", { className: "when" }),
    ),
  );
}

function change(element, each) {
  const state = `${each.state} ${each.approved} ${each.asked} ${each.not_before} ${each.alert}`;
  if (element.shown === state) return;
  element.shown = state;
  const when = element.querySelector(".when");
  const asked = each.asked > 1 || each.state === "announced";
  fill(
    when,
    chip(stateOf(each)),
    each.state === "running" && each.started ? ticking(each.started, "started ") : "",
    each.state === "announced" && each.not_before ? ticking(each.not_before, "starts ") : "",
    each.state === "planned" ? h("span", {}, "waits") : "",
    asked && each.state === "announced"
      ? h(
          "span",
          { className: "soft" },
          each.asked ? `${each.approved} of ${each.asked} approved` : "nobody to ask",
        )
      : "",
    h(
      "span",
      { className: "soft" },
      `${plural(each.vm_count, "VM")}, interruption ${interruption(each.duration_s)}`,
    ),
  );
}

const RACK_COLUMNS = [
  "Zone",
  "Rack",
  "Hosts",
  "VMs",
  "Announced",
  "Running",
  "Failed",
  "Blocked, overdue or stuck",
];

function drawRacks(body) {
  const shown = live.racks.slice(0, RACKS_LISTED_MAX).map((rack, index) => ({ rack, index }));
  const sum = (counts, letters) =>
    count([...letters].reduce((total, letter) => total + (counts[letter] ?? 0), 0));
  keyed(
    body,
    shown,
    (each) => each.index,
    () => h("tr"),
    (element, { rack }) => {
      const text = JSON.stringify(rack);
      if (element.shown === text) return;
      element.shown = text;
      const hosts = Object.values(rack.hosts).reduce((one, other) => one + other, 0);
      const names = rack.first === rack.last ? rack.first : `${rack.first} to ${rack.last}`;
      fill(
        element,
        cells(RACK_COLUMNS, [
          rack.zone || "—",
          names,
          count(hosts),
          count(rack.vms),
          sum(rack.hosts, "a"),
          sum(rack.hosts, "r"),
          sum(rack.hosts, "f"),
          sum(rack.hosts, "sob"),
        ]),
      );
    },
  );
}
