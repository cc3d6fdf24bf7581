"""Settings of the measured service, and a fast client with a persistent connection.

Other modules measure.
"""

from __future__ import annotations

import json
import socket
from typing import Any

ANSWER_TIMEOUT_S = 35.0
#: Settings of a service on loopback without authentication and with manual drivers.
SETTINGS = """
[listen]
metadata = ["127.0.0.1:{metadata}"]
operator = "127.0.0.1:{operator}"
[metadata]
vm_by_query = true
rate_per_s = 0.0
[operator]
open_on_loopback = true
[store]
url = "sqlite:///{store}"
[drivers]
default = "manual"
[log]
level = "warning"
"""


class Line:
    """One persistent connection."""

    def __init__(self, port: int) -> None:
        """Connect on loopback."""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def send(self, request: bytes) -> None:
        """Send a whole request."""
        self.socket.sendall(request)

    def receive(self) -> bytes:
        """Return the body of the next answer."""
        received = self._rest
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._more()
        head = received[:end].lower()
        assert head[9:12] in {b"200", b"201", b"202"}, received[:500]
        at = head.index(b"content-length:") + 15
        size = int(head[at : at + 12].split(b"\r\n")[0])
        end += 4
        while len(received) < end + size:
            received += self._more()
        self._rest = received[end + size :]
        return received[end : end + size]

    def ask(self, request: bytes) -> Any:  # noqa: ANN401 - whatever JSON says
        """Send a request and return the content of its answer."""
        self.send(request)
        body = self.receive()
        return json.loads(body) if body else None

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def _more(self) -> bytes:
        part = self.socket.recv(65536)
        assert part, "the service closed the connection"
        return part


def call(method: str, path: str, form: object = None) -> bytes:
    """Return the bytes of a call of the operator API."""
    body = json.dumps(form or {}).encode() if method != "GET" else b""
    kind = b"Content-Type: application/json\r\n" if body else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + kind + b"\r\n" + body


def poll(vm: str, incarnation: int | None = None) -> bytes:
    """Return the bytes of a poll; with an incarnation, the service holds it until a change."""
    held = "" if incarnation is None else f"&wait=60&incarnation={incarnation}"
    path = f"/metadata/scheduledevents?api-version=2020-07-01&vm={vm}{held}"
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n\r\n".encode()


def approval(vm: str, event_id: str) -> bytes:
    """Return the bytes of an approval."""
    body = json.dumps({"StartRequests": [{"EventId": event_id}]})
    path = f"/metadata/scheduledevents?api-version=2020-07-01&vm={vm}"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n{body}".encode()
