// Calls that wait for a second operator: their number on every view, and a view for confirmation.

import { rowButton } from "./actions.js";
import { caller, get, may } from "./api.js";
import { fill, h, setText, soft, table } from "./dom.js";
import { moment, plural } from "./format.js";
import { kept } from "./records.js";

/** Interval of reads of the waiting calls, in milliseconds. */
const LOOK_MS = 5000;
let looked = -LOOK_MS;

/** Shows the number of waiting calls on every view. */
export async function drawWaiting() {
  if (performance.now() - looked < LOOK_MS) return;
  looked = performance.now();
  await Promise.all([
    may("list_confirmations") ? drawLine("waiting", confirmationsWaiting) : null,
    may("grant_deferral") ? drawLine("deferrals", deferralsWaiting) : null,
  ]);
}

/** Draws a line on every view while something waits; a failed read changes nothing. */
async function drawLine(id, read) {
  const text = await read().catch(() => null);
  if (text === null) return;
  const line = document.getElementById(id);
  line.hidden = !text;
  setText(line, text);
}

const sentence = (count, what, answer, many) =>
  count ? `${plural(count, what, many)} ${count === 1 ? "waits" : "wait"} for ${answer}` : "";

async function confirmationsWaiting() {
  const { confirmations: found } = await get("/v1/confirmations");
  return sentence(found.length, "call", "a second operator", "calls");
}

/** Says how many requests of owners for a later deadline wait for an answer. */
export async function deferralsWaiting() {
  const { deferrals } = await get("/v1/deferrals");
  const asked = deferrals.filter((each) => each.state === "asked");
  return sentence(
    asked.length,
    "request for a later deadline",
    "an answer",
    "requests for a later deadline",
  );
}

/** Options of a dialog about a call, which it names in words. */
const of = (each) => ({ name: each.id, object: `${each.id} (${each.text})`, record: each });

/** The file that a call applies, as it was sent; its words do not say what it changes. */
const body = (each) =>
  h("details", {}, h("summary", {}, "The file"), h("pre", { className: "document" }, each.body));

export function confirmations(main) {
  return kept(main, {
    read: () => get("/v1/confirmations"),
    concerns: () => true,
    often: true,
    draw: (reply) =>
      fill(
        main,
        h("h1", {}, "Confirmations"),
        h(
          "section",
          { className: "card" },
          reply.confirmations.length
            ? table(
                "Calls that wait for a second operator",
                ["Call", "Asked by", "What", "Expires", "Action"],
                reply.confirmations.map((each) => [
                  each.id,
                  each.principal,
                  [
                    each.text,
                    /^PUT \/v1\/(policy|topology)\b/.test(each.request) ? body(each) : "",
                  ],
                  moment(each.expires),
                  each.principal === caller.principal
                    ? rowButton("drop_confirmation", "Withdraw", of(each))
                    : h("div", { className: "buttons" }, [
                        rowButton("confirm", "Confirm", of(each)),
                        rowButton("drop_confirmation", "Refuse", { ...of(each), danger: true }),
                      ]),
                ]),
              )
            : soft("No call waits for a second operator."),
        ),
      ),
  });
}
