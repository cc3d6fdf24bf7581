"""Connections of the operator API: who may hold one, how long a request may take to arrive.

uvicorn's protocol has a limit for all connections together and none for one source, for a head
or for the time a request takes. A caller whom nobody knows yet makes room for the next one;
one whose request was let through keeps its connection. No route and no token in here.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from uvicorn._types import ASGI3Application
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from uvicorn.server import ServerState

    from forewarn.settings import OperatorSettings

    _State: TypeAlias = dict[str, Any]

#: Largest head of a request, in bytes: the URL, which may name 400 records, and headers.
HEAD_BYTES_MAX = 80 * 1024
#: Most that comes in one read from the system, in bytes: of asyncio and of uvloop.
READ_BYTES_MAX = 256 * 1024
#: Headers of one request; browsers send about twenty.
HEADERS_MAX = 100
#: Requests sent ahead of their answers on one connection.
PIPELINE_MAX = 16
#: The member of `scope["state"]` that a request is let through by.
ADMIT = "admit"


class HeadTooLarge(Exception):
    """A head above its limits: the parser stops there, and answers 400."""


class ConnectionTable:
    """Every open connection; those whose caller is not known yet are the first to go.

    Each change costs the same, however many connections there are.
    """

    def __init__(self, settings: OperatorSettings) -> None:
        """Hold none yet."""
        self.request_timeout_s = settings.request_timeout_s
        self._max = settings.max_connections
        self._max_per_source = settings.max_connections_per_source
        self._count = 0
        #: Not let through yet, or idle since: oldest first, of everybody and of each source.
        self._evictable: OrderedDict[Connection, None] = OrderedDict()
        self._by_source: defaultdict[str, OrderedDict[Connection, None]] = defaultdict(OrderedDict)

    def enter(self, connection: Connection) -> bool:
        """Count a connection in, at the cost of the oldest unknown one; False: there is no room."""
        own = self._by_source[connection.source]
        if connection.source and len(own) >= self._max_per_source:
            next(iter(own)).cut()
        elif self._count >= self._max:
            if not self._evictable:
                return False
            next(iter(self._evictable)).cut()
        self._count += 1
        self.expose(connection)
        return True

    def leave(self, connection: Connection) -> None:
        """Count a connection out."""
        self._count -= 1
        self.keep(connection)

    def expose(self, connection: Connection) -> None:
        """Have a connection make room for others when they need it."""
        self._evictable[connection] = None
        self._by_source[connection.source][connection] = None

    def keep(self, connection: Connection) -> None:
        """Keep a connection whatever comes."""
        self._evictable.pop(connection, None)
        own = self._by_source.get(connection.source)
        if own is not None:
            own.pop(connection, None)
            if not own:
                del self._by_source[connection.source]


class Connection(HttpToolsProtocol):
    """One connection, with limits on what it may hold and for how long."""

    def __init__(
        self, table: ConnectionTable, config: Config, *, server_state: ServerState, state: _State
    ) -> None:
        """Serve one connection that counts in a table."""
        super().__init__(config, server_state, state)
        #: Where it comes from, as limits count it; empty: a Unix socket, which has none.
        self.source = ""
        self._table = table
        self._entered = False
        self._head_bytes = 0
        #: Bytes since anything of a request was complete; below 0 for the rest of a read.
        self._unparsed = 0
        self._in_body = False
        self._late: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let it in, or say that there is no room."""
        super().connection_made(transport)
        self.source = source_of(self.client[0]) if self.client else ""
        self._entered = self._table.enter(self)
        if not self._entered:
            transport.write(_FULL)
            transport.close()
            return
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it out, and let every request of it know that nobody waits any more."""
        if self._entered:
            self._entered = False
            self._table.leave(self)
        self._unset_late()
        for cycle in (self._running, *(each for each, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def cut(self) -> None:
        """End it at once, to make room."""
        if self._entered:
            self._entered = False
            self._table.leave(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what came; a body that goes on coming is waited for."""
        if self.transport.is_closing() or self.parser is None:
            return
        if self._in_body or self._late is None:
            self._expect()
        super().data_received(data)
        self._unparsed += len(data)
        if self._unparsed > HEAD_BYTES_MAX:  # one header, or a trailer, without an end
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read, unless an answer is under way: it would end up inside."""
        self._unset_late()
        if self._running is not None and not self._running.response_complete:
            self.transport.close()
            return
        super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._head_bytes = 0
        if self._late is None:
            self._expect()
        self.scope["state"][ADMIT] = self._admit

    def on_url(self, url: bytes) -> None:
        """Take a part of the URL."""
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._grow(len(name) + len(value))
        if len(self.headers) >= HEADERS_MAX:
            raise HeadTooLarge
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer; who asks is found out before the body is read."""
        if len(self.pipeline) >= PIPELINE_MAX:
            raise HeadTooLarge
        self._in_body = True
        self._progress()
        self._expect()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._progress()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait no longer: the request is here."""
        self._in_body = False
        self._progress()
        self._unset_late()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Make room for others again while nothing is asked."""
        super().on_response_complete()
        if self._entered and not self.pipeline:
            self._table.expose(self)

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection."""
        self._unset_late()
        super().timeout_keep_alive_handler()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _admit(self) -> None:
        """Keep the connection: its caller is known, and its request is being answered."""
        if self._entered:
            self._table.keep(self)

    def _progress(self) -> None:
        """Note that a part of a request is complete; counted again from the next chunk on."""
        self._unparsed = -READ_BYTES_MAX

    def _grow(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > HEAD_BYTES_MAX:
            raise HeadTooLarge

    def _expect(self) -> None:
        """Wait for the rest of a request, again."""
        self._unset_late()
        self._late = self.loop.call_later(self._table.request_timeout_s, self._cut_late)

    def _unset_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _cut_late(self) -> None:
        """Cut off who has not sent what he began; one who waits for an answer is not meant."""
        self._late = None
        if self.flow.read_paused:  # it is we who do not read on
            self._expect()
            return
        self.transport.abort()


def factory(settings: OperatorSettings) -> Callable[..., Connection]:
    """Return what makes a connection of uvicorn's, all of which count in one table."""
    table = ConnectionTable(settings)

    def connection(
        *, config: Config, server_state: ServerState, app_state: _State, _loop: object = None
    ) -> Connection:
        return Connection(table, config, server_state=server_state, state=app_state)

    return connection


def source_of(address: str) -> str:
    """Return what limits count by: an IPv4 address, or an IPv6 network of 64 bits."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    found = getattr(found, "ipv4_mapped", None) or found
    if found.version == 4:
        return str(found)
    return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))


_FULL_BODY = (
    b'{"error":{"code":"connections-full","message":"The operator API has no connection free.",'
    b'"advice":"Try again in a few seconds."}}'
)
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_FULL_BODY), _FULL_BODY)
)
