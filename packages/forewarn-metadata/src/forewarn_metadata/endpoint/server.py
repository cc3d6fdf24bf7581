"""The metadata service as one object: start and stop.

Other modules read requests and the command line.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence

from forewarn_base.clock import Clock, SystemClock
from forewarn_base.ids import Ids
from forewarn_base.settings import MetadataSettings
from forewarn_metadata.endpoint.http import addresses
from forewarn_metadata.endpoint.http.addresses import bind_clients
from forewarn_metadata.endpoint.http.asyncio_transport import AsyncioTransport
from forewarn_metadata.endpoint.http.epoll_transport import EpollTransport
from forewarn_metadata.endpoint.responder import NOT_EMULATED, EmulatedAnswers
from forewarn_metadata.endpoint.service import MetadataService
from forewarn_metadata.replication.messages import Upstream

#: Interval at which a process without a control plane checks for steps of the system's clock.
STEP_LOOK_S = 60.0
#: Time limit of running answers after a stop, in seconds.
STOP_S = 0.8


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop for a process that mostly serves VMs."""
    if sys.platform != "linux":
        return asyncio.new_event_loop()
    from forewarn_metadata.endpoint.http.event_loop import PollingEventLoop  # noqa: PLC0415  Linux only

    return PollingEventLoop()


def follow_clock_steps(clock: SystemClock) -> None:
    """Apply steps of the system's clock at once, because only the Date header uses this clock."""
    clock.adopt()
    asyncio.get_running_loop().call_later(STEP_LOOK_S, follow_clock_steps, clock)


class MetadataServer:
    """Serves documents on any number of addresses. Use it on one event loop only."""

    def __init__(
        self,
        settings: MetadataSettings,
        upstream: Upstream,
        *,
        clock: Clock,
        ids: Ids | None = None,
        on_pause: Callable[[], object] = lambda: None,
        emulated: EmulatedAnswers = NOT_EMULATED,
        portable: bool = sys.platform != "linux",
    ) -> None:
        """Create a server without sockets, which `start` opens; see `MetadataService`."""
        self._settings = settings
        self._upstream = upstream
        self._clock = clock
        self._ids = ids or Ids()
        self._on_pause = on_pause
        self._emulated = emulated
        self._portable = portable
        self._service: MetadataService | None = None
        self._transport: EpollTransport | AsyncioTransport | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, listen: Sequence[str], *, shared: int = 0) -> tuple[str, ...]:
        """Listen on these addresses; return the actual ones.

        Args:
            listen: `IPV4:PORT`, `IPV4%INTERFACE:PORT`, `[IPV6]:PORT` or `unix:PATH`; port 0 selects
            a free port.
            shared: Number of processes on the same ports; 0: only this process.

        Raises:
            AddressInvalid: an address is malformed; nothing was opened.
            AddressUnavailable: the system refuses an address; all sockets are closed.
        """
        service = self.service
        wanted = [addresses.parse(text) for text in listen]
        opened: list[addresses.Listener] = []
        try:
            for address in wanted:
                listener = addresses.open_listener(address, shared=shared > 0)
                opened.append(listener)
                if shared > 1 and self._counts_addresses and not address.is_unix:
                    bind_clients(listener.sock, shared)
            if shared > 1 and self._counts_addresses:
                service.responder.limit.shared = shared
        except BaseException:
            for listener in opened:
                listener.close()
            raise
        transport = self._transport = self._new_transport(service)
        for listener in opened:
            await transport.listen(listener)
        self._timer = service.loop.call_later(1.0, self._second)
        return tuple(str(listener.address) for listener in opened)

    @property
    def service(self) -> MetadataService:
        """The shared state of all connections, created on the event loop by the first use.

        Callers may use the state before `start`, so that the service has VMs when it begins to
        listen.
        """
        if self._service is None:
            self._service = MetadataService(
                self._settings,
                self._upstream,
                clock=self._clock,
                ids=self._ids,
                on_pause=self._on_pause,
                emulated=self._emulated,
            )
        return self._service

    def leave_shared(self) -> None:
        """Stop listening on ports that other processes share; open connections stay."""
        if self._transport is not None:
            self._transport.stop_listening(shared_only=True)

    def figures(self) -> dict[str, int]:
        """Return the server's counters and current numbers; empty before the start."""
        service = self._service
        if service is None:
            return {}
        return {
            **service.responder.figures.counts(),
            "connections": len(service.connections),
            "vms": service.responder.callers.count,
        }

    def user_agents(self) -> Mapping[str, int]:
        """Return the number of VMs that polled within a day, by client. Source: B-5."""
        return self._service.user_agents if self._service else {}

    async def stop(self) -> None:
        """Stop accepting, answer received requests and close, within a second."""
        service, transport = self._service, self._transport
        if service is None or transport is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        service.stopping = True
        transport.stop_listening()
        transport.drain()
        if service.connections:
            service.emptied = service.loop.create_future()
            await asyncio.wait([service.emptied], timeout=STOP_S)
        for connection in service.connections:
            connection.abandon()
        await asyncio.sleep(0)  # let transports report their close
        transport.close()
        service.last_polls()
        self._service = self._transport = None

    @property
    def _counts_addresses(self) -> bool:
        """Return whether rate limits apply per address; VMs behind a proxy share an address.

        S-6.
        """
        return self._settings.rate_per_s > 0 and not self._settings.proxy_addresses

    def _new_transport(self, service: MetadataService) -> EpollTransport | AsyncioTransport:
        if self._portable:
            from forewarn_metadata.endpoint.http.asyncio_transport import AsyncioTransport  # noqa: PLC0415  asked for only

            return AsyncioTransport(service)
        from forewarn_metadata.endpoint.http.epoll_transport import EpollTransport  # noqa: PLC0415  Linux only

        return EpollTransport(service)

    def _second(self) -> None:
        service = self.service
        self._timer = service.loop.call_later(1.0, self._second)
        service.second()
