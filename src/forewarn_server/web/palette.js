// The palette of Ctrl+K: every view, every action of the present view, and records by name.

import { open } from "./actions.js";
import { switchDensity } from "./density.js";
import { fill, h } from "./dom.js";
import { words } from "./format.js";
import { hrefOf, search } from "./suggest.js";

const SHOWN_MAX = 12;
const PAUSE_MS = 120;

/** Returns the views and the actions that the page offers now. */
function offered() {
  const pressed = (selector) =>
    /** @type {HTMLElement[]} */ ([...document.querySelectorAll(selector)]);
  const views = pressed("#views a[href^='#/']:not([hidden])").map((each) => ({
    label: each.getAttribute("aria-label") ?? each.textContent,
    hint: "View",
    run: () => (location.hash = each.getAttribute("href")),
  }));
  const actions = pressed("main [data-act]").map((each) => ({
    label: each.getAttribute("aria-label") ?? each.textContent,
    hint: "Action",
    run: () => each.click(),
  }));
  const switches = ["theme", "clock"].map((id) => ({
    label: { theme: "Switch between light and dark", clock: "Switch between UTC and local time" }[
      id
    ],
    hint: "Setting",
    run: () => document.getElementById(id).click(),
  }));
  switches.push({
    label: "Switch between compact and comfortable tables",
    hint: "Setting",
    run: switchDensity,
  });
  return [...actions, ...views, ...switches];
}

/** Opens the palette; choosing an entry closes it first. */
export function palette() {
  if (document.querySelector("dialog[open]")) return;
  const entries = offered();
  const input = h("input", {
    id: "palette-text",
    type: "search",
    role: "combobox",
    placeholder: "A view, an action, or the name of a record",
    autocomplete: "off",
    spellcheck: false,
    aria: { expanded: "true", controls: "palette-list", autocomplete: "list" },
  });
  const list = h("ul", { id: "palette-list", className: "choices", role: "listbox" });
  list.setAttribute("aria-label", "Found");
  let found = [];
  let chosen = 0;
  let timer = 0;
  const mark = (index) => {
    chosen = found.length ? (index + found.length) % found.length : 0;
    [...list.children].forEach((each, place) =>
      each.setAttribute("aria-selected", String(place === chosen)),
    );
    input.setAttribute("aria-activedescendant", `palette-${chosen}`);
    list.children[chosen]?.scrollIntoView({ behavior: "instant", block: "nearest" });
  };
  const run = (each) => {
    box.close();
    each?.run();
  };
  const show = (records) => {
    const text = input.value.trim().toLowerCase();
    const asked = text.split(/\s+/);
    const fits = ({ label }) => asked.every((each) => label.toLowerCase().includes(each));
    const begins = ({ label }) => Number(!label.toLowerCase().startsWith(text));
    found = [...entries.filter(fits), ...records]
      .toSorted((one, other) => begins(one) - begins(other))
      .slice(0, SHOWN_MAX);
    fill(
      list,
      found.length
        ? found.map((each, index) =>
            h(
              "li",
              { id: `palette-${index}`, role: "option", onclick: () => run(each) },
              each.label,
              " ",
              h("span", { className: "soft" }, each.hint),
            ),
          )
        : h("li", { role: "option", aria: { disabled: "true" } }, "Nothing is named so."),
    );
    mark(0);
  };
  input.addEventListener("input", () => {
    show([]);
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const text = input.value.trim();
      const records = text ? await search(text).catch(() => []) : [];
      if (text !== input.value.trim()) return;
      show(
        records.map((each) => ({
          label: each.name,
          hint: words(each.kind),
          run: () => (location.hash = hrefOf(each)),
        })),
      );
    }, PAUSE_MS);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      mark(chosen + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (found[chosen]) run(found[chosen]);
    }
  });
  const form = h(
    "form",
    { method: "dialog" },
    h("label", { id: "dialog-title", className: "quiet-label", htmlFor: "palette-text" }, "Go to"),
    input,
    list,
  );
  const box = open(form, "palette");
  show([]);
  input.focus();
}
