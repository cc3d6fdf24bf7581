// Operators' actions: each opens a dialog with the API's form, and shows the reason of a refusal.

import { call, get, getList, may, part, query } from "./api.js";
import { copy } from "./clipboard.js";
import { commandOf, commandOfText } from "./commands.js";
import { buttonGroup, coded, fill, h, labelled, menu, note, press, soft } from "./dom.js";
import { link, plural, words } from "./format.js";
import { hostPicker, ticked, ticks } from "./host-picker.js";
import { search, suggest } from "./suggest.js";
import { timeHint, timePicker } from "./times.js";

const works = (each) => each.health !== "failed";

/** Kind of object -> its actions with label, operationId, style and condition; the main one first. */
const ACTIONS = {
  hosts: [
    ["Mark healthy", "repair_host", "first", (each) => each.health !== "healthy"],
    ["Reboot", "reboot_host", "", works],
    ["Update", "update_host", "", works],
    ["Migrate away", "migrate_host", "", (each) => works(each) && each.vms.length],
    ["Predict failure", "degrade_host", "", (each) => each.health === "healthy"],
    ["Report failure", "fail_host", "danger", works],
    ["Change", "put_host"],
    ["Remove", "remove_host", "danger", (each) => !each.vms.length],
  ],
  vms: [
    ["Reboot", "reboot_vm"],
    ["Redeploy", "redeploy_vm"],
    ["Reimage", "reimage_vm"],
    ["Evict", "evict_vm", "danger"],
    ["Delete", "delete_vm", "danger"],
    ["Change", "put_vm"],
    ["Remove", "remove_vm", "danger"],
  ],
  groups: [
    ["Change", "put_group", "plain"],
    ["Remove", "remove_group", "danger"],
  ],
  operations: [
    ["Approve", "approve_operation", "first", (each) => ["announced"].includes(each.state)],
    [
      "Cancel",
      "cancel_operation",
      "danger",
      (each) => ["planned", "announced"].includes(each.state),
    ],
    ["Complete", "complete_operation", "", (each) => each.state === "running"],
    ["Retry", "retry_operation", "", (each) => each.state === "running"],
  ],
  events: [
    ["Approve", "approve_operation", "first"],
    ["Postpone", "postpone_event", "", (each) => each.maintenance],
  ],
  maintenances: [
    ["Start", "start_maintenance", "first", (each) => each.state === "draft"],
    ["Declare to owners", "declare_maintenance", "", (each) => each.state === "draft"],
    ["Pause", "pause_maintenance", "", (each) => each.state === "running"],
    ["Resume", "resume_maintenance", "first", (each) => ["paused", "stopped"].includes(each.state)],
    [
      "Postpone hosts",
      "postpone_maintenance",
      "",
      (each) => !["done", "cancelled"].includes(each.state),
    ],
    [
      "Cancel",
      "cancel_maintenance",
      "danger",
      (each) => !["done", "cancelled"].includes(each.state),
    ],
  ],
};
/** Rarely used members, which a collapsed section contains. */
const COMMON = new Set([
  "not_before",
  "duration",
  "reason",
  "failed",
  "lost",
  "network_only",
  "cause",
  "targets",
  "name",
  "host",
  "group",
  "zone",
  "fault_domain",
  "update_domain",
  "addresses",
  "size",
  "memory_mib",
  "by",
  "speed",
  "fault",
  "vm",
  "text",
  "kind",
  "owner",
  "hosts",
  "selector",
  "all",
  "max_at_once",
  "move_vms",
  "return_vms",
  "keep_announced",
  "until",
  "sequence",
  "severity",
  "hand_back",
  "target_kind",
  "target",
  "category",
  "evidence",
]);
/** Members of a group that its owner cannot change. */
const GROUP_FIXED = new Set(["kind", "owner", "fault_domain_count", "keep_apart", "keep_together"]);
const EXAMPLES = {
  not_before: "+30m, or 2027-01-15T08:00:00Z",
  duration: "90s, 15m or PT15M",
  move_vms: "30m; empty: VMs stay on their hosts",
  until: "+4h, or 2027-01-15T08:00:00Z",
  earliest_start: "+1h, or 2027-01-15T08:00:00Z",
  deadline: "+2d, or 2027-01-15T08:00:00Z",
  expires: "+90d, 2027-01-15T08:00:00Z or never",
  failure_domain: "rack; or rack=r7 for the hosts of one",
  reason: "why, for history",
};
/** Member -> values that a button enters. */
const QUICK = {
  deadline: ["+8h", "+1d", "+2d"],
  duration: ["5m", "10m", "30m"],
  earliest_start: ["+1h", "+4h", "+1d"],
  expires: ["+7d", "+90d", "never"],
  move_vms: ["15m", "30m"],
  not_before: ["+30m", "+1h", "+4h"],
  until: ["+4h", "+1d", "+7d"],
};
/** Members that are lengths of time; the other members of `QUICK` are times, with a picker. */
const LENGTHS = new Set(["duration", "move_vms"]);

let api = null;

/** operationId -> path, method and form, from the OpenAPI document, which is read once. */
export async function described() {
  if (api) return api;
  const reply = await get("/v1/openapi.json");
  const routes = new Map();
  for (const [path, methods] of Object.entries(reply.paths)) {
    for (const [method, route] of Object.entries(methods)) {
      const body = route.requestBody?.content["application/json"]?.schema;
      routes.set(route.operationId, {
        path,
        method: method.toUpperCase(),
        summary: route.summary,
        form: resolve(body, reply),
      });
    }
  }
  api = { routes, reply };
  return api;
}

function resolve(schema, reply) {
  const name = schema?.$ref?.split("/").pop();
  return name ? reply.components.schemas[name] : schema;
}

/** Returns the buttons of an object's actions; `own` has functions instead of plain dialogs. */
export function buttons(kind, name, record = {}, { object = name, own = {} } = {}) {
  return buttonGroup(`Actions on ${name}`, actionsOn(kind, name, { record, object, own }));
}

function actionsOn(kind, name, { record, object = name, own = {} }) {
  const perform = (route, label, look) => () =>
    (own[route] ?? act)(route, { name, object, label, danger: look === "danger", record });
  return ACTIONS[kind]
    .filter(([, , , fits]) => !fits || fits(record))
    .map(([label, route, look = ""]) => button(route, label, look, perform(route, label, look)))
    .filter(Boolean);
}

/** Returns the main action on an object, and a menu of the others with `more`. */
export function mainButton(kind, name, record, more) {
  const [main, ...others] = actionsOn(kind, name, { record });
  if (!main) return more;
  return buttonGroup(
    `Actions on ${name}`,
    main,
    menu("More", `More actions on ${name}`, others, more),
  );
}

/** Returns the button of an action, or nothing without the permission. */
export const button = (route, label, look, onclick, spoken = label) =>
  may(route) ? press(label, onclick, { look, spoken, data: { act: route } }) : "";

/** Returns the small button of a row's action, or nothing without the permission. */
export const rowButton = (route, label, options) =>
  button(
    route,
    label,
    options.danger ? "small danger" : "small",
    () => act(route, { label, ...options }),
    `${label} ${options.object ?? options.name}`,
  );

const plain = (route, label, onclick) => button(route, label, "plain", onclick);

export const offer = {
  /** Returns the buttons of actions on the fleet. */
  fleet: () =>
    buttonGroup(
      "Actions on the fleet",
      may("reboot_host") // owners request work on the pages of their VMs
        ? button("request_work", "Request work", "", () =>
            act("request_work", { label: "Request work" }),
          )
        : "",
      plain("put_host", "Add host", () => act("put_host", { label: "Add a host", fresh: true })),
      may("remove_group")
        ? plain("put_group", "Add group", () =>
            act("put_group", { label: "Add a group", fresh: true }),
          )
        : "",
      plain("put_vm", "Add VM", () => act("put_vm", { label: "Add a VM", fresh: true })),
      plain("apply_topology", "Apply file", () => topology()),
    ),
};

const UNASKED_SHOWN_MAX = 20;

/** Shows the groups that do not listen for events, and are therefore not asked. */
export function unasked(groups) {
  if (!groups.length) return "";
  const more = groups.length - UNASKED_SHOWN_MAX;
  return h(
    "p",
    { className: "warning" },
    h("b", {}, "Not asked"),
    ", because none of their VMs polls for events: ",
    groups.slice(0, UNASKED_SHOWN_MAX).map((name) => [link("groups", name), " "]),
    more > 0 ? `and ${more} more` : "",
    ". Where no group on a host is asked, the work on it starts once it is announced.",
  );
}

/** Route -> title of its dialog, if the title is more than label and name. */
const TITLES = {
  degrade_host: "Predict failure of {}",
  fail_host: "Report failure of {}",
  migrate_host: "Migrate VMs away from {}",
  postpone_maintenance: "Postpone hosts of {}",
  repair_host: "Mark {} healthy",
  skip_entries: "Skip entries for {}",
};
/** Member -> label, if the member's name in the API is not clear. */
const LABELS = {
  all: "All hosts",
  by: "Requested by",
  failure_domain: "One failure domain at a time",
  keep_announced: "Keep announced events",
  max_at_once: "Hosts at a time",
  move_vms: "Move VMs away within",
  return_vms: "Return VMs after the work",
  selector: "Hosts with labels",
  sequence: "Last entry to skip",
};
/** Route -> effect of its action; a function receives the record. */
const CONSEQUENCES = {
  approve_operation: ({ group }) =>
    `Approves in place of the VMs of ${group ? `group ${group}` : "every group that has not approved"}. When every group has approved, the work starts at once.`,
  confirm: ({ principal, text }) => `${principal} asked to ${text}. Confirming it runs it at once.`,
  drop_confirmation: ({ principal, text }) => `${principal} asked to ${text}. It is not done.`,
  pause_maintenance: "No more hosts are announced. Running work continues to its end.",
  fail_host: "Its VMs count as down at once. No VM is asked for approval.",
  remove_host: "Removes the host from Forewarn. Move or remove its VMs first.",
  evict_vm: "The VM is evicted after its notice.",
  delete_vm: "The VM is deleted after its notice, where its group has one.",
  remove_vm: "Removes the VM from Forewarn. The VM keeps running, but no longer gets notice.",
  remove_group: "Removes the group from Forewarn. Move or remove its VMs first.",
  resume_token: ({ principal }) =>
    `Calls of ${principal} with this token are accepted again. A restore suspended it, because it may have been revoked since the backup.`,
  revoke_token: ({ principal }) =>
    `Calls of ${principal} with this token are refused; its streams end within seconds.`,
  revoke_role: ({ principal, role, owner }) =>
    `${principal} loses the role ${role}${owner ? ` of ${owner}` : ""}. Other roles stay.`,
  skip_entries: "The destination is never sent these entries.",
  cancel_operation: "VMs that have prepared for it see its event disappear.",
  cancel_maintenance:
    "Announced events are withdrawn: VMs that have prepared see them disappear. Running work continues to its end. The remaining hosts are not maintained.",
};

/** Returns the effect of work on a host. */
async function impact(name) {
  const [host, silent] = await Promise.all([
    get(`/v1/hosts/${part(name)}`),
    getList("/v1/groups", { enabled: "false", host: name }, "groups"),
  ]);
  return [
    h("p", {}, `It disturbs ${plural(host.vms.length, "VM")} on ${name}.`),
    unasked(silent.records.map((each) => each.name)),
  ];
}

/** Opens the dialog of one action. */
export async function act(
  route,
  {
    name = "",
    object = name,
    label,
    danger = false,
    record = {},
    confirm = "",
    fresh = false,
    done = () => {},
    given = {},
    preview = null,
    plan = null,
    choices = {},
    among = null,
  },
) {
  let row;
  try {
    row = (await described()).routes.get(route);
  } catch (error) {
    note(error.message, "refused");
    return;
  }
  const pathOf = (target) => row.path.replace(/\{\w+\}/, part(target));
  const ask = ({ "": target = name, ...body }) => {
    const path = fresh ? query(pathOf(target), { new: "true" }) : pathOf(target);
    return call(row.method, path, row.method === "DELETE" ? undefined : body);
  };
  const command = ({ "": target = name, ...body }) =>
    commandOf({ route, method: row.method, path: pathOf(target), name: target, body, fresh });
  const title = object ? (TITLES[route] ?? `${label} {}`).replace("{}", () => object) : label;
  const text = CONSEQUENCES[route] ?? row.summary;
  const before = { ...(row.method === "PUT" && !fresh ? record : {}), ...given };
  dialog({
    title,
    text: typeof text === "function" ? text({ ...record, ...given }) : text,
    fields: fieldsOf(row.form, before, fresh).map((each) => ({
      ...each,
      choices: choices[each.name],
      pick: (among || route === "create_maintenance") && each.name === "hosts",
      among,
      fixed:
        (danger && each.name in given) ||
        (route === "put_group" && !may("remove_group") && GROUP_FIXED.has(each.name)),
    })),
    confirm: confirm || title,
    danger,
    warn: /^(update|reboot|migrate|degrade|fail|remove)_host$/.test(route)
      ? () => impact(name)
      : null,
    ask,
    preview,
    plan,
    command,
    done: (reply) => {
      finished(title, reply, done);
      const list = `#/${row.path.split("/")[2]}`;
      if (row.method === "DELETE" && location.hash !== list)
        location.hash = list; // the record no longer exists
      else dispatchEvent(new Event("acted")); // views read their records again
    },
  });
}

function finished(title, reply, done) {
  const operations = reply?.operations ?? [];
  const links = operations
    .slice(0, 3)
    .map((each) => [" ", h("a", { href: `#/operations/${each.id}` }, each.id)]);
  const also = operations.length > 3 ? ` and ${plural(operations.length - 3, "other")}` : "";
  note(`${title}: done.`, "done", links, also);
  if (reply?.token) showSecret(reply);
  done(reply);
}

/** Shows a new token until the user closes it, because the service cannot show the token again. */
function showSecret(reply) {
  const token = h("input", {
    id: "new-token",
    readOnly: true,
    value: reply.token,
    autocomplete: "off",
    spellcheck: false,
  });
  const copied = h("span", { className: "soft", role: "status" });
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "dialog-title" }, `Token of ${reply.principal}`),
    soft("Store it now: it is shown only once."),
    labelled(token, "Token"),
    h(
      "div",
      { className: "buttons end" },
      copied,
      h("button", { type: "submit", className: "plain" }, "Close"),
      press("Copy", () => (copy(reply.token, form), fill(copied, "Copied.")), {
        look: "first",
        data: { act: "copy_token" },
      }),
    ),
  );
  const box = open(form);
  box.addEventListener("cancel", (event) => event.preventDefault()); // Escape would lose the token
  token.focus();
  token.select();
}

/** Opens a modal dialog with a form; the focus returns when it closes. */
export function open(form, className = "") {
  const before = /** @type {HTMLElement} */ (document.activeElement);
  const box = h("dialog", { className, aria: { labelledby: "dialog-title" } }, form);
  box.addEventListener("close", () => {
    box.remove();
    if (before?.isConnected) before.focus();
  });
  document.body.append(box);
  box.showModal();
  return box;
}

// --- forms ------------------------------------------------------------------------------------

function fieldsOf(form, record, fresh) {
  const found = fresh
    ? [{ name: "", label: "Name", schema: { type: "string" }, required: true, value: "" }]
    : [];
  for (const [name, schema] of Object.entries(form?.properties ?? {})) {
    found.push({
      name,
      label: LABELS[name] ?? words(name.replaceAll("_", " ")),
      schema,
      required: form.required?.includes(name),
      value: record[name],
    });
  }
  return found;
}

function control(field) {
  const { schema, value } = field;
  if (field.choices) return ticks(field.name, field.label, field.choices);
  const id = `field-${field.name || "name"}`;
  const hint = schema.description
    ? h("span", { className: "hint", id: `${id}-hint` }, coded(schema.description))
    : "";
  const described = schema.description ? { describedby: `${id}-hint` } : {};
  const { name, required, fixed: disabled } = field;
  const common = { id, name, required, disabled, aria: described };
  let input;
  if (schema.type === "boolean") {
    input = h("input", { ...common, type: "checkbox", checked: value === true });
    return h(
      "div",
      { className: "field check" },
      input,
      h("label", { htmlFor: id }, field.label),
      hint,
    );
  }
  if (schema.enum)
    input = h(
      "select",
      common,
      h("option", { value: "" }, "—"),
      schema.enum.map((each) => h("option", { value: each, selected: each === value }, each)),
    );
  else if (isLong(field))
    input = h("textarea", { ...common, rows: 4, value: shownValue(value), spellcheck: false });
  else
    input = h("input", {
      ...common,
      type: "text",
      value: shownValue(value),
      placeholder: EXAMPLES[field.name] ?? "",
      autocomplete: "off",
      spellcheck: false,
    });
  const box = h(
    "div",
    { className: "field" },
    h(
      "label",
      { htmlFor: id },
      field.label,
      field.required ? h("span", { className: "soft" }, " (required)") : "",
    ),
    input,
    QUICK[name] ? quick(input, field) : "",
    QUICK[name] && !LENGTHS.has(name) && name !== "expires" ? timeHint(input) : "",
    hint,
  );
  offerNames(input, field);
  if (field.pick) box.append(hostPicker(input, field.among));
  return box;
}

/** Returns buttons that enter usual times, and a picker of a date and time. */
function quick(input, { name, label }) {
  const enter = (text) => {
    input.value = text;
    input.dispatchEvent(new Event("input", { bubbles: true }));
  };
  return buttonGroup(
    `Usual values of ${label}`,
    QUICK[name].map((each) =>
      press(each, () => enter(each), { look: "small", spoken: `${label}: ${each}` }),
    ),
    LENGTHS.has(name) ? "" : timePicker(input, label),
  );
}

/** Member with names of records -> kinds of the records. */
const PICKED = {
  host: "host",
  destination: "host",
  hosts: "host",
  canary_hosts: "host",
  target: "host,vm",
  targets: "host,vm",
  group: "group",
  vm: "vm",
};

/** Suggests names for a field, or for the last name in a list. */
function offerNames(input, field) {
  const kinds = PICKED[field.name];
  if (!kinds) return;
  const last = /[^\s,]*$/;
  const text = field.schema.type === "array" ? (value) => last.exec(value)[0] : (value) => value;
  suggest(
    input,
    (value) => (text(value) ? search(text(value), kinds) : Promise.resolve([])),
    ({ name }) => {
      const many = field.schema.type === "array";
      input.value = many ? `${input.value.replace(last, name)}, ` : name;
    },
  );
}

const isObject = (schema) => schema.type === "object" || schema.$ref;
const isLong = (field) => isObject(field.schema) || field.name === "text";

function shownValue(value) {
  if (value === undefined || value === null) return "";
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value === "object")
    return Object.entries(value)
      .map(([name, text]) => `${name}=${text}`)
      .join("\n");
  return String(value);
}

/** Returns the values of a form, without empty ones. */
function valuesOf(fields, form) {
  const found = {};
  for (const { name, schema, value: before, choices } of fields) {
    if (choices) {
      found[name] = ticked(form, name);
      continue;
    }
    const input = form.elements[`field-${name || "name"}`];
    if (schema.type === "boolean") {
      if (input.checked || before === true) found[name] = input.checked;
      continue;
    }
    const text = name === "text" ? input.value : input.value.trim();
    if (!text) continue;
    if (schema.type === "integer" || schema.type === "number")
      found[name] = Number.isFinite(Number(text)) ? Number(text) : text;
    else if (schema.type === "array") found[name] = text.split(/[\s,]+/).filter(Boolean);
    else if (isObject(schema))
      found[name] = Object.fromEntries(
        text
          .split("\n")
          .filter(Boolean)
          .map((line) => [line.split("=", 1)[0], line.slice(line.indexOf("=") + 1)]),
      );
    else found[name] = text;
  }
  return found;
}

/**
 * Opens a dialog, which also shows the reason of a refusal.
 *
 * `preview` is asked for by a button; `plan` follows every change of the form, beside it.
 */
export function dialog({
  title,
  text,
  fields = [],
  confirm,
  danger = false,
  ask,
  done = (_reply) => {},
  extra = [],
  preview = null,
  plan = null,
  warn = null,
  command = null,
}) {
  const refusal = h("div", { className: "refusal", role: "alert" });
  const found = h("div", { role: "status" });
  /** Shows a refusal next to the field that its message begins with, else at the end. */
  const refuse = (error) => {
    const [word] = error.message.replace(/^The /, "").split(/[\s.:[]/);
    const input = word && form.querySelector(`[name="${CSS.escape(word)}"]`);
    if (input) {
      const fold = input.closest("details");
      if (fold) fold.open = true;
      input.setAttribute("aria-invalid", "true");
      input.closest(".field").append(refusal);
      input.focus();
    } else form.querySelector(".end").before(refusal);
    fill(
      refusal,
      h("p", {}, h("b", {}, coded(error.message))),
      h("p", {}, coded(error.advice ?? "")),
    );
  };
  const cleared = () => {
    fill(refusal);
    for (const each of form.querySelectorAll("[aria-invalid]"))
      each.removeAttribute("aria-invalid");
  };
  const tried = async () => {
    fill(found);
    cleared();
    try {
      fill(found, await preview(valuesOf(fields, form)));
      found.scrollIntoView({ behavior: "instant" });
    } catch (error) {
      refuse(error);
    }
  };
  const warning = h("div", { role: "status" });
  warn?.()
    .then((shown) => fill(warning, shown))
    .catch(() => {});
  const many = fields.length > 5;
  const plain = fields.filter(
    (each) => !many || each.required || COMMON.has(each.name) || each.name === "",
  );
  const folded = fields.filter((each) => !plain.includes(each));
  const go = h("button", { type: "submit", className: danger ? "danger" : "first" }, confirm);
  const copied = h("div", { role: "status" });
  const copyCommand = () => {
    const line = command(valuesOf(fields, form), form);
    copy(line, form);
    fill(copied, soft("Copied:"), h("pre", { className: "command", tabIndex: 0 }, line));
    copied.scrollIntoView({ behavior: "instant", block: "nearest" });
  };
  const beside = h("div", { className: "pane plan", role: "status", aria: { label: "Plan" } });
  const form = h(
    "form",
    { method: "dialog", noValidate: true },
    h("h2", { id: "dialog-title" }, title),
    text ? soft(text) : "",
    h(
      "div",
      { className: "panes" },
      h(
        "div",
        { className: "pane" },
        warning,
        plain.map(control),
        folded.length ? h("details", {}, h("summary", {}, "More"), folded.map(control)) : "",
        extra,
      ),
      plan ? beside : "",
    ),
    preview ? press("Preview, change nothing", tried, { look: "", data: { act: "preview" } }) : "",
    found,
    copied,
    refusal,
    h(
      "div",
      { className: "buttons end" },
      command
        ? press("Copy as command", copyCommand, { look: "plain", data: { act: "copy_command" } })
        : "",
      press("Not now", () => box.close(), { look: danger ? "first" : "plain" }),
      go,
    ),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    cleared();
    try {
      const reply = await ask(valuesOf(fields, form), form);
      box.close();
      done(reply);
    } catch (error) {
      if (!error.shown) refuse(error); // otherwise, the form shows it
    } finally {
      go.disabled = false;
    }
  });
  const box = open(form, plan ? "wide" : "");
  if (plan) planned(form, beside, () => plan(valuesOf(fields, form), form));
  const [first = go] = /** @type {NodeListOf<HTMLElement>} */ (
    form.querySelectorAll("input, select, textarea")
  );
  first.focus();
}

/** Milliseconds without a change of the form before its plan is asked for. */
const PLAN_PAUSE_MS = 300;

/** Shows the plan of a form now and after its changes. */
function planned(form, pane, plan) {
  let turn = 0;
  let timer = 0;
  const draw = async () => {
    const mine = ++turn;
    pane.setAttribute("aria-busy", "true");
    const shown = await plan().catch((error) => [
      h("p", {}, coded(error.message)),
      error.advice ? soft(coded(error.advice)) : "",
    ]);
    if (mine !== turn) return;
    pane.removeAttribute("aria-busy");
    fill(pane, h("h3", {}, "Plan"), shown);
  };
  for (const kind of ["input", "change"])
    form.addEventListener(kind, () => {
      clearTimeout(timer);
      timer = setTimeout(draw, PLAN_PAUSE_MS);
    });
  draw();
}

function topology() {
  const medias = { TOML: "application/toml", YAML: "application/yaml", JSON: "application/json" };
  const text = h("textarea", { id: "topology-text", rows: 12, spellcheck: false });
  const media = h(
    "select",
    { id: "topology-media" },
    Object.keys(medias).map((each) => h("option", {}, each)),
  );
  const prune = h("input", { id: "topology-prune", type: "checkbox" });
  const send = (dry) =>
    call(
      "PUT",
      query("/v1/topology", { prune: prune.checked ? "true" : "", dry_run: dry ? "true" : "" }),
      text.value,
      { media: medias[media.value] },
    );
  const summary = (reply) =>
    `${reply.added.length} added, ${reply.changed.length} changed, ${reply.removed.length} removed`;
  const extra = [
    labelled(media, "Format"),
    labelled(text, "Hosts, groups and VMs"),
    h(
      "div",
      { className: "field check" },
      prune,
      h("label", { htmlFor: "topology-prune" }, "Also remove records not named"),
    ),
  ];
  dialog({
    title: "Apply a file",
    text: "Apply the whole topology or nothing. Records missing from it are kept.",
    confirm: "Apply",
    extra,
    preview: async () => h("p", {}, `It would be: ${summary(await send(true))}.`),
    ask: () => send(false),
    command: () =>
      commandOfText("apply_topology", media.value.toLowerCase(), text.value, {
        prune: prune.checked,
      }),
    done: (reply) => note(`Applied: ${summary(reply)}.`),
  });
}
