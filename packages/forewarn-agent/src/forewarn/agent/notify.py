"""Notifications to webhooks, CloudEvents receivers and Apprise, sent by a background job.

The core decides about notifications; this module sends a notification.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from forewarn.agent.json_fields import words
from forewarn.agent.preparations.http_call import CallFailed
from forewarn.agent.preparations.webhook import post
from forewarn_base.clock import SystemClock
from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.untrusted_text import without_markup

LEVELS = ("info", "warning", "error")
APPRISE_TYPES = {"info": "info", "warning": "warning", "error": "failure"}
APPRISE_TIMEOUT_S = 30
TRIES = 3


def main(form: dict[str, object]) -> int:
    """Send a notification to all configured receivers; return 0 if all accepted."""
    settings = form.pop("settings")
    assert isinstance(settings, dict)
    if LEVELS.index(str(form["level"])) < LEVELS.index(str(settings.get("level", "info"))):
        return 0
    failed = 0
    for key, body in (("webhook", form), ("cloudevents", cloud_event(form))):
        for url in words(settings, key):
            options = {
                "url": url,
                "tries": TRIES,
                "secret_file": settings.get(f"{key}_secret_file"),
                "ca_file": settings.get("ca_file"),
                "cloudevents": key == "cloudevents",
            }
            try:
                post(options, body, kind="notify")
            except CallFailed as error:
                sys.stderr.write(f"{error}\n")
                failed = 1
    return max(failed, _apprise(words(settings, "apprise"), form))


def cloud_event(form: dict[str, object]) -> dict[str, object]:
    """Return a notification as a CloudEvent 1.0, in structured form."""
    event = form["event"]
    assert isinstance(event, dict)
    now_ms = SystemClock().now_ms()
    return {
        "specversion": "1.0",
        "id": f"{event['event_id']}/{form['name']}/{form['action']}/{now_ms}",
        "source": f"/forewarn/agent/{form['name']}",
        "type": f"io.forewarn.event.{form['action']}",
        "subject": str(event["event_id"]),
        "time": iso8601(now_ms),
        "datacontenttype": "application/json",
        "data": form,
    }


def _apprise(urls: list[str], form: dict[str, object]) -> int:
    """Pass a notification to the program Apprise, if installed."""
    program = shutil.which("apprise")
    if not urls:
        return 0
    if program is None:
        sys.stderr.write("apprise is not installed\n")
        return 1
    title = without_markup(f"{form['name']}: {form['action']}")
    text = without_markup(str(form["text"]))
    kind = APPRISE_TYPES[str(form["level"])]
    with tempfile.TemporaryDirectory() as directory:
        places = Path(directory, "urls")  # a file, because every user can read command lines
        places.write_text("\n".join(urls), "utf-8")
        command = [program, "-n", kind, "-i", "text", "-t", title, "-b", text, "-c", str(places)]
        done = subprocess.run(
            command, timeout=APPRISE_TIMEOUT_S, capture_output=True, check=False, text=True
        )
    sys.stderr.write(done.stderr[-500:])
    return 1 if done.returncode else 0
