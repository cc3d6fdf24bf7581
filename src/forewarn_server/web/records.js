// Views of a host, VM, group or operation, and lists of these records.

import { buttons, mainButton } from "./actions.js";
import { allowed, get, getText, part, query } from "./api.js";
import { cells, fill, framed, h, head, keepFocus, section, soft, table, unpressed } from "./dom.js";
import { reportButton } from "./faults.js";
import {
  chip,
  count,
  interruption,
  link,
  linked,
  moment,
  naturally,
  plural,
  stateOf,
  ticking,
  words,
} from "./format.js";
import { historyOf } from "./history.js";
import { isWrong, listen, sorted } from "./live.js";
import { remindButton } from "./reminders.js";
import { plansOf, timeline } from "./timeline.js";

const LIST_LIMIT = 100;
/** Pages of a list that sorting and filtering read. */
const PAGES_MAX = 50;
const WORK_LIMIT = 30;

/** Shows a view that reads its records again after their changes and after each action. */
export async function kept(main, { read, concerns, draw, often = false }) {
  let running = false,
    dirty = false,
    gone = false,
    shown = "";
  const failure = h("section", { className: "card", role: "alert" });
  const again = async () => {
    if (running) {
      dirty = true;
      return;
    }
    running = true;
    try {
      const found = await read();
      await unpressed();
      const text = JSON.stringify(found);
      if (!gone && text !== shown) keepFocus(main, () => draw(found));
      shown = text;
      failure.remove();
    } catch (error) {
      if (!gone && !main.querySelector("h1")) refused(main, error);
      else if (!gone && !shown)
        main.append(fill(failure, h("p", {}, error.message), soft(error.advice ?? "")));
    }
    running = false;
    if (dirty && !gone) {
      dirty = false;
      setTimeout(again, 150);
    }
  };
  const unlisten = listen((what, operations) => {
    if (
      what === "all" ||
      (what === "operations" && operations.some(concerns)) ||
      (often && what === "time")
    )
      again();
  });
  addEventListener("acted", again);
  await again();
  return () => {
    gone = true;
    removeEventListener("acted", again);
    unlisten();
  };
}

export function refused(main, error) {
  fill(
    main,
    h(
      "div",
      { className: "card empty" },
      h("h1", {}, error.message),
      soft(error.advice ?? ""),
      h("p", {}, h("a", { href: "#/" }, "Back to the first view")),
    ),
  );
}

/** Returns a list of names and values, without empty values. */
export const facts = (rows) =>
  h(
    "dl",
    { className: "facts" },
    rows
      .filter(
        ([, value]) =>
          value !== null && value !== undefined && value !== false && value.length !== 0,
      )
      .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );

/** Returns labels or tags as one text. */
const pairs = (map) =>
  Object.entries(map)
    .map(([key, value]) => `${key}=${value}`)
    .join(", ");

const names = (kind, list, most = 60) =>
  list.length
    ? [
        list
          .toSorted(naturally)
          .slice(0, most)
          .map((each) => [link(kind, each), " "]),
        list.length > most ? `and ${count(list.length - most)} more` : "",
      ]
    : "none";

const OPERATION_COLUMNS = ["Operation", "What", "Of", "Maintenance", "State", "When", "VMs"];

/** Returns a table of operations. */
export function operationTable(operations, label) {
  if (!operations.length) return soft("None.");
  return table(
    label,
    OPERATION_COLUMNS,
    operations.map((each) => [
      link("operations", each.id),
      [chip(each.impact), " ", words(each.cause)],
      link(`${each.target_kind}s`, each.target),
      link("maintenances", each.maintenance) || "—",
      chip(stateOf(each)),
      whenOf(each),
      count(each.vms.length),
    ]),
  );
}

function whenOf(each) {
  if (each.ended) return ["ended ", moment(each.ended)];
  if (each.started) return ticking(each.started, "started ");
  if (each.not_before) return ticking(each.not_before, "starts ");
  return "waits";
}

// --- an operation -----------------------------------------------------------------------------

export function operation(main, id) {
  return kept(main, {
    read: async () => {
      const [reply, why] = await Promise.all([
        get(`/v1/operations/${part(id)}`),
        allowed(get(query("/v1/why", { id })), { blockers: [] }),
      ]);
      return { ...reply, blockers: why.blockers };
    },
    concerns: (each) => each.id === id,
    draw: ({ operation: each, events, blockers }) =>
      fill(
        main,
        head(
          [
            `${words(each.cause)} of ${each.target}`,
            " ",
            h("span", { className: "soft" }, each.id),
          ],
          buttons("operations", each.id, each),
        ),
        h(
          "div",
          { className: "columns" },
          section(
            "Progress",
            life(each),
            each.reason ? h("p", { className: "reason" }, each.reason) : "",
            facts([
              ["State", chip(stateOf(each))],
              ["Impact", chip(each.impact)],
              ["Maintenance", link("maintenances", each.maintenance)],
              ["Requested by", each.actor],
              ["Source", each.source],
              [
                each.target_kind === "vm" ? "VM" : "Host",
                link(`${each.target_kind}s`, each.target),
              ],
              ["Host", each.target_kind === "host" ? "" : link("hosts", each.host)],
              ["VMs", names("vms", each.vms)],
              ["Notice", interruption(each.notice_s)],
              [
                "Not before",
                each.not_before ? [moment(each.not_before), " ", ticking(each.not_before)] : "",
              ],
              ["Interruption", interruption(each.duration_s)],
              ["Destination", link("hosts", each.destination)],
              ["Description", each.description],
              ["Attempt", each.attempt || ""],
            ]),
          ),
          h(
            "section",
            { className: "card", aria: { live: "polite" } },
            h("h2", {}, "Why it waits"),
            whyOf(each, blockers),
            h("h2", {}, "Events"),
            events.length
              ? events.map((event) => eventCard({ ...event, maintenance: each.maintenance }))
              : soft(
                  each.silent
                    ? "None: no group of these VMs polls for events."
                    : "None until the operation is announced.",
                ),
          ),
        ),
        section("History", historyOf({ operation: each.id })),
      ),
  });
}

function whyOf(each, blockers) {
  if (each.ended) return soft("The operation has ended.");
  if (!blockers.length) return soft("No blockers.");
  return h(
    "ul",
    { className: "why" },
    blockers.map((one) =>
      h(
        "li",
        {},
        h("b", {}, linked(one.text)),
        one.clears
          ? [" ", h("span", { className: "soft" }, "at the latest ", ticking(one.clears))]
          : "",
      ),
    ),
  );
}

/** Shows the states of an operation; past states are filled. */
function life(each) {
  const last = each.ended ? [words(each.state), each.ended] : ["Ended", null];
  const stations = [
    ["Requested", each.created],
    ["Announced", each.announced],
    ["Started", each.started],
    last,
  ];
  return h(
    "ol",
    { className: "life" },
    stations.map(([name, at]) =>
      h(
        "li",
        { className: at ? "past" : "" },
        h("b", {}, name),
        at
          ? moment(at)
          : h(
              "span",
              { className: "soft" },
              name === "Started" && each.not_before ? ticking(each.not_before) : "not yet",
            ),
      ),
    ),
  );
}

function eventCard(event) {
  const live_ = event.shown_as === "Scheduled";
  return h(
    "article",
    { className: "event" },
    h(
      "header",
      {},
      chip(event.state),
      h("b", {}, link("groups", event.group)),
      h("code", {}, event.id),
    ),
    facts([
      [
        "VMs see",
        event.shown_as
          ? `${event.shown_as}, NotBefore ${event.shown_not_before || "empty"}`
          : "no event any more",
      ],
      ["Resources", names("vms", event.resources, 20)],
      [
        "Approved by",
        event.state === "approved" && !event.approved_by.length
          ? "an operator or the policy, see History"
          : names("vms", event.approved_by, 20),
      ],
    ]),
    live_ && event.state === "scheduled"
      ? buttons("events", event.id, event, { object: `the event of ${event.group}` })
      : "",
  );
}

// --- hosts, VMs, groups -----------------------------------------------------------------------

const workOn = (filter) => get(query("/v1/operations", { ...filter, limit: WORK_LIMIT }));

/** Shows the newest operations on a record. */
const workTable = (work, name) => [
  operationTable(work.operations, `Work on ${name}`),
  work.next ? soft(`Only the newest ${WORK_LIMIT} operations are shown.`) : "",
];

/** Shows one record with its facts, its work and its history. */
function record(main, kind, name, { concerns, title, factsOf }) {
  const kinds = `${kind}s`;
  return kept(main, {
    read: async () => ({
      each: await get(`/v1/${kinds}/${part(name)}`),
      work: await allowed(workOn({ [kind]: name }), { operations: [] }),
    }),
    concerns,
    draw: ({ each, work }) =>
      fill(
        main,
        head(
          title(each),
          kind === "host"
            ? mainButton(kinds, name, each, reportButton({ kind, target: name }))
            : buttons(kinds, name, each),
        ),
        h(
          "div",
          { className: "columns with-work" },
          section("Facts", facts(factsOf(each))),
          section("Work", workTable(work, name)),
        ),
        section("History", historyOf({ [kind]: name })),
      ),
  });
}

export const host = (main, name) =>
  record(main, "host", name, {
    concerns: (each) => each.host === name || each.target === name,
    title: (each) => [`Host ${name}`, " ", chip(each.health)],
    factsOf: (each) => [
      ["Zone", each.zone || "—"],
      ["Fault domain", each.fault_domain],
      ["Update domain", each.update_domain],
      ["Memory for VMs", mebibytes(each)],
      ["Driver", each.driver || "the service's default"],
      ["Labels", pairs(each.labels)],
      ["VMs", names("vms", each.vms)],
    ],
  });

export const group = (main, name) =>
  record(main, "group", name, {
    concerns: () => true,
    title: () => `Group ${name}`,
    factsOf: (each) => [
      ["Kind", each.kind],
      ["Owner", each.owner || "—"],
      ["All VMs must approve", each.strict_approval ? "yes" : "no"],
      ["Approved automatically", each.automatic_approval.join(", ") || "nothing"],
      ["Notice of a deletion", each.terminate_notice === "PT0S" ? "none" : each.terminate_notice],
      ["Polls for events", polling(each)],
      ["VMs", names("vms", each.vms)],
    ],
  });

let versions = null;
let chosenVersion = "";

export async function vm(main, name) {
  versions ??= (await get("/v1/version")).api_versions;
  chosenVersion ||= versions.at(-1);
  return kept(main, {
    read: async () => {
      const [record, work, document] = await Promise.all([
        get(`/v1/vms/${part(name)}`),
        workOn({ vm: name }),
        documentOf(name),
      ]);
      return { record, work, document };
    },
    concerns: () => true,
    draw: ({ record: each, work, document }) => {
      const text = h(
        "pre",
        { className: "document", tabIndex: 0, aria: { label: `The document of ${name}` } },
        pretty(document),
      );
      const choose = h(
        "select",
        {
          id: "api-version",
          onchange: async () => {
            chosenVersion = choose.value;
            fill(text, pretty(await documentOf(name)));
          },
        },
        [...versions]
          .reverse()
          .map((version) => h("option", { selected: version === chosenVersion }, version)),
      );
      if (main.dataset.shows === `vm ${name}`) {
        fill(main.querySelector(".document"), pretty(document));
        fill(main.querySelector(".vm-work"), workTable(work, name));
        return;
      }
      main.dataset.shows = `vm ${name}`;
      fill(
        main,
        head(
          `VM ${name}`,
          mainButton("vms", name, each, reportButton({ kind: "vm", target: name })),
        ),
        h(
          "div",
          { className: "columns" },
          h(
            "section",
            { className: "card" },
            h(
              "div",
              { className: "head" },
              h("h2", {}, "What the VM reads"),
              h("label", { className: "inline" }, "api-version ", choose),
            ),
            text,
          ),
          section(
            "Facts",
            facts([
              ["Host", link("hosts", each.host)],
              ["Group", link("groups", each.group)],
              ["Its group polls", polling(each)],
              ["Size", each.size],
              ["Memory", mebibytes(each)],
              ["Spot", each.spot ? "yes" : "no"],
              ["Addresses", each.addresses.join(", ")],
              ["System", each.os_type],
              ["Tags", pairs(each.tags)],
            ]),
            h("h2", {}, "Work"),
            h("div", { className: "vm-work" }, workTable(work, name)),
          ),
        ),
        section("History", historyOf({ vm: name })),
      );
    },
  });
}

const documentOf = (name) =>
  getText(query("/v1/documents", { vm: name, "api-version": chosenVersion }));
const pretty = (text) => JSON.stringify(JSON.parse(text), null, 2);

// --- lists ------------------------------------------------------------------------------------

/** Shows a machine's memory; a plan moves VMs only if the memory is known. */
const mebibytes = (each) => (each.memory_mib ? `${each.memory_mib} MiB` : "unknown");

/** Shows whether a group or VM polls, with the time and client of its last poll. */
const polling = (each) =>
  each.enabled
    ? [
        each.polled ? ["last poll ", moment(each.polled)] : "no poll yet",
        h("div", { className: "quiet" }, each.client ?? each.clients.join(", ")),
      ]
    : chip("does not poll", "not-asked");

/** Shows the states of the urgent work that concerns a record. */
const workOf = (concerned) => {
  const found = sorted().filter(concerned);
  const shown = found.slice(0, 2).map((each) => [chip(stateOf(each)), " "]);
  return found.length ? shown : "—";
};

/** Whether an operation is about a VM, or about its whole host. */
const concerns = (operation, vm) =>
  operation.target_kind === "host" || operation.target === vm.name;

const COLUMNS = {
  hosts: [
    ["Host", (each) => link("hosts", each.name)],
    ["Zone", (each) => each.zone || "—"],
    ["Fault domain", (each) => each.fault_domain],
    ["Health", (each) => chip(each.health)],
    ["Work", (each) => workOf((one) => one.host === each.name)],
    ["VMs", (each) => plural(each.vms.length, "VM")],
    ["Labels", (each) => pairs(each.labels) || "—"],
  ],
  vms: [
    ["VM", (each) => link("vms", each.name)],
    ["Host", (each) => link("hosts", each.host)],
    ["Group", (each) => link("groups", each.group)],
    ["Work", (each) => workOf((one) => one.host === each.host && concerns(one, each))],
    ["Polls", polling],
    ["Size", (each) => each.size || "—"],
    ["Addresses", (each) => each.addresses.join(", ") || "—"],
  ],
  groups: [
    ["Group", (each) => link("groups", each.name)],
    ["Kind", (each) => each.kind],
    ["Owner", (each) => each.owner || "—"],
    ["Polls", polling],
    ["VMs", (each) => plural(each.vms.length, "VM")],
  ],
};

export async function list(main, kind, asked) {
  const silent = kind === "groups" && asked.get("enabled") === "false";
  const body = h("tbody");
  const titles = COLUMNS[kind].map(([title]) => title);
  const more = h("button", { type: "button", className: "plain", hidden: true }, "More");
  const empty = soft("Loading…");
  let after = "";
  const read = async () => {
    const reply = await get(
      query(`/v1/${kind}`, { after, limit: LIST_LIMIT, enabled: silent ? "false" : "" }),
    );
    body.append(
      ...reply[kind]
        .sort((one, other) => naturally(one.name, other.name))
        .map((each) =>
          h(
            "tr",
            {},
            cells(
              titles,
              COLUMNS[kind].map(([, show]) => show(each)),
            ),
          ),
        ),
    );
    after = reply.next;
    more.hidden = !reply.next;
    empty.textContent = "None.";
    empty.hidden = body.rows.length > 0;
  };
  more.addEventListener("click", read);
  /** Reads the rest of the list, because the order and the filter are about all of it. */
  const rest = async () => {
    for (let pages = 1; !more.hidden && pages < PAGES_MAX; pages += 1) await read();
  };
  const tabs = Object.keys(COLUMNS).map((each) =>
    h(
      "a",
      { href: `#/${each}`, aria: each === kind && !silent ? { current: "page" } : {} },
      words(each),
    ),
  );
  tabs.push(
    h(
      "a",
      { href: "#/groups?enabled=false", aria: silent ? { current: "page" } : {} },
      "Not polling",
    ),
  );
  fill(
    main,
    head(
      silent ? "Groups that do not poll" : words(kind),
      h("nav", { className: "tabs", aria: { label: "Lists" } }, tabs),
    ),
    h("section", { className: "card" }, framed(words(kind), titles, body), empty, more),
  );
  await read();
  const reading = () => (busy ??= rest().finally(() => (busy = null)));
  let busy = null;
  const table = body.closest("table");
  table.addEventListener("arrange", reading);
  if (location.hash.includes(`${words(kind)}=`)) reading();
}

// --- all work ---------------------------------------------------------------------------------

const STATES = ["live", "planned", "announced", "running", "succeeded", "failed", "cancelled"];

export async function work(main, asked) {
  const state = asked.get("state") ?? "live";
  const filter = state === "live" ? { live: "true" } : { state };
  const choose = h(
    "nav",
    { className: "tabs", aria: { label: "States" } },
    STATES.map((each) =>
      h(
        "a",
        { href: `#/work?state=${each}`, aria: each === state ? { current: "page" } : {} },
        words(each),
      ),
    ),
  );
  const box = h("div", {}, soft("Loading…"));
  const more = h("button", { type: "button", className: "plain", hidden: true }, "Older");
  const line = timeline();
  let before = "";
  const read = async () => {
    const [reply, plans] = await Promise.all([
      get(query("/v1/operations", { ...filter, limit: 100, before })),
      plansOf(state),
    ]);
    const urgent = (one, other) => Number(isWrong(other)) - Number(isWrong(one));
    return {
      ...reply,
      operations: state === "live" ? reply.operations.toSorted(urgent) : reply.operations,
      plans,
    };
  };
  const draw = (reply) => {
    line.draw(reply.operations, reply.plans);
    fill(box, operationTable(reply.operations, "Operations"));
    more.hidden = !reply.next;
    more.onclick = async () => {
      before = reply.next;
      draw(await read());
    };
  };
  fill(
    main,
    head(
      "Work",
      choose,
      state === "announced"
        ? remindButton("Remind owners", "Remind the owners of events that are not approved")
        : "",
    ),
    h("section", { className: "card" }, line.element, box, more),
  );
  const leave = await kept(main, { read, concerns: () => before === "", draw });
  return () => {
    leave();
    line.close();
  };
}
