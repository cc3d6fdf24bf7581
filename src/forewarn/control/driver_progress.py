"""How often what a driver says of its progress is worth an entry of history.

What it says is cleaned in `driver_calls.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.stimulus import DriverProgressed

if TYPE_CHECKING:
    from forewarn.core.lifecycle import Operation
    from forewarn.drivers import Progress

#: Shortest time between two entries of one operation, in milliseconds.
BETWEEN_MS = 5000
#: An entry of work that has gone on for an hour is worth one after three more minutes, so that
#: their number grows with the logarithm of the time.
SHARE_OF_TIME = 20


class ProgressReports:
    """Decides which progress is reported; remembers the last time for each operation."""

    def __init__(self) -> None:
        """Have reported nothing."""
        #: Operation -> its attempt, and when it was last reported, ms since the epoch UTC.
        self._last: dict[int, tuple[int, int]] = {}

    def report(self, operation: Operation, said: Progress, now_ms: int) -> DriverProgressed | None:
        """Return the report of what was said; None if it is not new, or comes too soon."""
        percent = -1 if said.share is None else int(said.share * 100)
        number, attempt = operation.number, operation.attempt
        chosen = tuple(sorted(said.placements.items() - set(operation.placements)))
        if chosen:  # where a VM may be asked for soon cannot wait
            return DriverProgressed(number, attempt, said.text, percent, chosen)
        if said.done or said.failed or (not said.text and percent < 0):
            return None
        if (said.text, percent) == (operation.progress, operation.progress_percent):
            return None
        reported_attempt, reported_ms = self._last.get(number, (0, 0))
        apart_ms = max(BETWEEN_MS, (now_ms - operation.begun_ms) // SHARE_OF_TIME)
        if reported_attempt == attempt and 0 <= now_ms - reported_ms < apart_ms:
            return None
        self._last[number] = attempt, now_ms
        return DriverProgressed(number, attempt, said.text, percent)

    def forget(self, number: int) -> None:
        """Keep nothing of an operation that has ended."""
        self._last.pop(number, None)
