"""Splits the bytes of one connection into whole requests, in order, bounded and resumable.

The module decides neither answers nor callers.
"""

from __future__ import annotations

from typing import Protocol

from forewarn_metadata.endpoint.fault import InjectedFault
from forewarn_metadata.endpoint.http import request as requests
from forewarn_metadata.endpoint.http.request import ChunkedBody, HttpRequest
from forewarn_metadata.endpoint.routing import RoutedRequest
from forewarn_metadata.endpoint.snapshot import PublishedView
from forewarn_metadata.replication.messages import Caller


class PendingRequest:
    """A request of one connection whose head is complete, during processing."""

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
        self.raw = raw
        self.request, self.routed = meaning
        self.close = self.request.close
        self.body = b""
        #: Whether the request was refused before its body arrived.
        self.body_unread = False
        self.caller: Caller | None = None
        self.view: PublishedView | None = None
        self.disturbance: InjectedFault | None = None
        #: Whether the answer to these bytes may be cached for this connection.
        self.storable = False
        #: End of the request's wait for a change, on the event loop's clock; 0: no wait.
        self.ends_s = 0.0
        #: End of the wait until the group is enabled, on the event loop's clock; 0: no wait.
        self.enable_by_s = 0.0


class RequestParser(Protocol):
    """Parser of requests, with a cache of parsed requests."""

    #: Bytes of a complete request without a body -> parsed request.
    known: dict[bytes, tuple[HttpRequest, RoutedRequest]]

    def read(self, raw: bytes) -> tuple[HttpRequest, RoutedRequest]:
        """Parse a head with its empty line; cache the request in `known` if possible."""


class RequestReader:
    """The received bytes of unanswered requests."""

    __slots__ = ("_at", "_buffer", "_checked", "_chunked", "continue_due", "pending")

    def __init__(self) -> None:
        self._buffer: bytes | bytearray = b""
        #: Position of the first unread byte in the buffer.
        self._at = 0
        #: Length of the checked beginning of an incomplete head, without its last byte.
        self._checked = 0
        self._chunked: ChunkedBody | None = None
        #: Request whose body has not arrived completely.
        self.pending: PendingRequest | None = None
        #: Whether the client waits for `100 Continue`, which has not been sent.
        self.continue_due = False

    def __len__(self) -> int:
        """Return the number of buffered bytes."""
        return len(self._buffer) - self._at

    @property
    def begun(self) -> bool:
        """Whether a request has arrived in part."""
        return len(self._buffer) > self._at or self.pending is not None

    def push(self, octets: bytes) -> None:
        """Add received bytes."""
        if len(self._buffer) == self._at:
            self._buffer = octets
            self._at = self._checked = 0
        elif isinstance(self._buffer, bytearray):
            self._buffer += octets
        else:
            self._buffer = bytearray(self._buffer) + octets

    def clear(self) -> None:
        """Drop all bytes."""
        self._buffer = b""
        self._at = self._checked = 0
        self.pending = self._chunked = None

    def head(self, book: RequestParser) -> PendingRequest | None:
        """Return the next request without its body; None until the whole head has arrived.

        Checks each byte of an incomplete head once: O(new bytes).

        Raises:
            CallerError: the bytes are not a request, and parsing must stop.
        """
        assert self.pending is None
        if self._at == 0 and isinstance(self._buffer, bytes):
            meaning = book.known.get(self._buffer)
            if meaning is not None:
                pending = PendingRequest(self._buffer, meaning)
                self._buffer = b""
                return pending
        self._skip_empty_lines()
        end = self._buffer.find(requests.HEAD_END, max(self._at, self._checked - 2))
        if end < 0:
            self._forget_read()
            if self._buffer not in (b"", b"\r"):
                requests.check_unfinished(self._buffer, self._checked)
                self._checked = len(self._buffer) - 1  # a CR may be the first half of a line end
            return None
        raw = bytes(self._buffer[self._at : end + 4])
        pending = PendingRequest(raw, book.known.get(raw) or book.read(raw))
        self._at = end + 4
        return pending

    def body(self, pending: PendingRequest) -> bool:
        """Read the body of the request from `head`; return False until the body is complete.

        Costs O(bytes since the last call).

        Raises:
            CallerError: the body is malformed or too long.
        """
        length = pending.request.length
        if self.pending is None:
            self.pending = pending
            self._forget_read()
            self._chunked = requests.ChunkedBody() if length < 0 else None
            self.continue_due = requests.expects_continue(pending.request) and not self._buffer
        if self._chunked is not None:
            done = self._chunked.read(self._buffer)
            if done is None:
                return False
            pending.body, self._at = done
        elif len(self._buffer) < length:
            return False
        else:
            pending.body, self._at = bytes(self._buffer[:length]), length
        self.pending = self._chunked = None
        self.continue_due = False
        return True

    def _skip_empty_lines(self) -> None:
        """Skip empty lines before a request: RFC 9112, 2.2."""
        while self._buffer[self._at : self._at + 2] == b"\r\n":
            self._at += 2

    def _forget_read(self) -> None:
        if self._at:
            self._buffer = bytes(self._buffer[self._at :])
            self._at = self._checked = 0
