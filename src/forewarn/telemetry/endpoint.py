"""Metrics of a process, put together: what is observed, what is asked at a scrape, and where.

Imported only where `[listen] metrics` has an address.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from forewarn.api.listener import METRICS
from forewarn.api.server import OperatorServer, start_operator
from forewarn.control.service_state import STANDBY
from forewarn.telemetry.commit_metrics import CommitMetrics
from forewarn.telemetry.control_snapshot import ControlSnapshot, service_states
from forewarn.telemetry.driver_metrics import DriverMetrics
from forewarn.telemetry.metadata_snapshot import (
    feed_families,
    metadata_families,
    node_families,
)
from forewarn.telemetry.outbox_snapshot import outbox_families
from forewarn.telemetry.scrape import ScrapeApp, new_registry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from prometheus_client.core import Metric

    from forewarn.clock import Clock
    from forewarn.control.engine import ControlEngine
    from forewarn.control.plane import ControlPlane
    from forewarn.outbox.outbox import Outbox

log = logging.getLogger("forewarn")


class ServiceMetrics:
    """The metrics of one service; read and updated on its event loop, but for calls and commits."""

    def __init__(
        self, plane: ControlPlane, *, drivers: Iterable[str], clock: Clock, address: str
    ) -> None:
        """Observe nothing yet; before the run loop starts."""
        self._registry = new_registry()
        self._commits = CommitMetrics(self._registry, plane)
        self._clock = clock
        self._address = address
        self._control: ControlEngine | None = None
        #: Called for each call of a driver.
        self.observe_call = DriverMetrics(self._registry, drivers).observe
        #: Further metrics, asked for at each scrape.
        self.sources: list[Callable[[], Awaitable[list[Metric]]]] = []

    async def start(
        self,
        control: ControlEngine,
        *,
        figures: Callable[[], Mapping[str, Mapping[str, int]]],
        lags: Callable[[], Mapping[str, int]],
    ) -> OperatorServer:
        """Observe a control plane from now on, and answer scrapes.

        Args:
            control: whose commits are counted.
            figures: gives those of metadata processes, by name.
            lags: gives how far each metadata node is behind.

        Raises:
            OperatorAddressUnusable: the address cannot be read or is taken.
        """
        self._control = control
        control.on_committed.add(self._commits.committed)

        async def metadata() -> list[Metric]:
            return metadata_families(figures()) + feed_families(lags())

        snapshot = ControlSnapshot(control, self._commits, self._clock)
        self.sources += [snapshot.families, metadata]
        return await _served(ScrapeApp(self._registry, self.sources), self._address)

    def watch_outbox(self, outbox: Outbox) -> None:
        """Include an outbox from now on."""

        async def destinations() -> list[Metric]:
            return outbox_families(await asyncio.to_thread(outbox.statuses), self._clock.now_ms())

        self.sources.append(destinations)

    def polled(self, groups: frozenset[str], age_ms: int) -> None:
        """Note which groups have asked, once a second; who did so before may not have seen all."""
        if self._control is not None and self._commits.awaits_polls and not age_ms:
            now_ms = self._clock.now_ms()
            self._control.read(lambda _: self._commits.seen(groups, now_ms))


async def start_node_metrics(
    address: str, figures: Callable[[], Mapping[str, int]], status: Callable[[], Mapping[str, int]]
) -> OperatorServer:
    """Answer scrapes of a metadata node.

    Raises:
        OperatorAddressUnusable: the address cannot be read or is taken.
    """

    async def metrics() -> list[Metric]:
        return metadata_families({"node": figures()}) + node_families(status())

    return await _served(ScrapeApp(new_registry(), [metrics]), address)


async def start_standby_metrics(address: str) -> OperatorServer:
    """Answer scrapes of a process that stands by: that it lives, and that it does.

    Raises:
        OperatorAddressUnusable: the address cannot be read or is taken.
    """

    async def metrics() -> list[Metric]:
        return [service_states(STANDBY)]

    return await _served(ScrapeApp(new_registry(), [metrics]), address)


async def _served(app: ScrapeApp, address: str) -> OperatorServer:
    server = await start_operator(app, address, purpose=METRICS)
    log.info("answering scrapes at %s", server.address, extra={"action": "metrics.started"})
    return server
