// Suggests names under a field during typing; arrow keys and Enter, or a click, select a name.

import { get, getList, may, query } from "./api.js";
import { fill, h } from "./dom.js";
import { naturally, words } from "./format.js";
import { live } from "./live.js";

const PAUSE_MS = 120;
let count = 0;
let pressing = false;
addEventListener("pointerdown", () => (pressing = true), true);
for (const kind of ["pointerup", "pointercancel"])
  addEventListener(kind, () => (pressing = false), true);

/** Calls `then` now, or after the click if a button of the mouse is down: nothing moves under it. */
function afterPress(then) {
  if (!pressing) return then();
  const ended = new AbortController();
  for (const kind of ["pointerup", "pointercancel"])
    addEventListener(kind, () => (ended.abort(), setTimeout(then)), { signal: ended.signal });
}

/** Most zones, racks and owners that a search returns of each. */
const SORTS_MAX = 5;
/** Milliseconds for which the owners of the groups are kept. */
const OWNERS_MS = 60_000;
let owners = { at: -OWNERS_MS, names: [] };

/** Returns the owners of groups; a failed read returns those that were read before. */
async function ownersKnown() {
  if (!may("list_groups") || performance.now() - owners.at < OWNERS_MS) return owners.names;
  const found = await getList("/v1/groups", {}, "groups").catch(() => null);
  if (found) {
    const names = [...new Set(found.records.map((each) => each.owner))].filter(Boolean);
    owners = { at: performance.now(), names };
  }
  return owners.names;
}

/** Returns zones, racks and owners with a text in their names. */
async function sorts(text) {
  const lower = text.toLowerCase();
  const racks = live.racks.map(({ first, last }) =>
    first === last ? first : `${first} to ${last}`,
  );
  const every = {
    owner: await ownersKnown(),
    zone: live.racks.map((each) => each.zone).filter(Boolean),
    rack: racks,
  };
  return Object.entries(every).flatMap(([kind, names]) =>
    [...new Set(names)]
      .filter((name) => `${kind} ${name}`.toLowerCase().includes(lower))
      .sort(naturally)
      .slice(0, SORTS_MAX)
      .map((name) => ({ kind, name })),
  );
}

/** Returns the address of a record, or of the list of what belongs to an owner, zone or rack. */
export function hrefOf({ kind, name }) {
  if (kind === "owner") return query("#/groups", { Groups: `|${name}` });
  if (kind === "zone") return query("#/hosts", { Hosts: `Zone|${name}` });
  if (kind === "rack") return query("#/hosts", { Hosts: `|${name.replace(/^fault domain /, "")}` });
  return `#/${kind}s/${encodeURIComponent(name)}`;
}

/**
 * Returns hosts, VMs and groups whose names begin with a text, and operations and maintenances by
 * id; of all kinds also owners, zones and racks.
 */
export async function search(text, kinds = "") {
  const [{ found }, more] = await Promise.all([
    get(query("/v1/search", { text, kind: kinds })),
    kinds ? [] : sorts(text),
  ]);
  found.sort((one, other) => naturally(one.name, other.name));
  found.push(...more);
  if (!kinds && /^op-\d+$/i.test(text)) found.unshift({ kind: "operation", name: text });
  if (!kinds && /^m-\d+$/i.test(text)) found.unshift({ kind: "maintenance", name: text });
  return found;
}

/** Shows matches for a field's text; `choose` receives the selected match. */
export function suggest(input, find, choose) {
  const id = `suggestions-${++count}`;
  const list = h("ul", { className: "suggestions", id, role: "listbox", hidden: true });
  list.setAttribute("aria-label", "Suggestions");
  for (const [name, value] of Object.entries({
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": id,
    "aria-autocomplete": "list",
  }))
    input.setAttribute(name, value);
  input.after(list);
  let chosen = -1;
  let timer = 0;
  let found = [];
  const show = (more) => {
    found = more;
    chosen = -1;
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    input.removeAttribute("aria-activedescendant");
    fill(
      list,
      found.map((each, index) =>
        h(
          "li",
          { id: `${id}-${index}`, role: "option", onmousedown: (event) => pick(event, each) },
          each.name,
          " ",
          h("span", { className: "soft" }, words(each.kind)),
        ),
      ),
    );
  };
  const pick = (event, each) => {
    event.preventDefault();
    choose(each);
    show([]);
  };
  const mark = (index) => {
    chosen = (index + found.length) % found.length;
    [...list.children].forEach((each, place) =>
      each.setAttribute("aria-selected", String(place === chosen)),
    );
    input.setAttribute("aria-activedescendant", `${id}-${chosen}`);
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const text = input.value;
      const more = text.trim() ? await find(text).catch(() => []) : [];
      if (text === input.value && document.activeElement === input) show(more);
    }, PAUSE_MS);
  });
  input.addEventListener("blur", () => afterPress(() => show([])));
  input.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      mark(chosen + (event.key === "ArrowDown" ? 1 : chosen < 0 ? 0 : -1));
    } else if (event.key === "Enter" && chosen >= 0) pick(event, found[chosen]);
    else if (event.key === "Escape") {
      event.preventDefault();
      show([]);
    }
  });
}
