"""How long work took: written with the commit that ends it, loaded at a start. Source: F-9."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from forewarn_core.fleet.impact import Cause
from forewarn_core.planning.durations import SAMPLES_MAX, DurationSample
from forewarn_store.engine import Engine, Row, Transaction


def duration_rows(durations: Iterable[tuple[Cause, DurationSample]]) -> list[Row]:
    """Return the rows of the samples of one commit."""
    return [
        (each.operation, cause.value, json.dumps(each.labels), each.duration_s)
        for cause, each in durations
    ]


def loaded_durations(transaction: Transaction) -> list[tuple[Cause, DurationSample]]:
    """Return all samples, oldest first."""
    return [
        (Cause(cause), DurationSample(int(number), tuple(json.loads(str(labels))), int(seconds)))
        for number, cause, labels, seconds in transaction.rows("durations")
    ]


def trim_durations(engine: Engine, confirm: Callable[[], None]) -> int:
    """Delete the samples of each cause beyond the newest `SAMPLES_MAX`; return their number.

    `confirm` checks that this process is still the writer.
    """
    if not engine.rows("durations_over", most=SAMPLES_MAX):
        return 0
    confirm()
    with engine.writing() as transaction:
        return len(transaction.rows("duration_trim", most=SAMPLES_MAX))
