"""From the bytes of one connection to whole requests, in order, bounded and resumable.

No answer may be made in here and nothing may be decided about who asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from forewarn.metadata.http import request as requests

if TYPE_CHECKING:
    from forewarn.metadata.fault import InjectedFault
    from forewarn.metadata.http.request import ChunkedBody, HttpRequest
    from forewarn.metadata.routing import RoutedRequest
    from forewarn.metadata.snapshot import PublishedView
    from forewarn.replication.messages import Caller


class PendingRequest:
    """A whole request on its way through a connection."""

    __slots__ = (
        "body",
        "body_unread",
        "caller",
        "close",
        "disturbance",
        "enable_by_s",
        "ends_s",
        "raw",
        "request",
        "routed",
        "storable",
        "view",
    )

    def __init__(self, raw: bytes, meaning: tuple[HttpRequest, RoutedRequest]) -> None:
        """Start with what the bytes alone say."""
        self.raw = raw
        self.request, self.routed = meaning
        self.close = self.request.close
        self.body = b""
        self.body_unread = False
        """Whether it was refused before its body was here."""
        self.caller: Caller | None = None
        self.view: PublishedView | None = None
        self.disturbance: InjectedFault | None = None
        self.storable = False
        """Whether the same bytes on this connection get the same answer for a while."""
        self.ends_s = 0.0
        """When its wait for a change ends, on the event loop's clock; 0: it waits for none."""
        self.enable_by_s = 0.0
        """By when its group must be enabled, on that clock; 0: it does not wait for that."""


class RequestParser(Protocol):
    """What is known about requests already read, and how an unknown one is read."""

    known: dict[bytes, tuple[HttpRequest, RoutedRequest]]
    """Bytes of a whole request without a body -> what they mean."""

    def read(self, raw: bytes) -> tuple[HttpRequest, RoutedRequest]:
        """Read a head, its empty line included, and note it in `known` where it may be."""


class RequestReader:
    """Bytes that arrived and were not answered yet."""

    __slots__ = ("_at", "_buffer", "_chunked", "continue_due", "pending")

    def __init__(self) -> None:
        """Start empty."""
        self._buffer: bytes | bytearray = b""
        self._at = 0
        """Where in the buffer begins what was not read yet."""
        self._chunked: ChunkedBody | None = None
        self.pending: PendingRequest | None = None
        """The request whose body is on its way."""
        self.continue_due = False
        """Whether the client waits for `100 Continue`; sending it resets this."""

    def __len__(self) -> int:
        """Return the number of bytes kept."""
        return len(self._buffer) - self._at

    @property
    def begun(self) -> bool:
        """Whether a request is here in part."""
        return len(self._buffer) > self._at or self.pending is not None

    def push(self, octets: bytes) -> None:
        """Add what arrived."""
        if len(self._buffer) == self._at:
            self._buffer = octets
            self._at = 0
        elif isinstance(self._buffer, bytearray):
            self._buffer += octets
        else:
            self._buffer = bytearray(self._buffer) + octets

    def clear(self) -> None:
        """Forget everything."""
        self._buffer = b""
        self._at = 0
        self.pending = self._chunked = None

    def head(self, book: RequestParser) -> PendingRequest | None:
        """Return the next request, or None while its head is not all here; its body comes after.

        Raises:
            CallerError: what came is not a request; nothing after it can be understood either.
        """
        assert self.pending is None
        if self._at == 0 and isinstance(self._buffer, bytes):
            known = book.known.get(self._buffer)
            if known is not None:
                asked = PendingRequest(self._buffer, known)
                self._buffer = b""
                return asked
        self._skip_empty_lines()
        end = self._buffer.find(requests.HEAD_END, self._at)
        if end < 0:
            self._forget_read()
            if self._buffer not in (b"", b"\r"):
                requests.check_unfinished(self._buffer)
            return None
        raw = bytes(self._buffer[self._at : end + 4])
        asked = PendingRequest(raw, book.known.get(raw) or book.read(raw))
        self._at = end + 4
        return asked

    def body(self, asked: PendingRequest) -> bool:
        """Read the body of the request `head` returned; False while it is not all here.

        Its cost grows with the bytes that came since the last call.

        Raises:
            CallerError: the body is malformed or too long.
        """
        length = asked.request.length
        if self.pending is None:
            self.pending = asked
            self._forget_read()
            self._chunked = requests.ChunkedBody() if length < 0 else None
            self.continue_due = requests.expects_continue(asked.request) and not self._buffer
        if self._chunked is not None:
            done = self._chunked.read(self._buffer)
            if done is None:
                return False
            asked.body, self._at = done
        elif len(self._buffer) < length:
            return False
        else:
            asked.body, self._at = bytes(self._buffer[:length]), length
        self.pending = self._chunked = None
        self.continue_due = False
        return True

    def _skip_empty_lines(self) -> None:
        """Pass over empty lines before a request: RFC 9112, 2.2."""
        while self._buffer[self._at : self._at + 2] == b"\r\n":
            self._at += 2

    def _forget_read(self) -> None:
        if self._at:
            self._buffer = bytes(self._buffer[self._at :])
            self._at = 0
