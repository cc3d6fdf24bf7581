"""Metrics of the outbox by destination; the labels are names from the settings only."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.core import Metric

from forewarn_server.outbox.delivery import DeliveryState
from forewarn_server.outbox.outbox import DestinationStatus
from forewarn_server.telemetry.families import counter, gauge


def outbox_families(statuses: Sequence[DestinationStatus], now_ms: int) -> list[Metric]:
    """Return the metrics of all destinations."""

    def of(name: str) -> dict[str, float]:
        return {each.name: getattr(each, name) for each in statuses}

    label, state_text = "destination", "1 for the current state of a destination, 0 for others."
    states = {(d.name, each.value): each is d.state for d in statuses for each in DeliveryState}
    ages_s = {each.name: each.behind_ms / 1000 for each in statuses}
    failing_s = {
        each.name: (now_ms - each.failing_since_ms) / 1000 if each.failing_since_ms else 0
        for each in statuses
    }
    failing_text = "Duration of the current failures; 0: none."
    return [
        gauge("outbox_lag_entries", "Undelivered entries of history.", of("behind"), label),
        gauge("outbox_lag_seconds", "Age of the oldest undelivered entry.", ages_s, label),
        gauge("outbox_failing_seconds", failing_text, failing_s, label),
        counter("outbox_sent", "Events delivered.", of("sent"), label),
        counter("outbox_failures", "Failed attempts of delivery.", of("failures"), label),
        gauge("outbox_state", state_text, states, label, "state"),
    ]
