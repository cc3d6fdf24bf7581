// Bar charts of numbers over time or by name; a text beside each bar has the same number.

import { h } from "./dom.js";

/**
 * Returns horizontal bars, one for each row; parts of a bar have looks of the page's colours.
 * @param {{label: any, text: string, parts: {look: string, value: number}[]}[]} rows
 */
export function bars(label, rows) {
  const most = Math.max(1, ...rows.map((row) => sum(row.parts)));
  return h(
    "ul",
    { className: "bars", aria: { label } },
    rows.map((row) =>
      h(
        "li",
        {},
        h("span", { className: "bar-name" }, row.label),
        h(
          "span",
          { className: "bar-track", aria: { hidden: "true" } },
          row.parts
            .filter(({ value }) => value > 0)
            .map(({ look, value }) => {
              const part = h("span", { className: `fill-${look}` });
              part.style.width = `${(value / most) * 100}%`;
              return part;
            }),
        ),
        h("span", { className: "bar-text" }, row.text),
      ),
    ),
  );
}

const sum = (parts) => parts.reduce((total, { value }) => total + value, 0);

const SVG = "http://www.w3.org/2000/svg";
const [WIDE, TALL] = [600, 120];

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

/**
 * Returns columns over time, each with a title for the pointer; `summary` says the same in words.
 * @param {{title: string, value: number, label?: string}[]} columns
 */
export function columns(summary, columns, look = "r") {
  const most = Math.max(1e-9, ...columns.map((each) => each.value));
  const width = WIDE / Math.max(columns.length, 1);
  const picture = shape("svg", {
    viewBox: `0 0 ${WIDE} ${TALL}`,
    class: "columns-chart",
    role: "img",
    "aria-label": summary,
    preserveAspectRatio: "none",
  });
  columns.forEach(({ title, value }, index) => {
    const height = value ? Math.max((value / most) * TALL, 2) : 0;
    const column = shape("rect", {
      x: index * width + width * 0.1,
      y: TALL - height,
      width: width * 0.8,
      height,
      class: `shape-${look}`,
    });
    const hover = shape("title", {});
    hover.textContent = title;
    column.append(hover);
    picture.append(column);
  });
  const marks = columns
    .map(({ label }) => label)
    .filter((each, index, all) => each && (index === 0 || index === all.length - 1));
  return h(
    "figure",
    { className: "chart" },
    picture,
    h(
      "div",
      { className: "chart-axis soft", aria: { hidden: "true" } },
      marks.map((each) => h("span", {}, each)),
    ),
    h("figcaption", { className: "soft" }, summary),
  );
}

/**
 * Returns lines over time as steps or slopes: each has a look and points of a time and a number.
 * @param {{look: string, dashed?: boolean, points: [number, number][]}[]} lines
 */
export function lines(summary, lines, { from, to, now }) {
  const most = Math.max(1, ...lines.flatMap(({ points }) => points.map(([, value]) => value)));
  const x = (at) => ((at - from) / Math.max(to - from, 1)) * WIDE;
  const y = (value) => TALL - 2 - (value / most) * (TALL - 4);
  const picture = shape("svg", {
    viewBox: `0 0 ${WIDE} ${TALL}`,
    class: "columns-chart",
    role: "img",
    "aria-label": summary,
    preserveAspectRatio: "none",
  });
  for (const { look, dashed, points } of lines)
    picture.append(
      shape("polyline", {
        points: points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" "),
        class: `line-${look}${dashed ? " dashed" : ""}`,
      }),
    );
  if (now > from && now < to)
    picture.append(shape("line", { x1: x(now), x2: x(now), y1: 0, y2: TALL, class: "line-now" }));
  return h(
    "figure",
    { className: "chart" },
    picture,
    h("figcaption", { className: "soft" }, summary),
  );
}
