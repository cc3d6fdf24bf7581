// Map of all hosts on one canvas: hosts are cells, racks are blocks, and zooming shows names.
// A change costs O(changed cells); a frame costs O(visible cells).

import { h, say, setText } from "./dom.js";
import { count, plural, words } from "./format.js";
import { hostAt, live } from "./live.js";

const CELL_MAX = 92;
const ZOOM_MAX = 60;
/** Minimum size of individually drawn cells, in pixels; smaller cells are pixels of a bitmap. */
const DRAWN_FROM = 7;
const NAMED_FROM = 52;
const HEADER = 24;
/** Pixels between two racks; in a bitmap, racks are whole cells apart. */
const GAP = 12;
/** Pixels of a rack's name above its hosts; a bitmap has no room for it. */
const RACK_HEADER = 15;
const rackHeaderOf = (size) => (size < DRAWN_FROM ? 0 : RACK_HEADER / size);
/** Narrowest rack that shows its name, in pixels. */
const RACK_NAMED_FROM = 28;
/** Rows of a zone's title, and cells between two racks, for cells of a size. */
const headerOf = (size) => (size < DRAWN_FROM ? Math.ceil(HEADER / size) : HEADER / size);
const gapOf = (size) => (size < DRAWN_FROM ? 1 : Math.min(GAP / size, 1));
/** Tried ratios of a rack's width to its height; the map uses the ratio with the largest cells. */
const ASPECTS = [1.6, 1, 0.6, 0.35, 2.6, 6];

/**
 * Returns a map that opens a host by its name; `marked` hosts have a frame.
 * @param {(name: string) => void} open
 * @param {{marked?: ((name: string) => boolean) | null, chooses?: boolean, title?: string}} options
 */
export function heatmap(
  open,
  { marked = null, chooses = false, title = "Hosts by zone and rack" } = {},
) {
  const helpId = chooses ? "map-help-choose" : "map-help";
  const canvas = h("canvas", {
    className: "map",
    tabIndex: 0,
    role: "application",
    aria: { label: "Hosts", describedby: helpId },
  });
  const tip = h("div", { className: "tip", hidden: true, aria: { hidden: "true" } });
  const button = (text, label, act) =>
    h(
      "button",
      { type: "button", className: "icon", aria: { label }, title: label, onclick: act },
      text,
    );
  const tools = h(
    "div",
    { className: "map-tools" },
    button("+", "Zoom in", () => zoomBy(2)),
    button("−", "Zoom out", () => zoomBy(0.5)),
    button("⤢", "Show all", () => reset()),
  );
  const help = h(
    "p",
    { id: helpId, className: "quiet-label" },
    `Arrow keys choose a host, Enter ${chooses ? "adds or removes" : "opens"} it, plus and minus zoom, 0 shows all.`,
  );
  const box = h("div", { className: "map-box" }, canvas, tip, help);
  const whole = h(
    "div",
    {},
    h("div", { className: "head" }, h(chooses ? "h3" : "h2", {}, title), tools),
    box,
  );
  const pen = canvas.getContext("2d", { alpha: false });
  const bitmap = document.createElement("canvas");
  let width = 0,
    height = 0,
    ratio = 1,
    cell = 1;
  let blocks = [],
    zones = [],
    columns = 1,
    rows = 1,
    colours = {};
  let zoom = 1,
    left = 0,
    above = 0;
  let chosen = -1,
    hovered = -1,
    framed = false;
  const view = { element: whole, frames: 0, drawn: 0 };

  // --- layout ---------------------------------------------------------------------------------

  function flow(size, aspect) {
    const wide = Math.max(Math.floor(width / size), 1);
    const [header, gap, name] = [headerOf(size), gapOf(size), rackHeaderOf(size)];
    const found = { blocks: [], zones: [], rows: 0, wide };
    let x = 0,
      y = 0,
      tall = 0,
      place = 0,
      zone = null;
    for (const [index, rack] of live.racks.entries()) {
      const hosts = Object.values(rack.hosts).reduce((sum, each) => sum + each, 0);
      const across = Math.max(Math.min(Math.ceil(Math.sqrt(hosts * aspect)), hosts, wide), 1);
      const down = Math.ceil(hosts / across);
      if (rack.zone !== zone) {
        y += tall + (zone === null ? 0 : gap);
        found.zones.push({ name: rack.zone, y });
        zone = rack.zone;
        [x, y, tall] = [0, y + header, 0];
      } else if (x + across > wide) [x, y, tall] = [0, y + tall + gap, 0];
      found.blocks.push({ x, y: y + name, across, down, first: place, hosts, index });
      x += across + gap;
      tall = Math.max(tall, name + down);
      place += hosts;
    }
    found.rows = y + tall;
    return found;
  }

  function layOut() {
    let best = { size: 0, aspect: 1 };
    for (const aspect of ASPECTS) {
      let [low, high] = [0.5, CELL_MAX];
      for (let turn = 0; turn < 12; turn += 1) {
        const size = (low + high) / 2;
        const found = flow(size, aspect);
        if (
          found.rows * size <= height &&
          found.blocks.every((each) => each.across < found.wide || size <= 1)
        )
          low = size;
        else high = size;
      }
      if (low > best.size * 1.04) best = { size: low, aspect };
    }
    cell = best.size;
    const found = flow(cell, best.aspect);
    ({ blocks, zones, rows } = found);
    columns = found.wide;
    bitmap.width = columns;
    bitmap.height = Math.max(rows, 1);
    paintAll();
  }

  function paintAll() {
    if (cell >= DRAWN_FROM) return request();
    const ink = bitmap.getContext("2d");
    const image = ink.createImageData(bitmap.width, bitmap.height);
    const shades = Object.fromEntries(
      Object.entries(colours.cells).map(([letter, text]) => [letter.charCodeAt(0), rgb(text)]),
    );
    const ground = rgb(colours.ground);
    for (let at = 0; at < image.data.length; at += 4) image.data.set(ground, at);
    for (const block of blocks) {
      for (let each = 0; each < block.hosts; each += 1) {
        const x = block.x + (each % block.across),
          y = block.y + Math.floor(each / block.across);
        image.data.set(
          shades[live.letters[block.first + each]] ?? ground,
          (y * bitmap.width + x) * 4,
        );
      }
    }
    ink.putImageData(image, 0, 0);
    request();
  }

  function paint(changed) {
    const ink = bitmap.getContext("2d");
    for (const [place] of changed) {
      const spot = spotOf(place);
      if (!spot) continue;
      ink.fillStyle = colours.cells[String.fromCharCode(live.letters[place])];
      ink.fillRect(spot.x, spot.y, 1, 1);
    }
    request();
  }

  function blockOf(place) {
    let [low, high] = [0, blocks.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (blocks[middle].first <= place) low = middle;
      else high = middle - 1;
    }
    return blocks[low];
  }

  function spotOf(place) {
    const block = blockOf(place);
    if (!block || place < 0 || place >= block.first + block.hosts) return null;
    const at = place - block.first;
    return { x: block.x + (at % block.across), y: block.y + Math.floor(at / block.across), block };
  }

  function placeAt(px, py) {
    const x = (px - left) / (cell * zoom),
      y = (py - above) / (cell * zoom);
    for (const block of blocks) {
      if (x < block.x || x >= block.x + block.across || y < block.y || y >= block.y + block.down)
        continue;
      const at = Math.floor(y - block.y) * block.across + Math.floor(x - block.x);
      return at < block.hosts ? block.first + at : -1;
    }
    return -1;
  }

  // --- drawing --------------------------------------------------------------------------------

  function request() {
    if (framed) return;
    framed = true;
    requestAnimationFrame(draw);
  }

  function draw() {
    framed = false;
    if (!width) return;
    const size = cell * zoom;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = colours.ground;
    pen.fillRect(0, 0, width, height);
    if (size < DRAWN_FROM) {
      pen.imageSmoothingEnabled = false;
      pen.drawImage(bitmap, left, above, bitmap.width * size, bitmap.height * size);
    } else drawCells(size);
    drawLabels(size);
    for (const [place, colour] of [
      [hovered, colours.soft],
      [chosen, colours.ink],
    ]) {
      const spot = spotOf(place);
      if (!spot) continue;
      pen.strokeStyle = colour;
      pen.lineWidth = 2;
      pen.strokeRect(left + spot.x * size - 1, above + spot.y * size - 1, size + 1, size + 1);
    }
    view.frames += 1;
    view.drawn = performance.now();
  }

  function drawCells(size) {
    const gap = size > 24 ? 3 : 1;
    const inner = size - gap;
    const corner = Math.min(inner / 5, 7);
    for (const block of blocks) {
      const top = above + block.y * size,
        side = left + block.x * size;
      if (
        top > height ||
        side > width ||
        top + block.down * size < 0 ||
        side + block.across * size < 0
      )
        continue;
      const from = Math.max(Math.floor(-top / size), 0),
        to = Math.min(Math.ceil((height - top) / size), block.down);
      const first = Math.max(Math.floor(-side / size), 0),
        last = Math.min(Math.ceil((width - side) / size), block.across);
      for (let row = from; row < to; row += 1) {
        for (let column = first; column < last; column += 1) {
          const at = row * block.across + column;
          if (at >= block.hosts) break;
          drawCell(block.first + at, {
            x: side + column * size,
            y: top + row * size,
            inner,
            corner,
          });
        }
      }
    }
  }

  function drawCell(place, { x, y, inner, corner }) {
    const letter = String.fromCharCode(live.letters[place]);
    pen.fillStyle = colours.cells[letter];
    if (inner < 12) pen.fillRect(x, y, inner, inner);
    else {
      pen.beginPath();
      pen.roundRect(x, y, inner, inner, corner);
      pen.fill();
    }
    if (inner < NAMED_FROM && !marked) return;
    const host = hostAt(place);
    if (!host) return;
    if (marked?.(host.name)) {
      pen.strokeStyle = chooses ? colours.ink : colours.done;
      pen.lineWidth = 3;
      pen.strokeRect(x + 1.5, y + 1.5, inner - 3, inner - 3);
    }
    if (inner < NAMED_FROM) return;
    pen.fillStyle = colours.on[letter];
    pen.font = "600 12px system-ui, sans-serif";
    pen.textBaseline = "top";
    pen.fillText(shortened(host.name, inner - 14), x + 7, y + 8);
    pen.font = "11px system-ui, sans-serif";
    pen.fillText(shortened(plural(host.vms, "VM"), inner - 14), x + 7, y + 25);
    if (inner > 68) pen.fillText(live.states[letter] ?? "", x + 7, y + inner - 19);
  }

  function shortened(text, room) {
    if (pen.measureText(text).width <= room) return text;
    let kept = text;
    while (kept.length > 1 && pen.measureText(`${kept}…`).width > room) kept = kept.slice(0, -1);
    return `${kept}…`;
  }

  function drawLabels(size) {
    pen.fillStyle = colours.soft;
    pen.font = "600 12px system-ui, sans-serif";
    pen.textBaseline = "alphabetic";
    for (const zone of zones) {
      const y = above + (zone.y + headerOf(cell)) * size - 8; // just above its hosts
      if (y > -20 && y < height + 20)
        pen.fillText(
          zone.name ? `Zone ${zone.name}` : "Hosts without a zone",
          Math.max(left, 0) + 1,
          y,
        );
    }
    if (cell < DRAWN_FROM) return;
    pen.font = "11px system-ui, sans-serif";
    for (const { x, y, across, index } of blocks) {
      const [side, top, room] = [left + x * size, above + y * size, across * size - 4];
      if (top < 0 || top > height + RACK_HEADER || side > width || side + room < 0) continue;
      const { first, last } = live.racks[index];
      const text = first === last ? first : `${first} to ${last}`;
      const brief = text.replaceAll("fault domain", "FD").replaceAll("rack ", "");
      if (room >= RACK_NAMED_FROM)
        pen.fillText(
          pen.measureText(text).width > room ? shortened(brief, room) : text,
          side + 1,
          top - 4,
        );
    }
  }

  // --- moving ---------------------------------------------------------------------------------

  function bound() {
    const [wide, tall] = [columns * cell * zoom, rows * cell * zoom];
    left = wide <= width ? 0 : Math.min(Math.max(left, width - wide), 0);
    above = tall <= height ? 0 : Math.min(Math.max(above, height - tall), 0);
    request();
  }

  function zoomBy(factor, px = width / 2, py = height / 2) {
    const next = Math.min(Math.max(zoom * factor, 1), Math.max(ZOOM_MAX, 90 / cell));
    left = px - ((px - left) * next) / zoom;
    above = py - ((py - above) * next) / zoom;
    zoom = next;
    bound();
  }

  function reset() {
    [zoom, left, above] = [1, 0, 0];
    request();
  }

  function choose(place) {
    if (place < 0 || place >= live.hostCount) return;
    chosen = place;
    const { x, y } = spotOf(place);
    const size = cell * zoom;
    if (left + x * size < 0 || left + (x + 1) * size > width) left = width / 2 - x * size;
    if (above + y * size < 0 || above + (y + 1) * size > height) above = height / 2 - y * size;
    bound();
    describe(place, 0);
  }

  /** Shows the selected host once its name is loaded. */
  function describe(place, turn) {
    if (place !== chosen) return;
    const host = hostAt(place);
    if (host) say(sentence(place, host));
    else if (turn < 20) setTimeout(() => describe(place, turn + 1), 100);
  }

  function sentence(place, host) {
    const rack = live.racks[blockOf(place).index];
    const where = rack.first === rack.last ? rack.first : `${rack.first} to ${rack.last}`;
    return `${host.name}: ${live.states[String.fromCharCode(live.letters[place])]}, ${plural(host.vms, "VM")}, ${rack.zone ? `zone ${rack.zone}, ` : ""}${where}`;
  }

  function openAt(place) {
    const host = hostAt(place);
    if (host) open(host.name);
  }

  function key(event) {
    const spot = spotOf(Math.max(chosen, 0));
    if (!spot || event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {
      ArrowRight: () => choose(chosen + 1),
      ArrowLeft: () => choose(Math.max(chosen - 1, 0)),
      ArrowDown: () =>
        choose(chosen < 0 ? 0 : Math.min(chosen + spot.block.across, live.hostCount - 1)),
      ArrowUp: () => choose(Math.max(chosen - spot.block.across, 0)),
      Home: () => choose(0),
      End: () => choose(live.hostCount - 1),
      Enter: () => chosen >= 0 && openAt(chosen),
      "+": () => zoomBy(2),
      "=": () => zoomBy(2),
      "-": () => zoomBy(0.5),
      0: reset,
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  const held = new Map();
  let moved = 0;

  function down(event) {
    held.set(event.pointerId, event);
    moved = 0;
    canvas.setPointerCapture(event.pointerId);
  }

  function move(event) {
    const before = held.get(event.pointerId);
    const [px, py] = [event.offsetX, event.offsetY];
    if (before && held.size === 1) {
      left += event.clientX - before.clientX;
      above += event.clientY - before.clientY;
      moved += Math.abs(event.clientX - before.clientX) + Math.abs(event.clientY - before.clientY);
      bound();
    } else if (before && held.size === 2) {
      const [other] = [...held.values()].filter((each) => each.pointerId !== event.pointerId);
      const apart = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
      zoomBy(apart(event) / Math.max(apart(before), 1), px, py);
      moved += 20;
    }
    if (before) held.set(event.pointerId, event);
    point(event.pointerType === "mouse" && !before ? placeAt(px, py) : -1, px, py);
  }

  function point(place, px, py) {
    if (place !== hovered) request();
    hovered = place;
    const host = place < 0 ? null : hostAt(place);
    tip.hidden = place < 0;
    canvas.style.cursor = place < 0 ? "default" : "pointer";
    if (place < 0) return;
    setText(tip, host ? sentence(place, host) : "…");
    tip.style.left = `${Math.min(px + 14, Math.max(width - 240, 0))}px`;
    tip.style.top = `${Math.min(py + 16, height - 40)}px`;
  }

  function up(event) {
    held.delete(event.pointerId);
    if (moved > 6) return;
    const place = placeAt(event.offsetX, event.offsetY);
    if (cell * zoom < DRAWN_FROM)
      zoomBy(Math.max(24 / (cell * zoom), 2), event.offsetX, event.offsetY);
    else if (place >= 0) openAt(place);
  }

  canvas.addEventListener("keydown", key);
  canvas.addEventListener("focus", () => chosen < 0 && live.hostCount && choose(0));
  canvas.addEventListener("pointerdown", down);
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", (event) => held.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => point(-1));
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoomBy(Math.exp(-event.deltaY / 200), event.offsetX, event.offsetY);
    },
    { passive: false },
  );

  function measure() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    const letters = [..."sobfrapdh"];
    colours = {
      ground: of("--card"),
      soft: of("--soft"),
      ink: of("--ink"),
      done: of("--good"),
      cells: Object.fromEntries(letters.map((each) => [each, of(`--s-${each}`)])),
      on: Object.fromEntries(letters.map((each) => [each, of(`--on-${each}`)])),
    };
    [width, height, ratio] = [box.clientWidth, box.clientHeight, window.devicePixelRatio || 1];
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }

  view.update = () => {
    measure();
    if (width) layOut();
    bound();
    canvas.setAttribute("aria-label", `Map of ${count(live.hostCount)} hosts: ${legend()}`);
  };
  view.change = paint;
  /** Current size of a cell, in pixels. */
  Object.defineProperty(view, "size", { get: () => cell * zoom });
  view.redraw = request;
  /** Returns the centre of a host's cell, in pixels of the canvas. */
  view.middle = (place) => {
    const { x, y } = spotOf(place);
    return [left + (x + 0.5) * cell * zoom, above + (y + 0.5) * cell * zoom];
  };
  const resized = new ResizeObserver(() => box.isConnected && view.update());
  resized.observe(box);
  view.close = () => resized.disconnect();
  return view;
}

function legend() {
  const found = {};
  for (const rack of live.racks)
    for (const [letter, hosts] of Object.entries(rack.hosts))
      found[letter] = (found[letter] ?? 0) + hosts;
  return Object.entries(live.states)
    .filter(([letter]) => found[letter])
    .map(([letter, word]) => `${count(found[letter])} ${words(word).toLowerCase()}`)
    .join(", ");
}

function rgb(text) {
  const found = text.match(/^#(..)(..)(..)$/);
  return found ? [...found.slice(1).map((each) => parseInt(each, 16)), 255] : [128, 128, 128, 255];
}
