"""Metrics with their present values, created for one scrape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

#: One value, or values by their labels.
Values: TypeAlias = float | Mapping[str, float] | Mapping[tuple[str, str], float]


def gauge(name: str, text: str, values: Values, *labels: str) -> Metric:
    """Return the gauge `forewarn_NAME` with its values."""
    return _family(GaugeMetricFamily, f"forewarn_{name}", text, values=values, labels=labels)


def counter(name: str, text: str, values: Values, *labels: str) -> Metric:
    """Return the counter `forewarn_NAME` with its values."""
    return _family(CounterMetricFamily, f"forewarn_{name}", text, values=values, labels=labels)


def _family(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    text: str,
    *,
    values: Values,
    labels: tuple[str, ...],
) -> Metric:
    if not isinstance(values, Mapping):
        return kind(name, text, value=values)
    family = kind(name, text, labels=labels)
    for words, number in values.items():
        family.add_metric([words] if isinstance(words, str) else words, number)
    return family
