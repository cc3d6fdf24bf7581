"""Reads maintenances, including ended ones, with their plans and hosts."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn_base.values import Word, value
from forewarn_core.fleet.maintenance import Maintenance, MaintenancePlan
from forewarn_store.reading import StoreReader

#: Maximum number of maintenances on one page.
PAGE_MAX = 500
_NEWEST = (1 << 63) - 1


class HostState(Word):
    """The state of a maintenance's work on a host."""

    ANNOUNCED = "announced"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@value
class HostWork:
    """A maintenance's work on a host. Times are ms since the epoch UTC; 0: none."""

    host: str
    wave: int
    #: Number of the work's operation.
    operation: int
    state: HostState
    announced_ms: int
    started_ms: int
    ended_ms: int
    #: Reason of the work's failure.
    reason: str


class MaintenanceReader:
    """Reads maintenances in parallel to the writer, on any thread."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader

    def get(self, number: int) -> Maintenance | None:
        """Return a maintenance by its number."""
        return next(iter(self._reader.records(Maintenance, "maintenance", number=number)), None)

    def page(self, before: int = 0, limit: int = PAGE_MAX) -> list[Maintenance]:
        """Return maintenances with numbers below `before`, newest first; 0: no limit."""
        return self._reader.records(
            Maintenance, "maintenances", before=before or _NEWEST, limit=limit
        )

    def plan(self, plan_id: str) -> MaintenancePlan | None:
        """Return a current or former plan by its id."""
        return next(iter(self._reader.records(MaintenancePlan, "plan", id=plan_id)), None)

    def counts(self, number: int) -> Mapping[HostState, int]:
        """Return the number of a maintenance's hosts by state; O(hosts with work)."""
        rows = self._reader.rows("maintenance_counts", maintenance=number)
        return {HostState(str(state)): int(count) for state, count in rows}

    def work(self, number: int) -> list[HostWork]:
        """Return a maintenance's work on each host, ordered by the host's name."""
        rows = self._reader.rows("maintenance_work", maintenance=number)
        return [
            HostWork(
                str(host),
                int(wave),
                int(operation),
                HostState(str(state)),
                int(announced_ms or 0),
                int(started_ms or 0),
                int(ended_ms),
                str(reason),
            )
            for host, wave, operation, state, announced_ms, started_ms, ended_ms, reason in rows
        ]
