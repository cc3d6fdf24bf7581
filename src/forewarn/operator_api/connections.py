"""Connections of the operator API: what they may hold, how long a request may take to arrive.

uvicorn's protocol has no limit for a head or for the time a request takes. A connection whose
request was let through is kept; any other makes room. No route and no token in here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

    from uvicorn._types import ASGI3Application
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from uvicorn.server import ServerState

    from forewarn.connection_table import TrackedConnection

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


class Connection(HttpToolsProtocol):
    """One connection, with limits on what it may hold and for how long."""

    def __init__(
        self,
        tracked: TrackedConnection,
        request_timeout_s: float,
        config: Config,
        *,
        server_state: ServerState,
        state: _State,
    ) -> None:
        """Serve one connection that counts in a table."""
        super().__init__(config, server_state, state)
        self._tracked = tracked
        self._request_timeout_s = request_timeout_s
        self._head_bytes = 0
        #: Bytes since anything of a request was complete; below 0 for the rest of a read.
        self._unparsed = 0
        self._in_body = False
        self._late: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for its first request."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it out, and let every request of it know that nobody waits any more."""
        self._tracked.leave()
        self._unset_late()
        for cycle in (self._running, *(each for each, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

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
        self.scope["state"][ADMIT] = self._tracked.admit

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
        if not self.pipeline:
            self._tracked.expose()

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection."""
        self._unset_late()
        super().timeout_keep_alive_handler()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

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
        self._late = self.loop.call_later(self._request_timeout_s, self._cut_late)

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


_FULL_BODY = (
    b'{"error":{"code":"connections-full","message":"The operator API has no connection free.",'
    b'"advice":"Try again in a few seconds."}}'
)
#: What a caller is sent whom there is no room for.
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_FULL_BODY), _FULL_BODY)
)
