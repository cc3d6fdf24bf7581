// Copies texts to the clipboard.

import { h } from "./dom.js";

/** Copies a text; `beside` is an element of the open dialog, if a dialog is open. */
export function copy(text, beside = document.body) {
  // The clipboard's own API needs HTTPS.
  const area = h("textarea", { className: "quiet-label", aria: { hidden: "true" } });
  area.value = text;
  const before = /** @type {HTMLElement} */ (document.activeElement);
  beside.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  before?.focus({ preventScroll: true });
}
