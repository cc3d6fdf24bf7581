// View of the service: its state, the active process, metadata nodes, backup and destinations.

import { rowButton } from "./actions.js";
import { get } from "./api.js";
import { coded, fill, h, head, section, soft, table } from "./dom.js";
import { chip, count, moment, plural, span, ticking } from "./format.js";
import { facts, kept } from "./records.js";

/** Age from which the state of a process is shown as old, in milliseconds. */
const OLD_MS = 10_000;
/** Metadata nodes that the view lists; the worst come first. */
const NODES_SHOWN = 20;

export function service(main) {
  return kept(main, {
    read: async () => {
      // A service that is not ready answers its health with 503.
      const refused = (error) => ({ state: "not ready", reason: error.message });
      const [health, leader, version, { destinations }, parts] = await Promise.all([
        get("/v1/health").catch(refused),
        get("/v1/leader").catch(() => null),
        get("/v1/version"),
        get("/v1/outbox"),
        get("/v1/service").catch(() => null), // a service that is not ready
      ]);
      // The age changes with every read; only whether the state is old is shown.
      const { age_ms: age, ...rest } = health;
      return { health: { ...rest, old: age > OLD_MS }, leader, version, destinations, parts };
    },
    concerns: () => false,
    often: true,
    draw: ({ health, leader, version, destinations, parts }) =>
      fill(
        main,
        head("Service"),
        h(
          "div",
          { className: "columns" },
          section("Process", process(health, leader, version)),
          section("Metadata nodes", refusals(health), nodes(parts)),
          section("Degraded parts", degraded(health)),
          section(
            "Last backup",
            health.last_backup
              ? h("p", {}, moment(health.last_backup), " ", h("b", {}, ticking(health.last_backup)))
              : soft(coded("No known backup. `forewarn store backup` creates a backup.")),
          ),
          parts?.certificates.length ? section("Certificates", certificates(parts)) : "",
          parts ? section("Limits", limits(parts)) : "",
        ),
        parts?.processes.length ? section("Control planes", processes(parts)) : "",
        section("Outbox", outbox(destinations)),
      ),
  });
}

function process(health, leader, version) {
  const good = health.state === "ready";
  return facts([
    ["State", chip(health.state, good ? "" : "failed")],
    ["Reason", health.reason ?? ""],
    ["Active process", leader ? leader.url || "this one" : "unknown"],
    ["Last commit", leader ? count(leader.generation) : "unknown"],
    ["This process", health.old ? "is behind the last commit" : "knows the last commit"],
    [
      "History checked",
      health.past_checked === undefined ? "" : `${health.past_checked} % since the start`,
    ],
    ["Version", version.version],
    ["API versions for VMs", `${version.api_versions[0]} to ${version.api_versions.at(-1)}`],
  ]);
}

function refusals({ nodes_refused: refused = [] }) {
  if (!refused.length) return "";
  return [
    h("p", {}, "Refused requests of nodes:"),
    h(
      "ul",
      {},
      refused.map((each) => h("li", {}, each)),
    ),
  ];
}

function nodes(parts) {
  if (!parts) return soft("Unknown: no active process answers.");
  const { nodes: all, node_count: number } = parts;
  if (!number) return soft("No metadata nodes: the service itself answers the VMs.");
  const late = all.filter((each) => !each.connected || each.behind > 0);
  const summary = late.length
    ? h("p", { className: "bad" }, `${late.length} of ${plural(number, "node")} behind or cut off:`)
    : h("p", {}, `${plural(number, "node")}, all up to date.`);
  const rows = all
    .slice(0, NODES_SHOWN)
    .map((each) => [
      each.name,
      chip(each.connected ? "connected" : "cut off", each.connected ? "" : "failed"),
      each.behind === null ? "—" : plural(each.behind, "change"),
    ]);
  return [summary, table("Metadata nodes", ["Node", "State", "Behind"], rows)];
}

function processes({ processes: all }) {
  return table(
    "Control planes",
    ["Process", "Role", "Version", "Behind", "Last sign of life"],
    all.map((each) => [
      each.url || "without a URL",
      chip(each.active ? "active" : each.runs ? "follower" : "gone", each.runs ? "" : "failed"),
      each.version,
      plural(each.behind, "commit"),
      `${span(each.age_s * 1000)} ago`,
    ]),
  );
}

function certificates({ certificates: all }) {
  return facts(
    all.map((each) => [`[${each.section}]`, [moment(each.until), " ", ticking(each.until)]]),
  );
}

function limits({ limits: all }) {
  return facts(all.map((each) => [each.name, `${count(each.used)} of ${count(each.max)}`]));
}

function degraded({ degraded: parts = [], commit_refused: refused }) {
  const all = refused ? [`The store refused the last change: ${refused}`, ...parts] : parts;
  if (!all.length) return soft("None.");
  return h(
    "ul",
    { className: "why bad" },
    all.map((each) => h("li", {}, each)),
  );
}

const COLUMNS = [
  "Destination",
  "Kind",
  "State",
  "Undelivered",
  "Sent",
  "Skipped",
  "Failing since",
  "Error",
  "Action",
];

function outbox(destinations) {
  if (!destinations.length) return soft("No destinations. The settings define destinations.");
  return table(
    "Destinations",
    COLUMNS,
    destinations.map((each) => [
      each.name,
      each.kind,
      chip(each.state),
      each.behind
        ? `${plural(each.behind, "entry", "entries")}, oldest ${span(each.behind_s * 1000)} ago`
        : "nothing",
      count(each.sent),
      count(each.skipped),
      each.failing_since ? moment(each.failing_since) : "—",
      each.error || "—",
      h("div", { className: "buttons" }, [
        rowButton("retry_destination", "Retry", { name: each.name }),
        each.behind
          ? rowButton("skip_entries", "Skip", { name: each.name, danger: true, record: each })
          : "",
      ]),
    ]),
  );
}
