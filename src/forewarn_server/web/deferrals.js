// Requests of owners for a later hand-back deadline, and their answers by operators.

import { dialog, rowButton } from "./actions.js";
import { call, may, now, part } from "./api.js";
import { sayStart } from "./choices.js";
import { quoted } from "./commands.js";
import { buttonGroup, h, labelled, note, press, soft } from "./dom.js";
import { moment, span, written } from "./format.js";
import { timeHint, timePicker } from "./times.js";

const DAY_MS = 86_400_000;
/** Days by which buttons move the deadline. */
const DAYS = [7, 14];

/** Opens the request for a later deadline of one owner's VMs on a host. */
export function askLater(each, one) {
  const later = (days) => written(Date.parse(one.hand_back_deadline) + days * DAY_MS);
  const until = h("input", {
    id: "defer-until",
    name: "until",
    value: later(DAYS[0]),
    autocomplete: "off",
    spellcheck: false,
  });
  const reason = h("textarea", { id: "defer-reason", name: "reason", rows: 3 });
  const form = () => ({ vm: one.vms[0], until: until.value.trim(), reason: reason.value.trim() });
  dialog({
    title: `A later deadline for ${one.host}`,
    text: `For ${one.vms.join(", ")}. A choice that you have made stands until the request is granted.`,
    confirm: "Ask",
    extra: [
      h("p", {}, "The deadline is ", moment(one.hand_back_deadline), "."),
      h(
        "div",
        { className: "field" },
        h("label", { htmlFor: until.id }, "New hand-back deadline"),
        until,
        timeHint(until),
        buttonGroup(
          "Usual deadlines",
          DAYS.map((days) =>
            press(`${days} days later`, () => {
              until.value = later(days);
              until.dispatchEvent(new Event("input", { bubbles: true }));
            }),
          ),
          timePicker(until, "New hand-back deadline"),
        ),
      ),
      labelled(reason, "Reason, for the provider"),
    ],
    ask: () => call("POST", `/v1/declarations/${part(each.id)}/deferrals`, form()),
    command: () => {
      const { vm, until: at, reason: why } = form();
      return `forewarn declaration defer ${each.id} --vm ${quoted(vm)} --until ${quoted(at)} --reason ${quoted(why)}`;
    },
    done: ({ deferrals: [deferral] }) => {
      const kind = deferral.state === "refused" ? "refused" : "done";
      const lost = deferral.state === "granted" && one.decision ? ` ${fallen(one)}` : "";
      note(`${one.host}: ${SAID[deferral.state]} ${deferral.answer}${lost}`, kind);
      dispatchEvent(new Event("acted"));
    },
  });
}

/** Says which choice no longer counts, because a later deadline was granted. */
function fallen({ decision, chosen_start: start, host }) {
  const choice = {
    at: () => `to start on ${sayStart(start)}`,
    now: () => "to start as soon as possible",
    release: () => "to hand back",
  }[decision]();
  return `The choice for ${host} ${choice} no longer counts: choose again.`;
}

const SAID = {
  asked: "an operator decides about the later deadline.",
  granted: "the later deadline is granted.",
  refused: "the later deadline is refused:",
};

/** Names the choices that come before a test is over. */
const tooEarly = (displaced) =>
  `Chosen times that come before the test is over: ${displaced
    .map((one) => `${one.host} on ${sayStart(one.start)}`)
    .join(", ")}. Choose again.`;

/** Says which hosts of an owner come first, and lets owners change that. */
export function orderOf(each) {
  const orders = each.first_groups;
  const owners = new Set(each.resources.map((one) => one.owner));
  const only = owners.size === 1 ? { owner: [...owners][0] } : {};
  const isOver = Date.parse(each.hand_back_deadline) < now() || each.severity === "emergency";
  const options = (given, object) => ({ name: each.id, object, given });
  const orderText = (order) => {
    const whose = owners.size > 1 && order.owner ? ` of ${order.owner}` : "";
    const { owner } = order;
    const named = options({ owner }, `${each.id}${whose}`);
    return h(
      "div",
      {},
      soft(
        `Test first: group ${order.group}${whose} on ${order.first.join(", ") || "no host"}, then ${span(order.observation_s * 1000)} of observation. `,
        order.problem ? `This order does not count: ${order.problem}. ` : "",
        order.held ? `The owner's other hosts are held: ${order.held}.` : "",
      ),
      isOver
        ? ""
        : order.held
          ? rowButton("resume_hosts", "Resume", named)
          : rowButton("hold_hosts", "Hold", named),
    );
  };
  return h(
    "div",
    {},
    orders.map(orderText),
    isOver
      ? ""
      : rowButton("name_first_group", "Test first", {
          ...options(only, each.id),
          done: ({ displaced }) => displaced?.length && note(tooEarly(displaced)),
        }),
  );
}

/** Says what became of a request for a later deadline; operators answer it. */
export function deferralOf(each, one) {
  const { deferral, host } = one;
  if (!deferral) return "";
  const { state, until, owner, answer } = deferral;
  const why = answer ? `: ${answer}` : ".";
  if (state !== "asked") return soft("A deadline of ", moment(until), ` was ${state}`, why);
  const given = { owner, host };
  const options = { name: each.id, object: `${owner} on ${host}`, given };
  return [
    soft(
      "A deadline of ",
      moment(until),
      ` is asked for: ${deferral.reason}. Refused if nobody decides by `,
      moment(deferral.decide_by),
      ".",
    ),
    rowButton("withdraw_deferral", "Withdraw", { ...options, given: { host, owner } }),
    may("grant_deferral")
      ? buttonGroup(
          "Answers",
          rowButton("grant_deferral", "Grant", {
            ...options,
            done: () => one.decision && note(fallen(one)),
          }),
          rowButton("refuse_deferral", "Refuse", options),
        )
      : "",
  ];
}
