"""The operator API on a port, served by uvicorn on the running event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from types import SimpleNamespace

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from forewarn_base.settings import OperatorSettings
from forewarn_metadata.connection_table import ConnectionTable, CountedPort, TrackedConnection
from forewarn_server.api.connections import FULL, ApiConnection
from forewarn_server.api.listener import OPERATOR, Purpose, clean_up, name_of, open_listener, taken
from forewarn_server.api.uvicorn_adapter import EmbeddedServer

#: Time in seconds after which a stop cancels running calls.
STOP_S = 1
#: Further time in seconds for callers to receive their responses.
FETCH_S = 1


class OperatorServer:
    """A running operator API."""

    def __init__(
        self,
        server: EmbeddedServer,
        task: asyncio.Task[None],
        *,
        address: str,
        stop_streams: Callable[[], None],
    ) -> None:
        self.address = address
        self._server = server
        self._task = task
        self._stop_streams = stop_streams

    async def stop(self) -> None:
        """Stop accepting calls, end streams, finish other calls, and close."""
        self._server.should_exit = True
        self._stop_streams()
        late = asyncio.get_running_loop().call_later(STOP_S, self._server.cancel_requests)
        await self._task
        late.cancel()
        self._server.abort_connections()  # the peer ended TLS without a close_notify
        await asyncio.sleep(0)
        clean_up(self.address)


class ReplaceableApp:
    """An ASGI application that another application can replace at the same addresses."""

    def __init__(self, app: Starlette, peers: Mapping[str, ASGIApp]) -> None:
        """Serve `app` until it is replaced.

        `peers` maps paths to applications for the store's other processes.
        """
        self._app = app
        self._peers = peers
        self.state = SimpleNamespace(stop_streams=self._stop_streams)

    def replace(self, app: Starlette) -> None:
        """Use another application from now on, and end the streams of the previous application."""
        before, self._app = self._app, app
        before.state.stop_streams()

    def _stop_streams(self) -> None:
        self._app.state.stop_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        app = self._peers.get(scope["path"], self._app) if scope["type"] == "http" else self._app
        await app(scope, receive, send)


async def start_operator(
    app: ASGIApp,
    address: str | socket.socket,
    settings: OperatorSettings | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    purpose: Purpose = OPERATOR,
) -> OperatorServer:
    """Serve an application at `IPV4:PORT`, `[IPV6]:PORT` or `unix:PATH`; port 0: a free port.

    Args:
        app: the application.
        address: where to listen, or the open socket of an address.
        settings: limits of connections.
        tls: certificate and key of the port; None: plain HTTP.
        purpose: name of the server, for error messages.

    Raises:
        OperatorAddressUnusable: the address is malformed or in use.
    """
    if isinstance(address, str):
        listener = open_listener(address, purpose)
    else:
        listener, address = address, name_of(address)
    limits = settings or OperatorSettings()
    server = EmbeddedServer(app, STOP_S + FETCH_S)

    kind: type[ApiConnection] = getattr(app, "connection_class", ApiConnection)

    def connection(tracked: TrackedConnection) -> ApiConnection:
        return kind(server, tracked, limits.request_timeout_s)

    table = ConnectionTable(limits.max_connections, limits.max_connections_per_source)
    port = CountedPort(listener, table, connection, tls=tls, full=FULL)
    task = asyncio.get_running_loop().create_task(server.serve_port(port, listener))
    listening = asyncio.ensure_future(server.listening.wait())
    await asyncio.wait([task, listening], return_when=asyncio.FIRST_COMPLETED)
    if not listening.done():  # another process listens on the same address
        listening.cancel()
        listener.close()
        raise taken(address, purpose, task.exception()) from task.exception()
    # Other applications have no streams.
    stop_streams = getattr(getattr(app, "state", None), "stop_streams", lambda: None)
    return OperatorServer(server, task, address=name_of(listener), stop_streams=stop_streams)
