// Creates and changes elements, independently of Forewarn.

import { arrangeable } from "./arrange.js";

/** Returns an element: properties, `on…` listeners, `aria`/`data` maps, then children. */
export function h(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "aria" || key === "data") {
      for (const [part, text] of Object.entries(value))
        element.setAttribute(`${key}-${part}`, text);
    } else if (key in element && key !== "list" && key !== "form") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...shown(children));
  return element;
}

/** Returns a sentence as nodes: text in backticks is code, and `show` converts other text. */
export const coded = (text, show = (/** @type {string} */ plain) => /** @type {any} */ (plain)) =>
  text.split("`").map((each, index) => (index % 2 ? h("code", {}, each) : show(each)));

/** Returns the cells of a row, each with its column's title, which phones show next to the cell. */
export const cells = (titles, values) =>
  values.map((each, index) => h("td", { data: { label: titles[index] } }, each));

/** Returns a scrollable table around a body of rows, which people sort and filter. */
export function framed(label, titles, body, className = "") {
  const table = /** @type {HTMLTableElement} */ (
    h(
      "table",
      { className },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          titles.map((each) => h("th", { scope: "col" }, each)),
        ),
      ),
      body,
    )
  );
  const scroll = h(
    "div",
    { className: "scroll", tabIndex: 0, role: "region", aria: { label } },
    table,
  );
  const ordered = className === "history"; // newest first, read page by page
  return h("div", {}, ordered ? "" : arrangeable(table, label), scroll);
}

/** Returns a scrollable table; rows are lists of cells. */
export const table = (label, titles, rows, className = "") =>
  framed(
    label,
    titles,
    h(
      "tbody",
      {},
      rows.map((each) => h("tr", { className }, cells(titles, each))),
    ),
  );

/** Returns the head of a view: its title, and what stands beside it. */
export const head = (title, ...beside) =>
  h("div", { className: "head" }, h("h1", {}, title), ...beside);

/** Returns a card with a title. */
export const section = (title, ...children) =>
  h("section", { className: "card" }, h("h2", {}, title), ...children);

/** Returns a paragraph in a soft colour. */
export const soft = (...children) => h("p", { className: "soft" }, ...children);

/** Returns a button; `spoken` is its name for screen readers, if the label alone is not clear. */
export const press = (label, onclick, { look = "small", spoken = "", data = {} } = {}) =>
  h(
    "button",
    {
      type: "button",
      className: look,
      data,
      aria: spoken && spoken !== label ? { label: spoken } : {},
      onclick,
    },
    label,
  );

/** Returns a group of buttons. */
export const buttonGroup = (label, ...children) =>
  h("div", { className: "buttons", role: "group", aria: { label } }, ...children);

/** Returns a button that opens a menu of more buttons; without buttons nothing. */
export const menu = (label, spoken, ...items) => {
  const offered = shown(items);
  if (!offered.length) return "";
  return h(
    "details",
    {
      className: "menu",
      data: { menu: spoken },
      onkeydown: (event) => event.key === "Escape" && closeMenu(event.currentTarget),
      onclick: (event) => event.target.closest("button") && closeMenu(event.currentTarget),
    },
    h("summary", { aria: { label: spoken } }, label),
    h("div", {}, offered),
  );
};

function closeMenu(box) {
  if (!box.open) return;
  box.open = false;
  box.querySelector("summary").focus();
}

const openMenus = () =>
  /** @type {NodeListOf<HTMLDetailsElement>} */ (document.querySelectorAll(".menu[open]"));
addEventListener("pointerdown", ({ target }) => {
  for (const each of openMenus()) each.open = each.contains(/** @type {Node} */ (target));
});

/** Returns an input with its label. */
export const labelled = (input, label) =>
  h("div", { className: "field" }, h("label", { htmlFor: input.id }, label), input);

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...shown(children));
  return element;
}

/** Returns children without those that a view leaves out. */
const shown = (children) =>
  children
    .flat(4)
    .filter((each) => each !== null && each !== undefined && each !== false && each !== "");

/** Updates a list to one element for each key, in order; elements are created once and then changed. */
export function keyed(list, items, keyOf, make, change) {
  const known = list.known ?? (list.known = new Map());
  const wanted = new Set();
  let place = list.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    wanted.add(key);
    let element = known.get(key);
    if (!element) known.set(key, (element = make(item)));
    change(element, item);
    if (element === place) place = place.nextElementSibling;
    else list.insertBefore(element, place);
  }
  for (const [key, element] of known) {
    if (!wanted.has(key)) {
      element.remove();
      known.delete(key);
    }
  }
}

/** Sets a text only if it differs, because screen readers announce changes. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Announces a sentence to screen readers. */
export function say(text) {
  setText(document.getElementById("said"), text);
}

/** Redraws, and restores the focus and open menus. */
export function keepFocus(main, draw) {
  const before = /** @type {HTMLElement} */ (document.activeElement);
  const alike = (one) =>
    one.tagName === before.tagName &&
    one.id === before.id &&
    one.dataset.act === before.dataset.act &&
    one.getAttribute("href") === before.getAttribute("href") &&
    one.getAttribute("aria-label") === before.getAttribute("aria-label") &&
    one.textContent === before.textContent;
  const place = main.contains(before)
    ? [...main.querySelectorAll(before.tagName)].filter(alike).indexOf(before)
    : -1;
  const menus = [...openMenus()].map((each) => each.dataset.menu);
  const tops = [...main.querySelectorAll(".scroll")].map((each) => each.scrollTop);
  draw();
  for (const each of main.querySelectorAll(".menu"))
    each.open ||= menus.includes(each.dataset.menu);
  [...main.querySelectorAll(".scroll")].forEach(
    (each, index) => (each.scrollTop = tops[index] ?? 0),
  );
  if (place >= 0 && !before.isConnected)
    [...main.querySelectorAll(before.tagName)].filter(alike)[place]?.focus({ preventScroll: true });
}

let pressed = false;
const released = new Set();
addEventListener("pointerdown", () => (pressed = true), true);
for (const name of ["pointerup", "pointercancel"]) {
  addEventListener(
    name,
    () => {
      pressed = false;
      setTimeout(() => {
        for (const each of released) each();
        released.clear();
      });
    },
    true,
  );
}

/** Waits until no button is pressed, because a pressed button must not be replaced. */
export const unpressed = () =>
  pressed ? new Promise((done) => released.add(done)) : Promise.resolve();

const NOTES_MAX = 3;
let noteCount = 0;

/** Shows a message for some seconds; errors stay until the user closes them. */
export function note(text, kind = "done", ...more) {
  const close = h(
    "button",
    { type: "button", className: "icon", aria: { label: "Close" }, onclick: () => box.remove() },
    "×",
  );
  const box = h(
    "div",
    { className: `note ${kind}`, id: `note-${++noteCount}` },
    h("p", {}, text, ...more),
    close,
  );
  const notes = document.getElementById("notes");
  for (const each of notes.querySelectorAll(".note.done")) each.remove(); // show only the newest message
  notes.append(box);
  while (notes.children.length > NOTES_MAX) notes.firstElementChild.remove();
  if (kind === "done") setTimeout(() => box.remove(), 8000);
}
