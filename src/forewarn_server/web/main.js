// Start of the page, sign-in, and the view of each address.

import { access } from "./access.js";
import { availability } from "./availability.js";
import { call, caller, get, hold, may, now, onSignIn, Refusal, recognize, token } from "./api.js";
import { confirmations, drawWaiting } from "./confirmations.js";
import { coded, fill, h, keyed, note, setText, unpressed } from "./dom.js";
import { declarations, home } from "./declarations.js";
import { restoreDensity } from "./density.js";
import { clock, emulator, isEmulator, readClock } from "./emulator.js";
import { fleet } from "./fleet.js";
import { count, plural, span, stamp, switchZone, tick } from "./format.js";
import { history } from "./history.js";
import { leave as unfollow, listen, live, start } from "./live.js";
import { maintenance, maintenances } from "./maintenances.js";
import { palette } from "./palette.js";
import { policy } from "./policy.js";
import { group, host, list, operation, refused, vm, work } from "./records.js";
import { report } from "./report.js";
import { service } from "./service.js";
import { ticket, tickets } from "./tickets.js";
import { hrefOf, search, suggest } from "./suggest.js";
import { trouble, unapproved } from "./trouble.js";

const main = document.getElementById("main");
/** Address of a view -> its name and function. */
const VIEWS = [
  ["", "Fleet", "get_overview"],
  ["work", "Work", "list_operations"],
  ["maintenances", "Maintenances", "list_maintenances"],
  ["vms", "Inventory", "list_vms"],
  ["policy", "Policy", "export_policy"],
  ["service", "Service", "list_destinations"],
  ["access", "Access", "list_tokens"],
  ["history", "History", "list_history"],
];
let hasEmulator = false;
let leave = null;
let turn = 0;

const ROUTES = {
  "": () => (isOwner() ? home(main) : fleet(main)),
  fleet: () => fleet(main),
  work: (_, asked) => work(main, asked),
  policy: () => policy(main),
  service: () => service(main),
  outbox: () => service(main),
  access: () => access(main),
  confirmations: () => confirmations(main),
  history: (_, asked) => history(main, asked),
  availability: (_, asked) => availability(main, asked),
  report: (_, asked) => report(main, asked),
  emulator: () => emulator(main),
  hosts: (name, asked) => (name ? host(main, name) : list(main, "hosts", asked)),
  vms: (name, asked) => (name ? vm(main, name) : list(main, "vms", asked)),
  groups: (name, asked) => (name ? group(main, name) : list(main, "groups", asked)),
  operations: (name) => operation(main, name),
  home: () => home(main),
  declarations: () => declarations(main),
  tickets: (name) => (name ? ticket(main, name) : tickets(main)),
  maintenances: (name) => (name ? maintenance(main, name) : maintenances(main)),
};

async function route() {
  const mine = ++turn;
  const [path, asked] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, name] = path.split("/").map(decodeURIComponent);
  const old = leave;
  leave = null;
  old?.();
  delete main.dataset.shows;
  fill(main); // remove the old view, so that no action affects its object
  drawViews(view);
  const show =
    ROUTES[view] ??
    (() => refused(main, new Refusal(404, { message: "This address does not exist." })));
  let left = null;
  try {
    left = await show(name, new URLSearchParams(asked ?? ""));
  } catch (error) {
    if (!(error instanceof Refusal)) console.error(error);
    if (mine === turn && error.status !== 401) refused(main, error);
  }
  if (mine !== turn) left?.();
  else leave = left ?? null;
  const title = main.querySelector("h1")?.textContent;
  document.title = title && title !== "Fleet" ? `${title} · Forewarn` : "Forewarn";
}

/** Number of unapproved events beside the view of work. */
const badge = h("a", {
  id: "unapproved",
  className: "chip announced",
  href: "#/work?state=announced",
  hidden: true,
});

/** Whether the caller sees only what belongs to some owners. */
const isOwner = () => may("list_events") && !may("list_maintenances");

function drawViews(view) {
  const all = hasEmulator ? [...VIEWS, ["emulator", "Emulator", "get_clock"]] : VIEWS;
  const shown = all.filter(([, , route]) => may(route));
  if (isOwner()) {
    shown.splice(0, 1, ["fleet", "Fleet", ""]); // the first view of owners is theirs
    shown.unshift(["home", "Home", ""]);
    shown.push(["availability", "Availability", ""]);
  }
  const parents = {
    "": isOwner() ? "home" : "",
    fleet: isOwner() ? "fleet" : "",
    operations: "work",
    hosts: "vms",
    groups: "vms",
    report: "history",
    ...(isOwner() ? {} : { availability: "history" }),
    outbox: "service",
  };
  const current = parents[view] ?? view;
  fill(
    document.getElementById("views"),
    shown.map(([name, label]) => [
      h("a", { href: `#/${name}`, aria: name === current ? { current: "page" } : {} }, label),
      name === "work" ? badge : "",
    ]),
  );
}

// --- signing in -------------------------------------------------------------------------------

let asking = false;

async function askToken(why = "") {
  if (asking) return;
  asking = true;
  unfollow();
  token.set("");
  leave?.();
  leave = null;
  const input = h("input", {
    id: "token",
    type: "password",
    required: true,
    autocomplete: "current-password",
    aria: { describedby: "token-hint" },
  });
  const refusal = h("p", { className: "refusal", role: "alert" }, why);
  const form = h(
    "form",
    { className: "card sign-in" },
    h("img", { src: "/web/mark.svg", alt: "", width: 44, height: 44 }),
    h("h1", {}, "Sign in to Forewarn"),
    h(
      "div",
      { className: "field" },
      h("label", { htmlFor: "token" }, "Token"),
      input,
      h(
        "span",
        { className: "hint", id: "token-hint" },
        coded(
          "`forewarn access token create` creates a token. The page stores the token for this tab only.",
        ),
      ),
    ),
    refusal,
    h("button", { type: "submit", className: "first" }, "Sign in"),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    token.set(input.value.trim());
    try {
      await get("/v1/version");
      asking = false;
      await begin();
    } catch (error) {
      token.set("");
      fill(refusal, `${error.message} ${error.advice ?? ""}`);
      input.select();
    }
  });
  fill(main, form);
  input.focus();
  const begun = await call("POST", "/v1/sign-in/begin").catch(() => null);
  if (!begun || !asking) return;
  const depart = () => {
    sessionStorage.setItem(RETURN, location.hash);
    location.href = begun.url;
  };
  form.append(
    h(
      "button",
      { type: "button", id: "single-sign-on", onclick: depart },
      "Sign in with your account",
    ),
  );
}

/** Storage key of the view to which the page returns after signing in. */
const RETURN = "forewarn-return";

/** Completes a sign-in after the issuer's redirect. */
async function arrive() {
  const back = new URLSearchParams(location.search);
  if (!back.has("state")) return;
  window.history.replaceState(null, "", `/${sessionStorage.getItem(RETURN) ?? ""}`);
  sessionStorage.removeItem(RETURN);
  if (!back.has("code")) throw new Refusal(403, { message: "The issuer refused to sign you in." });
  await call("POST", "/v1/sign-in", { code: back.get("code"), state: back.get("state") });
}

async function signOut() {
  const failure = await call("POST", "/v1/sign-out").then(
    () => null,
    (error) => error,
  );
  askToken();
  if (failure) note(`The session may go on: ${failure.message}`, "refused");
}

// --- the bar ----------------------------------------------------------------------------------

/** Age from which the bar shows how old the data is, and the steps of the age, in milliseconds. */
const OLD_MS = 5000;
const AGE_STEP_MS = 5000;
const CONNECTION = {
  live: "Live",
  lost: "Not connected",
  connecting: "Connecting",
};

const alarm = document.getElementById("alarm");

function drawConnection() {
  const box = document.getElementById("connection");
  box.className = `connection ${live.connection}`;
  const old = performance.now() - live.heard;
  const age = live.heard && old > OLD_MS ? `${span(old - (old % AGE_STEP_MS))} old` : "";
  setText(box, live.connection === "live" ? age || CONNECTION.live : CONNECTION[live.connection]);
  box.title = live.heard ? `The data is ${span(old)} old.` : "";
  const lost = live.connection === "lost";
  document.body.classList.toggle("lost", lost);
  if (lost === !alarm.hidden) return;
  alarm.hidden = !lost;
  hold(lost);
  const [day, time, zone] = stamp(now());
  const text = `Connection lost at ${day} ${time} ${zone}. This page may be out of date and countdowns have stopped. Trying again.`;
  setText(alarm, lost ? text : "");
}

/** Shows the number of unapproved events on every view; waiting for approvals is routine. */
function drawUnapproved() {
  const missing = unapproved().reduce((sum, each) => sum + each.asked - each.approved, 0);
  const text = missing ? `${plural(missing, "event")} not approved` : "";
  badge.hidden = !missing;
  badge.title = text;
  badge.setAttribute("aria-label", text);
  setText(badge, missing ? count(missing) : "");
}

/** Shows trouble on every view, the gravest first, and work that starts unapproved soon. */
function drawTrouble() {
  const list = document.getElementById("trouble");
  const found = trouble();
  list.hidden = !found.length;
  list.classList.toggle(
    "soon",
    found.every((each) => each.soon),
  );
  keyed(
    list,
    found,
    (each) => each.text,
    (each) => h("p", {}, h("a", { href: each.href }, each.text), each.more ?? ""),
    () => {},
  );
}

function drawClock() {
  const box = document.getElementById("clock");
  const slow =
    clock && (clock.stopped ? " · stopped" : clock.speed !== 1 ? ` · ×${clock.speed}` : "");
  const [, time, zone] = stamp(now());
  setText(box, `${time} ${zone}${slow ?? ""}`);
}

/** Storage key of the chosen colours. */
const THEME = "forewarn-theme";

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = theme === "dark" ? "☀" : "☾";
}

function startBar() {
  const top = /** @type {HTMLElement} */ (document.querySelector(".top"));
  new ResizeObserver(() => {
    document.documentElement.style.setProperty("--top", `${top.offsetHeight}px`);
  }).observe(top);
  restoreDensity();
  const system = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => setTheme(localStorage.getItem(THEME) ?? (system.matches ? "dark" : "light"));
  follow();
  system.addEventListener("change", () => {
    follow();
    if (!asking) route();
  });
  document.getElementById("theme").addEventListener("click", () => {
    const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem(THEME, other); // until a press, the page follows the system
    setTheme(other);
    route();
  });
  document.getElementById("clock").addEventListener("click", () => {
    switchZone();
    drawClock();
    route();
  });
  document.getElementById("sign-out").addEventListener("click", signOut);
  document.getElementById("find").addEventListener("submit", find);
  const input = /** @type {HTMLInputElement} */ (document.getElementById("find-name"));
  suggest(input, search, (found) => {
    input.value = "";
    location.hash = hrefOf(found);
  });
  document.getElementById("palette").addEventListener("click", palette);
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !asking) {
      event.preventDefault();
      palette();
      return;
    }
    if (event.key !== "/" || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName))
      return;
    event.preventDefault();
    document.getElementById("find-name").focus();
  });
  setInterval(() => {
    tick();
    drawClock();
    drawConnection();
    unpressed().then(drawTrouble);
  }, 500);
}

/** Opens the view of a name: an operation or event, else a host, VM or group. */
async function find(event) {
  event.preventDefault();
  const input = /** @type {HTMLInputElement} */ (document.getElementById("find-name"));
  const name = input.value.trim();
  if (!name) return;
  const paths = [
    ["vms", `/v1/vms/`],
    ["hosts", `/v1/hosts/`],
    ["groups", `/v1/groups/`],
    ["operations", `/v1/operations/`],
    ["maintenances", `/v1/maintenances/`],
  ];
  for (const [kind, path] of paths) {
    const found = await get(path + encodeURIComponent(name)).catch(() => null);
    if (!found) continue;
    input.value = "";
    location.hash = `#/${kind}/${encodeURIComponent(found.operation?.id ?? name)}`;
    return;
  }
  note(`No host, VM, group, operation, event or maintenance is named ${name}.`, "refused");
}

async function begin() {
  await recognize();
  await start();
  const who = document.getElementById("caller");
  setText(who, `${caller.principal.replace(/^\w+:/, "")} · ${caller.roles || "no role"}`);
  who.title = `${caller.principal} · ${caller.roles || "no role"}`;
  document.getElementById("sign-out").hidden =
    !token.get() && !caller.principal.startsWith("oidc:");
  await route();
  hasEmulator = await isEmulator();
  drawViews(location.hash.replace(/^#\/?/, "").split(/[/?]/)[0]);
}

startBar();
onSignIn(askToken);
listen((what) => {
  if (what === "connection") drawConnection();
  if (what === "operations" || what === "all") drawUnapproved();
  if (["operations", "racks", "time", "all"].includes(what)) unpressed().then(drawTrouble);
  if (what === "all") drawClock();
  if (what === "time" || what === "all") drawWaiting();
  if (hasEmulator && (what === "time" || what === "all")) readClock().then(drawClock);
});
window.addEventListener("hashchange", () => asking || route());
arrive()
  .catch((error) => askToken(`${error.message} ${error.advice}`))
  .then(() => (asking ? undefined : begin()))
  .catch((error) => error.status !== 401 && refused(main, error));
