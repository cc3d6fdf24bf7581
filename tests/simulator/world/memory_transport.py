"""A connection in memory: an asyncio transport at the server's end, bytes at the client's.

What is sent, when, and what becomes of it is decided by the holder of the client's end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from tests.simulator.world.virtual_loop import ProcessKilled, VirtualLoop


class ClientEnd(Protocol):
    """Who is at the other end."""

    def received(self, octets: bytes) -> None:
        """Take what the server sent."""

    def closed(self) -> None:
        """The server sends no more."""


class MemoryTransport(asyncio.Transport):
    """The server's end of one connection."""

    def __init__(
        self,
        loop: VirtualLoop,
        address: str,
        client: ClientEnd,
        *,
        opened: dict[MemoryTransport, None],
    ) -> None:
        """Begin open, and stand in `opened` for as long."""
        super().__init__({"peername": (address, 1), "socket": NoSocket()})
        self._loop = loop
        self._client = client
        self._protocol: asyncio.Protocol | None = None
        self._closing = self._reading = False
        self._unread: list[bytes] = []
        self._opened = opened
        opened[self] = None

    def connect(self, protocol: asyncio.Protocol) -> None:
        """Give the connection to the server that answers at it, once its process runs."""
        self._protocol = protocol
        if self._loop.runs:
            self._loop.run(self._made)
        else:
            self._loop.call_soon(self._made)

    def cut(self) -> None:
        """End with the server's process."""
        self._closing = True
        self._opened.pop(self, None)
        self._client.closed()

    def _made(self) -> None:
        assert self._protocol is not None
        self._protocol.connection_made(self)
        self._reading = True
        self._read()

    # ---- the client's acts ---------------------------------------------------------------------

    def send(self, octets: bytes) -> None:
        """Let the server read this; nothing where the connection, or its process, is over."""
        if self._closing or self._loop.ended:
            return
        if self._reading and self._loop.runs:
            assert self._protocol is not None
            with suppress(ProcessKilled):
                self._loop.run(self._protocol.data_received, octets)
        else:
            self._unread.append(octets)
            if self._reading:
                self._loop.call_soon(self._read)

    def hang_up(self) -> None:
        """Reset the connection from the client's side."""
        if not self._closing:
            self._closing = True
            self._opened.pop(self, None)
            self._loop.call_soon(self._lose)

    # ---- the server's acts ---------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send to the client."""
        if not self._closing and not self._loop.ended:
            self._client.received(bytes(data))

    def write_eof(self) -> None:
        """Send no more, and read on."""
        self._client.closed()

    def can_write_eof(self) -> bool:
        """Return that an end can be sent."""
        return True

    def close(self) -> None:
        """Close; everything has been sent."""
        if not self._closing:
            self._closing = True
            self._opened.pop(self, None)
            self._client.closed()
            self._loop.call_soon(self._lose)

    abort = close

    def is_closing(self) -> bool:
        """Return whether it is over."""
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: a client reads everything at once."""

    def get_write_buffer_size(self) -> int:
        """Return the bytes that wait: none."""
        return 0

    def pause_reading(self) -> None:
        """Leave what comes unread."""
        self._reading = False

    def resume_reading(self) -> None:
        """Read what has come meanwhile."""
        self._reading = True
        self._loop.call_soon(self._read)

    def _read(self) -> None:
        while self._unread and self._reading and not self._closing:
            assert self._protocol is not None
            self._protocol.data_received(self._unread.pop(0))

    def _lose(self) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(None)


class NoSocket:
    """Stands where a transport has its socket."""

    def setsockopt(self, *_: object) -> None:
        """Do nothing: a connection in memory is reset as it is closed."""
