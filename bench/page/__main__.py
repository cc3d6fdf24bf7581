"""Measures the page with a large fleet in Debian's Chromium without a graphics card.

A store of 100,000 hosts and 1,000,000 VMs is served in this process. Measured are the first
paint of the map after the address was opened, the time from an operator's call to the frame that
shows its host changed, the time from the address of a maintenance of 2,000 hosts to the frame with
its chart of waves, the frames a second while 50 hosts a second change, and the frames a second
while the map is dragged: whole, with small cells, and with names.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from dataclasses import replace
from itertools import pairwise

from bench.scale.__main__ import ANNOUNCED, BLOCK, PLANNED
from bench.sizes import Parser
from forewarn_base.settings import StoreSettings
from tests.api.live import SETTINGS, Live
from tests.page.browser import Browser
from tests.waiting import wait_until

#: Time limit of a start; a million VMs take seconds to load, on a busy machine a minute.
STARTS_S_MAX = 300
CHANGES_A_SECOND = 50
#: Number of parallel callers, so that a due call does not wait for an earlier answer.
CALLERS = 10
WATCH = """(() => {
    window.frames = [];
    const frame = (now) => { frames.push(now); requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
})()"""
#: Drags the map to and fro by a step per frame, like a moving mouse.
DRAG = """(() => {
    const map = document.querySelector("canvas.map");
    const [x, y] = [map.clientWidth / 2, map.clientHeight / 2];
    const send = (type, at) => map.dispatchEvent(new PointerEvent(type, {
        pointerId: 1, pointerType: "mouse", clientX: x + at, clientY: y + at / 2, bubbles: true }));
    map.setPointerCapture = () => {};
    send("pointerdown", 0);
    let turn = 0;
    const step = () => {
        turn += 1;
        send("pointermove", 200 * Math.sin(turn / 20));
        if (window.dragging) requestAnimationFrame(step);
        else send("pointercancel", 0);
    };
    window.dragging = true;
    requestAnimationFrame(step);
})()"""
#: Opens a maintenance, and returns the time until the frame with its chart, in ms.
CHART = """new Promise((done) => {
    const began = performance.now();
    location.hash = "#/maintenances/ID";
    const look = () => document.querySelector(".piece:not(.open)")
        ? requestAnimationFrame((now) => done(now - began)) : setTimeout(look, 1);
    look();
})"""
FIRST = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
DRAWN = "window.forewarnMap?.frames > 0 && document.querySelector('.legend b') && forewarnMap.drawn"


def main() -> None:
    """Measure, and print one table."""
    parser = Parser("bench.page", __doc__)
    parser.add_size("--hosts", 100_000, 10_000, 2000, "number of hosts")
    parser.add_size("--changes", 20, 20, 2, "number of measured changes")
    parser.add_size("--chart-hosts", 2000, 2000, 100, "number of hosts of the maintenance")
    parser.add_size("--seconds", 10, 10, 1, "time of the continuous changes, in seconds")
    parser.add_size("--drag-seconds", 4, 4, 1, "time of dragging at each size, in seconds")
    asked = parser.sized()
    hosts = asked.hosts
    with tempfile.TemporaryDirectory() as folder:
        filling = "import sys; from pathlib import Path; from bench.scale.__main__ import fill;"
        filling += "fill(Path(sys.argv[1]), int(sys.argv[2]))"
        subprocess.run([sys.executable, "-c", filling, folder, str(hosts * 10)], check=True)
        url = f"sqlite:///{folder}/scale.db"
        live = Live(replace(SETTINGS, store=StoreSettings(url=url)), starts_s=STARTS_S_MAX)
        browser = Browser(width=1600, height=1000)
        try:
            found = {"hosts": hosts, "vms": hosts * 10, **measure(live, browser, asked)}
            print(json.dumps(found, indent=1))
        finally:
            browser.open("about:blank")
            browser.close()
            live.stop()


def measure(live: Live, browser: Browser, asked: Namespace) -> dict[str, object]:
    """Return every figure, in milliseconds."""
    began = time.monotonic()
    size = len(live.call("GET", "/v1/overview").body)
    first_read = time.monotonic() - began
    painted, mapped = [], []
    for _ in range(3):
        browser.open("about:blank")
        browser.open(f"{live.url}/")
        mapped.append(browser.until(DRAWN))
        painted.append(browser.run(FIRST))
    answered: list[float] = []
    latencies = [latency(live, browser, number, answered) for number in range(asked.changes)]
    charted = chart(live, browser, min(asked.chart_hosts, asked.hosts // 4))
    browser.open(f"{live.url}/")
    browser.until(DRAWN)
    rate = frames(live, browser, asked.changes, asked.seconds)
    panned = panning(browser, asked.drag_seconds)
    return {
        "overview_bytes": size,
        "first_overview_ms": round(first_read * 1000),
        "first_paint_ms": round(statistics.median(painted)),
        "map_drawn_ms": round(statistics.median(mapped)),
        "change_answered_ms": round(statistics.median(answered)),
        "change_to_screen_ms": round(statistics.median(latencies)),
        "change_to_screen_worst_ms": round(max(latencies)),
        "chart_drawn_ms": round(statistics.median(charted)),
        "chart_drawn_worst_ms": round(max(charted)),
        **rate,
        **panned,
    }


def latency(live: Live, browser: Browser, number: int, answered: list[float]) -> float:
    """Return the time from a call until the frame that shows its effect, in ms."""
    host = f"h{number * 20 + 15}"
    place = live.get(f"/v1/overview/hosts?host={host}")["from"]
    waiting = f"""new Promise((done) => import("/web/live.js").then(({{ live }}) => {{
        const before = live.letters[{place}];
        const look = () => live.letters[{place}] !== before && !document.hidden
            ? requestAnimationFrame(() => done(Date.now())) : setTimeout(look, 1);
        window.ready = true;
        look();
    }}))"""
    browser.run(f"window.ready = false; window.seen = {waiting}; null")
    browser.until("window.ready")
    asked = time.time() * 1000
    live.post(f"/v1/hosts/{host}/fail")
    answered.append(time.time() * 1000 - asked)
    seen: float = browser.run("window.seen")
    return seen - asked


def chart(live: Live, browser: Browser, hosts: int) -> list[float]:
    """Return the times from the address of a maintenance until its waves are drawn, in ms."""
    free = (n for n in itertools.count() if n % BLOCK not in {*ANNOUNCED, PLANNED})
    names = [f"h{n}" for n in itertools.islice(free, hosts)]
    form = {"cause": "host-update", "hosts": names, "duration": "PT5M"}
    made = live.call("POST", "/v1/maintenances", form).json["maintenance"]["id"]
    path = f"/v1/maintenances/{made}"
    wait_until(lambda: not live.get(path)["maintenance"]["planning"], limit_s=STARTS_S_MAX)
    live.post(f"{path}/start")  # which plans it again
    wait_until(lambda: live.get(path)["waves"], limit_s=STARTS_S_MAX)
    times = []
    for _ in range(5):
        browser.run("location.hash = '#/policy'")
        browser.until("!document.querySelector('.wave-lane, .piece:not(.open)')")
        times.append(browser.run(CHART.replace("ID", made)))
    return times


def frames(live: Live, browser: Browser, first_host: int, seconds: int) -> dict[str, object]:
    """Return the frames per second while hosts change, and the longest pause between frames."""
    stop = threading.Event()
    done = []
    numbers = itertools.count(first_host)

    def change() -> None:
        due = time.monotonic()
        while not stop.is_set():
            live.post(f"/v1/hosts/h{next(numbers) * 8 + 6}/fail")
            done.append(time.monotonic())
            due += CALLERS / CHANGES_A_SECOND
            stop.wait(max(due - time.monotonic(), 0))

    browser.run(WATCH)
    callers = [threading.Thread(target=change) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    time.sleep(1)
    browser.run("frames.length = 0")
    first = len(done)
    time.sleep(seconds)
    times: list[float] = browser.run("frames")
    changed = (len(done) - first) / seconds
    stop.set()
    for caller in callers:
        caller.join()
    pauses = [later - earlier for earlier, later in pairwise(times)]
    return {
        "changes_a_second": round(changed, 1),
        "frames_a_second": round(len(times) / seconds, 1),
        "longest_frame_ms": round(max(pauses, default=0)),
    }


def panning(browser: Browser, seconds: int) -> dict[str, object]:
    """Return the frames per second while the map is dragged, by the size of a host's cell."""
    found: dict[str, object] = {}
    for name, pixels in (("whole", 0), ("small_cells", 8), ("named_cells", 60)):
        while browser.run("forewarnMap.size") < pixels:
            browser.run("document.querySelector(\"[aria-label='Zoom in']\").click()")
        browser.run(DRAG)
        time.sleep(1)
        browser.run("frames.length = 0")
        time.sleep(seconds)
        times: list[float] = browser.run("frames")
        browser.run("window.dragging = false")
        found[f"dragging_{name}_frames_a_second"] = round(len(times) / seconds, 1)
    return found


if __name__ == "__main__":
    main()
