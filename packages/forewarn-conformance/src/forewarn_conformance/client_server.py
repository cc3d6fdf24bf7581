"""A metadata service on a loopback address that plays a story for a client, and records requests.

`client_stories.py` defines the duties of clients. This module checks only the rules that are common
to all stories.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from forewarn_base.clock import SystemClock
from forewarn_base.protocol.approvals import ApprovalMalformed, ApprovalTooLarge, read_approval
from forewarn_base.protocol.documents import Document, ScheduledEvent, render_document
from forewarn_base.protocol.timestamps import rfc1123
from forewarn_base.protocol.versions import EVENTS_PATH, HOLD_S_MAX, VERSIONS

ELSEWHERE = "/elsewhere"
NAME = "vm-1"
#: Name of the other VM of the group.
NEIGHBOUR = "vm-2"
BODY_BYTES_MAX = 64 * 1024
VERSION_UNKNOWN = b'{ "error": "Not found. Invalid version requested" }'
NOT_JSON = b'{"DocumentIncarnation":1,"Ev'

#: Answers for each fault: status, headers and body.
ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "429": (429, {"Retry-After": "1"}, b"Throttle Result: Too Many Requests"),
    "410": (410, {}, b'{"error":"Gone"}'),
    "500": (500, {}, b'{"error":"Internal error"}'),
    "503": (503, {}, b'{"error":"Service unavailable"}'),
    "empty": (200, {}, b""),
    "not-json": (200, {"Content-Type": "application/json"}, NOT_JSON),
    "redirect": (302, {"Location": ELSEWHERE}, b""),
}


@dataclass(slots=True)
class Seen:
    """The recorded requests of a client; times are ms since the epoch UTC."""

    polls_ms: list[int] = field(default_factory=list)
    #: Number of documents sent completely since the last change.
    shown: int = 0
    versions: list[str] = field(default_factory=list)
    #: Number of approvals answered 200, and number of sent approvals, by event id.
    approved: dict[str, int] = field(default_factory=dict)
    posted: dict[str, int] = field(default_factory=dict)
    #: Violations of common rules, without duplicates.
    violations: list[str] = field(default_factory=list)

    def add_violation(self, text: str) -> None:
        """Record a violation, once."""
        if text not in self.violations:
            self.violations.append(text)


class PlayedServer:
    """A metadata service for one client, guarded by `lock`."""

    def __init__(
        self, prepared: Callable[[str], bool], handler: type[PlayedHandler] | None = None
    ) -> None:
        """Bind a free port; `prepared` returns whether the client has prepared for an event."""
        #: Notified when the document changes.
        self.lock = threading.Condition()
        self.name = NAME
        self.seen = Seen()
        self.incarnation = 0
        self.events: tuple[ScheduledEvent, ...] = ()
        #: Fault of each method: a key of `ANSWERS`, `reset`, `half` or `hold`; empty: no fault.
        self.fault: dict[str, str] = {"GET": "", "POST": ""}
        #: Bytes to replace in documents, and the replacement.
        self.edit: tuple[bytes, bytes] | None = None
        #: The api-versions that the service supports.
        self.versions: tuple[str, ...] = VERSIONS
        #: Whether an unknown api-version is answered 404 instead of 400. Source: E-3.
        self.versions_by_404 = False
        #: How far the service's clock is ahead of this machine's, in ms. Source: C-11.
        self.ahead_ms = 0
        self.clock = SystemClock()
        self.prepared = prepared
        self.released = threading.Event()
        self._ids = 0
        answering = type("Handler", (handler or PlayedHandler,), {"played": self})
        self._http = _HttpServer(("127.0.0.1", 0), answering)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """URL of the service."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def now_ms(self) -> int:
        """Return the time by the service's clock."""
        return self.clock.now_ms() + self.ahead_ms

    def close(self) -> None:
        """Stop the service."""
        self.released.set()
        self._http.shutdown()
        self._http.server_close()

    def event(self, *resources: str, notice_s: int = 900, kind: str = "Reboot") -> ScheduledEvent:
        """Return a new event, by default of this VM, without adding it to the document."""
        with self.lock:
            self._ids += 1
            number = self._ids
        return ScheduledEvent(
            event_id=f"C0F0E7A0-0000-4000-8000-{number:012X}",
            event_type=kind,
            resources=resources or (NAME,),
            not_before_ms=(self.now_ms() // 1000 + notice_s) * 1000,
            description="Host server is undergoing maintenance.",
            duration_s=300,
        )

    def show(self, *events: ScheduledEvent, incarnation: int | None = None) -> None:
        """Replace the events in the document."""
        with self.lock:
            self.events = events
            self.incarnation = self.incarnation + 1 if incarnation is None else incarnation
            self.seen.shown = 0
            self.lock.notify_all()

    def set_fault(self, method: str, fault: str) -> None:
        """Set the fault of a method; an empty text clears it."""
        with self.lock:
            self.fault[method] = fault

    # --- answering ----------------------------------------------------------------------------

    def document(self, version: str) -> bytes:
        """Return the current document."""
        with self.lock:
            body = render_document(Document(self.incarnation, self.events), version)
        return body if self.edit is None else re.sub(*self.edit, body)

    def approve(self, body: bytes) -> int:
        """Process an approval; return the status of the answer."""
        try:
            ids = read_approval(body)
        except (ApprovalMalformed, ApprovalTooLarge) as error:
            self.seen.add_violation(f"the client sent a malformed approval: {error}")
            return 400
        with self.lock:
            shown = {event.event_id.upper(): event for event in self.events}
            for event_id in ids:
                event = shown.get(event_id)
                if event is None:
                    if self.seen.shown > 1:  # the client has read the current document
                        self.seen.add_violation("the client approved an event that does not exist")
                elif self.name not in event.resources:
                    self.seen.add_violation(
                        "the client approved an event that names only another VM"
                    )
                elif event.status == "Scheduled" and not self.prepared(event_id):
                    self.seen.add_violation("the client approved an event before preparing for it")
            return 200 if all(event_id in shown for event_id in ids) else 400

    def accepted(self, body: bytes) -> None:
        """Record an approval that is answered 200."""
        with self.lock:
            for event_id in read_approval(body):
                self.seen.approved[event_id] = self.seen.approved.get(event_id, 0) + 1


def started(event: ScheduledEvent) -> ScheduledEvent:
    """Return an event in the state Started."""
    return replaced(event, status="Started", not_before_ms=None)


def replaced(event: ScheduledEvent, **changes: object) -> ScheduledEvent:
    """Return an event with changed fields."""
    fields = {name: getattr(event, name) for name in ScheduledEvent.__slots__}
    return ScheduledEvent(**{**fields, **changes})


class _HttpServer(ThreadingHTTPServer):
    """An HTTP server that closes its connections at the end and ignores lost connections."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore broken connections."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class PlayedHandler(BaseHTTPRequestHandler):
    """The handler of a connection."""

    protocol_version = "HTTP/1.1"
    server_version = "Forewarn"
    disable_nagle_algorithm = True
    played: PlayedServer

    def do_GET(self) -> None:
        """Answer with a document, or with other metadata."""
        path, query = self._address()
        if path == EVENTS_PATH:
            self._poll(query)
        elif path.startswith("/metadata/instance"):
            self._instance(path)
        elif path == ELSEWHERE:
            self.played.seen.add_violation("the client followed a redirect")
            self._answer(404, b'{"error":"Not found"}')
        else:
            self._answer(404, b'{"error":"Not found"}')

    def do_POST(self) -> None:
        """Answer an approval."""
        path, query = self._address()
        length = min(int(self.headers.get("Content-Length") or 0), BODY_BYTES_MAX)
        body = self.rfile.read(length)
        if path != EVENTS_PATH:
            self._answer(404, b'{"error":"Not found"}')
            return
        with contextlib.suppress(ApprovalMalformed, ApprovalTooLarge):
            self._note_posted(read_approval(body))
        if not self._refuse_invalid(query) and not self._faulty("POST"):
            status = self.played.approve(body)
            if status == 200:
                self.played.accepted(body)
            self._answer(status, b"" if status == 200 else b'{"error":"Unknown event"}')

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the text of the Date header."""
        return rfc1123(self.played.now_ms() if timestamp is None else int(timestamp * 1000))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited name
        """Print nothing."""

    def _note_posted(self, ids: tuple[str, ...]) -> None:
        played = self.played
        with played.lock:
            for event_id in ids:
                played.seen.posted[event_id] = played.seen.posted.get(event_id, 0) + 1

    def _address(self) -> tuple[str, dict[str, list[str]]]:
        if "://" in self.path:
            self.played.seen.add_violation("the client used a proxy")
        parts = urlsplit(self.path)
        return parts.path.lower().rstrip("/"), parse_qs(parts.query)

    def _poll(self, query: dict[str, list[str]]) -> None:
        played = self.played
        with played.lock:
            played.seen.polls_ms.append(played.clock.now_ms())
            played.seen.versions += query.get("api-version", [])
        if self._refuse_invalid(query) or self._faulty("GET"):
            return
        with played.lock:
            body = played.document(query["api-version"][0])
            played.seen.shown += 1
        self._answer(200, body)

    def _refuse_invalid(self, query: dict[str, list[str]]) -> bool:
        """Refuse an invalid request like the public service; return whether it was refused."""
        seen, versions = self.played.seen, self.played.versions
        version = "".join(query.get("api-version", []))
        if self.headers.get("Metadata", "").lower() != "true":
            seen.add_violation("the client sent no header `Metadata: true`")
            refusal: dict[str, object] = {
                "error": "Bad request. Required metadata header not specified"
            }
        elif version not in versions:
            if versions == VERSIONS:
                seen.add_violation(f"the client used the api-version {version!r}")
            if self.played.versions_by_404:
                self._answer(404, VERSION_UNKNOWN)
                return True
            refusal = {
                "error": "Bad request. api-version is invalid or was not specified in the request.",
                "newest-versions": versions[::-1][:3],
            }
        else:
            return False
        self._answer(400, json.dumps(refusal).encode())
        return True

    def _faulty(self, method: str) -> bool:
        """Answer with the story's fault; return False without a fault."""
        fault = self.played.fault[method]
        if not fault:
            return False
        if fault == "hold":
            self.played.released.wait(HOLD_S_MAX)
            self.close_connection = True
        elif fault == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
        elif fault == "half":
            self._answer(200, self.played.document(VERSIONS[-1]), cut=True)
        else:
            status, headers, body = ANSWERS[fault]
            self._answer(status, body, headers)
        return True

    def _instance(self, path: str) -> None:
        compute = {"name": self.played.name, "vmId": "C0F0E7A0-0000-4000-8000-000000000000"}
        if path == "/metadata/instance":
            self._answer(
                200, json.dumps({"compute": compute, "network": {"interface": []}}).encode()
            )
        elif path == "/metadata/instance/compute":
            self._answer(200, json.dumps(compute).encode())
        elif path == "/metadata/instance/compute/name":
            self._answer(
                200, self.played.name.encode(), {"Content-Type": "text/plain; charset=utf-8"}
            )
        else:
            self._answer(404, b'{"error":"Not found"}')

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, *, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, text in {
            "Content-Type": "application/json; charset=utf-8",
            **(headers or {}),
            "Content-Length": str(len(body)),
        }.items():
            self.send_header(name, text)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut
