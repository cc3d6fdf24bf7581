"""The metrics of a process, and the HTTP endpoint for scrapes.

This module is imported only if `[listen] metrics` has an address.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from forewarn_base.clock import Clock
from forewarn_base.host_port import host_of_header, is_domain
from forewarn_base.log_format import dropped_lines
from forewarn_base.version import version
from forewarn_server.api.auth import is_loopback_address
from forewarn_server.api.listener import METRICS
from forewarn_server.api.server import OperatorServer, start_operator
from forewarn_server.control.driver_calls import CallResult, DriverCall, Verb
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.run_loop import ControlLoop
from forewarn_server.control.service_state import STANDBY
from forewarn_server.outbox.outbox import Outbox
from forewarn_server.telemetry.commit_metrics import CommitMetrics
from forewarn_server.telemetry.control_snapshot import ControlSnapshot, service_states
from forewarn_server.telemetry.families import counter, gauge
from forewarn_server.telemetry.metadata_snapshot import (
    client_families,
    feed_families,
    metadata_families,
    node_families,
)
from forewarn_server.telemetry.outbox_snapshot import outbox_families

Scope: TypeAlias = MutableMapping[str, Any]

log = logging.getLogger("forewarn")
PATH = "/metrics"
#: Upper limits of the buckets, in seconds: by default, a call may take 60 s.
BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class ServiceMetrics:
    """The metrics of one service, used on its event loop, except for driver calls and commits."""

    def __init__(
        self, plane: ControlPlane, *, drivers: Iterable[str], clock: Clock, address: str
    ) -> None:
        """Create the metrics before the control loop starts."""
        self._registry = new_registry()
        self._commits = CommitMetrics(self._registry, plane)
        self._clock = clock
        self._address = address
        self._control: ControlLoop | None = None
        #: Callback for each call of a driver.
        self.observe_call = DriverMetrics(self._registry, drivers).observe
        #: Functions that return further metrics, called at each scrape.
        self.sources: list[Callable[[], Awaitable[list[Metric]]]] = []

    async def start(
        self,
        control: ControlLoop,
        *,
        figures: Callable[[], Mapping[str, Mapping[str, int]]],
        lags: Callable[[], Mapping[str, int]],
    ) -> OperatorServer:
        """Observe a control plane, and answer scrapes.

        Args:
            control: the control loop whose commits are counted.
            figures: function that returns the counters of metadata processes, by name.
            lags: function that returns the number of missing changes of each metadata node.

        Raises:
            OperatorAddressUnusable: the address is malformed or in use.
        """
        self._control = control
        control.on_committed.add(self._commits.committed)

        async def metadata() -> list[Metric]:
            polling = client_families(control.user_agents())
            return [*metadata_families(figures()), *polling, *feed_families(lags())]

        snapshot = ControlSnapshot(control, self._commits, self._clock)
        self.sources += [snapshot.families, metadata]
        return await _serve(ScrapeApp(self._registry, self.sources), self._address)

    def watch_outbox(self, find: Callable[[], Outbox | None]) -> None:
        """Include the metrics of the current outbox at each scrape."""

        async def destinations() -> list[Metric]:
            outbox = find()
            if outbox is None:
                return []
            return outbox_families(await asyncio.to_thread(outbox.statuses), self._clock.now_ms())

        self.sources.append(destinations)

    def watch_certificates(self, expiries: Mapping[str, float]) -> None:
        """Include the expiry times of certificates in use, by their sections of the settings."""

        async def certificates() -> list[Metric]:
            return [certificate_family(expiries)]

        self.sources.append(certificates)

    def polled(self, groups: frozenset[str], age_ms: int) -> None:
        """Record the groups that have polled, once a second; ignore earlier polls."""
        if self._control is not None and self._commits.awaits_polls and not age_ms:
            now_ms = self._clock.now_ms()
            self._control.read(lambda _: self._commits.seen(groups, now_ms))


async def start_node_metrics(
    address: str,
    *,
    figures: Callable[[], Mapping[str, int]],
    status: Callable[[], Mapping[str, int]],
    expiries: Mapping[str, float],
) -> OperatorServer:
    """Answer scrapes of a metadata node.

    Raises:
        OperatorAddressUnusable: the address is malformed or in use.
    """

    async def metrics() -> list[Metric]:
        families = metadata_families({"node": figures()}) + node_families(status())
        return [*families, certificate_family(expiries)]

    return await _serve(ScrapeApp(new_registry(), [metrics]), address)


async def start_standby_metrics(address: str) -> OperatorServer:
    """Answer scrapes of a standby process, with its state.

    Raises:
        OperatorAddressUnusable: the address is malformed or in use.
    """

    async def metrics() -> list[Metric]:
        return [service_states(STANDBY)]

    return await _serve(ScrapeApp(new_registry(), [metrics]), address)


async def _serve(app: ScrapeApp, address: str) -> OperatorServer:
    server = await start_operator(app, address, purpose=METRICS)
    log.info("answering scrapes at %s", server.address, extra={"action": "metrics.started"})
    return server


def new_registry() -> CollectorRegistry:
    """Return a registry with the metrics of every process: version, CPU, memory, files."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    Info("forewarn_build", "Version of Forewarn.", registry=registry).info({"version": version()})
    registry.register(DroppedLines())
    return registry


class DroppedLines(Collector):
    """The number of log lines that this process could not write."""

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        yield counter("log_lines_dropped", "Log lines that could not be written.", dropped_lines())


def certificate_family(expiries: Mapping[str, float]) -> Metric:
    """Return the metric of certificates' expiry times, by their sections of the settings."""
    text = "Expiry time of the certificate in use, by its section of the settings."
    return gauge("certificate_not_after_timestamp_seconds", text, expiries, "section")


class ScrapeApp:
    """Answers scrapes; an ASGI application."""

    def __init__(
        self, registry: CollectorRegistry, sources: Sequence[Callable[[], Awaitable[list[Metric]]]]
    ) -> None:
        """Set the registry, and the sources of further metrics at each scrape."""
        self._registry = registry
        self._sources = sources

    async def __call__(
        self,
        scope: Scope,
        _receive: object,
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer one request."""
        status, media, body = 404, "text/plain", b"Ask for /metrics.\n"
        if scope["path"] == PATH:
            status, body = 405, b"Only GET is answered.\n"
        if _is_rebound(scope):
            status, body = 400, b"Address this machine as localhost.\n"
        elif scope["path"] == PATH and scope["method"] in {"GET", "HEAD"}:
            accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
            status, (media, body) = 200, await self._exposition(accept)
        headers = [(b"content-type", media.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _exposition(self, accept: str) -> tuple[str, bytes]:
        families = [family for source in self._sources for family in await source()]
        encode, media = choose_encoder(accept)
        body = await asyncio.to_thread(encode, _Families(self._registry, families))
        return media, body


def _is_rebound(scope: Scope) -> bool:
    """Whether a page of another site reaches a loopback address by its own domain name."""
    host = host_of_header(dict(scope["headers"]).get(b"host", b"").decode("latin-1"))
    server, _ = scope.get("server") or ("", 0)
    return is_domain(host) and is_loopback_address(server)


class _Families:
    """A registry and further metrics, with the interface for encoders."""

    def __init__(self, registry: CollectorRegistry, more: list[Metric]) -> None:
        self._registry = registry
        self._more = more

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()
        yield from self._more


class DriverMetrics:
    """Observes drivers' calls; the labels are the names of drivers in the settings."""

    def __init__(self, registry: CollectorRegistry, drivers: Iterable[str]) -> None:
        """Start with counters at zero."""
        self._calls = Counter(
            "forewarn_driver_calls",
            "Calls of drivers that returned or timed out, by verb and result.",
            ("driver", "verb", "result"),
            registry=registry,
        )
        self._seconds = Histogram(
            "forewarn_driver_call_seconds",
            "Duration of drivers' calls.",
            ("driver", "verb"),
            buckets=BUCKETS_S,
            registry=registry,
        )
        for driver in drivers:  # so that Prometheus records the first increase
            for verb in Verb:
                for result in CallResult:
                    self._calls.labels(driver, verb.value, result.value)

    def observe(self, call: DriverCall, result: CallResult, duration_ms: int) -> None:
        """Count a call."""
        self._calls.labels(call.driver, call.verb.value, result.value).inc()
        self._seconds.labels(call.driver, call.verb.value).observe(duration_ms / 1000)
