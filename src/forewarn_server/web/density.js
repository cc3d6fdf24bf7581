// How close the rows of tables are. The browser remembers it, on every page of the service.

/** Storage key of the chosen density: `compact`, or nothing. */
const DENSITY = "forewarn-density";

export const isCompact = () => document.documentElement.dataset.density === "compact";

/** Uses the density that was chosen last. */
export function restoreDensity() {
  setDensity(localStorage.getItem(DENSITY) ?? "");
}

/** Switches between compact and comfortable tables. */
export function switchDensity() {
  const density = isCompact() ? "" : "compact";
  localStorage.setItem(DENSITY, density);
  setDensity(density);
}

function setDensity(density) {
  document.documentElement.dataset.density = density;
  for (const button of document.querySelectorAll(".density"))
    button.setAttribute("aria-pressed", String(isCompact()));
}

/** Returns a button that switches the density, for the head of a table. */
export function densityButton() {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "density small";
  button.textContent = "Compact";
  button.title = "Show more rows at once";
  button.setAttribute("aria-pressed", String(isCompact()));
  button.addEventListener("click", switchDensity);
  return button;
}
