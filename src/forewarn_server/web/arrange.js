// Sorts and filters the rows of a table. The address keeps both, so that a view can be shared.

import { densityButton } from "./density.js";

/** Compares names with numbers by value: `h9` before `h10`. */
export const naturally = new Intl.Collator("en", { numeric: true }).compare;

/** Rows from which a table has a field to filter them. */
const FILTERED_FROM = 8;
/** Titles of columns that nobody sorts by. */
const UNSORTED = ["Action", "Not approved by", "Names"];

/** Returns the arrangement of a table that the address has: `find`, `column` and `down`. */
function fromAddress(label) {
  const [, asked = ""] = location.hash.split("?");
  const [column = "", find = ""] = (new URLSearchParams(asked).get(label) ?? "").split("|");
  return { find, column: column.replace(/^-/, ""), down: column.startsWith("-") };
}

function toAddress(label, { find, column, down }) {
  const [path, asked = ""] = location.hash.split("?");
  const parameters = new URLSearchParams(asked);
  if (find || column) parameters.set(label, `${down ? "-" : ""}${column}|${find}`);
  else parameters.delete(label);
  const text = String(parameters);
  history.replaceState(history.state, "", `${path || "#/"}${text ? `?${text}` : ""}`);
}

/** Returns what a cell is sorted by: its time, or its text. */
function keyOf(row, index) {
  const cell = row.cells[index];
  return cell?.querySelector("time")?.dateTime ?? cell?.textContent.trim() ?? "";
}

/**
 * Makes the columns of a table sortable, and returns a field that filters its rows.
 *
 * The table sends `arrange` when somebody sorts or filters it, so that a list can read its rest.
 */
export function arrangeable(table, label) {
  const [body] = table.tBodies;
  const heads = [...table.tHead.rows[0].cells];
  const titles = heads.map((each) => each.textContent);
  const state = fromAddress(label);
  const places = new WeakMap();
  let seen = 0;

  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Filter";
  field.value = state.find;
  field.setAttribute("aria-label", `Filter ${label}`);
  const found = document.createElement("span");
  found.className = "soft";
  found.setAttribute("role", "status");
  const box = document.createElement("div");
  box.className = "table-filter";
  box.append(field, found, densityButton());

  const apply = () => {
    watcher.disconnect();
    const rows = [...body.rows];
    for (const row of rows) if (!places.has(row)) places.set(row, seen++);
    const index = titles.indexOf(state.column);
    const sign = state.down ? -1 : 1;
    const order = (one, other) =>
      (index < 0 ? 0 : sign * naturally(keyOf(one, index), keyOf(other, index))) ||
      places.get(one) - places.get(other);
    if (index >= 0 || table.dataset.sorted) body.append(...rows.sort(order));
    table.dataset.sorted = index >= 0 ? state.column : "";
    const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((each) => text.includes(each));
      left += row.hidden ? 0 : 1;
    }
    box.hidden = rows.length < FILTERED_FROM && !state.find;
    found.textContent = state.find ? `${left} of ${rows.length}` : "";
    heads.forEach((each, place) => {
      if (place === index) each.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else each.removeAttribute("aria-sort");
    });
    watcher.observe(body, { childList: true });
  };
  const watcher = new MutationObserver(apply);
  const change = () => {
    toAddress(label, state);
    apply();
    table.dispatchEvent(new Event("arrange"));
  };
  field.addEventListener("input", () => {
    state.find = field.value.replaceAll("|", "");
    change();
  });
  heads.forEach((head, index) => {
    if (UNSORTED.includes(titles[index])) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.textContent = titles[index];
    button.addEventListener("click", () => {
      const again = state.column === titles[index];
      state.column = again && state.down ? "" : titles[index];
      state.down = again && !state.down;
      change();
    });
    head.replaceChildren(button);
  });
  apply();
  return box;
}
