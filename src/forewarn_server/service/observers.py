"""Observers of a service: metrics, and traces for OpenTelemetry.

The packages of an observer are imported only if the observer is configured. `telemetry/` defines
the observations.
"""

from __future__ import annotations

import asyncio
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from forewarn_base.errors import CallerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AsyncExitStack
    from types import ModuleType

    from forewarn_base.clock import Clock
    from forewarn_base.settings import Settings
    from forewarn_server.control.driver_calls import CallObserver, CallResult, DriverCall
    from forewarn_server.control.plane import ControlPlane
    from forewarn_server.control.run_loop import ControlLoop
    from forewarn_server.outbox.outbox import Outbox
    from forewarn_server.telemetry.endpoint import ServiceMetrics
    from forewarn_server.telemetry.otlp import OtlpTelemetry


class TelemetryMissing(CallerError):
    """Traces are configured, but their package is not installed."""

    code = "telemetry-missing"
    status = 501
    message = "[otlp] endpoint needs the package {package}, which is not installed."
    advice = "Install it, from a clone of Forewarn: pip install './forewarn[otel]'."


class Observers:
    """The observers of one service."""

    def __init__(self, metrics: ServiceMetrics | None, traces: OtlpTelemetry | None) -> None:
        self.metrics = metrics
        self.traces = traces
        self._of_calls: list[CallObserver] = [
            each.observe_call for each in (metrics, traces) if each is not None
        ]

    def observe_call(self, call: DriverCall, result: CallResult, duration_ms: int) -> None:
        """Call every observer for a driver's call."""
        for observe in self._of_calls:
            observe(call, result, duration_ms)

    def watch(
        self,
        find: Callable[[], Outbox | None],
        expiries: Mapping[str, float],
    ) -> None:
        """Include outbox and expiries of certificates at each scrape."""
        if self.metrics is not None:
            self.metrics.watch_outbox(find)
            self.metrics.watch_certificates(expiries)

    async def attach(
        self,
        control: ControlLoop,
        closing: AsyncExitStack,
        *,
        figures: Callable[[], Mapping[str, Mapping[str, int]]],
        lags: Callable[[], Mapping[str, int]],
    ) -> str:
        """Observe a control plane until `closing` ends; return the address of the metrics.

        Raises:
            OperatorAddressUnusable: the address of metrics is malformed or in use.
        """
        if self.traces is not None:
            control.on_committed.add(self.traces.committed)
            closing.push_async_callback(asyncio.to_thread, self.traces.stop)
        if self.metrics is None:
            return ""
        served = await self.metrics.start(control, figures=figures, lags=lags)
        closing.push_async_callback(served.stop)
        return served.address


async def make_observers(
    settings: Settings, plane: ControlPlane, *, clock: Clock, drivers: Iterable[str]
) -> Observers:
    """Return the configured observers, before the run loop starts.

    Raises:
        TelemetryMissing: a required package is not installed.
    """
    metrics: ServiceMetrics | None = None
    traces: OtlpTelemetry | None = None
    if settings.listen.metrics:
        module = await asyncio.to_thread(import_module, "forewarn_server.telemetry.endpoint")
        observers = partial(
            module.ServiceMetrics,
            plane,
            drivers=drivers,
            clock=clock,
            address=settings.listen.metrics,
        )
        metrics = await asyncio.to_thread(observers)
    if settings.otlp.endpoint:
        module = await traces_module()
        traces = module.OtlpTelemetry(settings.otlp.endpoint, plane, clock)
    return Observers(metrics, traces)


async def traces_module() -> ModuleType:
    """Import the sender of traces.

    Raises:
        TelemetryMissing: its package is not installed.
    """
    try:
        return await asyncio.to_thread(import_module, "forewarn_server.telemetry.otlp")
    except ModuleNotFoundError as missing:
        raise TelemetryMissing(package=missing.name) from missing
