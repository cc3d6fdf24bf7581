"""All uses of uvicorn's undocumented interface.

uvicorn documents neither its HTTP protocol nor how to serve connections that other code accepted.
`pyproject.toml` therefore allows one minor version. Before you allow a newer version, compare this
module with uvicorn's source; `tests/api/test_uvicorn_adapter.py` reports changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forewarn_metadata.connection_table import CountedPort


class EmbeddedServer(uvicorn.Server):
    """A uvicorn server that runs in a task, serves our port and ignores signals."""

    def __init__(self, app: ASGIApp, stop_s: int) -> None:
        """Prepare a server whose stop waits this many seconds for open responses."""
        config = uvicorn.Config(
            app,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=stop_s,
        )
        super().__init__(config)
        self.listening = asyncio.Event()
        self.servers = []
        self._port: CountedPort | None = None

    async def serve_port(self, port: CountedPort, listener: socket.socket) -> None:
        """Serve the connections of a port until `should_exit` is set; then close its listener."""
        self._port = port
        await self.serve(sockets=[listener])

    def cancel_requests(self) -> None:
        """Cancel every open request, so that it answers before uvicorn aborts it."""
        for task in self.server_state.tasks:
            task.cancel()

    def abort_connections(self) -> None:
        """Close every connection."""
        for connection in [*self.server_state.connections]:
            connection.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        """Start our port instead of uvicorn's own servers."""
        assert self._port is not None
        self._port.start()
        self.started = True
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, then wait for open responses."""
        assert self._port is not None
        await self._port.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the service's own handlers."""
        yield


class HttpProtocol(HttpToolsProtocol):
    """A connection. Subclasses override methods of asyncio and httptools, and two hooks.

    Python shares the names of attributes between objects only up to 30 of them, and uvicorn has 28;
    those of subclasses are slots, which saves 1.2 KiB for each connection.
    """

    __slots__ = ("_running",)

    #: Time limit of a connection without a request, after the first one, in seconds.
    keep_alive_s = 5

    def __init__(self, server: EmbeddedServer) -> None:
        super().__init__(server.config, server.server_state, {})
        self.timeout_keep_alive = self.keep_alive_s
        self._running: RequestResponseCycle | None = None

    def ended(self) -> None:
        """Hook: uvicorn closes the connection next, after a malformed request or a long silence."""

    def answered(self) -> None:
        """Hook: a response was sent."""

    def is_open(self) -> bool:
        """Return whether requests can still arrive."""
        return not self.transport.is_closing() and self.parser is not None

    def is_reading_paused(self) -> bool:
        """Return whether the server has paused reading."""
        return self.flow.read_paused

    def header_count(self) -> int:
        """Return the number of headers received so far in the current request."""
        return len(self.headers)

    def queued_count(self) -> int:
        """Return the number of pipelined requests that wait for an earlier answer."""
        return len(self.pipeline)

    def set_state(self, name: str, value: object) -> None:
        """Store a value in `scope["state"]` of the current request."""
        self.scope["state"][name] = value

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify every request of the connection that its caller has disconnected."""
        for cycle in (self._running, *(each for each, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Send an error response unless another response is already being sent."""
        self.ended()
        if self._running is not None and not self._running.response_complete:
            self.transport.close()
            return
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """Start the next pipelined request, if any."""
        super().on_response_complete()
        self.answered()

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection."""
        self.ended()
        super().timeout_keep_alive_handler()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)
