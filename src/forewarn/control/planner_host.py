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
    from collections.abc import Callable, Iterable

    from forewarn.clock import Clock
    from forewarn.control.plane import ControlPlane
    from forewarn.control.planning import Snapshot
    from forewarn.core.stimulus import Stimulus

log = logging.getLogger("forewarn.control")

#: Plans made at a time; the rest wait.
PLANNING_MAX = 1


class PlannerHost:
    """Takes snapshots on the loop's thread, and brings plans back through its inbox."""

    def __init__(
        self,
        plane: ControlPlane,
        clock: Clock,
        *,
        deliver: Callable[[PlanMade | PlanFailed], None],
        report: Callable[[Stimulus, str], None],
    ) -> None:
        """Plan for a plane; `deliver` is called on another thread, `report` on the loop's."""
        self._plane, self._clock = plane, clock
        self._deliver, self._report = deliver, report
        self._pool = ThreadPoolExecutor(PLANNING_MAX, thread_name_prefix="planner")
        #: Maintenances whose plan is being made.
        self._making: set[int] = set()

    def request(self, numbers: Iterable[int]) -> None:
        """Have plans made for maintenances that want one. On the loop's thread only."""
        for number in numbers:
            self._request(number)

    def take(self, made: PlanMade | PlanFailed) -> None:
        """Have a plan take force; if it cannot, another is made where one is wanted."""
        self._making.discard(made.maintenance)
        self._report(made, "planner")
        self._request(made.maintenance)

    def _request(self, number: int) -> None:
        maintenance = self._plane.state.maintenances.get(number)
        if maintenance is None or not maintenance.plan_wanted or number in self._making:
            return
        plane, now_ms = self._plane, self._clock.now_ms()
        taken = snapshot(
            plane.state, maintenance, topology=plane.fleet(), policy=plane.policy, now_ms=now_ms
        )
        self._making.add(number)
        self._pool.submit(self._make, taken)

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
