// Views of maintenances: waves, blockers and progress.

import { act, button, buttons, rowButton, unasked } from "./actions.js";
import { call, get, getList, may, now as time, part, query } from "./api.js";
import { lines } from "./charts.js";
import { deferralsWaiting } from "./confirmations.js";
import { fill, h, head, keepFocus, note, section, soft, table, unpressed } from "./dom.js";
import {
  chip,
  count,
  interruption,
  link,
  linked,
  moment,
  naturally,
  plural,
  ticking,
  words,
} from "./format.js";
import { roomOf, roomPicture } from "./moves.js";
import { listen } from "./live.js";
import { facts as factList, kept } from "./records.js";
import { remindButton } from "./reminders.js";
import { waveChart } from "./timeline.js";

const LIST_LIMIT = 100;
const HOSTS_SHOWN_MAX = 40;
const BLOCKED_SHOWN_MAX = 100;

/** Shows the progress of a maintenance as a bar and in words. */
function progress(each) {
  const left = Math.max(each.hosts - each.done - each.announced - each.running - each.failed, 0);
  const parts = [
    ["done", each.done],
    ["r", each.running],
    ["a", each.announced],
    ["f", each.failed],
    ["h", left],
  ];
  const stripe = h(
    "div",
    { className: "stripe", aria: { hidden: "true" } },
    parts
      .filter(([, number]) => number)
      .map(([name, number]) => {
        const element = h("span", { className: `fill-${name}` });
        element.style.flexGrow = number;
        return element;
      }),
  );
  const others = ["announced", "running", "failed"]
    .filter((state) => each[state])
    .map((state) => `${count(each[state])} ${state}`);
  return h(
    "div",
    { className: "progress" },
    stripe,
    h(
      "span",
      { className: "soft" },
      [`${count(each.done)} of ${plural(each.hosts, "host")} done`, ...others].join(", "),
    ),
  );
}

export function maintenances(main) {
  const describe = () =>
    act("create_maintenance", {
      label: "New maintenance",
      confirm: "Create draft",
      plan: preview,
      done: (reply) => {
        location.hash = `#/maintenances/${reply.maintenance.id}`;
      },
    });
  const older = h("button", { type: "button", className: "plain" }, "Older");
  let before = "";
  const read = async () => {
    const [reply, asked] = await Promise.all([
      get(query("/v1/maintenances", { limit: LIST_LIMIT, before })),
      may("grant_deferral") ? deferralsWaiting() : "",
    ]);
    return { ...reply, asked };
  };
  const draw = (reply) => {
    older.hidden = !reply.next;
    older.onclick = async () => {
      before = reply.next;
      draw(await read());
    };
    fill(
      main,
      head(
        "Maintenances",
        h(
          "nav",
          { className: "tabs", aria: { label: "Related" } },
          may("list_declarations") ? h("a", { href: "#/declarations" }, "Declared to owners") : "",
          may("list_tickets") ? h("a", { href: "#/tickets" }, "Tickets") : "",
        ),
        button("create_maintenance", "New maintenance", "first", describe),
      ),
      reply.asked ? h("p", {}, h("a", { href: "#/declarations" }, `${reply.asked}.`)) : "",
      reply.maintenances.length
        ? [h("div", { className: "stories" }, reply.maintenances.map(card)), older]
        : h(
            "div",
            { className: "card empty" },
            h("p", {}, "No maintenances."),
            soft(
              "A maintenance is work on many hosts, done in waves that keep every group's fault domains apart.",
            ),
          ),
    );
  };
  return kept(main, { read, concerns: () => true, often: true, draw });
}

/** Maintenances under way that the first page shows. */
const UNDER_WAY_MAX = 6;
/** Milliseconds between two reads of the maintenances under way. */
const REREAD_MS = 1000;

/** Reads the hosts that a maintenance has done; a failed read returns none. */
const doneOf = (each) =>
  getList(`/v1/maintenances/${part(each.id)}/hosts`, {}, "hosts")
    .then(({ records }) => records.filter((one) => one.state === "done").map((one) => one.host))
    .catch(() => []);

/**
 * Returns the maintenances that were started, as cards that follow their changes; `onDone`
 * receives the names of the hosts that they have done, after each change of their number.
 */
export function underWay(onDone = (_names) => {}) {
  let counted = "";
  const readDone = async (found) => {
    const count = found.map((each) => `${each.id} ${each.done}`).join();
    if (count === counted) return;
    counted = count;
    const done = found.filter((each) => each.done);
    onDone(new Set((await Promise.all(done.map(doneOf))).flat()));
  };
  const element = h("section", { hidden: true, aria: { label: "Maintenances under way" } });
  let drawn = "";
  const close = followed(async () => {
    const reply = await get("/v1/maintenances?live=true&limit=100");
    await unpressed();
    const text = JSON.stringify(reply);
    if (text === drawn) return;
    drawn = text;
    const shown = reply.maintenances.filter((each) => each.state !== "draft");
    const more = shown.length > UNDER_WAY_MAX || reply.next;
    readDone(shown.slice(0, UNDER_WAY_MAX));
    element.hidden = !shown.length;
    keepFocus(element, () =>
      fill(
        element,
        h("div", { className: "going" }, shown.slice(0, UNDER_WAY_MAX).map(going)),
        more ? h("p", { className: "more" }, h("a", { href: "#/maintenances" }, "All")) : "",
      ),
    );
  });
  return { element, close };
}

/** Calls a function now, and after changes of work; returns a function that ends this. */
function followed(read) {
  if (!may("list_maintenances")) return () => {};
  let waiting = null;
  const again = () => {
    waiting ??= setTimeout(() => {
      waiting = null;
      read().catch(() => {});
    }, REREAD_MS);
  };
  const unlisten = listen((what) => ["operations", "time", "all"].includes(what) && again());
  addEventListener("acted", again);
  read().catch(() => {});
  return () => {
    clearTimeout(waiting);
    waiting = -1; // an answer that is on its way starts no other read
    removeEventListener("acted", again);
    unlisten();
  };
}

const titleOf = (each) =>
  h(
    "h2",
    {},
    h(
      "a",
      { href: `#/maintenances/${each.id}` },
      `${words(each.cause)}, ${plural(each.hosts, "host")}`,
    ),
    " ",
    h("span", { className: "soft nowrap" }, each.id),
  );

const plannedEnd = (each) =>
  each.expected_end && each.state === "running"
    ? soft("Planned end: ", moment(each.expected_end), " ", ticking(each.expected_end))
    : "";

function card(each) {
  return h(
    "article",
    { className: "card story" },
    titleOf(each),
    h("p", {}, chip(each.state), " ", each.reason),
    progress(each),
    h("p", { className: "now-line" }, now(each)),
    plannedEnd(each),
  );
}

/** Returns a maintenance under way as one row. */
function going(each) {
  return h(
    "article",
    { className: "card story" },
    h("div", {}, titleOf(each), h("p", {}, chip(each.state), " ", each.reason)),
    progress(each),
    h("div", {}, h("p", { className: "now-line" }, now(each)), plannedEnd(each)),
    each.state === "running" ? rowButton("pause_maintenance", "Pause", { name: each.id }) : "",
  );
}

/** Returns one line: the present activity of a maintenance, and its blocker. */
function now({ state, wave, planning, checking, waits_for: waits, ended }) {
  if (ended) return ["Ended ", moment(ended), "."];
  if (HALTED[state]) return waits ? linked(waits.text) : HALTED[state];
  if (planning) return "A plan is being computed.";
  const doing = checking ? "The gate is being checked" : wave ? `Wave ${wave}` : "Between waves";
  return [
    `${doing}. `,
    waits ? linked(waits.text) : "",
    waits?.clears ? [" ", ticking(waits.clears, "At the latest "), "."] : "",
  ];
}

/** Shows the planned waves of a maintenance without creating it. Source: F-2. */
async function preview(values) {
  if (!values.hosts && !values.selector && !values.all)
    return soft("Name hosts, or select them by labels, to see their waves.");
  const reply = await call("POST", "/v1/maintenances/plan", values);
  const { plan, not_asked: groups } = reply;
  const hosts = plan.waves.reduce((sum, wave) => sum + wave.hosts.length, 0);
  return [
    plan.waves.length
      ? h(
          "p",
          {},
          h("b", {}, `${plural(plan.waves.length, "wave")} for ${plural(hosts, "host")}`),
          `; at least ${plural(plan.least_waves, "wave")} needed.`,
        )
      : h("p", {}, h("b", {}, "No wave can be planned now.")),
    unasked(groups),
    blockers(plan.blocked),
    plan.waves.length
      ? table(
          "Waves",
          WAVE_COLUMNS,
          plan.waves.map((one) => wave(one, [])),
          "wave",
        )
      : "",
    roomPicture(reply, Boolean(values.return_vms)),
  ];
}

export async function maintenance(main, id) {
  const chart = waveChart();
  const windows = get(query("/v1/windows", { days: WINDOW_DAYS })).catch(() => ({ spans: [] }));
  const leave = await kept(main, {
    read: () => get(`/v1/maintenances/${part(id)}`),
    concerns: () => true,
    often: true,
    draw: (reply) => {
      const { maintenance: each, waves, approvals } = reply;
      windows.then(({ spans }) => chart.draw(waves, spans));
      fill(
        main,
        head(
          [
            `${words(each.cause)}, ${plural(each.hosts, "host")}`,
            " ",
            h("span", { className: "soft" }, each.id),
          ],
          buttons("maintenances", each.id, each, { own: { postpone_maintenance: postponeSome } }),
        ),
        h(
          "div",
          { className: waves.length ? "columns" : "" },
          whatNow(reply),
          waves.length ? section("Waves over time", chart.element) : "",
        ),
        approvals.length ? section("Approvals", answers(each, approvals)) : "",
        section(
          "Waves",
          burnDown(each, waves),
          waves.length
            ? table(
                "Waves",
                WAVE_COLUMNS,
                waves.map((one) => wave(one, each.postponed)),
                "wave",
              )
            : soft(NO_WAVES[each.state] ?? "No wave is planned yet."),
        ),
        roomOf(each),
        hostsOf(each),
        h(
          "div",
          { className: "columns" },
          section("Facts", facts(each)),
          section(
            "Postponed hosts",
            postponements(each.postponed),
            h("h2", {}, "Plan"),
            changes(each),
          ),
        ),
      );
    },
  });
  return () => {
    leave();
    chart.close();
  };
}

/** Shows the hosts that are left over time: so far, and by the plan. */
function burnDown(each, waves) {
  const at = (text) => Date.parse(text ?? "");
  const from = Math.min(...waves.map((one) => at(one.announced)).filter(Boolean));
  if (waves.length < 2 || !Number.isFinite(from)) return "";
  const present = each.ended ? at(each.ended) : time();
  const over = waves
    .filter((one) => one.ended)
    .sort((one, other) => at(one.ended) - at(other.ended));
  let left = each.hosts;
  /** @type {[number, number][]} */
  const past = [[from, left]];
  for (const one of over) {
    past.push([at(one.ended), left]);
    left -= one.hosts.length;
    past.push([at(one.ended), left]);
  }
  past.push([Math.max(present, past.at(-1)[0]), left]);
  /** @type {[number, number][]} */
  const plan = [past.at(-1)];
  for (const one of waves.filter((wave) => !wave.ended && wave.latest_end)) {
    plan.push([at(one.latest_end), left]);
    left -= one.hosts.length;
    plan.push([at(one.latest_end), left]);
  }
  const to = plan.at(-1)[0];
  const end = each.ended ? "" : `; by the plan ${count(Math.max(left, 0))} at its end`;
  return lines(
    `Hosts left: ${count(past.at(-1)[1])} of ${count(each.hosts)} now${end}.`,
    [
      { look: "done", points: past },
      { look: "p", dashed: true, points: plan },
    ],
    { from, to, now: present },
  );
}

/** Days of open times that the chart of waves can show. */
const WINDOW_DAYS = 31;

const NO_WAVES = {
  paused: "None while paused. Resume the maintenance to get a new plan.",
  stopped: "None while stopped. Resume the maintenance to get a new plan.",
  done: "None.",
  cancelled: "None.",
};
const HALTED = {
  draft: "Draft. Nothing is announced until an operator starts it.",
  paused: "Paused. Nothing more is announced until an operator resumes it.",
  stopped: "Stopped. Nothing more is announced until an operator resumes it.",
};

/** Shows the state of a maintenance, its blocker, and the blocker's times. */
function whatNow({ maintenance: each, blocked, approvals, not_asked: groups }) {
  const waits = each.waits_for;
  const halted = HALTED[each.state];
  const due = approvals
    .filter((one) => one.state === "waiting" || one.state === "approved")
    .map((one) => one.not_before)
    .filter(Boolean)
    .sort()[0];
  return h(
    "section",
    { className: `card now ${each.state}`, aria: { label: "What now" } },
    h("p", { className: "headline" }, chip(each.state), " ", halted ?? each.reason),
    halted && each.reason ? h("p", {}, each.reason) : "",
    progress(each),
    plannedEnd(each),
    waits
      ? h(
          "p",
          { className: "waits" },
          h("b", {}, linked(waits.text)),
          h(
            "span",
            { className: "soft" },
            waits.since ? [" Since ", moment(waits.since), "."] : "",
            !halted && waits.clears
              ? [" Until ", moment(waits.clears), " ", ticking(waits.clears), "."]
              : "",
          ),
        )
      : "",
    !halted && due
      ? h("p", {}, `Wave ${each.wave || 1} starts `, ticking(due), " at the latest.")
      : "",
    !halted && !due && each.next_wave
      ? h("p", {}, "The next wave is announced ", ticking(each.next_wave), ".")
      : "",
    unasked(groups),
    blockers(blocked),
    waits || blocked.length || each.ended ? "" : soft("No blockers."),
  );
}

const APPROVAL_COLUMNS = ["Group", "Answer", "Operation", "Not approved by", "Last poll", "Action"];
const ANSWERS = { "not-asked": "not asked" };
const UNANSWERED = ["waiting", "not-asked"];

/** Shows the groups' answers by owner; owners who have not approved come first. */
function answers(each, approvals) {
  const owners = new Map();
  for (const one of approvals) owners.set(one.owner, [...(owners.get(one.owner) ?? []), one]);
  const open = (list) => list.filter((one) => UNANSWERED.includes(one.state));
  return [...owners]
    .sort(
      ([one, mine], [other, theirs]) =>
        Number(!open(mine).length) - Number(!open(theirs).length) || naturally(one, other),
    )
    .map(([owner, list]) => ownerOf(each, owner, list, open(list)));
}

/** Shows the answers of one owner, with what an operator can do about those that lack. */
function ownerOf(each, owner, list, open) {
  const name = owner || "groups without an owner";
  const waiting = list.filter((one) => one.state === "waiting").length;
  const asked = list.filter((one) => one.state !== "not-asked").length;
  const hosts = [...new Set(open.map((one) => one.host))].toSorted(naturally);
  return h(
    "div",
    { className: "owner" },
    h(
      "div",
      { className: "head" },
      h(
        "h3",
        {},
        owner || "Groups without an owner",
        " ",
        h(
          "span",
          { className: "soft" },
          asked ? `${count(asked - waiting)} of ${count(asked)} approved` : "nobody asked",
        ),
      ),
      open.length
        ? h(
            "div",
            { className: "buttons" },
            remindButton("Remind", `Remind ${name}`, open),
            button(
              "postpone_maintenance",
              "Postpone",
              "small",
              () => postponeFor(each, owner, hosts),
              `Postpone ${owner ? `${each.id} for ${owner}` : each.id}`,
            ),
          )
        : "",
    ),
    approvalTable(name, list),
  );
}

/** Offers the hosts of a maintenance that wait, by rack and on the map. */
async function postponeSome(route, options) {
  try {
    const path = `/v1/maintenances/${part(options.name)}/hosts`;
    const { records } = await getList(path, {}, "hosts");
    act(route, { ...options, among: records.filter((each) => POSTPONABLE.includes(each.state)) });
  } catch (error) {
    note(error.message, "refused");
  }
}

const POSTPONABLE = ["left", "announced"];

/** Offers the hosts of a maintenance that have VMs of an owner, each with a tick. */
async function postponeFor(each, owner, announced) {
  let waiting = [];
  try {
    waiting = owner ? await waitingHosts(each.id, owner) : [];
  } catch (error) {
    note(error.message, "refused");
  }
  const later = waiting.filter(({ host }) => !announced.includes(host));
  act("postpone_maintenance", {
    name: each.id,
    object: owner ? `${each.id} for ${owner}` : each.id,
    label: "Postpone",
    given: owner ? { by: owner } : {},
    choices: {
      hosts: [
        ...announced.map((host) => ({ value: host, label: `${host}, announced` })),
        ...later.map(({ host, wave: number }) => ({
          value: host,
          label: number ? `${host}, wave ${number}` : host,
        })),
      ],
    },
  });
}

/** Returns the hosts of a maintenance without work so far that have VMs of an owner. */
async function waitingHosts(id, owner) {
  const groups = (await getList("/v1/groups", {}, "groups")).records;
  const names = groups.filter((each) => each.owner === owner).map((each) => each.name);
  const [{ records: hosts }, ...vms] = await Promise.all([
    getList(`/v1/maintenances/${part(id)}/hosts`, {}, "hosts"),
    ...names.map((group) => getList("/v1/vms", { group }, "vms")),
  ]);
  const occupied = new Set(vms.flatMap(({ records }) => records.map((each) => each.host)));
  return hosts
    .filter((each) => each.state === "left" && occupied.has(each.host))
    .sort((one, other) => naturally(one.host, other.host));
}

function approvalTable(name, approvals) {
  const order = ["waiting", "not-asked", "approved", "started"];
  const sorted = approvals.toSorted(
    (one, other) =>
      order.indexOf(one.state) - order.indexOf(other.state) || naturally(one.group, other.group),
  );
  return table(
    `Approvals of ${name}`,
    APPROVAL_COLUMNS,
    sorted.map((each) => [
      link("groups", each.group),
      chip(ANSWERS[each.state] ?? each.state, each.state),
      [link("operations", each.operation), " of ", link("hosts", each.host)],
      each.missing.map((vm) => [link("vms", vm), " "]),
      each.polled ? moment(each.polled) : "never",
      UNANSWERED.includes(each.state)
        ? remindButton("Remind", `Remind the owner of ${each.group}`, [each])
        : "",
    ]),
  );
}

function postponements(postponed) {
  if (!postponed.length) return soft("None.");
  return table(
    "Postponed hosts",
    ["Host", "Not before", "Asked by", "Reason"],
    postponed.map((each) => [
      link("hosts", each.host),
      moment(each.until),
      each.by,
      each.reason || "—",
    ]),
  );
}

function facts(each) {
  const rows = [
    ["Impact", chip(each.impact)],
    ["Reason", each.reason],
    ["Created", each.created && [moment(each.created), ` by ${each.actor}`]],
    ["Started", each.started && moment(each.started)],
    ["Ended", each.ended && moment(each.ended)],
    ["Work on each host", interruption(each.duration_s)],
    ["VMs leave first", each.move_s > 0 && `within ${interruption(each.move_s)}`],
    [
      "VMs return",
      each.move_s > 0 &&
        (each.return_s ? `within ${interruption(each.return_s)} after the work` : "no"),
    ],
    ["Planned end", each.expected_end && moment(each.expected_end)],
    ["Earliest start", each.earliest_start && moment(each.earliest_start)],
    ["Deadline", each.deadline && moment(each.deadline)],
    ["Failures allowed", plural(each.max_failures, "host")],
    [
      "Gate",
      each.gate && `${each.gate}, ${each.checking ? "being checked" : "checked after each wave"}`,
    ],
    ["One at a time", each.failure_domain && `hosts with the same ${each.failure_domain}`],
    ["Canaries", each.canary_hosts.map((name) => [link("hosts", name), " "])],
  ];
  return factList(rows);
}

function blockers(blocked) {
  if (!blocked.length) return "";
  return h(
    "ul",
    { className: "why" },
    blocked
      .slice(0, BLOCKED_SHOWN_MAX)
      .map((each) =>
        h(
          "li",
          {},
          link("hosts", each.name),
          " ",
          linked(each.text),
          each.since ? h("span", { className: "soft" }, " since ", moment(each.since)) : "",
          each.clears ? [" until ", moment(each.clears)] : "",
        ),
      ),
    blocked.length > BLOCKED_SHOWN_MAX
      ? h("li", {}, `and ${count(blocked.length - BLOCKED_SHOWN_MAX)} more`)
      : "",
  );
}

const HOST_COLUMNS = ["Host", "State", "Wave", "Operation", "Started", "Ended", "Reason"];
let hostsOpen = false;

/** Shows each host with its operation; opening the list reads them. */
function hostsOf(each) {
  const box = h("div");
  const read = async () => {
    hostsOpen = fold.open;
    if (!fold.open) return;
    const path = `/v1/maintenances/${part(each.id)}/hosts`;
    const { records, more } = await getList(path, {}, "hosts");
    const rows = records
      .sort((one, other) => naturally(one.host, other.host))
      .map((one) => [
        link("hosts", one.host),
        chip(one.state),
        one.wave || "—",
        link("operations", one.operation) || "—",
        moment(one.started),
        moment(one.ended),
        one.reason || "—",
      ]);
    const rest = more ? soft(`Only ${count(rows.length)} hosts are shown.`) : "";
    fill(box, rest, table("Hosts", HOST_COLUMNS, rows));
  };
  const fold = h(
    "details",
    { className: "card racks", open: hostsOpen, ontoggle: read },
    h("summary", {}, "Hosts and their operations"),
    box,
  );
  return fold;
}

const WAVE_COLUMNS = ["Wave", "State", "Hosts", "Announced", "Starts", "Ends", "Names"];

/** Returns a text with the latest time of an event. */
const by = (text) => h("span", { className: "nowrap" }, "by ", moment(text));

function wave(each, postponed) {
  const more = each.hosts.length - HOSTS_SHOWN_MAX;
  const left =
    each.hosts.length - Object.values(each.counts).reduce((one, other) => one + other, 0);
  const counts = Object.entries({ ...each.counts, left }).filter(([, number]) => number);
  const planned = each.state === "planned";
  return [
    [each.number, each.canary ? " (canary)" : ""],
    chip(each.state),
    counts.map(([state, number]) => `${count(number)} ${state}`).join(", "),
    moment(each.announced),
    each.started ? moment(each.started) : each.latest_start ? by(each.latest_start) : "—",
    each.ended ? moment(each.ended) : each.latest_end ? by(each.latest_end) : "—",
    [
      each.hosts
        .toSorted(naturally)
        .slice(0, HOSTS_SHOWN_MAX)
        .map((name) => [link("hosts", name), " "]),
      more > 0 ? `and ${count(more)} more` : "",
      postponed
        .filter((one) => planned && each.hosts.includes(one.host) && one.until > each.latest_start)
        .map((one) =>
          h("div", {}, `${one.host} is postponed; the next plan gives it a later wave.`),
        ),
      planned && each.waits_for ? h("div", { className: "soft" }, linked(each.waits_for.text)) : "",
    ],
  ];
}

/** Shows the differences of the plan in force from the previous plan. */
function changes(each) {
  const box = h("div", {}, soft(each.plan ? "" : "None yet."));
  if (!each.plan) return box;
  get(query(`/v1/maintenances/${part(each.id)}/diff`, {}))
    .then((reply) => {
      const moved = (other) =>
        reply.changed.filter((one) => (one.from_wave !== one.to_wave) === other);
      const parts = [
        ["added", reply.added],
        ["removed", reply.removed],
        ["now blocked", reply.blocked],
        ["no longer blocked", reply.unblocked],
        ["in another wave", moved(true)],
        ["at another time", moved(false)],
      ];
      const said = parts
        .filter(([, list]) => list.length)
        .map(([name, list]) => `${plural(list.length, "host")} ${name}`);
      box.append(
        h(
          "p",
          {},
          reply.from
            ? `Compared with the previous plan: ${said.join(", ") || "the same hosts in the same waves"}.`
            : "This is the first plan.",
        ),
      );
    })
    .catch(() => {});
  return box;
}
