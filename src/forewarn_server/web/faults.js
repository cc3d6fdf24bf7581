// Reports of faults by the people who use the machines: a name, a part, and the fault in words.

import { button, described, dialog } from "./actions.js";
import { call, get, query, Refusal } from "./api.js";
import { commandOf } from "./commands.js";
import { h, labelled, note } from "./dom.js";
import { link, words } from "./format.js";
import { search, suggest } from "./suggest.js";

const KINDS = "vm,host";
const PATH = "/v1/tickets";

/** Returns the button that reports a fault, of the given machine or of one that the dialog asks for. */
export const reportButton = (given = {}) =>
  button("open_ticket", "Report a fault", "", () =>
    report(given).catch((error) => note(error.message, "refused")),
  );

/** Returns the kind of a machine by its whole name; a VM comes before a host. */
async function kindOf(name) {
  const { found } = await get(query("/v1/search", { text: name, kind: KINDS }));
  const kinds = found.filter((each) => each.name === name).map((each) => each.kind);
  if (kinds.includes("vm")) return "vm";
  if (kinds.includes("host")) return "host";
  throw new Refusal(404, {
    message: `target: no VM or host that you may see is named ${name}.`,
    advice: "Type the begin of a name, and choose a suggestion.",
  });
}

/** @param {{kind?: string, target?: string}} given */
async function report({ kind = "", target = "" }) {
  const { form } = (await described()).routes.get("open_ticket");
  const name = h("input", {
    id: "field-target",
    name: "target",
    value: target,
    autocomplete: "off",
    spellcheck: false,
  });
  const box = labelled(name, "VM or host");
  let chosen = { kind, name: target };
  suggest(
    name,
    (text) => search(text, KINDS),
    (found) => {
      chosen = found;
      name.value = found.name;
    },
  );
  const category = h(
    "select",
    { id: "field-category", name: "category" },
    form.properties.category.enum.map((each) =>
      h("option", { value: each, selected: each === "other" }, words(each)),
    ),
  );
  const description = h("textarea", { id: "field-description", name: "description", rows: 3 });
  const evidence = h("textarea", { id: "field-evidence", name: "evidence", rows: 3 });
  const values = () => ({
    target_kind: (chosen.name === name.value.trim() && chosen.kind) || "vm",
    target: name.value.trim(),
    category: category.value,
    description: description.value.trim(),
    ...(evidence.value.trim() ? { evidence: evidence.value.trim() } : {}),
  });
  dialog({
    title: "Report a fault",
    text: "The provider gets a ticket, and answers there.",
    confirm: "Report a fault",
    extra: [
      box,
      labelled(category, "Part"),
      labelled(description, "What is wrong"),
      labelled(evidence, "Log lines, error codes, measurements, if you have some"),
    ],
    ask: async () => {
      const found = values();
      if (!found.target) throw new Refusal(422, { message: "target: name a VM or host." });
      if (!found.description)
        throw new Refusal(422, { message: "description: describe the fault." });
      if (chosen.name !== found.target || !chosen.kind)
        found.target_kind = await kindOf(found.target);
      return call("POST", PATH, found);
    },
    command: () => commandOf({ route: "open_ticket", method: "POST", path: PATH, body: values() }),
    done: ({ id }) => {
      note("The fault is reported as ticket", "done", [" ", link("tickets", id)]);
      dispatchEvent(new Event("acted"));
    },
  });
}
