"""Reading maintenances, their plans and the hosts they have touched, ended ones too.

Nothing is written in here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.maintenance.records import Maintenance, MaintenancePlan, Target

if TYPE_CHECKING:
    from forewarn.store.engine import Engine
    from forewarn.store.reading import StoreReader

#: Maintenances on one page.
PAGE_MAX = 500
_NEWEST = (1 << 63) - 1


class MaintenanceReader:
    """Reads beside the writer, on any thread."""

    def __init__(self, engine: Engine, reader: StoreReader) -> None:
        """Read from an engine whose schema is up to date."""
        self._engine, self._reader = engine, reader

    def get(self, number: int) -> Maintenance | None:
        """Return a maintenance by its number."""
        with self._engine.reading() as transaction:
            rows = transaction.rows("maintenance", number=number)
        return next(iter(self._reader.decoded(Maintenance, rows)), None)

    def page(self, before: int = 0, limit: int = PAGE_MAX) -> list[Maintenance]:
        """Return maintenances with lower numbers, newest first; 0: from the newest."""
        with self._engine.reading() as transaction:
            rows = transaction.rows("maintenances", before=before or _NEWEST, limit=limit)
        return self._reader.decoded(Maintenance, rows)

    def plan(self, plan_id: str) -> MaintenancePlan | None:
        """Return a plan that is or was in force, by its id."""
        with self._engine.reading() as transaction:
            rows = transaction.rows("plan", id=plan_id)
        return next(iter(self._reader.decoded(MaintenancePlan, rows)), None)

    def targets(self, number: int) -> list[Target]:
        """Return the hosts that a maintenance has touched, by name."""
        with self._engine.reading() as transaction:
            rows = transaction.rows("targets_of", maintenance=number)
        return self._reader.decoded(Target, rows)
