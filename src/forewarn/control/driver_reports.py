"""What drivers say on its way to the record: how often it is worth an entry, and many at once.

What they say is cleaned in `driver_calls.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.stimulus import DriverProgressed, Reports

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.core.lifecycle import Operation
    from forewarn.core.stimulus import DriverReport, Stimulus
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


class DriverReportBatch:
    """Gathers what drivers say, so that calls which end together cost one transaction."""

    def __init__(self, commit: Callable[[Stimulus, str], None]) -> None:
        """Hold nothing; `commit` is given one driver's reports at once, and its name."""
        self._commit = commit
        self._reports: dict[str, list[DriverReport]] = {}

    def add(self, report: DriverReport, driver: str) -> None:
        """Take one report."""
        self._reports.setdefault(driver, []).append(report)

    def commit(self) -> list[int]:
        """Have them committed, each driver's in its order; return their operations."""
        taken, self._reports = self._reports, {}
        for driver, reports in taken.items():
            together = reports[0] if len(reports) == 1 else Reports(tuple(reports))
            self._commit(together, driver)
        return [report.operation for reports in taken.values() for report in reports]
