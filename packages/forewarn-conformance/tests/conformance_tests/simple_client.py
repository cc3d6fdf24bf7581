"""A client of a hundred lines that does all its duties, or gets one thing wrong on request.

`python simple_client.py [WRONG]`; what it finds in its environment is the suite's. It imports
nothing of Forewarn: it stands for anybody's client.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime
from pathlib import Path

WRONG = sys.argv[1] if len(sys.argv) > 1 else ""
URL = os.environ["FOREWARN_ENDPOINT"] + "/metadata/scheduledevents?api-version="
NAME = os.environ["CONFORMANCE_VM"]
MARK = os.environ["CONFORMANCE_MARK"]
JOURNAL = Path(os.environ["CONFORMANCE_STATE"], "journal")
VERSIONS = ["2020-07-01", "2019-08-01"]
TIMEOUT_S = 5
Event = dict[str, object]
pause = threading.Event().wait


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *_: object) -> None:
        """Refuse."""


HANDLERS: list[urllib.request.BaseHandler] = []
if WRONG != "proxied":
    HANDLERS.append(urllib.request.ProxyHandler({}))
if WRONG != "redirected":
    HANDLERS.append(NoRedirect())
OPENER = urllib.request.build_opener(*HANDLERS)


def ask(body: bytes | None = None) -> bytes:
    """Send one request."""
    headers = {} if WRONG == "headerless" else {"Metadata": "true"}
    request = urllib.request.Request(URL + VERSIONS[0], body, headers)
    try:
        with OPENER.open(request, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read()
        unknown = b"newest-versions" in text or b"Invalid version requested" in text
        if error.code in (400, 404) and unknown and len(VERSIONS) > 1:
            del VERSIONS[0]
        raise


def mark(word: str, event_id: str) -> None:
    """Tell the suite."""
    subprocess.run([MARK, word, event_id], check=True)


def is_time_for(event: Event) -> bool:
    """Say that it is time to act; a wrong client goes by its own clock."""
    if WRONG not in ("punctual", "patient"):
        return True
    left_s = parsedate_to_datetime(str(event["NotBefore"])).timestamp() - time.time()
    return left_s > 0 if WRONG == "punctual" else left_s < 300


class Client:
    """Follows the events."""

    def __init__(self) -> None:
        """Read what an earlier run has written down."""
        self.prepared: set[str] = set()
        self.approved: set[str] = set()
        if JOURNAL.exists() and WRONG != "forgetful":
            self.prepared.update(JOURNAL.read_text().split())
        self.incarnation = -1

    def poll(self) -> None:
        """Ask once and act."""
        text = ask()
        if WRONG == "hasty" and not text:
            text = b'{"DocumentIncarnation":0,"Events":[]}'
        document = json.loads(text)
        if WRONG == "growing" and document["DocumentIncarnation"] <= self.incarnation:
            return
        self.incarnation = document["DocumentIncarnation"]
        shown = {event["EventId"]: event for event in document["Events"]}
        for event_id in sorted(self.prepared - set(shown)):
            for _ in range(2 if WRONG == "stuttering" else 1):
                mark("recovered", event_id)
            self.prepared.remove(event_id)
            self.note()
        for event in shown.values():
            mine = NAME in event["Resources"] or WRONG == "nosy"
            if event["EventStatus"] == "Scheduled" and mine and is_time_for(event):
                self.act(event["EventId"])
            elif event["EventStatus"] == "Started" and mine and WRONG != "surprised":
                self.meet(event["EventId"])

    def meet(self, event_id: str) -> None:
        """Recover later, also from what has started without notice."""
        if event_id in self.prepared:
            return
        if WRONG == "zealous":
            mark("recovered", event_id)
        self.prepared.add(event_id)
        self.note()

    def act(self, event_id: str) -> None:
        """Prepare and approve."""
        if WRONG == "eager":
            self.approve(event_id)
        if event_id not in self.prepared or WRONG == "repeating":
            mark("prepared", event_id)
            self.prepared.add(event_id)
            self.note()
        if event_id not in self.approved:
            self.approve(event_id)

    def approve(self, event_id: str) -> None:
        """Send the approval."""
        if WRONG == "faint":
            self.approved.add(event_id)
        ask(json.dumps({"StartRequests": [{"EventId": event_id}]}).encode())
        self.approved.add(event_id)

    def note(self) -> None:
        """Write down what is prepared."""
        JOURNAL.write_text(" ".join(self.prepared))


def main() -> None:
    """Run until killed."""
    client = Client()
    while True:
        try:
            client.poll()
        except (OSError, ValueError, http.client.HTTPException) as error:
            if WRONG == "fragile":
                raise
            print(error, file=sys.stderr, flush=True)
            if WRONG == "impatient":
                continue
        pause({"busy": 0.01, "sluggish": 60.0}.get(WRONG, 0.3))


if __name__ == "__main__":
    main()
