"""The wire between a metadata node's process and the service's: lag, torn lines, cuts, dead ends.

What is said over it is the product's affair, at both of its ends: streams of asyncio in memory.
"""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import TYPE_CHECKING, Protocol

from forewarn_metadata.replication.worker_client import LINE_BYTES_MAX

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from forewarn_metadata.replication.http_stream import Streams
    from tests.simulator.world.dice import Dice
    from tests.simulator.world.event_queue import EventQueue
    from tests.simulator.world.virtual_loop import VirtualLoop

#: The longest that bytes are under way while nothing is wrong.
LAG_MS = 120
#: What the wire holds before a writer has to wait for it.
HELD_BYTES_MAX = 200
#: A node is not up to date while it is sent something for longer: this wire carries some 2 kB/s.
SLOW_MS = 2000
#: How often in a thousand only a part of what was written arrives at first.
TORN_PERMILLE = 20
TORN_MS_MAX = 2000
#: How often in a thousand the ends of a connection that is cut, or joined again, hear nothing.
SILENT_PERMILLE = 500


class FeedProcess(Protocol):
    """The process that has the service's end."""

    loop: VirtualLoop

    @property
    def listens(self) -> bool:
        """Whether connections are taken."""

    def accept_feed(self, end: WireEnd, *, of_worker: bool) -> None:
        """Serve a node or a worker on a connection that was made."""


class FeedWire:
    """What joins one node to the writer of the moment."""

    def __init__(self, queue: EventQueue, dice: Dice, own: Callable[[], FeedProcess]) -> None:
        """Join a node to the process that `own` names when it connects."""
        self.queue = queue
        self.dice = dice
        self.is_cut = False
        self._own = own
        self._open: list[WireEnd] = []

    def leads_to(self, loop: VirtualLoop) -> bool:
        """Whether the node's connections end in the process of this loop, and carry."""
        newest = self._open[-1] if self._open else None
        return (
            not self.is_cut and newest is not None and newest.carries and newest.peer.loop is loop
        )

    @property
    def is_slow(self) -> bool:
        """Whether the node is sent more than the wire carries at once."""
        return any(near.peer.busy_ms > SLOW_MS for near in self._ends())

    async def connect(self, address: str, tls: ssl.SSLContext | None) -> Streams:  # noqa: ARG002
        """Open a connection, as the product's node does it.

        Raises:
            ConnectionRefusedError: nobody listens.
        """
        return self._connect(of_worker=False)

    async def connect_worker(self, path: str) -> Streams:  # noqa: ARG002
        """Open a stream, as the product's worker does it.

        Raises:
            ConnectionRefusedError: nobody listens.
        """
        return self._connect(of_worker=True)

    def _connect(self, *, of_worker: bool) -> Streams:
        own, loop = self._own(), asyncio.get_running_loop()
        if self.is_cut or not own.listens:
            raise ConnectionRefusedError("nobody listens")
        near, far = WireEnd(self, loop), WireEnd(self, own.loop)  # type: ignore[arg-type]
        near.peer, far.peer = far, near
        self._open = [*self._ends(), near]
        own.accept_feed(far, of_worker=of_worker)
        return near.streams(LINE_BYTES_MAX)

    def _ends(self) -> list[WireEnd]:
        return [near for near in self._open if not near.is_closing()]

    def cut(self) -> None:
        """Let nothing through any more; half of the time neither end notices."""
        self.is_cut = True
        for near in self._ends():
            near.carries = near.peer.carries = False
            if not self.dice.chance(SILENT_PERMILLE):
                self._reset(near)

    def join(self) -> None:
        """Let connections through again; an old one that has lost something is cut, or hangs."""
        self.is_cut = False
        for near in self._ends():
            if not near.carries and not self.dice.chance(SILENT_PERMILLE):
                self._reset(near)

    def die(self, *, silent: bool) -> None:
        """End the node's ends with its process; where its machine goes, too, nobody notices."""
        for near in self._ends():
            if silent:
                near.carries = near.peer.carries = False
            near.die()

    def _reset(self, near: WireEnd) -> None:
        near.end()
        near.peer.end()


class _Socket:
    """What a server asks of a socket."""

    family = socket.AF_INET

    def getpeername(self) -> tuple[str, int]:
        """Return the address of a node."""
        return "10.0.0.1", 1

    getsockname = getpeername


class _Writer(asyncio.StreamWriter):
    """A stream that a world which is over leaves as it is."""

    def __del__(self) -> None:
        """Close nothing: its loop and its process are gone with it."""


class WireEnd(asyncio.Transport):
    """One end of a connection, with the protocol of its process."""

    peer: WireEnd

    def __init__(self, wire: FeedWire, loop: VirtualLoop) -> None:
        """Begin open, in a process."""
        super().__init__({"socket": _Socket()})
        self.loop = loop
        #: Whether what is written arrives.
        self.carries = True
        self._protocol: asyncio.Protocol | None = None
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

    def streams(self, line_bytes_max: int) -> Streams:
        """Read and write it as streams."""
        reader = asyncio.StreamReader(line_bytes_max, loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        self.attach(protocol)
        return reader, _Writer(self, protocol, reader, self.loop)

    def attach(self, protocol: asyncio.Protocol) -> None:
        """Give it the protocol that reads it."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._read()

    # ---- what its process does -----------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send this to the other end."""
        if not self.is_closing():
            self._written.append(bytes(data))
            if not self._is_full and self.get_write_buffer_size() > HELD_BYTES_MAX:
                self._is_full = True
                assert self._protocol is not None
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
        if self._protocol is not None:
            self.loop.call_soon(self._protocol.connection_lost, None)

    def _read(self) -> None:
        while self._protocol is not None and self._unread and not self._reads_not:
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
            self.loop.call_soon(self._resume)
        if octets:
            self.peer.arrive(octets)
        if self.is_closing() and not self._flushes:
            self.peer.end()

    def _resume(self) -> None:
        """Let the protocol write again, unless it was told so or has filled the wire since."""
        if self._is_full and self.get_write_buffer_size() <= HELD_BYTES_MAX:
            self._is_full = False
            assert self._protocol is not None
            self._protocol.resume_writing()
