"""Metrics of the outbox by destination; the labels are names from the settings only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from forewarn.outbox.delivery import DeliveryState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client.core import Metric

    from forewarn.outbox.outbox import DestinationStatus


def outbox_families(statuses: Sequence[DestinationStatus], now_ms: int) -> list[Metric]:
    """Return the metrics of all destinations."""
    label = ["destination"]
    lag = GaugeMetricFamily(
        "forewarn_outbox_lag_entries", "Undelivered entries of history.", labels=label
    )
    age = GaugeMetricFamily(
        "forewarn_outbox_lag_seconds", "Age of the oldest undelivered entry.", labels=label
    )
    failing = GaugeMetricFamily(
        "forewarn_outbox_failing_seconds",
        "Duration of the current failures; 0: none.",
        labels=label,
    )
    sent = CounterMetricFamily("forewarn_outbox_sent", "Events delivered.", labels=label)
    failures = CounterMetricFamily(
        "forewarn_outbox_failures", "Failed attempts of delivery.", labels=label
    )
    states = GaugeMetricFamily(
        "forewarn_outbox_state",
        "1 for the current state of a destination, 0 for others.",
        labels=[*label, "state"],
    )
    for each in statuses:
        lag.add_metric([each.name], each.behind)
        age.add_metric([each.name], each.behind_ms / 1000)
        since_ms = each.failing_since_ms
        failing.add_metric([each.name], (now_ms - since_ms) / 1000 if since_ms else 0)
        sent.add_metric([each.name], each.sent)
        failures.add_metric([each.name], each.failures)
        for state in DeliveryState:
            states.add_metric([each.name, state.value], int(state is each.state))
    return [lag, age, failing, sent, failures, states]
