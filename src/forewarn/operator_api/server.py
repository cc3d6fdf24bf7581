"""The operator API on a port: uvicorn on the event loop that is already running.

No route and no decision may live here.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import uvicorn

from forewarn.connection_table import ConnectionTable, CountedPort
from forewarn.operator_api.connections import FULL, Connection
from forewarn.operator_api.listener import (
    OPERATOR,
    Purpose,
    clean_up,
    name_of,
    open_listener,
    taken,
)
from forewarn.settings import OperatorSettings

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp

    from forewarn.connection_table import TrackedConnection

#: Seconds a call under way may take once the service stops; then it is refused.
STOP_S = 1
#: Seconds after that in which the callers may fetch their answers.
FETCH_S = 1


class _Server(uvicorn.Server):
    """A server that leaves signals to the daemon, and counts connections by source."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        *,
        settings: OperatorSettings,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Serve nothing yet."""
        super().__init__(config)
        self.listening = asyncio.Event()
        self.servers = []
        self._request_timeout_s = settings.request_timeout_s
        table = ConnectionTable(settings.max_connections, settings.max_connections_per_source)
        self._port = CountedPort(listener, table, self._connection, tls=tls, full=FULL)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        """Begin to listen, and say so."""
        self._port.start()
        self.started = True
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and let those who are known have their answers."""
        await self._port.stop()
        await super().shutdown(sockets)

    def _connection(self, tracked: TrackedConnection) -> Connection:
        return Connection(
            tracked, self._request_timeout_s, self.config, server_state=self.server_state, state={}
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class OperatorServer:
    """A running operator API."""

    def __init__(
        self,
        server: _Server,
        task: asyncio.Task[None],
        *,
        address: str,
        stop_streams: Callable[[], None],
    ) -> None:
        """Take over a server that runs in a task."""
        self.address = address
        self._server = server
        self._task = task
        self._stop_streams = stop_streams

    async def stop(self) -> None:
        """Stop accepting, end what would never end, finish the rest, close."""
        self._server.should_exit = True
        self._stop_streams()
        late = asyncio.get_running_loop().call_later(STOP_S, self._cut_off)
        await self._task
        late.cancel()
        for connection in [*self._server.server_state.connections]:
            connection.transport.abort()  # of TLS, whose other side says no farewell
        await asyncio.sleep(0)
        clean_up(self.address)

    def _cut_off(self) -> None:
        """Have every call under way answered now, before uvicorn ends it with a trace."""
        for task in self._server.server_state.tasks:
            task.cancel()


async def start_operator(
    app: ASGIApp,
    address: str,
    settings: OperatorSettings | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    purpose: Purpose = OPERATOR,
) -> OperatorServer:
    """Serve an application at `IPV4:PORT`, `[IPV6]:PORT` or `unix:PATH`; port 0 takes a free one.

    Args:
        app: the application.
        address: where to listen.
        settings: limits of connections.
        tls: what the port proves itself with; None: plain HTTP.
        purpose: what is served there, for the sentence that says that it cannot be.

    Raises:
        OperatorAddressUnusable: the address cannot be read or is taken.
    """
    listener = open_listener(address, purpose)
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_S + FETCH_S,
    )
    server = _Server(config, listener, settings=settings or OperatorSettings(), tls=tls)
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
    listening = asyncio.ensure_future(server.listening.wait())
    await asyncio.wait([task, listening], return_when=asyncio.FIRST_COMPLETED)
    if not listening.done():  # another process listens there, which has bound it as we did
        listening.cancel()
        listener.close()
        raise taken(address, purpose, task.exception()) from task.exception()
    stop_streams = getattr(getattr(app, "state", None), "stop_streams", _nothing)
    return OperatorServer(server, task, address=name_of(listener), stop_streams=stop_streams)


def _nothing() -> None:
    """End no streams: an application of another kind has none."""
