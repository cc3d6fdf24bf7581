"""Debian's Chromium, driven over the DevTools protocol by pipe: real keys, real clicks.

The protocol needs nothing but the standard library.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from tests.waiting import LIMIT_S

#: What the protocol says; who asks knows what to expect.
Json: TypeAlias = Any

#: Empty where there is none: tests say so and are skipped.
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
PAGE_MS_MAX = 150_000
#: Longest wait in the page: shorter than that for an answer of the browser.
TAPS_MAX = 5
READ_BYTES = 1 << 20
#: Features that start a process for the page of each test; see below.
UNUSED = ("SpareRendererForSitePerProcess", "BackForwardCache", "ProactivelySwapBrowsingInstance")
FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-extensions"),
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-sync", "--disable-component-update"),
    *("--no-default-browser-check", "--mute-audio", "--force-color-profile=srgb"),
    # One process draws all pages: by default, a new one starts for each, and a spare one.
    *("--renderer-process-limit=1", "--disable-site-isolation-trials", "--in-process-gpu"),
    f"--disable-features={','.join(UNUSED)}",
)
KEYS = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Space": (" ", 32, " "),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "Home": ("Home", 36, ""),
}


class Broken(AssertionError):
    """The page or the browser did not do what a test expects of it."""


class Browser:
    """One headless Chromium with one page."""

    def __init__(self, *, width: int = 1360, height: int = 850) -> None:
        """Start it."""
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # By path: Debian's sh knows descriptors of one digit only.
        script = f'exec "$@" 3</dev/fd/{to_browser} 4>/dev/fd/{from_browser}'
        command = [PROGRAM, *FLAGS, f"--user-data-dir={self._profile.name}"]
        command += [f"--window-size={width},{height}", "about:blank"]
        self._process = subprocess.Popen(
            ["sh", "-c", script, "sh", *command],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._count = 0
        self._session = ""
        #: What the page has complained of: exceptions, refused requests, console errors.
        self.problems: list[str] = []
        #: Every address the page has asked for.
        self.asked: list[str] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.resize(width, height)

    def close(self) -> None:
        """End it."""
        os.close(self._out)
        try:
            self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(LIMIT_S)
        os.close(self._in)
        self._profile.cleanup()

    # --- the protocol -------------------------------------------------------------------------

    def send(self, method: str, **parameters: object) -> Json:
        """Send one command and return its answer."""
        self._count += 1
        told: dict[str, object] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            told["sessionId"] = self._session
        os.write(self._out, json.dumps(told).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._count:
                if "error" in message:
                    raise Broken(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def _read(self) -> Json:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], LIMIT_S)
            part = os.read(self._in, READ_BYTES) if ready else b""
            if not part:
                raise Broken("the browser does not answer")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, message: Json) -> None:
        method, told = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details["text"]
            self.problems.append(text)
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            url, text = told["entry"].get("url", ""), told["entry"]["text"]
            # 404 without OIDC, at any moment; a form that is still being filled has no plan.
            usual = url.endswith("/v1/sign-in/begin") or (
                url.endswith("/v1/maintenances/plan") and "422" in text
            )
            if not usual:
                self.problems.append(f"{text} {url}")
        elif method == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])

    # --- the page -----------------------------------------------------------------------------

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        """Give the window another size."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )

    def open(self, url: str) -> None:
        """Go to an address."""
        self.send("Page.navigate", url=url)

    def run(self, script: str) -> Json:
        """Run a script in the page, awaiting what it promises, and return its value."""
        answer = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise Broken(str(answer["exceptionDetails"].get("exception", {}).get("description")))
        return answer["result"].get("value")

    def until(self, condition: str, what: str = "") -> Json:
        """Wait in the page until an expression is true there, and return its value."""
        script = f"""new Promise((done) => {{
            const end = performance.now() + {PAGE_MS_MAX};
            const look = () => {{
                let found = null;
                try {{ found = ({condition}); }} catch (error) {{ found = null; }}
                if (found) done(typeof found !== "object" || Array.isArray(found) ? found : true);
                else if (performance.now() > end) done(null);
                else setTimeout(look, 20);
            }};
            look();
        }})"""
        found = self.run(script)
        if not found:
            text = self.run("document.body.innerText")
            raise Broken(f"never so: {what or condition}\n{self.problems}\n{text[:2000]}")
        return found

    def see(self, text: str) -> None:
        """Wait until a text is on the page."""
        self.until(f"document.body.innerText.includes({json.dumps(text)})", f"{text!r} is shown")

    def click(self, selector: str) -> None:
        """Click the middle of what a selector finds, as a mouse does."""
        self.click_at(*self.middle_of(selector))

    def tap(self, selector: str) -> None:
        """Touch the middle of what a selector finds, as a finger does."""
        x, y = self.middle_of(selector)
        points = [{"x": x, "y": y}]
        self.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=points)
        self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def focus(self, selector: str, press: Callable[[str], None]) -> None:
        """Press a field until it has the focus: a hand that slips on a change presses again."""
        has_it = f"document.activeElement?.matches({json.dumps(selector)}) ?? false"
        for _ in range(TAPS_MAX):
            press(selector)
            if self.run(has_it) or self.run(
                f"new Promise((d) => setTimeout(() => d({has_it}), 300))"
            ):
                return
        raise Broken(f"{selector} never has the focus")

    def middle_of(self, selector: str) -> tuple[float, float]:
        """Return the middle of what a selector finds, once it stands still in sight.

        At two looks in different frames it is the same element at the same place: nobody presses
        what is just being drawn.
        """
        self.run("window.pressed = null")
        x, y = self.until(
            f"""(() => {{
                const element = document.querySelector({json.dumps(selector)});
                if (!element) return null;
                element.scrollIntoView({{ block: "center", behavior: "instant" }});
                const box = element.getBoundingClientRect(), known = window.pressed;
                const now = [box.x + box.width / 2, box.y + box.height / 2];
                const frame = document.timeline.currentTime;
                window.pressed = {{ element, now, frame }};
                return known?.element === element && known.frame !== frame
                    && String(known.now) === String(now) && now;
            }})()""",
            f"{selector} is there",
        )
        return x, y

    def still(self, place: str) -> Json:
        """Return a place once it has not moved for a second; parts of a view load one by one."""
        return self.until(
            f"""(() => {{
                const now = {place}, known = window.stillPlace;
                if (known && String(known.now) === String(now))
                    return performance.now() - known.since > 1000 && now;
                window.stillPlace = {{ now, since: performance.now() }};
                return null;
            }})()""",
            "a place that does not move",
        )

    def click_at(self, x: float, y: float) -> None:
        """Move the mouse to a place and click."""
        self.move_to(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def move_to(self, x: float, y: float) -> None:
        """Move the mouse to a place."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def key(self, name: str, *, times: int = 1, shift: bool = False) -> None:
        """Press a key."""
        key, code, text = KEYS.get(name, (name, ord(name.upper()[0]), name))
        for _ in range(times):
            common = {
                "key": key,
                "code": name if name in KEYS else "",
                "windowsVirtualKeyCode": code,
                "modifiers": 8 if shift else 0,
            }
            down = "keyDown" if text else "rawKeyDown"
            self.send("Input.dispatchKeyEvent", type=down, text=text, **common)
            self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Type a text where the focus is, in place of what is chosen there."""
        self.send("Input.insertText", text=text)

    def tab_to(self, selector: str, most: int = 120) -> None:
        """Press Tab until the focus is on what a selector finds."""
        found = json.dumps(selector)
        self.until(f"document.querySelector({found})", f"{selector} is there")
        for _ in range(most):
            if self.run(f"document.activeElement?.matches({found}) ?? false"):
                return
            self.key("Tab")
        raise Broken(f"Tab never comes to {selector}")

    def picture(self, path: Path) -> None:
        """Write what is to be seen into a file, in the format of its suffix: png or webp."""
        picture = self.send("Page.captureScreenshot", format=path.suffix[1:])
        path.write_bytes(base64.b64decode(picture["data"]))
