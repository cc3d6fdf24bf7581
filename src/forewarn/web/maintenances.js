// Maintenances: work on many hosts in waves, what is in their way, and how far they are.

import { act, buttons } from "./actions.js";
import { call, get, part, query } from "./api.js";
import { fill, h } from "./dom.js";
import { chip, count, interruption, link, moment, plural, ticking, words } from "./format.js";
import { kept } from "./records.js";

const HOSTS_SHOWN_MAX = 40;
const BLOCKED_SHOWN_MAX = 100;

/** How far one is, as a stripe and in words. */
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
      label: "Describe a maintenance",
      preview,
      done: (reply) => {
        location.hash = `#/maintenances/${reply.maintenance.id}`;
      },
    });
  return kept(main, {
    read: () => get("/v1/maintenances?limit=100"),
    concerns: () => true,
    often: true,
    draw: (reply) =>
      fill(
        main,
        h(
          "div",
          { className: "head" },
          h("h1", {}, "Maintenances"),
          h(
            "button",
            {
              type: "button",
              className: "first",
              data: { act: "create_maintenance" },
              onclick: describe,
            },
            "Describe one",
          ),
        ),
        reply.maintenances.length
          ? h("div", { className: "stories" }, reply.maintenances.map(card))
          : h(
              "div",
              { className: "card empty" },
              h("p", {}, "There is none."),
              h(
                "p",
                { className: "soft" },
                "A maintenance is work on many hosts, done in waves that keep every group's fault domains apart.",
              ),
            ),
      ),
  });
}

function card(each) {
  return h(
    "article",
    { className: "card story" },
    h(
      "h2",
      {},
      h(
        "a",
        { href: `#/maintenances/${each.id}` },
        `${words(each.cause)}, ${plural(each.hosts, "host")}`,
      ),
      " ",
      h("span", { className: "soft" }, each.id),
    ),
    h("p", {}, chip(each.state), " ", each.reason),
    progress(each),
    each.expected_end && each.state === "running"
      ? h("p", { className: "soft" }, "ends ", moment(each.expected_end), " by its plan")
      : "",
    each.halt_reason ? h("p", { className: "reason" }, each.halt_reason) : "",
  );
}

/** The waves there would be; nothing is written. Source: F-2. */
async function preview(values) {
  const { plan } = await call("POST", "/v1/maintenances/plan", values);
  const hosts = plan.waves.reduce((sum, wave) => sum + wave.hosts.length, 0);
  return [
    h(
      "p",
      {},
      h("b", {}, `${plural(plan.waves.length, "wave")} for ${plural(hosts, "host")}`),
      `; no plan has fewer than ${plan.least_waves}.`,
    ),
    plan.blocked.length
      ? h("p", {}, `${plural(plan.blocked.length, "host")} cannot be done: ${plan.blocked[0].text}`)
      : "",
    plan.waves.length
      ? h("p", {}, "The last one ends ", moment(plan.waves.at(-1).latest_end), " at the latest.")
      : "",
  ];
}

export function maintenance(main, id) {
  return kept(main, {
    read: () => get(`/v1/maintenances/${part(id)}`),
    concerns: () => true,
    often: true,
    draw: ({ maintenance: each, waves, blocked, waits_for: waits }) =>
      fill(
        main,
        h(
          "div",
          { className: "head" },
          h(
            "h1",
            {},
            `${words(each.cause)}, ${plural(each.hosts, "host")}`,
            " ",
            h("span", { className: "soft" }, each.id),
          ),
          buttons("maintenances", each.id, each),
        ),
        h(
          "div",
          { className: "columns" },
          h(
            "section",
            { className: "card" },
            h("h2", {}, "How it stands"),
            progress(each),
            each.halt_reason ? h("p", { className: "reason" }, each.halt_reason) : "",
            facts(each),
          ),
          h(
            "section",
            { className: "card" },
            h("h2", {}, "What it waits for"),
            waits ? h("p", {}, waits.text, waits.clears ? [" ", ticking(waits.clears)] : "") : "",
            blockers(blocked),
            waits || blocked.length ? "" : h("p", { className: "soft" }, "No blockers."),
          ),
        ),
        h(
          "section",
          { className: "card" },
          h("h2", {}, "Waves"),
          waves.length
            ? h("ol", { className: "waves" }, waves.map(wave))
            : h("p", { className: "soft" }, "No plan yet."),
        ),
        h("section", { className: "card" }, h("h2", {}, "Plan"), changes(each)),
      ),
  });
}

function facts(each) {
  const rows = [
    ["State", chip(each.state)],
    ["Impact", chip(each.impact)],
    ["Reason", each.reason],
    ["Asked for", each.created && moment(each.created)],
    ["Each host takes", interruption(each.duration_s)],
    ["Next wave", each.next_wave && ticking(each.next_wave)],
    ["Ends by its plan", each.expected_end && moment(each.expected_end)],
    ["Earliest start", each.earliest_start && moment(each.earliest_start)],
    ["Deadline", each.deadline && moment(each.deadline)],
    ["May fail", plural(each.max_failures, "host")],
    [
      "Gate",
      each.gate && `${each.gate}, ${each.checking ? "being checked" : "checked after each wave"}`,
    ],
    ["Canaries", each.canary_hosts.map((name) => [link("hosts", name), " "])],
  ];
  return h(
    "dl",
    { className: "facts" },
    rows
      .filter(([, value]) => value && value.length !== 0)
      .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
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
          each.text,
          each.clears ? [" ", ticking(each.clears)] : "",
        ),
      ),
    blocked.length > BLOCKED_SHOWN_MAX
      ? h("li", {}, `and ${count(blocked.length - BLOCKED_SHOWN_MAX)} more`)
      : "",
  );
}

function wave(each) {
  const more = each.hosts.length - HOSTS_SHOWN_MAX;
  return h(
    "li",
    { className: `wave ${each.state}` },
    h(
      "div",
      { className: "head" },
      h("h3", {}, `Wave ${each.number}`, each.canary ? " (canary)" : ""),
      h("span", {}, chip(each.state)),
      h(
        "span",
        { className: "soft" },
        each.state === "over"
          ? `${count(each.done)} done, ${count(each.failed)} failed`
          : plural(each.hosts.length, "host"),
      ),
    ),
    each.announced && each.state === "planned"
      ? h(
          "p",
          {},
          "announced ",
          ticking(each.announced),
          ", starts at the latest ",
          moment(each.latest_start),
          ", ends by ",
          moment(each.latest_end),
        )
      : "",
    each.started
      ? h(
          "p",
          {},
          "started ",
          moment(each.started),
          each.ended ? [", ended ", moment(each.ended)] : "",
        )
      : "",
    each.waits_for && each.state === "planned"
      ? h("p", { className: "soft" }, each.waits_for.text)
      : "",
    h(
      "p",
      { className: "names" },
      each.hosts.slice(0, HOSTS_SHOWN_MAX).map((name) => [link("hosts", name), " "]),
      more > 0 ? `and ${count(more)} more` : "",
    ),
  );
}

/** What the plan in force changed of the one before it. */
function changes(each) {
  const box = h(
    "div",
    {},
    h("p", { className: "soft" }, each.plan ? `Plan ${each.plan}.` : "None yet."),
  );
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
            ? `Of plan ${reply.from} it changed: ${said.join(", ") || "nothing"}.`
            : "It is the first.",
        ),
      );
    })
    .catch(() => {});
  return box;
}
