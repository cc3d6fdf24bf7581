"""Makes the plans of maintenances on a thread of its own, so that the writer never waits for one.

What a plan is made from is in `planning.py`; whether it takes force is decided in the core.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from forewarn.control.planning import planned_from, snapshot
from forewarn.core.maintenance.stimuli import PlanFailed, PlanMade
from forewarn.errors import ForewarnError

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.control.plane import ControlPlane
    from forewarn.control.planning import Snapshot

log = logging.getLogger("forewarn.control")

#: Plans made at a time; the rest wait.
PLANNING_MAX = 1


class PlannerHost:
    """Takes snapshots on the loop's thread, and brings plans back through its inbox."""

    def __init__(
        self, plane: ControlPlane, deliver: Callable[[PlanMade | PlanFailed], None]
    ) -> None:
        """Plan for a plane; `deliver` may be called on any thread."""
        self._plane, self._deliver = plane, deliver
        self._pool = ThreadPoolExecutor(PLANNING_MAX, thread_name_prefix="planner")
        #: Maintenances whose plan is being made.
        self._making: set[int] = set()

    def request(self, number: int, now_ms: int) -> None:
        """Have a plan made for a maintenance; once at a time. On the loop's thread only."""
        maintenance = self._plane.state.maintenances.get(number)
        if maintenance is None or not maintenance.plan_wanted or number in self._making:
            return
        plane = self._plane
        taken = snapshot(
            plane.state, maintenance, topology=plane.fleet(), policy=plane.policy, now_ms=now_ms
        )
        self._making.add(number)
        self._pool.submit(self._make, taken)

    def ended(self, number: int) -> None:
        """Note that a plan has come back. On the loop's thread only."""
        self._making.discard(number)

    def stop(self) -> None:
        """Take no more; what is being made is lost, and made again after the next start."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _make(self, taken: Snapshot) -> None:
        number = taken.maintenance.number
        try:
            made: PlanMade | PlanFailed = PlanMade(number, planned_from(taken))
        except ForewarnError as error:
            log.error("%s %s", error, error.advice_text(), extra={"action": error.code})  # noqa: TRY400
            made = PlanFailed(number, str(error))
        except Exception:
            log.exception("planning of m-%s failed by a bug", number)
            made = PlanFailed(number, "the planner has a bug; see the log of the service")
        self._deliver(made)
