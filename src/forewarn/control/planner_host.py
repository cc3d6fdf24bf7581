"""Has plans made and gates of maintenances checked beside the writer, which never waits for one.

What a plan is made from is in `planning.py`, the process that makes a large one in
`planner_process.py`; whether it takes force is decided in the core.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from forewarn.control.inbox import Stopping
from forewarn.control.planner_process import APART_MIN
from forewarn.core.maintenance.stimuli import GateFailed, GatePassed, PlanFailed, PlanMade
from forewarn.errors import ForewarnError
from forewarn.values import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forewarn.clock import Clock
    from forewarn.control.driver_setup import DriverSetup
    from forewarn.control.inbox import Inbox
    from forewarn.control.plane import ControlPlane, StateView
    from forewarn.control.planning import PlannerTask
    from forewarn.control.replica import StateReplica
    from forewarn.core.maintenance.records import Maintenance, MaintenancePlan
    from forewarn.core.maintenance.stimuli import CreateMaintenance, PlannerReport
    from forewarn.core.stimulus import Stimulus

log = logging.getLogger("forewarn.control")

#: What a plan may take of what the one before took, in hundredths, and at most, in ms: VMs are
#: notified of its first wave so much earlier, else none of its hosts could have its whole notice.
ALLOWED_PERCENT, ALLOWED_MS_MAX = 150, 4 * 3600 * 1000
#: Planning that takes no longer than this needs no time of its own, in ms.
SHORT_MS = 20_000


class PlannerHost:
    """Has plans made as of the commit that wants them, and brings them back through the inbox."""

    def __init__(
        self,
        plane: ControlPlane,
        clock: Clock,
        setup: DriverSetup,
        *,
        inbox: Inbox,
        replica: StateReplica,
        report: Callable[[Stimulus, str], None],
    ) -> None:
        """Plan for a plane; what is made comes back through `inbox`, and is taken by `report`.

        A large fleet is read on the thread of the `replica`: the writer would take a fifth of a
        second for a million VMs, to copy it, and each poll as long.
        """
        self._plane, self._clock = plane, clock
        self._inbox, self._replica, self._report = inbox, replica, report
        self._executor, self._gates = setup.executor, setup.gates
        self._planner = setup.planner
        #: Maintenances whose gate is being checked.
        self._checking: set[int] = set()
        #: Maintenance whose plan is being made, 0: none; and those that wait for it to be made.
        self._making = 0
        self._waiting: deque[int] = deque()
        #: When that was begun, ms since the epoch UTC, and how long the last plan took, in ms.
        self._begun_ms = self._took_ms = 0

    def request(self, numbers: Iterable[int]) -> None:
        """Have plans made for maintenances that want one, one at a time. On the loop's thread."""
        for number in numbers:
            if self._wants_gate(number):
                self._begin_check(number)
            elif number not in self._waiting:
                self._waiting.append(number)
        while self._waiting and not self._making:
            self._begin(self._waiting.popleft())

    def check(self, stimulus: CreateMaintenance) -> None:
        """Refuse a maintenance that names a gate nobody has.

        Raises:
            GateUnknown: it does.
        """
        if stimulus.gate and stimulus.gate not in self._gates:
            from forewarn.control.gate_checks import GateUnknown  # noqa: PLC0415 - seldom

            raise GateUnknown(name=stimulus.gate, known=", ".join(self._gates) or "none")

    def make(self, task: PlannerTask) -> MaintenancePlan:
        """Make a plan and return it; on any thread that may take so long.

        Raises:
            ForewarnError: it cannot be made, or breaks a rule.
        """
        from forewarn.control.planning import made  # noqa: PLC0415 - loaded by now

        return (self._planner or made)(task)

    def take(self, made: PlannerReport) -> None:
        """Have a plan take force, or a gate decide."""
        if isinstance(made, GatePassed | GateFailed):
            self._checking.discard(made.maintenance)
            self._report(made, "gate")
        else:
            self._making = 0
            self._took_ms = self._clock.now_ms() - self._begun_ms
            self._report(made, "planner")
        self.request(())

    def decided(self, stimulus: Stimulus) -> None:
        """Make what is wanted now, if that was one of these reports.

        Not before: what the store would not take is kept, and more would be made for as long.
        """
        if isinstance(stimulus, PlanMade | PlanFailed | GatePassed | GateFailed):
            self.request((stimulus.maintenance,))

    def _begin(self, number: int) -> None:
        maintenance = self._plane.state.maintenances.get(number)
        # No plan takes force before a gate has decided, which waits for a pause to end. F-5, F-6.
        if maintenance is None or not maintenance.plan_wanted or maintenance.gate_wanted:
            return
        self._making, self._begun_ms = number, self._clock.now_ms()
        allowed_ms = min(self._took_ms * ALLOWED_PERCENT // 100, ALLOWED_MS_MAX)
        planning_ms = allowed_ms if allowed_ms > SHORT_MS else 0
        take = partial(_taken, maintenance, self._begun_ms, planning_ms)
        topology = self._plane.state.topology
        if len(topology.hosts) + len(topology.vms) < APART_MIN:
            task = take(self._plane)
            self._executor.submit(partial(self._make, maintenance, lambda: task))
        else:
            self._executor.submit(partial(self._make, maintenance, self._replica.read(take).result))

    def _wants_gate(self, number: int) -> bool:
        maintenance = self._plane.state.maintenances.get(number)
        return maintenance is not None and maintenance.running and maintenance.gate_wanted

    def _begin_check(self, number: int) -> None:
        if number not in self._checking:
            self._checking.add(number)
            name = self._plane.state.maintenances[number].gate
            self._executor.submit(partial(self._check, number, name))

    def _check(self, number: int, name: str) -> None:
        """Check a gate, on another thread; one that is no longer in the settings fails."""
        from forewarn.control.gate_checks import run_gate  # noqa: PLC0415 - seldom

        gate = self._gates.get(name)
        try:
            silent = partial(self._silent, number)
            problem = run_gate(gate, f"m-{number}", silent) if gate else f"there is no gate {name}"
        except Stopping:
            return  # the next start checks again
        except Exception:
            log.exception("gate %s of m-%s failed by a bug", name, number)
            problem = f"gate {name} has a bug; see the log of the service"
        self._inbox.put(GateFailed(number, problem) if problem else GatePassed(number))

    def _silent(self, number: int) -> tuple[str, ...]:
        now_ms = self._clock.now_ms()
        return self._inbox.read(lambda plane: plane.silent_groups(number, now_ms)).result()

    def _make(self, maintenance: Maintenance, task: Callable[[], PlannerTask]) -> None:
        from forewarn.control.planning import plan_made  # noqa: PLC0415 - loaded by now

        number = maintenance.number
        try:
            made: PlanMade | PlanFailed = plan_made(task(), self.make)
        except Stopping:
            return  # the next start has it made again
        except ForewarnError as error:
            log.error("%s %s", error, error.advice_text(), extra={"action": error.code})  # noqa: TRY400
            made = PlanFailed(number, str(error))
        except Exception:
            log.exception("planning of m-%s failed by a bug", number)
            made = PlanFailed(number, "the planner has a bug; see the log of the service")
        self._inbox.put(made)


def _taken(maintenance: Maintenance, now_ms: int, planning_ms: int, view: StateView) -> PlannerTask:
    """Return what a plan is made from; on the thread that owns the view."""
    # The planner is loaded with the first plan: many a service never makes one.
    from forewarn.control.planning import snapshot, task_of  # noqa: PLC0415

    taken = snapshot(view.state, maintenance, policy=view.policy, now_ms=now_ms)
    return task_of(replace(taken, planning_ms=planning_ms))
