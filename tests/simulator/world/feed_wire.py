"""The wire between a metadata node's process and the service's: lag, torn lines, cuts, dead ends.

What is said over it is the product's affair, at both of its ends: streams of asyncio in memory.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol

from forewarn.replication.feed_client import LINE_BYTES_MAX
from forewarn.replication.node_session import ASKED_LINE_BYTES_MAX

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from forewarn.replication.feed_client import Streams
    from tests.simulator.world.dice import Dice
    from tests.simulator.world.event_queue import EventQueue
    from tests.simulator.world.virtual_loop import VirtualLoop

LAG_MS = 120
"""The longest that bytes are under way while nothing is wrong."""
HELD_BYTES_MAX = 200
"""What the wire holds before a writer has to wait for it."""
SLOW_MS = 2000
"""A node is not up to date while it is sent something for longer: this wire carries some 2 kB/s."""
TORN_PERMILLE = 20
"""How often in a thousand only a part of what was written arrives at first."""
TORN_MS_MAX = 2000
SILENT_PERMILLE = 500
"""How often in a thousand the ends of a connection that is cut, or joined again, hear nothing."""


class FeedProcess(Protocol):
    """The process that has the service's end."""

    loop: VirtualLoop

    @property
    def listens(self) -> bool:
        """Whether connections are taken."""

    def accept_feed(self, end: WireEnd) -> None:
        """Serve a node on a connection that was made."""


class FeedWire:
    """What joins one node to the writer of the moment; a new connection each time it is opened."""

    def __init__(self, queue: EventQueue, dice: Dice, own: Callable[[], FeedProcess]) -> None:
        """Join a node to the process that `own` names when it connects."""
        self.queue = queue
        self.dice = dice
        self.is_cut = False
        self._own = own
        self._near: WireEnd | None = None

    def leads_to(self, loop: VirtualLoop) -> bool:
        """Whether the node's connection ends in the process of this loop, and carries."""
        near = self._near
        return not self.is_cut and near is not None and near.carries and near.peer.loop is loop

    @property
    def is_slow(self) -> bool:
        """Whether the node is sent more than the wire carries at once."""
        return self._near is not None and self._near.peer.busy_ms > SLOW_MS

    async def connect(self, address: str, tls: ssl.SSLContext | None) -> Streams:  # noqa: ARG002
        """Open a connection, as the product's node does it.

        Raises:
            ConnectionRefusedError: nobody listens.
        """
        own, loop = self._own(), asyncio.get_running_loop()
        if self.is_cut or not own.listens:
            raise ConnectionRefusedError("nobody listens")
        near = self._near = WireEnd(self, loop, LINE_BYTES_MAX)  # type: ignore[arg-type]
        far = WireEnd(self, own.loop, ASKED_LINE_BYTES_MAX)
        near.peer, far.peer = far, near
        own.accept_feed(far)
        return near.reader, near.writer

    def cut(self) -> None:
        """Let nothing through any more; half of the time neither end notices."""
        self.is_cut = True
        near = self._near
        if near is None:
            return
        for end in (near, near.peer):
            end.carries = False
        if not self.dice.chance(SILENT_PERMILLE):
            self._reset(near)

    def join(self) -> None:
        """Let connections through again; an old one that has lost something is cut, or hangs."""
        self.is_cut = False
        near = self._near
        if near is not None and not near.carries and not self.dice.chance(SILENT_PERMILLE):
            self._reset(near)

    def die(self, *, silent: bool) -> None:
        """End the node's end with its process; where its machine goes, too, nobody notices."""
        near = self._near
        if near is None:
            return
        if silent:
            near.carries = near.peer.carries = False
        near.die()

    def _reset(self, near: WireEnd) -> None:
        near.end()
        near.peer.end()


class _Writer(asyncio.StreamWriter):
    """A stream that a world which is over leaves as it is."""

    def __del__(self) -> None:
        """Close nothing: its loop and its process are gone with it."""


class WireEnd(asyncio.Transport):
    """One end of a connection, with the stream that its process reads and writes."""

    peer: WireEnd

    def __init__(self, wire: FeedWire, loop: VirtualLoop, line_bytes_max: int) -> None:
        """Begin open, in a process."""
        super().__init__()
        self.loop = loop
        #: Whether what is written arrives.
        self.carries = True
        self.reader = asyncio.StreamReader(line_bytes_max, loop=loop)
        self._protocol = asyncio.StreamReaderProtocol(self.reader, loop=loop)
        self._protocol.connection_made(self)
        self.writer = _Writer(self, self._protocol, self.reader, loop)
        self._wire = wire
        self._closing = self._flushes = self._reads_not = self._is_full = False
        self._written: list[bytes] = []
        self._unread: list[bytes] = []
        #: Since when it has sent without a pause, and until when: true time in ms.
        self._busy_since_ms = self._busy_until_ms = 0

    @property
    def busy_ms(self) -> int:
        """For how long it has sent without a pause; 0 if it does not send now."""
        now_ms = self._wire.queue.now_ms
        busy = self._flushes or self._busy_until_ms == now_ms
        return now_ms - self._busy_since_ms if busy else 0

    # ---- what its process does -----------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send this to the other end."""
        if not self.is_closing():
            self._written.append(bytes(data))
            if not self._is_full and self.get_write_buffer_size() > HELD_BYTES_MAX:
                self._is_full = True
                self._protocol.pause_writing()
            self._plan_flush()

    def close(self) -> None:
        """Close, once everything has been sent."""
        if not self.is_closing():
            self._plan_flush()
            self._lose()

    abort = close

    def is_closing(self) -> bool:
        """Return whether it is over; with its process it is."""
        return self._closing or self.loop.ended

    def get_write_buffer_size(self) -> int:
        """Return the bytes that wait."""
        return sum(map(len, self._written))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the wire has a limit of its own."""

    def pause_reading(self) -> None:
        """Leave what comes unread."""
        self._reads_not = True

    def resume_reading(self) -> None:
        """Read what has come meanwhile."""
        self._reads_not = False
        self.loop.call_soon(self._read)

    # ---- what comes over the wire --------------------------------------------------------------

    def arrive(self, octets: bytes) -> None:
        """Take what the other end sent."""
        if self.is_closing():
            return
        self._unread.append(octets)
        if self.loop.runs:
            self.loop.run(self._read)
        else:
            self.loop.call_soon(self._read)

    def end(self) -> None:
        """Find the connection over: the other end closed it, or is gone, or cannot be reached."""
        if not self.is_closing():
            self._lose()

    def die(self) -> None:
        """End with its process; the other end hears of it later."""
        self._plan_flush()
        self._closing = True

    # ---- inside --------------------------------------------------------------------------------

    def _lose(self) -> None:
        self._closing = True
        self.loop.call_soon(self._protocol.connection_lost, None)

    def _read(self) -> None:
        while self._unread and not self._reads_not:
            self._protocol.data_received(self._unread.pop(0))

    def _plan_flush(self, delay_ms: int = 0) -> None:
        if not self._flushes:
            wire = self._wire
            if not self.busy_ms:
                self._busy_since_ms = wire.queue.now_ms
            self._flushes = True
            wire.queue.after(delay_ms or wire.dice.between(1, LAG_MS), partial(self._flush, wire))

    def _flush(self, wire: FeedWire) -> None:
        self._flushes, self._busy_until_ms = False, wire.queue.now_ms
        octets = b"".join(self._written)
        self._written.clear()
        if not self.carries:
            return
        if len(octets) > 1 and wire.dice.chance(TORN_PERMILLE):
            at = wire.dice.between(1, len(octets) - 1)
            self._written.append(octets[at:])
            self._plan_flush(wire.dice.between(1, TORN_MS_MAX))
            octets = octets[:at]
        elif self._is_full and not self.is_closing():
            self._is_full = False
            self.loop.call_soon(self._protocol.resume_writing)
        if octets:
            self.peer.arrive(octets)
        if self.is_closing() and not self._flushes:
            self.peer.end()
