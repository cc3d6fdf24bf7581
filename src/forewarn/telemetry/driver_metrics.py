"""Counts and durations of drivers' calls, as the control plane sees them; no operation is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram

from forewarn.control.driver_calls import CallResult, Verb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry

    from forewarn.control.driver_calls import DriverCall

#: Upper ends of the buckets, in seconds: a call may take 60 s unless the settings say otherwise.
BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class DriverMetrics:
    """Observes calls; their labels are the names of the settings' drivers."""

    def __init__(self, registry: CollectorRegistry, drivers: Iterable[str]) -> None:
        """Count none yet."""
        self._calls = Counter(
            "forewarn_driver_calls",
            "Calls of drivers that ended or were given up, by verb and result.",
            ("driver", "verb", "result"),
            registry=registry,
        )
        self._seconds = Histogram(
            "forewarn_driver_call_seconds",
            "How long calls of drivers took.",
            ("driver", "verb"),
            buckets=BUCKETS_S,
            registry=registry,
        )
        for driver in drivers:  # what is there from the start has an increase from nothing
            for verb in Verb:
                for result in CallResult:
                    self._calls.labels(driver, verb.value, result.value)

    def observe(self, call: DriverCall, result: CallResult, duration_ms: int) -> None:
        """Count a call."""
        self._calls.labels(call.driver, call.verb.value, result.value).inc()
        self._seconds.labels(call.driver, call.verb.value).observe(duration_ms / 1000)
