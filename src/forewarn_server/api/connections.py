"""Connections of the operator API, with limits on the size and duration of a request.

uvicorn's protocol limits neither the size of a request's head nor the time until a request is
complete. When the table of connections is full, the server first closes connections without an
authenticated request.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from typing import Any

from forewarn_metadata.connection_table import TrackedConnection
from forewarn_server.api.uvicorn_adapter import EmbeddedServer, HttpProtocol

#: Largest head of a request, in bytes: the URL, which may name 400 records, and headers.
HEAD_BYTES_MAX = 80 * 1024
#: Largest read of asyncio and of uvloop from a socket, in bytes.
READ_BYTES_MAX = 256 * 1024
#: Maximum number of headers of one request; browsers send about twenty.
HEADERS_MAX = 100
#: Maximum number of pipelined requests on one connection.
PIPELINE_MAX = 16
#: Methods that change nothing.
SAFE = frozenset({"GET", "HEAD"})
#: Member of `scope["state"]`: a function that marks the connection as authenticated.
ADMIT = "admit"
#: Member of `scope["state"]`: the names in the caller's certificate, `dns:NAME` and URIs.
NAMES = "names"
#: Member of `scope["state"]`: the user id of a Unix socket's peer.
USER = "user"


class ApiHeadTooLarge(Exception):
    """The head of a request exceeds its limits; the server answers with status 400."""


class ApiConnection(HttpProtocol):
    """One connection, with limits on size and time."""

    __slots__ = (
        "_head_bytes",
        "_in_body",
        "_late",
        "_names",
        "_request_timeout_s",
        "_tracked",
        "_unparsed",
        "_user",
    )

    def __init__(
        self, server: EmbeddedServer, tracked: TrackedConnection, request_timeout_s: float
    ) -> None:
        super().__init__(server)
        self._tracked = tracked
        self._request_timeout_s = request_timeout_s
        self._head_bytes = 0
        #: Bytes since the last complete part of a request; negative until the next read.
        self._unparsed = 0
        self._in_body = False
        self._late: asyncio.TimerHandle | None = None
        self._user: int | None = None
        self._names: tuple[str, ...] = ()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._user = _user_of(transport.get_extra_info("socket"))
        self._names = _names_of(transport.get_extra_info("peercert"))
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the table."""
        self._tracked.leave()
        self._unset_late()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; each part of a body extends the deadline."""
        if not self.is_open():
            return
        if self._in_body or self._late is None:
            self._expect()
        super().data_received(data)
        self._unparsed += len(data)
        if self._unparsed > HEAD_BYTES_MAX:  # an endless header or trailer
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._head_bytes = 0
        if self._late is None:
            self._expect()
        self.set_state(ADMIT, self._tracked.admit)
        if self._user is not None:
            self.set_state(USER, self._user)
        if self._names:
            self.set_state(NAMES, self._names)

    def on_url(self, url: bytes) -> None:
        """Process a part of the URL."""
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Process a header."""
        self._grow(len(name) + len(value))
        if self.header_count() >= HEADERS_MAX:
            raise ApiHeadTooLarge
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the response; the caller is authenticated before the body is read."""
        if self.queued_count() >= PIPELINE_MAX:
            raise ApiHeadTooLarge
        self._in_body = True
        self._progress()
        self._expect()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Process a part of the body."""
        self._progress()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Cancel the deadline: the request is complete."""
        self._in_body = False
        self._progress()
        self._unset_late()
        super().on_message_complete()

    def ended(self) -> None:
        """Cancel all time limits."""
        self._unset_late()

    def answered(self) -> None:
        """Mark the connection as idle, so that the table may close it."""
        if not self.queued_count():
            self._tracked.expose()

    def _progress(self) -> None:
        """Reset the byte count after a complete part of a request; the next read counts again."""
        self._unparsed = -READ_BYTES_MAX

    def _grow(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > HEAD_BYTES_MAX:
            raise ApiHeadTooLarge

    def _expect(self) -> None:
        """Restart the deadline for the rest of the request."""
        self._unset_late()
        self._late = self.loop.call_later(self._request_timeout_s, self._cut_late)

    def _unset_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _cut_late(self) -> None:
        """Close the connection if its request is incomplete."""
        self._late = None
        if self.is_reading_paused():  # the server has paused reading
            self._expect()
            return
        self.transport.abort()


def _names_of(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names in a verified certificate, in the form of principals' names. Source: P-6."""
    forms = {"DNS": "dns:{}", "URI": "{}"}
    pairs = (certificate or {}).get("subjectAltName", ())
    return tuple(
        forms[kind].format(name)
        for kind, name in pairs
        if kind == "DNS"
        or (kind == "URI" and "://" in name)  # the prefix `user:` is reserved for Unix users
    )


def _user_of(channel: socket.socket) -> int | None:
    """Return the peer's user id; None except for a Unix socket on Linux."""
    if channel.family != getattr(socket, "AF_UNIX", None) or not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(credentials)[1]
    return uid


#: `struct ucred` of Linux: process, user, group.
_CREDENTIALS = struct.Struct("3i")
_FULL_BODY = (
    b'{"error":{"code":"connections-full","message":"The operator API has no connection free.",'
    b'"advice":"Try again in a few seconds."}}'
)
#: Response when the table of connections is full.
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_FULL_BODY), _FULL_BODY)
)
