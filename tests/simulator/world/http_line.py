"""A client's HTTP connections in memory: requests as bytes, answers read from bytes.

Whose request it is, and what becomes of it on its way, is decided in `network.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.memory_transport import MemoryTransport
from tests.simulator.world.metadata_node import SimulatedNode

_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n")
_ETAG = re.compile(rb"\r\nETag: ([^\r]+)\r\n")


class HttpAnswer(NamedTuple):
    """What came back; status 0: nothing whole did."""

    status: int = 0
    etag: bytes = b""
    body: bytes = b""


NO_ANSWER = HttpAnswer()


class HttpLine:
    """One connection at a time, opened when it is needed; one request at a time."""

    def __init__(self, queue: EventQueue) -> None:
        """Begin unconnected."""
        self._queue = queue
        self._end: _End | None = None
        self._then: Callable[[HttpAnswer], None] | None = None
        self._number = 0
        self._sending = False
        self._early: HttpAnswer | None = None

    @property
    def busy(self) -> bool:
        """Whether an answer is waited for."""
        return self._then is not None

    def ask(
        self,
        node: SimulatedNode,
        address: str,
        parts: tuple[tuple[int, bytes], ...],
        *,
        timeout_ms: int,
        then: Callable[[HttpAnswer], None],
    ) -> None:
        """Send a request and get its answer once: now, later, or none after that time.

        Args:
            node: whom to ask; another one than last time is another connection.
            address: where the connection comes from.
            parts: how many ms after the part before it each part is sent.
            timeout_ms: after this the connection is given up.
            then: called with the answer.
        """
        assert self._then is None
        if self._end is not None:
            self._end.node.asked()  # a connection idle for too long is closed before this is sent
        self._then = then
        self._number += 1
        end = self._end
        if end is None or end.over or end.node is not node:
            self.drop()
            end = self._end = _End(self, node)
            end.transport = node.accept(address, end)
            if end.transport is None:
                self.finish(end, NO_ANSWER)
                return
        self._sending = True
        self._send(end, parts, self._number)
        self._sending = False
        early, self._early = self._early, None
        if early is not None:
            self._tell(early)
        else:
            self._queue.after(timeout_ms, partial(self._expire, self._number))

    def drop(self) -> None:
        """Lose the connection; who waits for an answer hears nothing more, and gives it up."""
        end, self._end = self._end, None
        if end is not None and end.transport is not None and not end.over:
            end.over = True
            end.transport.hang_up()
            end.transport = None

    def forget(self) -> None:
        """Close it as a process does that ends."""
        self._then = None
        self.drop()

    def finish(self, end: _End, answer: HttpAnswer) -> None:
        """The answer is here, or none will come on this connection."""
        if end is not self._end or self._then is None:
            return
        if not answer.status:
            self._end = None
        if self._sending:
            self._early = answer
        else:
            self._queue.after(0, partial(self._tell_later, self._number, answer))

    def _send(self, end: _End, parts: tuple[tuple[int, bytes], ...], number: int) -> None:
        for place, (delay_ms, octets) in enumerate(parts):
            if number != self._number or end.over:
                return
            if delay_ms:
                rest = ((0, octets), *parts[place + 1 :])
                self._queue.after(delay_ms, partial(self._send, end, rest, number))
                return
            assert end.transport is not None
            end.transport.send(octets)

    def _tell_later(self, number: int, answer: HttpAnswer) -> None:
        if number == self._number:
            self._tell(answer)

    def _tell(self, answer: HttpAnswer) -> None:
        then, self._then = self._then, None
        if then is not None:
            then(answer)

    def _expire(self, number: int) -> None:
        if number == self._number and self._then is not None:
            self.drop()
            self._tell(NO_ANSWER)


class _End:
    """The client's end of one connection."""

    def __init__(self, line: HttpLine, node: SimulatedNode) -> None:
        """Begin with nothing read."""
        self.node = node
        self.over = False
        self.transport: MemoryTransport | None = None
        self._line = line
        self._buffer = b""

    def received(self, octets: bytes) -> None:
        """Read an answer, if it is all here."""
        buffer = self._buffer = self._buffer + octets
        head, found, rest = buffer.partition(b"\r\n\r\n")
        if not found:
            return
        head += b"\r\n"
        length = _LENGTH.search(head)
        size = int(length[1]) if length else 0
        if len(rest) >= size:
            etag = _ETAG.search(head)
            self._buffer = rest[size:]
            self.over = b"\r\nConnection: close\r\n" in head
            answer = HttpAnswer(int(head[9:12]), etag[1] if etag else b"", rest[:size])
            self._line.finish(self, answer)

    def closed(self) -> None:
        """The server has closed; no cycle of the two ends is left."""
        self.transport = None
        if not self.over:
            self.over = True
            self._line.finish(self, NO_ANSWER)
