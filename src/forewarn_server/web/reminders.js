// Reminders to owners who have not approved: messages to copy or mail. Forewarn sends nothing.

import { dialog } from "./actions.js";
import { get, getList, part } from "./api.js";
import { copy } from "./clipboard.js";
import { h, note, press } from "./dom.js";
import { naturally, plural, stamp } from "./format.js";

/** Groups whose owners are reminded at a time. */
const GROUPS_MAX = 50;

/**
 * Returns the answers of groups that have not approved, how many groups are omitted, and whether
 * further events exist, which were not read.
 */
export async function unanswered() {
  const { records, more } = await getList("/v1/events", {}, "events");
  const waiting = records.filter((each) => each.state === "scheduled");
  const every = [...new Set(waiting.map((each) => each.group))];
  const names = every.slice(0, GROUPS_MAX);
  const groups = await Promise.all(names.map((name) => get(`/v1/groups/${part(name)}`)));
  const known = new Map(groups.map((each) => [each.name, each]));
  const answers = waiting
    .filter((each) => known.has(each.group))
    .map((each) => ({
      ...each,
      event: each.id,
      owner: known.get(each.group).owner,
      state: known.get(each.group).enabled ? "waiting" : "not-asked",
      missing: each.resources.filter((name) => !each.approved_by.includes(name)),
    }));
  return { answers, omitted: every.length - names.length, more };
}

/** What one group is asked to do for one event. */
function sentence(each) {
  const start = each.not_before ? stamp(Date.parse(each.not_before)).join(" ") : "any time";
  const ask =
    each.state === "waiting"
      ? `Please prepare ${each.missing.join(", ")} and approve the event.`
      : "No VM of the group asks for Scheduled Events. Please start its agent, or prepare by hand.";
  return `Group ${each.group} has not approved event ${each.event} (${each.operation}). The work starts at ${start} at the latest. ${ask}`;
}

/** Shows a message to each owner, to be copied or mailed. */
export function remind({ answers, omitted = 0, more = false }) {
  const messages = new Map();
  for (const each of answers.toSorted((one, other) => naturally(one.owner, other.owner)))
    messages.set(each.owner, [...(messages.get(each.owner) ?? []), each]);
  const fields = [...messages].map(([owner, list], index) => {
    const id = `reminder-${index}`;
    const text = h("textarea", { id, rows: 5, readOnly: true });
    text.value = list.map(sentence).join("\n");
    const subject = `${plural(list.length, "event")} not approved`;
    const mail = `mailto:?subject=${encodeURIComponent(subject)}&body=${encodeURIComponent(text.value)}`;
    return h(
      "div",
      { className: "field" },
      h("label", { htmlFor: id }, owner ? `To ${owner}` : "Groups without an owner"),
      text,
      h("a", { href: mail }, "Write a mail"),
    );
  });
  const groups = plural(omitted, "further group");
  const left = more ? ` Not listed: at least ${groups}.` : omitted ? ` Not listed: ${groups}.` : "";
  dialog({
    title: messages.size === 1 ? "Reminder" : `Reminders to ${plural(messages.size, "owner")}`,
    text: fields.length
      ? `Copy the messages, or write a mail. Forewarn sends nothing.${left}`
      : "Every group has approved its events.",
    confirm: "Copy",
    extra: fields,
    ask: async (_, form) => {
      copy([...form.querySelectorAll("textarea")].map((each) => each.value).join("\n\n"), form);
    },
    done: () => note("Copied."),
  });
}

/** A button that reminds the owners of all unapproved events, or of those given. */
export const remindButton = (label, spoken, answers = null) =>
  press(
    label,
    async () => {
      try {
        remind(answers ? { answers } : await unanswered());
      } catch (error) {
        note(error.message, "refused");
      }
    },
    { look: answers ? "small" : "", spoken, data: { act: "remind" } },
  );
