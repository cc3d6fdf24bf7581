"""Where a simulated process has its drivers called, its plans made and its gates checked.

A driver is called at once. A plan is the product's own, made from what was true when it was asked
for, and comes back later; so does what a gate finds, which looks at polls or is drawn.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol

from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.policy import AppliedPolicy
from forewarn_core.fleet.stimulus import GateFailed, GatePassed, HostRejected, HostValidated
from forewarn_server.control.gate_checks import POLL_GATE_TRIES, Gate, run_gate
from forewarn_server.control.planner_host import PlannerHost
from tests.simulator.world.control_process import SimulatedControl
from tests.simulator.world.crash_points import NeverReturns, Violation
from tests.simulator.world.dice import Dice
from tests.simulator.world.event_queue import MINUTE_MS, SECOND_MS, EventQueue

#: How often in a thousand a plan takes long.
SLOW_PERMILLE = 100
#: Least time between two plans of a maintenance that waits, by any clock.
PACED_MS = 50_000
#: Plans in a row for a maintenance that stays as it is: after each loss of a commit, of which a bad
#: time of the store has at most two hundred. One that can take no force would be made for ever.
SAME_PLANS_MAX = 300


class InlineExecutor:
    """Makes each call at once, on the thread that asks for it; some never return."""

    def submit(self, work: Callable[[], None]) -> None:
        """Do some work."""
        with suppress(NeverReturns):
            work()


class Findings(Protocol):
    """Who knows what gates find, and hears of it."""

    @property
    def gates(self) -> Mapping[str, Gate]:
        """The gates of the settings."""

    def gate_finds(self) -> str:
        """Return what a gate finds that nothing else decides: why it fails, or nothing."""

    def gate_answers(
        self, service: SimulatedControl, number: int, gate: Gate, *, passes: bool
    ) -> None:
        """A gate is about to say what it found."""

    def validated(self, operation: Operation) -> None:
        """A host has passed its validation, and is about to be reported."""


class SideWork(InlineExecutor):
    """Calls drivers at once; plans and checks come back when some time has passed."""

    def __init__(
        self, service: SimulatedControl, queue: EventQueue, *, dice: Dice, findings: Findings
    ) -> None:
        """Work beside one process; `findings` has what is drawn of gates."""
        self._service, self._queue, self._dice = service, queue, dice
        self._findings = findings
        #: Number of a maintenance -> what the last plan was made for, when, and how often in a row.
        self._planned: dict[int, tuple[object, int, int]] = {}

    def submit(self, work: Callable[[], None]) -> None:
        """Do some work; what a process that has ended reports is lost with it."""
        host = getattr(getattr(work, "func", None), "__self__", None)
        if not isinstance(host, PlannerHost):
            super().submit(work)
            return
        assert isinstance(work, partial)
        if isinstance(work.args[0], Operation):
            delay_ms = self._dice.between(SECOND_MS, 10 * MINUTE_MS)
            self._later(delay_ms, partial(self._validate, work.args[0]))
            return
        subject, given = work.args
        if not isinstance(subject, Maintenance):  # the number of one, and the name of a gate
            delay_ms = self._dice.between(SECOND_MS, 10 * MINUTE_MS)
            self._later(delay_ms, partial(self._answer_gate, subject, given))
        else:
            self.note_plan(subject, given().applied)
            slow = self._dice.chance(SLOW_PERMILLE)
            self._later(self._dice.between(1, MINUTE_MS if slow else SECOND_MS), work)

    def note_plan(self, maintenance: Maintenance, applied: AppliedPolicy | None) -> None:
        """F-2: a plan that takes no force is not made again while nothing has changed.

        A maintenance that waits is planned again about once a minute, or less often.
        """
        number, wanted, now_ms = maintenance.number, (maintenance, applied), self._queue.now_ms
        known, last_ms, count = self._planned.get(number, (None, 0, 0))
        again = known == wanted and now_ms < last_ms + PACED_MS
        count = count + 1 if again else 1
        self._planned[number] = (wanted, now_ms, count)
        if count > SAME_PLANS_MAX:
            raise Violation("F-2", f"m-{number} is planned {count} times, and is as it was")

    def _later(self, delay_ms: int, work: Callable[[], None]) -> None:
        loop = self._service.loop

        def due() -> None:
            if self._service.loop is loop and loop is not None:
                work()
                self._service.turn()

        self._queue.after(delay_ms, partial(self._once_awake, due))

    def _once_awake(self, act: Callable[[], None]) -> None:
        if self._service.up:
            self._service.once_awake(act)

    def _validate(self, operation: Operation) -> None:
        problem = self._findings.gate_finds()
        which, loop = (operation.number, operation.execution.attempt), self._service.loop
        assert loop is not None
        if not problem:
            self._findings.validated(operation)
        loop.bring(HostRejected(*which, problem) if problem else HostValidated(*which))

    def _answer_gate(self, number: int, name: str, tries: int = POLL_GATE_TRIES) -> None:
        gate = self._findings.gates[name]
        service, loop = self._service, self._service.loop
        assert loop is not None
        problem = self._findings.gate_finds()
        if gate.kind == "polls":
            now_ms = service.clock.now_ms()
            silent = partial(service.plane.silent_groups, number, now_ms)
            problem = run_gate(gate, f"m-{number}", silent)
        if problem and gate.kind == "polls" and tries > 1:
            wait_ms = int(gate.every_s * SECOND_MS)
            self._later(wait_ms, partial(self._answer_gate, number, name, tries - 1))
            return
        self._findings.gate_answers(service, number, gate, passes=not problem)
        loop.bring(GateFailed(number, problem) if problem else GatePassed(number))
