"""The transport for Linux: one epoll set in the event loop holds all sockets of the service.

One wake-up of the event loop serves every ready socket. A connection with a single request needs no
Python object. A connection with a single request costs 24 microseconds of processor time. An
asyncio transport per connection costs 62 microseconds (40 on uvloop). A request on an open
connection costs about the same with all transports.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket

from forewarn_metadata.endpoint.http.addresses import BACKLOG, Listener, interface_of
from forewarn_metadata.endpoint.http.connection import NOTHING, Connection
from forewarn_metadata.endpoint.http.event_loop import Events, watch
from forewarn_metadata.endpoint.http.open_connections import ConnectedClient
from forewarn_metadata.endpoint.identity import UNIX, Peer, canonical
from forewarn_metadata.endpoint.rate_limit import Bucket
from forewarn_metadata.endpoint.service import MetadataService
from forewarn_metadata.endpoint.snapshot import PublishedView

READ_BYTES = (
    4096  # bytes of one read; a poll has 150 to 600 bytes, and a long approval needs several reads
)
ACCEPTS_MAX = 64  # maximum number of connections accepted in one round
LINGER_S = 2.0  # time in seconds in which a refused client may still send
FULL_S = 0.1  # pause of accepting in seconds if the process has no free file descriptor

_FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_LAST = (
    _FLAGS | socket.MSG_MORE
)  # delays the answer until the close, so that one packet contains both
_IN = select.EPOLLIN
_RESETS = b"\x01\0\0\0\0\0\0\0"  # struct linger: on, 0 s

_LOG = logging.getLogger("forewarn.metadata.http.epoll_transport")


class EpollConnection(Connection):
    """A connection on a socket of the epoll set."""

    __slots__ = ("_closing", "_interest", "_out", "_transport", "fd", "sock")

    def __init__(
        self, transport: EpollTransport, sock: socket.socket, *, peer: Peer, client: ConnectedClient
    ) -> None:
        super().__init__(transport.service, peer, client)
        sock.settimeout(0)
        self.sock = sock
        self.fd = sock.fileno()
        self._transport = transport
        self._out = b""
        self._interest = -1
        self._closing = 0  # 0 no, 1 once sent, 2 once sent and then linger, 3 lingering, 4 closed
        transport.service.connections.add(self)

    def begin(self, octets: bytes) -> None:
        """Process the bytes that were already read, or read; then wait for further bytes."""
        if not octets:
            self.read()
        elif not self.answered(octets):
            self.took(octets)
        if self._interest < 0:
            self._watch(_IN)

    def end_with(self, octets: bytes) -> None:
        """Send the rest of the last answer, then close."""
        self._write(octets)
        self._finish()

    def happened(self, event: int) -> None:
        """Handle the socket's ready events."""
        if event & select.EPOLLOUT:
            self._send_rest()
        elif self._closing == 3:
            self._discard()
        elif self._closing == 0:
            self.read()

    def read(self) -> None:
        """Read once and process the bytes."""
        try:
            octets = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self.gone()
            return
        self.took(octets)

    def took(self, octets: bytes) -> None:
        """Process received bytes; empty bytes mean that the client has finished sending."""
        if octets:
            self.received(octets)
        else:
            self._watch(0)
            self.received_eof()

    def gone(self) -> None:
        """Drop a broken connection."""
        self.lost()
        self._end()

    def drain(self) -> None:
        """Answer received requests, then close."""
        if not self.stalled:
            self.read()
        self.stop()

    def _write(self, octets: bytes) -> None:
        if self._closing == 4:
            return
        if self._out:
            self._out += octets
            return
        try:
            sent = os.write(self.fd, octets)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.gone()
            return
        if sent < len(octets):
            self._out = octets[sent:]
            self.stalled = True
            self.ready = NOTHING
            self._watch(select.EPOLLOUT)

    def _close(self, *, linger: bool) -> None:
        if self._closing >= 3:
            return
        if self._out:
            self._closing = 2 if linger else 1
        elif linger:
            self._begin_linger()
        else:
            self._end()

    def _reset(self) -> None:
        if self._closing < 4:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
            self._end()

    def _read(self, *, wanted: bool) -> None:
        if not self._out and self._closing == 0:
            self._watch(_IN if wanted else 0)

    def _interface(self) -> str:
        return interface_of(self.sock)

    def _send_rest(self) -> None:
        out, self._out = self._out, b""
        self.stamp = self.service.tick
        self._write(out)
        if self._out or self._closing == 4:
            return
        if self._closing:
            self._close(linger=self._closing == 2)
            return
        self._watch(_IN if self.reading and not self.eof else 0)
        self.unstalled()

    def _begin_linger(self) -> None:
        """Keep the connection open until the client has read the answer; a close may reset it."""
        self._closing = 3
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._end()
            return
        self._watch(_IN)
        self.service.loop.call_later(LINGER_S, self._end)

    def _discard(self) -> None:
        try:
            if os.read(self.fd, 16 * READ_BYTES):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._end()

    def _end(self) -> None:
        if self._closing < 4:
            self._closing = 4
            self.over = True
            self._out = b""
            self.service.forget(self)
            if self._interest >= 0:
                self._transport.unwatch(self.fd)
            self.sock.close()

    def _watch(self, interest: int) -> None:
        if interest != self._interest and self._closing < 4:
            self._transport.watch(self, interest, new=self._interest < 0)
            self._interest = interest


class EpollTransport:
    """Listens, accepts, reads, sends cached answers, and creates connections for other requests."""

    def __init__(self, service: MetadataService) -> None:
        self.service = service
        self._epoll = select.epoll()
        self._listeners: dict[int, Listener] = {}
        self._connections: dict[int, EpollConnection] = {}
        self._told_full = False
        self._accepts_left = 0
        self._limit = service.responder.limit
        self._now_s = service.loop.time
        self._let_go = watch(service.loop, self._epoll, self._serve)

    async def listen(self, listener: Listener) -> None:
        """Start accepting connections."""
        sock = listener.sock
        if not listener.is_unix:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        self._listeners[sock.fileno()] = listener
        self._epoll.register(sock.fileno(), _IN)

    def stop_listening(self, *, shared_only: bool = False) -> None:
        """Accept all waiting connections, then stop; `shared_only`: except at Unix sockets."""
        for fd, listener in tuple(self._listeners.items()):
            if shared_only and listener.is_unix:
                continue
            self._accepts_left = BACKLOG
            self._accept(fd, self.service.times())
            self._epoll.unregister(fd)
            listener.close()
            del self._listeners[fd]

    def drain(self) -> None:
        """Answer received requests on every connection and close the idle ones."""
        for connection in tuple(self._connections.values()):
            connection.drain()

    def close(self) -> None:
        """Close the epoll set; every connection must be closed."""
        assert not self._connections
        self._let_go()
        self._epoll.close()

    def watch(self, connection: EpollConnection, interest: int, *, new: bool) -> None:
        """Watch these events of a connection."""
        if new:
            self._connections[connection.fd] = connection
            self._epoll.register(connection.fd, interest)
        else:
            self._epoll.modify(connection.fd, interest)

    def unwatch(self, fd: int) -> None:
        """Forget a socket before its close, when the kernel removes the socket from the set."""
        del self._connections[fd]

    def _serve(self, events: Events) -> bool:
        """Serve every ready socket. This is the hot path, which avoids function calls.

        Returns:
            whether the method did more than send cached answers.
        """
        more, self._accepts_left = False, ACCEPTS_MAX
        service, connections = self.service, self._connections
        tick, dated = service.tick, service.dated
        now_s = self._now_s()
        service.look_after_pause(now_s)
        now, full_at_max = times = self._limit.times(now_s)
        for fd, event in events:
            try:
                connection = connections[fd]
            except KeyError:
                more = True  # asyncio's own set is part of this set
                self._accept(fd, times)
                continue
            if event != _IN or connection.ready is NOTHING:
                more = True
                connection.happened(event)
                continue
            try:
                octets = os.read(fd, READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                more = True
                connection.gone()
                continue
            ready, bucket = connection.ready.get(octets), connection.bucket
            if ready is None or not bucket.take(now, full_at_max):
                more = True
                connection.took(octets)
                continue
            connection.stamp = bucket.polled_tick = tick
            bucket.user_agent = ready.user_agent
            answer = ready.octets if ready.dated == dated else service.answer(ready)
            try:
                sent = os.write(fd, answer)
            except OSError:
                sent = 0  # the next read or write reports the error
            if sent < len(answer):
                more = True
                connection._write(answer[sent:])  # noqa: SLF001  as above
        return more

    def _accept(self, fd: int, times: tuple[float, float]) -> None:
        listener = self._listeners.get(fd)
        if listener is None:  # an earlier event of this round closed the connection
            return
        views_by_address = self.service.views_by_address if listener.is_plain else {}
        while self._accepts_left > 0:
            self._accepts_left -= 1
            try:
                sock_fd, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._not_accepted(listener, error)
                return
            sock = listener.accepted_socket(sock_fd)
            expected = views_by_address.get(address)
            octets = b""
            rest = b""
            if expected is not None:
                left, rest = self._answer_single_request(sock, expected, times)
                if left is None:
                    continue
                octets = left
            connection = self._admit(listener, sock, address)
            if connection is None:
                sock.close()
            elif rest:
                connection.end_with(rest)
            else:
                if expected is not None:
                    connection.enter(*expected)
                connection.begin(octets)

    def _answer_single_request(
        self,
        sock: socket.socket,
        expected: tuple[PublishedView, Bucket],
        times: tuple[float, float],
    ) -> tuple[bytes | None, bytes]:
        """Answer a client with a single request, without a connection object.

        Return the read bytes (None if the request is finished) and the unsent bytes.
        """
        view, bucket = expected
        octets = b""
        try:
            octets = sock.recv(READ_BYTES, _FLAGS)
            ready = view.ready_last.get(octets)
            if ready is None or not bucket.take(*times):
                return octets, b""
            bucket.polled_tick, bucket.user_agent = self.service.tick, ready.user_agent
            answer = self.service.answer(ready)
            sent = sock.send(answer, _LAST)
        except BlockingIOError:
            return octets, b""
        except OSError:
            sock.close()
            return None, b""
        if sent < len(answer):
            return octets, answer[sent:]
        sock.close()
        return None, b""

    def _admit(
        self, listener: Listener, sock: socket.socket, address: str
    ) -> EpollConnection | None:
        """Create an object for a connection that needs further work; None if it is refused."""
        service = self.service
        interface = listener.interface
        if not interface and service.responder.callers.interfaces_matter:
            interface = interface_of(sock)
        peer = Peer(UNIX if listener.is_unix else canonical(address), interface)
        client = service.connections.admit(peer)
        return None if client is None else EpollConnection(self, sock, peer=peer, client=client)

    def _not_accepted(self, listener: Listener, error: OSError) -> None:
        """Close a connection if no file descriptor is free; ignore errors caused by a client."""
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            return
        if not self._told_full:
            self._told_full = True
            _LOG.warning(
                "No file descriptor is free for new connections.", extra={"action": "full"}
            )
        if not self.service.connections.make_room():
            fd = listener.sock.fileno()
            self._epoll.modify(fd, 0)
            self.service.loop.call_later(FULL_S, self._accept_again, fd)

    def _accept_again(self, fd: int) -> None:
        if fd in self._listeners:
            self._epoll.modify(fd, _IN)
