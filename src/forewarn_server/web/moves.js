// Moves of VMs in a plan, and bars of the used memory on hosts of each wave.

import { get, part } from "./api.js";
import { fill, h, section, soft, table } from "./dom.js";
import { count, link, naturally, plural } from "./format.js";

const HOSTS_SHOWN_MAX = 40;
const VMS_SHOWN_MAX = 20;
/** Number of a wave -> whether the user has opened or closed it. */
const opened = new Map();
/** Cache of the last answer and its state, because every event redraws the page. */
let read = { state: "", reply: null };
const COLUMNS = ["Host", "Before", "While VMs move", "During the work"];

/** Shows a host's used memory as a bar and in words; a full bar has another colour. */
function bar(host, mib, label) {
  const most = host.memory_mib;
  const text = `${count(mib)} of ${most ? count(most) : "unknown"} MiB`;
  if (!most) return text;
  const meter = h("meter", { min: 0, max: most, high: most * 0.95, value: mib });
  meter.setAttribute("aria-label", `${host.host} ${label}: ${text}`);
  return [meter, h("div", { className: "soft" }, text)];
}

/** Groups items by the value of a function, in the order of their first items. */
function groupedBy(items, keyOf) {
  const groups = new Map();
  for (const each of items) {
    const key = keyOf(each);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(each);
  }
  return groups;
}

/** The moves of one host, by destination: `h1: web-0, db-0 to h2`. */
function movesOf(moves, back) {
  const hosts = groupedBy(moves, (each) => each.from);
  return [...hosts]
    .sort(([one], [other]) => naturally(one, other))
    .map(([from, own]) => {
      const to = [...groupedBy(own, (each) => each.to)].map(([name, vms]) =>
        h(
          "div",
          {},
          vms.slice(0, VMS_SHOWN_MAX).map((each) => [link("vms", each.vm), " "]),
          vms.length > VMS_SHOWN_MAX ? `and ${plural(vms.length - VMS_SHOWN_MAX, "other")} ` : "",
          "→ ",
          name ? link("hosts", name) : "a host that the driver chooses",
          back ? [", back to ", link("hosts", from), " after the work"] : "",
        ),
      );
      return h("li", {}, "From ", link("hosts", from), ": ", to);
    });
}

/** Shows moves and memory of a plan or preview by wave; the first wave is open. `back`: VMs return. */
export function roomPicture({ plan, room }, back) {
  const waves = groupedBy(plan.moves, (each) => each.wave);
  return [...waves].map(([number, moves], place) => {
    const hosts = room.filter((each) => each.wave === number);
    const lists = movesOf(moves, back);
    const more = Math.max(hosts.length, lists.length) - HOSTS_SHOWN_MAX;
    return h(
      "details",
      {
        className: "racks",
        open: opened.get(number) ?? place === 0,
        ontoggle: (event) => opened.set(number, event.target.open),
      },
      h(
        "summary",
        {},
        `Wave ${number}: ${plural(moves.length, "VM leaves its host", "VMs leave their hosts")} first`,
      ),
      h("ul", {}, lists.slice(0, HOSTS_SHOWN_MAX)),
      table(
        `Memory in wave ${number}`,
        COLUMNS,
        hosts
          .slice(0, HOSTS_SHOWN_MAX)
          .map((each) => [
            link("hosts", each.host),
            bar(each, each.before_mib, "before"),
            bar(each, each.during_mib, "while VMs move"),
            bar(each, each.after_mib, "during the work"),
          ]),
      ),
      more > 0 ? soft(`and ${count(more)} hosts more`) : "",
    );
  });
}

/** Returns the card of a maintenance that moves VMs; empty for other maintenances. */
export function roomOf(each) {
  if (!each.move_s || !each.plan) return "";
  const state = [each.id, each.plan, each.announced, each.running, each.done].join(" ");
  const box = h("div");
  const draw = () => fill(box, roomPicture(read.reply, each.return_s > 0));
  if (read.reply && read.state.startsWith(`${each.id} `)) draw();
  if (read.state === state) return card(box);
  get(`/v1/maintenances/${part(each.id)}/plan`)
    .then((reply) => {
      read = { state, reply };
      draw();
    })
    .catch(() => fill(box, soft("The plan could not be read.")));
  return card(box);
}

const card = (box) => section("VM moves and memory", box);
