// View of the emulator: clock, scenarios and faults.

import { act, described, dialog } from "./actions.js";
import { call, get, now, part, setTime } from "./api.js";
import {
  buttonGroup,
  fill,
  h,
  keepFocus,
  labelled,
  note,
  press,
  section,
  soft,
  unpressed,
} from "./dom.js";
import { chip, link, stamp } from "./format.js";
import { listen } from "./live.js";

const JUMPS = [
  ["1m", "1 min"],
  ["5m", "5 min"],
  ["16m", "16 min"],
  ["1h", "1 h"],
  ["1d", "1 day"],
];
const SPEEDS = [1, 10, 60, 600];
const FAULTS = [
  ...["slow-first", "empty-200", "410", "429", "500", "reset", "truncate", "incarnation"],
  "unsigned",
];

export let clock = null;

/** Returns whether the service is an emulator, and reads its clock. */
export async function isEmulator() {
  return (await described()).routes.has("get_clock") && readClock();
}

export async function readClock() {
  try {
    clock = await get("/v1/clock");
    setTime(clock.now, clock.stopped ? 0 : clock.speed);
    return true;
  } catch {
    return false;
  }
}

export async function emulator(main) {
  if (!clock) await readClock();
  const time = h("p", {
    className: "big-clock",
    role: "timer",
    aria: { label: "The emulator's clock" },
  });
  const speed = h("span", { className: "soft" });
  const pause = h("button", { type: "button", className: "small" });
  const faults = h("div");
  const stories = h("ul", { className: "scenarios" });
  const does = async (path, body) => {
    try {
      await call("POST", path, body ?? {});
    } catch (error) {
      note(`${error.message} ${error.advice}`, "refused");
    }
    await readClock();
    drawClock();
  };
  const drawClock = () => {
    time.textContent = stamp(now()).join(" ");
    speed.textContent = clock.stopped ? "stopped" : `${clock.speed} s to a second`;
    const label = clock.stopped ? "Start" : "Stop";
    if (pause.textContent !== label) pause.textContent = label;
    pause.onclick = () => does(clock.stopped ? "/v1/clock/start" : "/v1/clock/stop");
  };
  fill(
    main,
    h(
      "section",
      { className: "card clock-bar", aria: { label: "Clock" } },
      h("h1", { className: "quiet-label" }, "Emulator"),
      h("div", {}, time, speed),
      buttonGroup(
        "Move the clock ahead",
        h("span", { className: "soft" }, "Ahead"),
        JUMPS.map(([by, label]) =>
          press(label, () => does("/v1/clock/advance", { by }), {
            spoken: `Ahead ${label}`,
            data: { ahead: by },
          }),
        ),
        press("Other…", () => act("advance_clock", { label: "Move the clock", done: readClock }), {
          look: "plain small",
        }),
      ),
      buttonGroup(
        "Speed",
        h("span", { className: "soft" }, "Speed"),
        SPEEDS.map((each) =>
          press(`×${each}`, () => does("/v1/clock/speed", { speed: each }), {
            spoken: `Speed ${each}`,
            data: { speed: each },
          }),
        ),
        pause,
      ),
    ),
    h(
      "section",
      { className: "card" },
      h(
        "div",
        { className: "head" },
        h("h2", {}, "Scenarios"),
        press("Run your own…", own, { look: "plain small" }),
      ),
      stories,
    ),
    section("Faults on demand", faults),
  );
  const drawFaults = (reply) =>
    fill(
      faults,
      reply.faults.length
        ? h(
            "ul",
            { className: "plain-list" },
            reply.faults.map((each) =>
              h(
                "li",
                {},
                h("code", {}, each.fault),
                " ",
                press(
                  "Take back",
                  async () => drawFaults(await call("DELETE", `/v1/faults/${part(each.kind)}`)),
                  { spoken: `Take ${each.fault} back` },
                ),
              ),
            ),
          )
        : soft("No faults."),
      buttonGroup(
        "Set a fault",
        FAULTS.map((each) =>
          press(
            each,
            () =>
              act("set_fault", {
                label: "Set the fault",
                given: { fault: each },
                done: drawFaults,
              }),
            { data: { fault: each } },
          ),
        ),
      ),
    );
  let reading = 0;
  let order = new Map(); // name of a scenario -> its place in the list
  const readStories = async () => {
    const mine = ++reading;
    const reply = await get("/v1/scenarios");
    if (mine !== reading) return; // a later request will answer
    await unpressed();
    // What runs is first, but no row moves under the pointer: its next press would miss.
    if (!order.size || !stories.matches(":hover")) {
      const runs = (each) => (each.run?.state === "running" ? 0 : 1);
      order = new Map(
        [...reply.scenarios]
          .sort((one, other) => runs(one) - runs(other))
          .map((each, place) => [each.name, place]),
      );
    }
    const place = (each) => order.get(each.name) ?? order.size;
    const scenarios = reply.scenarios.sort((one, other) => place(one) - place(other));
    keepFocus(stories, () => fill(stories, scenarios.map(story)));
  };
  stories.addEventListener("pointerleave", () => readStories().catch(() => {}));
  const story = (each) => {
    const runs = each.run?.state === "running";
    const button = (label, does, data = {}, look = "small") =>
      press(label, does, {
        look,
        data,
        spoken: `${label.replace("…", " another VM:")} ${each.name}`,
      });
    return h(
      "li",
      { className: "scenario" },
      runs
        ? button("Stop", () => run(each.name, "stop"), {}, "small danger")
        : button("Run", () => run(each.name, "run"), { run: each.name }, "small first"),
      h(
        "details",
        {},
        h("summary", {}, each.title),
        soft(each.about || each.name),
        button("On…", () =>
          act("run_scenario", { name: each.name, label: "Run", done: readStories }),
        ),
      ),
      each.run
        ? h(
            "span",
            { className: "run" },
            chip(each.run.state),
            ` ${each.run.steps_done}/${each.run.steps} `,
            link("vms", each.run.vm),
            " ",
            each.run.operations.map((id) => [link("operations", id), " "]),
            each.run.problem ?? "",
          )
        : "",
    );
  };
  const run = async (name, what) => {
    try {
      await call("POST", `/v1/scenarios/${part(name)}/${what}`, {});
      note(what === "run" ? `Scenario ${name} begins.` : `Scenario ${name} stopped.`);
    } catch (error) {
      note(`${error.message} ${error.advice}`, "refused");
    }
    await readStories();
  };
  function own() {
    const name = h("input", { id: "own-name", value: "my-story" });
    const text = h("textarea", { id: "own-text", rows: 10, spellcheck: false });
    dialog({
      title: "Run a scenario of your own",
      text: "A scenario in TOML; see 'Scenarios' in the documentation.",
      confirm: "Run",
      done: readStories,
      extra: [labelled(name, "Name"), labelled(text, "Scenario")],
      ask: () => call("POST", `/v1/scenarios/${part(name.value)}/run`, { text: text.value }),
    });
  }
  drawClock();
  drawFaults(await get("/v1/faults"));
  await readStories();
  let waiting = null;
  const unlisten = listen((what) => {
    if (what !== "operations" || waiting) return;
    waiting = setTimeout(() => {
      waiting = null;
      readStories().catch(() => {});
    }, 400);
  });
  const timer = setInterval(drawClock, 250);
  return () => {
    unlisten();
    clearInterval(timer);
  };
}
