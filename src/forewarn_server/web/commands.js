// Commands that do what a dialog does, to be copied into a terminal or a runbook.

import { query } from "./api.js";

/** Route -> command; `{}` stands for the name of the object. */
const COMMANDS = {
  advance_clock: "emulator clock advance",
  apply_policy: "policy apply",
  apply_topology: "topology apply",
  approve_operation: "operation approve {}",
  cancel_maintenance: "maintenance cancel {}",
  cancel_operation: "operation cancel {}",
  complete_operation: "operation complete {}",
  confirm: "confirmation confirm {}",
  create_maintenance: "maintenance create",
  create_token: "access token create",
  declare_maintenance: "maintenance declare {}",
  degrade_host: "host degrade {}",
  delete_vm: "vm delete {}",
  evict_vm: "vm evict {}",
  fail_host: "host fail {}",
  hold_hosts: "declaration hold {}",
  name_first_group: "declaration test-first {}",
  resume_hosts: "declaration resume {}",
  grant_deferral: "deferral grant {}",
  withdraw_deferral: "deferral withdraw {}",
  grant_role: "access grant",
  migrate_host: "host migrate {}",
  pause_maintenance: "maintenance pause {}",
  postpone_maintenance: "maintenance postpone {}",
  put_group: "group add {}",
  put_host: "host add {}",
  put_vm: "vm add {}",
  reboot_host: "host reboot {}",
  reboot_vm: "vm reboot {}",
  redeploy_vm: "vm redeploy {}",
  refuse_deferral: "deferral refuse {}",
  reimage_vm: "vm reimage {}",
  remove_group: "group remove {}",
  remove_host: "host remove {}",
  remove_vm: "vm remove {}",
  repair_host: "host repair {}",
  resume_maintenance: "maintenance resume {}",
  resume_token: "access token resume {}",
  retry_destination: "outbox retry {}",
  retry_operation: "operation retry {}",
  revoke_role: "access revoke",
  revoke_token: "access token revoke {}",
  run_scenario: "emulator scenario run {}",
  set_fault: "emulator fault set",
  skip_entries: "outbox skip {}",
  start_maintenance: "maintenance start {}",
  update_host: "host update {}",
};
/** Cause of requested work -> its command. */
const REQUESTS = {
  deletion: "vm delete",
  eviction: "vm evict",
  "host-reboot": "host reboot",
  "host-update": "host update",
  "live-migration": "host migrate",
  reboot: "vm reboot",
  redeploy: "vm redeploy",
  reimage: "vm reimage",
};
/** Members that are arguments, in the order of the command. */
const ARGUMENTS = ["principal", "role", "by", "fault", "hosts", "targets"];
/** Member -> option, where the option is not the name of the member. */
const OPTIONS = {
  addresses: "address",
  canary_hosts: "canary",
  labels: "label",
  sequence: "to",
  tags: "tag",
};
/** Members without an option; a call with one of these is copied as a request. */
const WITHOUT_OPTION = new Set(["approves_when_down", "impact", "published"]);

/** Route -> a member, and the option that says that it is left out. */
const LEFT_OUT = { name_first_group: ["group", "--none"] };

/** Quotes a word for a shell. */
export const quoted = (word) =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`;

/** Whether a member is an argument of a command; otherwise, it is an option. */
const isArgument = (route, name) =>
  ARGUMENTS.includes(name) &&
  (name !== "by" || route === "advance_clock") &&
  !(route === "create_token" && name === "role");

/** Returns the words of an option. */
function option(name, value) {
  const flag = `--${OPTIONS[name] ?? name.replaceAll("_", "-")}`;
  if (value === true) return [flag];
  if (value === false) return [];
  if (Array.isArray(value)) return value.flatMap((each) => [flag, each]);
  if (value && typeof value === "object")
    return Object.entries(value).flatMap(([key, text]) => [flag, `${key}=${text}`]);
  return [flag, String(value)];
}

/**
 * Returns the command that makes a call, for a shell. A call that no command makes is a request
 * with curl.
 * @param {{route: string, method: string, path: string, name?: string, body?: any,
 *   fresh?: boolean}} call
 */
export function commandOf({ route, method, path, name = "", body = {}, fresh = false }) {
  const { cause, ...members } = body ?? {};
  const command = route === "request_work" ? REQUESTS[cause] : COMMANDS[route];
  if (!command || Object.keys(members).some((each) => WITHOUT_OPTION.has(each)))
    return request(method, path, body);
  if (cause && route !== "request_work") members.cause = cause;
  const words = command.split(" ").map((each) => (each === "{}" ? name : each));
  const given = Object.entries(members).filter(([, value]) => value !== undefined);
  const [member, none] = LEFT_OUT[route] ?? [];
  if (none && !members[member]) words.push(none);
  for (const argument of ARGUMENTS) {
    const [, value] =
      given.find(([each]) => each === argument && isArgument(route, argument)) ?? [];
    if (value !== undefined) words.push(...[value].flat().map(String));
  }
  for (const [each, value] of given)
    if (!isArgument(route, each)) words.push(...option(each, value));
  if (route.startsWith("put_") && !fresh) words.push("--replace");
  return ["forewarn", ...words].map(quoted).join(" ");
}

/** Returns a command that reads a file from its input. */
export function commandOfText(route, format, text, asked = {}) {
  const flags = Object.entries(asked).flatMap(([name, value]) => option(name, value));
  const command = ["forewarn", COMMANDS[route], "-", "--format", format, ...flags].join(" ");
  return [`${command} <<'END'`, text.replace(/\n$/, ""), "END"].join("\n");
}

/** Returns a request with curl, which reads the token from the environment. */
function request(method, path, body) {
  const empty = method === "DELETE" || !body || !Object.keys(body).length;
  const words = [
    "curl -sf -X",
    method,
    `"$FOREWARN_SERVER${query(path, {})}"`,
    `-H "Authorization: Bearer $FOREWARN_TOKEN"`,
  ];
  if (!empty) words.push("-H 'Content-Type: application/json' -d", quoted(JSON.stringify(body)));
  return words.join(" ");
}
