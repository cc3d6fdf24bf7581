"""The agent and the drivers read what peers send in linear time."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forewarn.agent.core.agent_core import AgentCore
from forewarn.agent.core.values import DocumentPolled
from forewarn.agent.log import Log
from forewarn.agent.status_server import REQUEST_BYTES_MAX, _Connection
from forewarn_base.protocol.documents import DOCUMENT_BYTES_MAX, read_document
from forewarn_drivers.registry import make_driver
from forewarn_drivers.webhook.driver import WebhookDriver
from tests.agent.making import ME, NOW, STOP, rule
from tests.hostile.growth import GROWTH_MAX, growth
from tests.serving import HttpServer

pytestmark = pytest.mark.slow

GET = b"GET /status HTTP/1.1\r\n"
PAGES: dict[str, Callable[[int], bytes]] = {
    "path": lambda size: b"GET /" + b"/." * (size // 2),
    "line ends": lambda size: b"\r\n\r" * (size // 3),
    "headers": lambda size: GET + b"a:\r\n" * (size // 4) + b"\r\n",
    "hosts": lambda size: GET + b"host: [::1%\r\n" * (size // 13) + b"\r\n",
}


@pytest.mark.parametrize("name", PAGES)
def test_status_page_reads_a_request_in_linear_time(name: str) -> None:
    """A request may arrive byte by byte; it has at most 8 KiB. Source: P-13."""

    def read(octets: object) -> None:
        assert isinstance(octets, bytes)
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        connection = _Connection(ours, 0)
        with ours, theirs:
            for octet in octets:
                theirs.send(bytes((octet,)))
                if connection.advance(lambda *_: (200, "text/plain", ""), 0):
                    break

    assert growth(read, PAGES[name], REQUEST_BYTES_MAX // 2 - 64) <= GROWTH_MAX


EVENTS: dict[str, Callable[[int], dict[str, object]]] = {
    "of this VM": lambda _: {"Resources": ["vm_0"]},
    "of all VMs": lambda number: {"Resources": ["vm_0", "vm_1", f"vm_{number}"]},
    "started": lambda _: {"Resources": ["vm_0"], "EventStatus": "Started", "NotBefore": ""},
    "of one name": lambda _: {"EventId": "E1"},
    "of no known type": lambda number: {"EventType": f"T{number}", "EventSource": {}},
    "of many names": lambda number: {"Resources": [f"vm_{each}" for each in range(number % 100)]},
}


def documents(name: str, count: int) -> list[bytes]:
    """Return three documents: hostile events, the same with changes, and none."""
    events = [
        {
            "EventId": f"E{number}",
            "EventStatus": "Scheduled",
            "EventType": "Reboot",
            "ResourceType": "VirtualMachine",
            "Resources": [],
            "NotBefore": "Mon, 19 Sep 2036 18:29:47 GMT",
            **EVENTS[name](number),
        }
        for number in range(count)
    ]
    later = [{**each, "Description": "x"} for each in reversed(events)]
    found = [
        json.dumps({"DocumentIncarnation": number, "Events": each}).encode()
        for number, each in enumerate((events, later, []), 1)
    ]
    assert max(map(len, found)) < DOCUMENT_BYTES_MAX
    return found


@pytest.mark.parametrize("name", EVENTS)
def test_agent_follows_a_document_in_linear_time(name: str) -> None:
    """Each event of a document of any size is looked at a fixed number of times. Source: P-13."""

    def follow(given: object) -> None:
        assert isinstance(given, list)
        engine = AgentCore(ME, (rule((STOP,)),))
        for number, body in enumerate(given):
            engine.step(DocumentPolled(read_document(body)), NOW + number)
            engine.next_deadline()
            engine.journal()

    assert growth(follow, lambda count: documents(name, count), 1000) <= GROWTH_MAX


@pytest.mark.parametrize("form", ["text", "json"])
def test_output_of_a_hook_is_logged_in_linear_time(
    form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A line is cut, whatever its characters become as escapes."""
    with (tmp_path / "log").open("w") as file:
        monkeypatch.setattr("sys.stderr", file)
        for character in ("a", "\x1b", "\u202e", "\U000e0041"):
            assert (
                growth(
                    lambda text: Log(form).say("x", str(text), output=text),
                    (
                        lambda size, character=character: character * size  # type: ignore[misc]
                    ),
                    500_000,
                )
                <= GROWTH_MAX
            )


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[[bytes], WebhookDriver]]:
    """A webhook driver whose service gives an answer."""
    servers: list[HttpServer] = []
    (tmp_path / "secret").write_bytes(b"s" * 32)

    def answering(body: bytes) -> WebhookDriver:
        servers.append(HttpServer(lambda _: (200, body, {})))
        options = {"kind": "webhook", "url": servers[-1].url, "backoff_s": 0}
        options["secret_file"] = str(tmp_path / "secret")
        made = make_driver("far", options, str(tmp_path / "store.db"))
        assert isinstance(made, WebhookDriver)
        return made

    yield answering
    for each in servers:
        each.close()


@pytest.mark.parametrize("piece", [b"[],", b'"\\"",', b"{},", b"1e9,", b'{"a":1},'])
def test_answer_of_a_webhook_is_read_in_linear_time(
    driver: Callable[[bytes], WebhookDriver], piece: bytes
) -> None:
    """A service that discovers hosts may answer with 4 MB. Source: P-13."""
    size = 400_000
    drivers = {
        count: driver(b"[" + piece * (count // len(piece)) + b"0]")
        for count in (size // 2, 2 * size)
    }

    def discover(count: object) -> None:
        assert isinstance(count, int)
        drivers[count].discover()

    assert growth(discover, lambda count: count, size) <= GROWTH_MAX
