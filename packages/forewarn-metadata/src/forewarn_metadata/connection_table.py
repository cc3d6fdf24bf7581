"""Limits on connections to a port, counted by source from the moment of acceptance.

Theory of operation. An asyncio server keeps a silent TLS handshake open for a minute without
reporting it, so connections are accepted and counted here before the event loop gets them. An
unauthenticated connection may be closed in favour of a new one; an authenticated connection stays
open. A TLS handshake costs more than a millisecond of the processor, so it begins only after a
complete ClientHello, and is not closed in favour of a new connection: of more callers than the port
can serve at a time, each one's work would be lost before its end, again and again. Handshakes are
limited instead. While as many run as may, no connection is accepted, and callers wait in the
kernel's queue. One source may have only a few of the handshakes.
The metadata service counts by VM instead: see `metadata/http/open_connections.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from functools import partial
from weakref import WeakValueDictionary

#: Time limits of a TLS ClientHello, of the handshake after it, and of the shutdown, in seconds.
HANDSHAKE_S_MAX = 5.0
#: TLS handshakes of one port at a time after their ClientHello, and those of one source.
HANDSHAKES_MAX, SOURCE_HANDSHAKES_MAX = 128, 8
#: Unauthenticated connections of one port: at most `UNKNOWN_MAX`, and one in `UNKNOWN_FDS_SHARE`
#: file descriptors; one source may have one in `SOURCE_SHARE` of this number.
UNKNOWN_MAX, UNKNOWN_FDS_SHARE, SOURCE_SHARE = 256, 16, 4
#: Connections that may wait for acceptance, and how many are accepted before other work runs.
BACKLOG, ACCEPTED_AT_ONCE = 1024, 4
#: Errors that do not affect the next connection.
PASSING = frozenset({errno.ECONNABORTED, errno.EINTR})
#: Pause when the system accepts no further connection, in seconds.
RETRY_S = 0.1
#: Length of the head of a TLS record, and the first byte of a record with a handshake.
RECORD_HEAD_BYTES, HANDSHAKE_RECORD = 5, 22
_FACT = {"action": "accept-failed"}

log = logging.getLogger("forewarn.connections")


class ConnectionTable:
    """The open connections of one port; unauthenticated connections are closed first.

    Each change has a constant cost, however many connections there are.
    """

    def __init__(
        self, max_connections: int, max_per_source: int, *, fds_max: int | None = None
    ) -> None:
        """Start empty.

        Args:
            max_connections: maximum number of connections.
            max_per_source: maximum unauthenticated connections of one source.
            fds_max: file descriptors the process may have; 0: no limit; None: ask the system.
        """
        fds = fd_limit() if fds_max is None else fds_max
        share = max(fds // UNKNOWN_FDS_SHARE, SOURCE_SHARE) if fds else UNKNOWN_MAX
        self._max = max_connections
        self._max_unknown = min(UNKNOWN_MAX, share)
        self._max_per_source = min(max_per_source, self._max_unknown // SOURCE_SHARE)
        #: Maximum number of TLS handshakes at a time, which the table does not end.
        self.handshakes_max = min(HANDSHAKES_MAX, self._max_unknown)
        self._count = 0
        #: Unauthenticated or idle connections, oldest first: all of them, and by source.
        self._evictable: OrderedDict[TrackedConnection, None] = OrderedDict()
        self._by_source: defaultdict[str, OrderedDict[TrackedConnection, None]]
        self._by_source = defaultdict(OrderedDict)

    def enter(self, connection: TrackedConnection) -> bool:
        """Count a connection, closing the oldest unauthenticated one if needed; False: no room."""
        own = self._by_source.get(connection.source, ())
        if connection.source and len(own) >= self._max_per_source:
            next(iter(own)).cut()
        elif self._count >= self._max or len(self._evictable) >= self._max_unknown:
            if not self._evictable:
                return False
            next(iter(self._evictable)).cut()
        self._count += 1
        self.expose(connection)
        return True

    def leave(self, connection: TrackedConnection) -> None:
        """Stop counting a connection."""
        self._count -= 1
        self.keep(connection)

    def expose(self, connection: TrackedConnection) -> None:
        """Allow the table to close a connection in favour of new ones."""
        self._evictable[connection] = None
        self._by_source[connection.source][connection] = None

    def keep(self, connection: TrackedConnection) -> None:
        """Protect a connection: the table must not close it."""
        self._evictable.pop(connection, None)
        own = self._by_source.get(connection.source)
        if own is not None:
            own.pop(connection, None)
            if not own:
                del self._by_source[connection.source]

    def cut_unknown(self) -> None:
        """End every unauthenticated connection when the port closes."""
        for connection in tuple(self._evictable):
            connection.cut()


class TrackedConnection:
    """One connection in the table, from its acceptance to its end."""

    __slots__ = ("_end", "_settled", "_table", "counts", "source")

    def __init__(self, table: ConnectionTable, address: object) -> None:
        """Add the connection to the table; see `counts`."""
        #: Source address for limits; empty for a Unix socket.
        self.source = source_of(str(address[0])) if isinstance(address, tuple) else ""
        self._end: Callable[[], object] = lambda: None
        self._table = table
        #: Whether the connection is in the table.
        self.counts = table.enter(self)
        #: Completes when the connection is no longer protected for its handshake; None: it is not.
        self._settled: asyncio.Future[None] | None = None

    def set_end(self, end: Callable[[], object]) -> None:
        """Use a function from now on to end the connection at once."""
        self._end = end

    def admit(self) -> None:
        """Protect the connection, because its caller is authenticated."""
        if self.counts:
            self._table.keep(self)
        self._settle()

    def expose(self) -> None:
        """Allow the table to close the connection again."""
        if self.counts:
            self._table.expose(self)
        self._settle()

    def expose_stranger(self) -> None:
        """Allow the table to close the connection again, unless its caller is authenticated."""
        if self._settled is not None:
            self.expose()

    def protect(self) -> asyncio.Future[None]:
        """Protect the connection for its handshake and until its first request is answered.

        Returns: what completes when the caller is authenticated, answered or gone.
        """
        self._table.keep(self)
        self._settled = asyncio.get_running_loop().create_future()
        return self._settled

    def leave(self) -> None:
        """Stop counting the connection; further calls have no effect."""
        if self.counts:
            self.counts = False
            self._table.leave(self)
        self._settle()

    def cut(self) -> None:
        """End the connection at once."""
        self.leave()
        self._end()

    def _settle(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)
        self._settled = None


class CountedPort:
    """Accepts the connections of one listening socket, counts them, and gives them a protocol.

    The protocol must call `leave` of its table entry when its connection is lost.
    """

    def __init__(
        self,
        listener: socket.socket,
        table: ConnectionTable,
        make_protocol: Callable[[TrackedConnection], asyncio.Protocol],
        *,
        tls: ssl.SSLContext | None = None,
        full: bytes = b"",
    ) -> None:
        """Start without accepting.

        Args:
            listener: a bound, non-blocking socket.
            table: the table that counts the connections.
            make_protocol: creates the protocol of a connection.
            tls: TLS context; None: no TLS.
            full: bytes sent over a refused connection without TLS.
        """
        self.listener = listener
        self._table = table
        self._make_protocol = make_protocol
        self._full = b"" if tls else full
        self._options: dict[str, object] = {}
        if tls is not None:
            names = ("ssl_handshake_timeout", "ssl_shutdown_timeout")
            self._options = {"ssl": tls, **dict.fromkeys(names, HANDSHAKE_S_MAX)}
        self._connecting: set[asyncio.Task[None]] = set()
        self._handshakes = asyncio.Semaphore(table.handshakes_max)
        self._own_handshakes: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._accepting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: another process listens.
        """
        self.listener.listen(BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def stop(self) -> None:
        """Accept no further connection, and end every unauthenticated one."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        self.listener.close()
        for task in tuple(self._connecting):
            task.cancel()
        self._table.cut_unknown()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                for _ in range(ACCEPTED_AT_ONCE):
                    async with self._handshakes:  # waits until another handshake may begin
                        pass
                    self._take(*await loop.sock_accept(self.listener))
            except OSError as error:
                if error.errno not in PASSING:
                    log.warning("no connection can be accepted: %s", error, extra=_FACT)
                    await asyncio.sleep(RETRY_S)
            await asyncio.sleep(0)  # lets other work run first

    def _take(self, connection: socket.socket, address: object) -> None:
        connection.setblocking(False)  # noqa: FBT003 - the standard library's own signature
        tracked = TrackedConnection(self._table, address)
        if not tracked.counts:
            with contextlib.suppress(OSError), connection:
                connection.send(self._full)
            return
        task = asyncio.get_running_loop().create_task(self._connect(connection, tracked))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

        def drop() -> None:
            task.cancel()
            connection.close()

        tracked.set_end(drop)

    async def _connect(self, connection: socket.socket, tracked: TrackedConnection) -> None:
        """Serve a connection on the event loop, after its handshake."""
        task = asyncio.current_task()
        assert task is not None
        tracked.set_end(task.cancel)
        settled: asyncio.Future[None] | None = None
        async with contextlib.AsyncExitStack() as turn:
            try:
                if self._options:
                    async with asyncio.timeout(HANDSHAKE_S_MAX):
                        await client_hello(connection)
                    await turn.enter_async_context(self._handshakes_of(tracked.source))
                    await turn.enter_async_context(self._handshakes)
                    settled = tracked.protect()
                transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                    partial(self._make_protocol, tracked),
                    connection,
                    **self._options,  # type: ignore[arg-type]
                )
            except BaseException as error:
                tracked.leave()
                connection.close()
                if not isinstance(error, OSError):  # unknown clients' failures are not logged
                    raise
                return
            tracked.set_end(transport.abort)
            self._connecting.discard(task)
            if settled is not None:
                await settled

    def _handshakes_of(self, source: str) -> asyncio.Semaphore:
        """Return what limits a source's handshakes, while it has any."""
        own = self._own_handshakes.get(source) or asyncio.Semaphore(SOURCE_HANDSHAKES_MAX)
        self._own_handshakes[source] = own
        return own


async def client_hello(connection: socket.socket) -> None:
    """Wait until a whole ClientHello, bytes of something else, or the connection's end arrives."""
    head = await _peek(connection, RECORD_HEAD_BYTES)
    if len(head) == RECORD_HEAD_BYTES and head[0] == HANDSHAKE_RECORD:
        await _peek(connection, RECORD_HEAD_BYTES + int.from_bytes(head[3:], "big"))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def _peek(connection: socket.socket, length: int) -> bytes:
    """Return this many received bytes without taking them, or less at the connection's end."""
    with contextlib.suppress(BlockingIOError):
        if len(data := connection.recv(length, socket.MSG_PEEK)) == length:
            return data
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, length)
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)
    return connection.recv(length, socket.MSG_PEEK)


async def listeners_at(host: str, port: int) -> list[socket.socket]:
    """Return a bound socket for each address of a host; port 0 means a free port.

    Raises:
        OSError: an address is in use, or the host has no address.
    """
    find = asyncio.get_running_loop().getaddrinfo
    addresses = await find(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners = []
    for family, _, _, _, address in dict.fromkeys(addresses):
        listener = socket.create_server(address[:2], family=family)
        listener.setblocking(False)  # noqa: FBT003 - the standard library's own signature
        listeners.append(listener)
    return listeners


def fd_limit() -> int:
    """Return how many file descriptors the process may have; 0: unlimited."""
    try:
        import resource  # noqa: PLC0415  not everywhere
    except ImportError:
        return 0
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if soft == resource.RLIM_INFINITY else soft


def source_of(address: str) -> str:
    """Return the source for limits: an IPv4 address, or an IPv6 network of 64 bits."""
    try:
        plain = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    plain = getattr(plain, "ipv4_mapped", None) or plain
    if plain.version == 4:
        return str(plain)
    return str(ipaddress.ip_network((int(plain) >> 64 << 64, 64)))
