"""Reading maintenances, their plans and the hosts they have touched, ended ones too.

Nothing is written in here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.maintenance.records import Maintenance, MaintenancePlan, Target

if TYPE_CHECKING:
    from forewarn.store.reading import StoreReader

#: Maintenances on one page.
PAGE_MAX = 500
_NEWEST = (1 << 63) - 1


class MaintenanceReader:
    """Reads beside the writer, on any thread."""

    def __init__(self, reader: StoreReader) -> None:
        """Read from a store."""
        self._reader = reader

    def get(self, number: int) -> Maintenance | None:
        """Return a maintenance by its number."""
        return next(iter(self._reader.records(Maintenance, "maintenance", number=number)), None)

    def page(self, before: int = 0, limit: int = PAGE_MAX) -> list[Maintenance]:
        """Return maintenances with lower numbers, newest first; 0: from the newest."""
        return self._reader.records(
            Maintenance, "maintenances", before=before or _NEWEST, limit=limit
        )

    def plan(self, plan_id: str) -> MaintenancePlan | None:
        """Return a plan that is or was in force, by its id."""
        return next(iter(self._reader.records(MaintenancePlan, "plan", id=plan_id)), None)

    def targets(self, number: int) -> list[Target]:
        """Return the hosts that a maintenance has touched, by name."""
        return self._reader.records(Target, "targets_of", maintenance=number)
