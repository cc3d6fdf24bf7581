// Choice of hosts for a field of names: whole racks by a tick, single hosts on the map.

import { get, query } from "./api.js";
import { fill, h, note } from "./dom.js";
import { naturally, plural } from "./format.js";
import { heatmap } from "./heatmap.js";
import { listen, live } from "./live.js";

const RACKS_SHOWN_MAX = 60;
/** Names that one request reads. */
const NAMES_AT_ONCE = 1000;

/** Returns the racks with their title, first place and number of hosts. */
function racks() {
  let first = 0;
  return live.racks.map((rack) => {
    const hosts = Object.values(rack.hosts).reduce((sum, each) => sum + each, 0);
    const names = rack.first === rack.last ? rack.first : `${rack.first} to ${rack.last}`;
    const found = { title: `${rack.zone ? `Zone ${rack.zone}: ` : ""}${names}`, first, hosts };
    first += hosts;
    return found;
  });
}

/** Reads the names of a rack's hosts. */
async function namesIn(rack) {
  const names = [];
  while (names.length < rack.hosts) {
    const limit = Math.min(NAMES_AT_ONCE, rack.hosts - names.length);
    const from = rack.first + names.length;
    const reply = await get(query("/v1/overview/hosts", { from, limit }));
    if (!reply.hosts.length) break;
    names.push(...reply.hosts.map((each) => each.name));
  }
  return names;
}

/** Returns racks of some hosts, in the form of `racks`; each knows its names. */
function racksOf(some) {
  const found = new Map();
  for (const { host, zone, rack } of some) {
    const place = [zone ? `Zone ${zone}` : "", rack].filter(Boolean).join(": ") || "No zone";
    found.set(place, [...(found.get(place) ?? []), host]);
  }
  return [...found]
    .sort(([one], [other]) => naturally(one, other))
    .map(([title, names]) => ({ title, hosts: names.length, names }));
}

/**
 * Returns a fold below a field of host names, which adds hosts to the field and removes them.
 *
 * `among` are the only hosts that can be chosen, with `host`, `zone` and `rack`; null: all.
 */
export function hostPicker(input, among = null) {
  const chosen = () => new Set(input.value.split(/[\s,]+/).filter(Boolean));
  const change = (names, on) => {
    const all = chosen();
    for (const each of names) on ? all.add(each) : all.delete(each);
    input.value = [...all].join(", ");
    input.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const offered = among && new Set(among.map((each) => each.host));
  const choose = (name) => {
    if (offered && !offered.has(name)) return note(`${name} does not wait here.`, "refused");
    change([name], !chosen().has(name));
  };
  const map = heatmap(choose, {
    marked: (name) => marks.has(name),
    chooses: true,
    title: "Or single hosts on the map",
  });
  let marks = chosen();
  input.addEventListener("input", () => {
    marks = chosen();
    map.redraw();
  });
  const all = among ? racksOf(among) : racks();
  const rackOf = (rack) =>
    h(
      "li",
      {},
      h(
        "label",
        {},
        h("input", {
          type: "checkbox",
          data: { rack: rack.title },
          onchange: async (event) => {
            const box = event.target;
            try {
              change(rack.names ?? (await namesIn(rack)), box.checked);
            } catch (error) {
              box.checked = !box.checked;
              note(error.message, "refused");
            }
          },
        }),
        h("span", {}, `${rack.title}, ${plural(rack.hosts, "host")}`),
      ),
    );
  const fold = h(
    "details",
    { className: "picker", open: Boolean(among) },
    h("summary", {}, "Choose by rack or on the map"),
    h("ul", { className: "ticks" }, all.slice(0, RACKS_SHOWN_MAX).map(rackOf)),
    all.length > RACKS_SHOWN_MAX
      ? h(
          "p",
          { className: "hint" },
          `${plural(all.length - RACKS_SHOWN_MAX, "more rack")}: choose their hosts on the map, or by labels.`,
        )
      : "",
    map.element,
  );
  const unlisten = listen((what) => {
    if (!fold.isConnected) {
      unlisten();
      map.close();
    } else if (what === "names" || what === "hosts") map.redraw();
  });
  return fold;
}

/** Returns ticks for some values, all ticked at first; each has a value and a label. */
export const ticks = (name, label, choices) =>
  fill(
    h("fieldset", { className: "field", data: { ticks: name } }),
    h("legend", {}, label),
    h(
      "ul",
      { className: "ticks" },
      choices.map((each) =>
        h(
          "li",
          {},
          h(
            "label",
            {},
            h("input", { type: "checkbox", name, value: each.value, checked: true }),
            h("span", {}, each.label),
          ),
        ),
      ),
    ),
  );

/** Returns the ticked values. */
export const ticked = (form, name) =>
  [...form.querySelectorAll(`[data-ticks="${name}"] input:checked`)].map((each) => each.value);
