// View of access for admins: roles, tokens, and the newest audit records.

import { act, button, rowButton } from "./actions.js";
import { get } from "./api.js";
import { buttonGroup, fill, h, head, section, soft, table } from "./dom.js";
import { moment } from "./format.js";
import { kept } from "./records.js";

const RECORDS = 50;

export function access(main) {
  return kept(main, {
    read: async () => {
      const [{ bindings }, { tokens }, { records }] = await Promise.all([
        get("/v1/access"),
        get("/v1/access/tokens"),
        get(`/v1/audit?limit=${RECORDS}`),
      ]);
      return { bindings, tokens, records: records.reverse() };
    },
    concerns: () => false,
    draw: (found) =>
      fill(
        main,
        head(
          "Access",
          h(
            "div",
            { className: "buttons" },
            button("grant_role", "Grant role", "", () =>
              act("grant_role", { label: "Grant role" }),
            ),
            button("create_token", "Create token", "first", () =>
              act("create_token", { label: "Create token" }),
            ),
          ),
        ),
        card("Tokens", TOKEN_TITLES, found.tokens.map(tokenRow), "No tokens."),
        card("Roles", ROLE_TITLES, found.bindings.map(roleRow), "No roles are granted."),
        card("Newest calls", RECORD_TITLES, found.records.map(recordRow), "No audit records."),
      ),
  });
}

const TOKEN_TITLES = ["Holder", "Role", "Owner", "Id", "Created", "Expires", "Used", "Action"];
const tokenRow = (each) => [
  each.principal,
  each.role,
  each.owner || "all",
  each.id,
  moment(each.created),
  each.suspended ? "suspended" : each.expires ? moment(each.expires) : "never",
  each.used ? moment(each.used) : "never",
  buttonGroup(
    `Actions on token ${each.id}`,
    each.suspended ? tokenButton("resume_token", "Resume", each) : "",
    tokenButton("revoke_token", "Revoke", each, { danger: true }),
  ),
];
const tokenButton = (route, label, each, options = {}) =>
  rowButton(route, label, {
    name: each.id,
    object: `token ${each.id}`,
    record: each,
    ...options,
  });

const ROLE_TITLES = ["Principal", "Role", "Owner", "Action"];
const roleRow = (each) => [
  each.principal,
  each.role,
  each.owner || "all",
  rowButton("revoke_role", "Revoke", {
    object: `${each.role} of ${each.principal}`,
    given: each,
    danger: true,
  }),
];

const RECORD_TITLES = ["Time", "Principal", "Address", "Request", "Outcome"];
const recordRow = (each) => [
  moment(each.at),
  each.principal || "unknown",
  each.address || "local",
  each.request || each.object,
  each.outcome,
];

const card = (title, titles, rows, empty) =>
  section(title, rows.length ? table(title, titles, rows) : soft(empty));
