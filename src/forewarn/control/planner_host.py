"""Makes the plans of maintenances on a thread of its own, so that the writer never waits for one.

What a plan is made from is in `planning.py`; whether it takes force is decided in the core.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from forewarn.control.planning import planned_from, snapshot
from forewarn.core.maintenance.stimuli import PlanFailed, PlanMade
from forewarn.errors import ForewarnError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forewarn.clock import Clock
    from forewarn.control.driver_calls import Executor
    from forewarn.control.plane import ControlPlane
    from forewarn.control.planning import Snapshot
    from forewarn.core.stimulus import Stimulus

log = logging.getLogger("forewarn.control")


class PlannerHost:
    """Takes snapshots on the loop's thread, and brings plans back through its inbox."""

    def __init__(
        self,
        plane: ControlPlane,
        clock: Clock,
        executor: Executor,
        *,
        deliver: Callable[[PlanMade | PlanFailed], None],
        report: Callable[[Stimulus, str], None],
    ) -> None:
        """Plan for a plane; `deliver` is called on another thread, `report` on the loop's."""
        self._plane, self._clock = plane, clock
        self._deliver, self._report = deliver, report
        self._executor = executor
        #: Maintenance whose plan is being made, 0: none; and those that wait for it to be made.
        self._making = 0
        self._waiting: deque[int] = deque()

    def request(self, numbers: Iterable[int]) -> None:
        """Have plans made for maintenances that want one, one at a time. On the loop's thread."""
        self._waiting.extend(number for number in numbers if number not in self._waiting)
        while self._waiting and not self._making:
            self._begin(self._waiting.popleft())

    def take(self, made: PlanMade | PlanFailed) -> None:
        """Have a plan take force; if it cannot, another is made where one is wanted."""
        self._making = 0
        self._report(made, "planner")
        self.request((made.maintenance,))

    def _begin(self, number: int) -> None:
        maintenance = self._plane.state.maintenances.get(number)
        if maintenance is None or not maintenance.plan_wanted:
            return
        plane, now_ms = self._plane, self._clock.now_ms()
        taken = snapshot(
            plane.state, maintenance, topology=plane.fleet(), policy=plane.policy, now_ms=now_ms
        )
        self._making = number
        self._executor.submit(partial(self._make, taken))

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
