// Trouble now, and work that is about to start without an approval.

import { now } from "./api.js";
import { count, isFailure, plural, ticking } from "./format.js";
import { live, sorted, totals } from "./live.js";

/** Time before the start of unapproved work from which the page is loud, in milliseconds. */
const SOON_MS = 120_000;
/** Alert of an operation -> its trouble, the gravest first. */
const ALERTS = {
  stuck: "is stuck: its driver failed",
  overdue: "is overdue",
  blocked: "cannot start",
};

/** Announced operations with events that nobody has approved, the next start first. */
export const unapproved = () =>
  sorted().filter((each) => each.state === "announced" && each.approved < each.asked);

/** Returns all trouble, the gravest first: text, address, and whether it only begins soon. */
export function trouble() {
  if (live.layout < 0) return [];
  return [...failures(), ...alerts(), ...soon()];
}

function failures() {
  const { hosts, vms } = totals();
  if (!hosts.f) return [];
  const failing = sorted().filter((each) => isFailure(each));
  const one = hosts.f === 1 && failing.length === 1 ? failing[0].host : "";
  const down = vms.f ? `, ${plural(vms.f, "VM")} down` : "";
  return [
    {
      text: `${one ? `Host ${one} has failed` : `${plural(hosts.f, "host")} failed`}${down}`,
      href: one ? `#/hosts/${encodeURIComponent(one)}` : "#/work",
    },
  ];
}

function alerts() {
  return Object.entries(ALERTS).flatMap(([alert, wrong]) => {
    const found = sorted().filter((each) => each.alert === alert);
    if (!found.length) return [];
    const [{ id, target }] = found;
    const more = found.length > 1 ? `, and ${count(found.length - 1)} more` : "";
    return [{ text: `${id} of ${target} ${wrong}${more}`, href: `#/operations/${id}` }];
  });
}

function soon() {
  const [next] = unapproved();
  if (!next?.not_before || Date.parse(next.not_before) - now() > SOON_MS) return [];
  return [
    {
      text: `${next.id} of ${next.target} is not approved`,
      more: [" and ", ticking(next.not_before, "starts ")],
      href: `#/operations/${next.id}`,
      soon: true,
    },
  ];
}
