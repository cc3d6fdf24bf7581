"""Where a simulated process has its drivers called, its plans made and its gates checked.

A driver is called at once. A plan is the product's own, made from what was true when it was asked
for, and comes back later; what a gate finds is drawn.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from forewarn.control.planner_host import PlannerHost
from forewarn.core.maintenance.stimuli import GateFailed, GatePassed
from forewarn.simulator.world.crash_points import NeverReturns
from forewarn.simulator.world.event_queue import MINUTE_MS, SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.simulator.world.control_process import SimulatedControl
    from forewarn.simulator.world.dice import Dice
    from forewarn.simulator.world.event_queue import EventQueue

SLOW_PERMILLE = 100
"""How often in a thousand a plan takes long."""


class InlineExecutor:
    """Makes each call at once, on the thread that asks for it; some never return."""

    def submit(self, work: Callable[[], None]) -> None:
        """Do some work."""
        with suppress(NeverReturns):
            work()


class SideWork(InlineExecutor):
    """Calls drivers at once; plans and checks come back when some time has passed."""

    def __init__(
        self,
        service: SimulatedControl,
        queue: EventQueue,
        *,
        dice: Dice,
        gate_fails: Callable[[SimulatedControl, int], bool],
    ) -> None:
        """Work beside one process; `gate_fails` says what the gate of a maintenance finds."""
        self._service, self._queue, self._dice = service, queue, dice
        self._gate_fails = gate_fails

    def submit(self, work: Callable[[], None]) -> None:
        """Do some work; what is told by a process that has ended is lost with it."""
        host = getattr(getattr(work, "func", None), "__self__", None)
        if not isinstance(host, PlannerHost):
            super().submit(work)
            return
        assert isinstance(work, partial)
        is_gate = len(work.args) > 1
        loop = self._service.loop
        told = partial(self._answer_gate, work.args[0]) if is_gate else work

        def due() -> None:
            if self._service.loop is loop and loop is not None:
                told()
                self._service.turn()

        self._queue.after(self._delay_ms(is_gate=is_gate), partial(self._once_awake, due))

    def _once_awake(self, act: Callable[[], None]) -> None:
        if self._service.up:
            self._service.once_awake(act)

    def _delay_ms(self, *, is_gate: bool) -> int:
        if is_gate:
            return self._dice.between(SECOND_MS, 10 * MINUTE_MS)
        slow = self._dice.chance(SLOW_PERMILLE)
        return self._dice.between(1, MINUTE_MS if slow else SECOND_MS)

    def _answer_gate(self, number: int) -> None:
        fails = self._gate_fails(self._service, number)
        loop = self._service.loop
        assert loop is not None
        loop.bring(GateFailed(number, "the smoke test fails") if fails else GatePassed(number))
