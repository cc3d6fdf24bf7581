"""From the bytes of one connection to whole requests, in order, bounded and resumable.

No answer may be made in here and nothing may be decided about who asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from forewarn.metadata.http import request as requests

if TYPE_CHECKING:
    from forewarn.metadata.fault import Disturbance
    from forewarn.metadata.http.request import ChunkedBody, HttpRequest
    from forewarn.metadata.responder import Planned
    from forewarn.metadata.snapshot import PublishedView
    from forewarn.replication.messages import Caller


class PendingRequest:
    """A whole request on its way through a connection."""

    __slots__ = (
        "body",
        "caller",
        "close",
        "disturbance",
        "ends_s",
        "planned",
        "raw",
        "request",
        "storable",
        "view",
    )

    def __init__(self, raw: bytes, meaning: tuple[HttpRequest, Planned]) -> None:
        """Start with what the bytes alone say."""
        self.raw = raw
        self.request, self.planned = meaning
        self.close = self.request.close
        self.body = b""
        self.caller: Caller | None = None
        self.view: PublishedView | None = None
        self.disturbance: Disturbance | None = None
        self.storable = False
        """Whether the same bytes on this connection get the same answer for a while."""
        self.ends_s = 0.0
        """When its wait for a change ends, on the event loop's clock; 0: it waits for none."""


class RequestParser(Protocol):
    """What is known about requests already read, and how an unknown one is read."""

    known: dict[bytes, tuple[HttpRequest, Planned]]
    """Bytes of a whole request without a body -> what they mean."""

    def read(self, raw: bytes) -> tuple[HttpRequest, Planned]:
        """Read a head, its empty line included, and note it in `known` where it may be."""


class RequestReader:
    """Bytes that arrived and were not answered yet."""

    __slots__ = ("_body_bytes", "_buffer", "_chunked", "_head", "continue_due")

    def __init__(self) -> None:
        """Start empty."""
        self._buffer: bytes | bytearray = b""
        self._head: PendingRequest | None = None
        self._body_bytes = 0
        self._chunked: ChunkedBody | None = None
        self.continue_due = False
        """Whether the client waits for `100 Continue`; whoever sends it takes this back."""

    def __len__(self) -> int:
        """Return the number of bytes kept."""
        return len(self._buffer)

    @property
    def begun(self) -> bool:
        """Whether a request is here in part."""
        return bool(self._buffer) or self._head is not None

    def push(self, octets: bytes) -> None:
        """Add what arrived."""
        if not self._buffer:
            self._buffer = octets
        elif isinstance(self._buffer, bytearray):
            self._buffer += octets
        else:
            self._buffer = bytearray(self._buffer) + octets

    def clear(self) -> None:
        """Forget everything."""
        self._buffer = b""
        self._head = self._chunked = None

    def next(self, book: RequestParser) -> PendingRequest | None:
        """Return the next whole request, or None while it is not all here.

        Raises:
            CallerError: what came is no request; nothing after it can be understood either.
        """
        if self._head is not None:
            return self._read_body(self._head)
        if isinstance(self._buffer, bytes):
            known = book.known.get(self._buffer)
            if known is not None:
                asked = PendingRequest(self._buffer, known)
                self._buffer = b""
                return asked
        if self._buffer[:2] == b"\r\n":  # empty lines before a request: RFC 9112, 2.2
            rest = self._buffer.lstrip(b"\r\n")
            empty = len(self._buffer) - len(rest)
            if self._buffer[:empty] == b"\r\n" * (empty // 2):
                self._drop(empty)
        end = self._buffer.find(requests.HEAD_END)
        if end < 0:
            if self._buffer not in (b"", b"\r"):
                requests.check_unfinished(self._buffer)
            return None
        raw = bytes(self._buffer[: end + 4])
        asked = PendingRequest(raw, book.known.get(raw) or book.read(raw))
        self._drop(end + 4)
        return asked if asked.request.length == 0 else self._begin_body(asked)

    def _begin_body(self, asked: PendingRequest) -> PendingRequest | None:
        self._head = asked
        self._body_bytes = asked.request.length
        self._chunked = requests.ChunkedBody() if asked.request.length < 0 else None
        self.continue_due = requests.expects_continue(asked.request) and not self._buffer
        return self._read_body(asked)

    def _read_body(self, asked: PendingRequest) -> PendingRequest | None:
        if self._chunked is not None:
            done = self._chunked.read(self._buffer)
            if done is None:
                return None
            body, used = done
        else:
            used = self._body_bytes
            if len(self._buffer) < used:
                return None
            body = bytes(self._buffer[:used])
        self._head = self._chunked = None
        self.continue_due = False
        self._drop(used)
        asked.body = body
        return asked

    def _drop(self, used: int) -> None:
        self._buffer = bytes(self._buffer[used:])
