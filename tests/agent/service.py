"""A small metadata service for the tests of the agent, for one VM; it speaks through wire.py.

It is not the product's service: it has just what a client can meet, faults included.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, urlsplit

from forewarn.errors import CallerError
from forewarn.protocol.approvals import read_approval
from forewarn.protocol.documents import Document, ScheduledEvent, render_document
from forewarn.protocol.versions import VERSIONS

LIMIT_S = 30


class Service:
    """Listens on a free port of the loopback and shows what the test publishes."""

    def __init__(
        self, *, versions: tuple[str, ...] = VERSIONS, waits: bool = True, name: str = "vm_0"
    ) -> None:
        """Show nothing yet.

        Args:
            versions: The api-versions it knows.
            waits: Whether it holds an answer when asked to.
            name: What it calls the VM that asks; empty to know no names.
        """
        self.versions = versions
        self.waits = waits
        self.name = name
        self.document = Document()
        self.approvals: list[str] = []
        self.requests: list[str] = []
        self.faults: list[Fault] = []
        self.changed = threading.Condition()
        outer = self

        class Handler(_Handler):
            service = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def show(self, *events: ScheduledEvent) -> None:
        """Publish these events, one incarnation on."""
        with self.changed:
            self.document = Document(self.document.incarnation + 1, events)
            self.changed.notify_all()

    def until(self, true: Callable[[], object], what: str = "it") -> None:
        """Wait until something is true of the requests that have come."""
        with self.changed:
            assert self.changed.wait_for(true, LIMIT_S), f"{what} did not happen"

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers as sections 2 to 8 of the contract say, as far as clients can tell."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    service: Service

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(body)

    def _begin(self) -> dict[str, str] | None:
        service = self.service
        with service.changed:
            service.requests.append(f"{self.command} {self.path}")
            fault = service.faults.pop(0) if service.faults else None
            service.changed.notify_all()
        if fault is not None:
            fault(self)
            return None
        query = {name: texts[0] for name, texts in parse_qs(urlsplit(self.path).query).items()}
        if self.headers.get("Metadata", "").lower() != "true":
            self._answer(400, b'{"error":"Bad request. Required metadata header not specified"}')
            return None
        return query

    def do_GET(self) -> None:
        query = self._begin()
        if query is None:
            return
        if self.path.startswith("/metadata/instance/compute/name"):
            self._answer(200 if self.service.name else 404, self.service.name.encode())
            return
        version = query.get("api-version", "")
        if version not in self.service.versions:
            newest = list(reversed(self.service.versions))[:3]
            body = {"error": "Bad request. api-version is invalid", "newest-versions": newest}
            self._answer(400, json.dumps(body).encode())
            return
        if self.service.waits and "wait" in query:
            with self.service.changed:
                self.service.changed.wait_for(
                    lambda: self.service.document.incarnation != int(query["incarnation"]),
                    min(float(query["wait"]), LIMIT_S),
                )
        with contextlib.suppress(ConnectionError):  # who asked may have been killed
            self._answer(200, render_document(self.service.document, version))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self._begin() is None:
            return
        try:
            event_ids = read_approval(body)
        except CallerError as error:
            self._answer(400, str(error).encode())
            return
        known = {event.event_id.upper() for event in self.service.document.events}
        if not known.issuperset(event_ids):
            self._answer(400, b'{"error":"unknown"}')
            return
        with self.service.changed:
            self.service.approvals += event_ids
            self.service.changed.notify_all()
        with contextlib.suppress(ConnectionError):  # the same
            self._answer(200, b"")


def status(code: int, body: bytes = b"", **headers: str) -> Fault:
    """Return the fault of answering with a status."""
    return lambda handler: handler._answer(code, body, **headers)


def reset(handler: _Handler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


def cut(handler: _Handler) -> None:
    """Close the connection in the middle of the answer."""
    handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"Docu')
    handler.close_connection = True


Fault = Callable[[_Handler], None]
"""Answers in the place of the service, once."""
