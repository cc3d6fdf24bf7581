"""Asking an emulator that runs as a process: where it is, and what a plain client reads there."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping

from emulator_tests.conftest import ANYWHERE, Process
from forewarn_server.cli.api_client import ApiClient
from tests.waiting import LIMIT_S

PATH = "/metadata/scheduledevents?api-version=2020-07-01"
Start = Callable[..., Process]


def get(url: str, headers: Mapping[str, str] | None = None) -> dict[str, object]:
    """Return the document at a URL."""
    ask = urllib.request.Request(url, headers={"Metadata": "true", **(headers or {})})
    try:
        with urllib.request.urlopen(ask, timeout=LIMIT_S) as answer:
            found: dict[str, object] = json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        refused.close()
        raise
    return found


def post(url: str, event_id: str) -> None:
    """Approve an event."""
    body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
    ask = urllib.request.Request(url, body, {"Metadata": "true"})
    urllib.request.urlopen(ask, timeout=LIMIT_S).close()


def places(said: str) -> tuple[str, str]:
    """Return where the greeting says to poll, and where the operator API is."""
    polled = re.search(r"poll +(http://\S+)\?", said)
    operator = re.search(r"operator API +(http://\S+)", said)
    assert polled, said
    return f"{polled[1]}?api-version=2020-07-01", operator[1] if operator else ""


def events(document: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the events of a document."""
    found = document["Events"]
    assert isinstance(found, list)
    return found


def started(process: Start, *arguments: str) -> tuple[Process, str, ApiClient]:
    """Start an emulator on free ports; return it, where to poll, and its operator API."""
    emulator = process("--listen", ANYWHERE, "--operator-listen", ANYWHERE, *arguments)
    url, operator = places(emulator.read_until("clock advance"))
    return emulator, url, ApiClient(operator)
