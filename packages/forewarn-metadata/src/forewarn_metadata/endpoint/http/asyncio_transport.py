"""The transport for systems without epoll: one asyncio transport per connection.

On Windows and macOS, which have no epoll, this slower transport serves the connections.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

from forewarn_metadata.endpoint.http.addresses import BACKLOG, Listener, interface_of
from forewarn_metadata.endpoint.http.connection import NOTHING, Connection
from forewarn_metadata.endpoint.http.open_connections import ConnectedClient
from forewarn_metadata.endpoint.identity import UNIX, Peer, canonical
from forewarn_metadata.endpoint.service import MetadataService

LINGER_S = 2.0  # the same size as in the transport for Linux
WRITE_HIGH_BYTES = 64 * 1024
#: Placeholder owner of a connection before its transport exists.
NOBODYS_CLIENT = ConnectedClient("", is_known=False)


class StreamConnection(Connection, asyncio.Protocol):
    """A connection on an asyncio transport."""

    __slots__ = ("_lingering", "_listener", "_transport")

    def __init__(self, service: MetadataService, listener: Listener) -> None:
        super().__init__(service, Peer(UNIX, listener.interface), NOBODYS_CLIENT)
        self._listener = listener
        self._lingering = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Identify the peer."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if not self._listener.is_unix:
            address = transport.get_extra_info("peername")[0]
            interface = self._listener.interface
            if not interface and self.service.responder.callers.interfaces_matter:
                interface = self._interface()
            self.peer = Peer(canonical(address), interface)
        connections = self.service.connections
        client = connections.admit(self.peer)
        if client is None:
            self.abandon()
            return
        self.client = client
        connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Send a cached answer, or process the request."""
        self.service.look_after_pause(self.service.now_s())
        if not self.answered(data):
            self.received(data)

    def eof_received(self) -> bool:
        """Keep the connection open until all received requests are answered."""
        self.received_eof()
        return True

    def pause_writing(self) -> None:
        """Stop answering until the client reads."""
        self.stalled = True
        self.ready = NOTHING

    def resume_writing(self) -> None:
        """Resume answering."""
        if not self.over:
            self.unstalled()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  of the interface
        """Drop all state of the closed connection."""
        self.lost()
        self._transport = None
        self.service.forget(self)

    def drain(self) -> None:
        """Close the connection if it is idle; the transport has read all received bytes."""
        self.stop()

    def _write(self, octets: bytes) -> None:
        if self._transport is not None:
            self._transport.write(octets)

    def _close(self, *, linger: bool) -> None:
        transport = self._transport
        if transport is None or self._lingering:
            return
        if linger and transport.can_write_eof():
            self._lingering = True
            transport.write_eof()
            self.service.loop.call_later(LINGER_S, transport.abort)
        else:
            transport.close()

    def _reset(self) -> None:
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def _interface(self) -> str:
        transport = self._transport
        return "" if transport is None else interface_of(transport.get_extra_info("socket"))

    def _read(self, *, wanted: bool) -> None:
        if self._transport is None:
            return
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


class AsyncioTransport:
    """Listens with asyncio servers."""

    def __init__(self, service: MetadataService) -> None:
        self.service = service
        self._servers: list[tuple[asyncio.Server, Listener]] = []

    async def listen(self, listener: Listener) -> None:
        """Start accepting connections."""

        def connection() -> StreamConnection:
            return StreamConnection(self.service, listener)

        loop = self.service.loop
        if listener.is_unix:
            server = await loop.create_unix_server(connection, sock=listener.sock, backlog=BACKLOG)
        else:
            server = await loop.create_server(connection, sock=listener.sock, backlog=BACKLOG)
        self._servers.append((server, listener))

    def stop_listening(self, *, shared_only: bool = False) -> None:
        """Stop accepting connections; `shared_only`: except at Unix sockets."""
        for each in tuple(self._servers):
            server, listener = each
            if not (shared_only and listener.is_unix):
                server.close()
                listener.close()
                self._servers.remove(each)

    def drain(self) -> None:
        """Close the idle connections."""
        for connection in self.service.connections:
            cast("StreamConnection", connection).drain()

    def close(self) -> None:
        """Do nothing, because the servers are already closed."""
