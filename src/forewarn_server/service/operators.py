"""Serves operators: the operator API on its address and on a local socket, and Azure's API.

The modules of the APIs are imported only after VMs are served, because VMs come first.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from forewarn_base.errors import CallerError
from forewarn_base.extensions import ExtensionMissing, ExtensionUnusable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from forewarn_base.clock import Clock
    from forewarn_base.settings import Settings
    from forewarn_drivers import Driver
    from forewarn_metadata.replication.server import FeedServer
    from forewarn_server.api.further_apis import FurtherApi
    from forewarn_server.api.oidc import Oidc
    from forewarn_server.api.relay import RelayEndpoint
    from forewarn_server.api.server import ReplaceableApp
    from forewarn_server.api.standby import ActiveProcess, Forwarder
    from forewarn_server.control.readable import ReadableControl
    from forewarn_server.control.run_loop import ControlLoop
    from forewarn_server.outbox.outbox import Outbox
    from forewarn_server.service.bridge import Bridge
    from forewarn_server.service.credentials import ServedCertificates
    from forewarn_store import Store

log = logging.getLogger("forewarn")

#: Directory of the service's sockets in packages, and the name of the operator API's socket.
RUN_DIRECTORY, LOCAL_SOCKET = Path("/run/forewarn"), "operator.sock"

#: Maximum connections that wait in a reserved port.
RESERVED_MAX = 128


class ReloadUnavailable(CallerError):
    """A service without a settings file cannot reload."""

    code = "reload-unavailable"
    status = 409
    message = "This service has no settings file to reload."
    advice = "Restart the emulator with other options."


class OperatedService(Protocol):
    """The parts of a service that its operator APIs use."""

    settings: Settings
    clock: Clock
    store: Store
    bridge: Bridge
    certificates: ServedCertificates
    #: Set when the service should end.
    ended: asyncio.Event
    #: Returns further routes for the operator API.
    more_routes: Callable[[], Sequence[object]]
    reload: Callable[[], Awaitable[tuple[str, ...]]]

    @property
    def control(self) -> ControlLoop:
        """The control plane of the active process."""

    @property
    def drivers(self) -> dict[str, Driver]:
        """The drivers by their names."""

    @property
    def feed(self) -> FeedServer | None:
        """The feed for metadata nodes in other processes; None without nodes."""

    @property
    def outbox(self) -> Outbox | None:
        """Delivers transitions; None without a destination."""

    def lease_token(self) -> str:
        """Return the token of the lease while this process leads; otherwise an empty text."""


class Stoppable(Protocol):
    """A running server."""

    async def stop(self) -> None:
        """Close it."""


class OperatorApi:
    """The APIs of a service for operators."""

    def __init__(self, service: OperatedService) -> None:
        self._service = service
        #: Address of the operator API; empty: none.
        self.address = ""
        #: Address of the operator API for users of this machine; empty: none.
        self.local_address = ""
        #: URL of Azure Resource Manager, and its certificate file; empty: not served.
        self.azure, self.azure_certificate = "", ""
        #: A sentence about Azure's API if it is configured and cannot be used; otherwise empty.
        self.azure_problem = ""
        #: Identifies callers by tokens of an issuer; None without an operator API.
        self.oidc: Oidc | None = None
        self._app: ReplaceableApp | None = None
        self._forwarder: Forwarder | None = None
        self._servers: list[Stoppable] = []
        #: Socket of the API's port before the API serves; None: opened when the API serves.
        self._reserved: socket.socket | None = None

    def reserve(self) -> None:
        """Accept connections to the port, which are answered once the API serves.

        Commands that are typed while VMs are served already then wait for the API.

        Raises:
            OperatorAddressUnusable: the address is malformed or in use.
        """
        from forewarn_server.api.listener import OPERATOR, UNIX, open_listener, taken  # noqa: PLC0415

        address = self._service.settings.listen.operator
        if not address or address.startswith(UNIX):
            return
        listener = open_listener(address)
        try:
            listener.listen(RESERVED_MAX)
        except OSError as error:
            listener.close()
            raise taken(address, OPERATOR, error) from error
        self._reserved = listener

    def release(self) -> None:
        """Close the reserved port, unless the API serves there."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    @property
    def url(self) -> str:
        """URL of the operator API for other machines; empty: none."""
        configured, address = self._service.settings.operator.url, self.address
        if configured or not address or address.startswith(("unix:", "https:", "http:")):
            return configured or address
        return f"http://{address}"

    async def serve(self, control: ReadableControl) -> None:
        """Serve operators from a control plane.

        At a takeover it replaces the followed state: the addresses stay open, and waiting calls
        continue.
        """
        service = self._service
        if not service.settings.listen.operator:
            return
        serving, api, reports, outbox = await imported(
            "forewarn_server.api.server",
            "forewarn_server.api.app",
            "forewarn_server.api.driver_routes",
            "forewarn_server.api.outbox_routes",
        )
        from forewarn_server.api.routes import routes_of  # noqa: PLC0415 - VMs wait for none
        from forewarn_server.api.service_routes import process_routes  # noqa: PLC0415

        azure = await self._azure_api()
        app = api.build_app(
            control,
            service.store,
            forwarder=None if control.decides else self._forwarder,
            settings=service.settings,
            extra_routes=(
                *service.more_routes(),
                *(azure.every_route() if azure else ()),
                *routes_of(reports, service.drivers),
                *routes_of(outbox, lambda: service.outbox),
                *process_routes(
                    service.ended.set,
                    lambda: service.reload(),  # noqa: PLW0108 - it may be replaced
                ),
            ),
        )
        self.oidc = app.state.oidc
        if self._app is None:
            await self._open(serving, app)
            return
        if self._forwarder is not None:
            self._forwarder.end_with(app)
        self._app.replace(app)

    async def serve_followed(self, control: ReadableControl, active: ActiveProcess) -> None:
        """Serve operators from the followed state, and forward calls to the active process."""
        settings = self._service.settings
        if settings.listen.operator:
            (standby,) = await imported("forewarn_server.api.standby")
            self._forwarder = standby.Forwarder(active)
            await self.serve(control)

    async def serve_azure(self) -> None:
        """Serve Azure Resource Manager if it is configured and installed."""
        service = self._service
        azure = await self._azure_api()
        if azure is None:
            return
        served = await azure.start(service.control, service.store, service.settings)
        self._servers.append(served)
        service.certificates.note_expiry("azure", served.certificate)
        self.azure, self.azure_certificate = served.url, served.certificate

    async def _azure_api(self) -> FurtherApi | None:
        """Return Azure's API; None: it is not configured, or its package cannot be used."""
        if not self._service.settings.azure.listen:
            return None
        (apis,) = await imported("forewarn_server.api.further_apis")
        try:
            azure: FurtherApi = await asyncio.to_thread(apis.find_api, "azure")
        except (ExtensionMissing, ExtensionUnusable) as error:
            if not self.azure_problem:
                self.azure_problem = azure_problem(error)
                log.error("%s", self.azure_problem, extra={"action": "degraded"})  # noqa: TRY400 - the sentence says it
            return None
        return azure

    async def stop(self) -> None:
        """Stop serving operators, the newest server first."""
        while self._servers:
            await self._servers.pop().stop()

    async def _open(self, serving: Any, app: Any) -> None:  # noqa: ANN401 - a module, imported late
        """Open the addresses of the operator API."""
        service = self._service
        settings = service.settings
        served = self._app = serving.ReplaceableApp(app, self._peers())
        await self._open_local(serving, served)
        tls = service.certificates.load("operator", settings.operator)
        reserved, self._reserved = self._reserved, None
        server = await serving.start_operator(
            served, reserved or settings.listen.operator, settings.operator, tls=tls
        )
        self._servers.append(server)
        self.address = server.address.replace("http://", "https://") if tls else server.address

    async def _open_local(self, serving: Any, app: object) -> None:  # noqa: ANN401 - the same
        """Serve users of this machine at a Unix socket, if possible."""
        settings = self._service.settings
        address = settings.listen.local or self._default_socket()
        if not address:
            return
        try:
            server = await serving.start_operator(app, address, settings.operator)
        except CallerError as error:
            if settings.listen.local:
                raise
            log.warning("%s Set [listen] local.", error, extra={"action": error.code})
            return
        self._servers.append(server)
        self.local_address = server.address

    def _default_socket(self) -> str:
        """Return the default Unix socket for users of this machine."""
        settings, store = self._service.settings, Path(self._service.store.place)
        if settings.operator.open_on_loopback or not hasattr(socket, "SO_PEERCRED"):
            return ""
        if settings.listen.operator.startswith("unix:"):
            return ""
        if os.access(RUN_DIRECTORY, os.W_OK):
            return f"unix:{RUN_DIRECTORY / LOCAL_SOCKET}"
        return f"unix:{store.absolute().with_name(LOCAL_SOCKET)}" if store.is_file() else ""

    def _peers(self) -> dict[str, RelayEndpoint]:
        """Return the application that answers other processes of the same store."""
        service = self._service
        if not (service.store.shared and service.settings.feed.listen):
            return {}
        from forewarn_server.api.relay import RELAY_PATH, RelayEndpoint  # noqa: PLC0415 - if shared

        relayed = RelayEndpoint(
            service.bridge,
            lambda: service.feed,
            lambda: service.store.generation,
            token=service.lease_token,
        )
        return {RELAY_PATH: relayed}


def azure_problem(error: CallerError) -> str:
    """Return the sentence about Azure's API whose package cannot be used."""
    again = "A restart of the service tries again."
    return f"Azure Resource Manager is not served. {error.clause}. {again}"


async def cannot_reload() -> tuple[str, ...]:
    """Refuse to reload without a settings file."""
    raise ReloadUnavailable


async def imported(*modules: str) -> tuple[Any, ...]:
    """Import modules on a thread, so that VMs are served meanwhile."""
    return tuple([await asyncio.to_thread(importlib.import_module, name) for name in modules])
