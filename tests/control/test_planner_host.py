"""Plans made beside the run loop: those that take long, and what becomes of them."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

from forewarn.core.impact import Cause
from forewarn.core.lifecycle import OperationState
from forewarn.core.maintenance.stimuli import CreateMaintenance, StartMaintenance
from tests.control.rig import WAIT_S, Running

if TYPE_CHECKING:
    from collections.abc import Callable

MINUTE_MS = 60_000


class ByHand:
    """Does each piece of work when the test says so."""

    def __init__(self) -> None:
        """Have nothing to do."""
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def submit(self, work: Callable[[], None]) -> None:
        """Take some work for later."""
        self._work.put(work)

    def do_next(self) -> None:
        """Do the piece that came first."""
        self._work.get(timeout=WAIT_S)()


def test_fleet_whose_planning_takes_long_is_maintained() -> None:
    """The first plan comes too late for its first wave; the next one knows that. Source: F-2."""
    executor = ByHand()
    running = Running(executor=executor)
    running.ask(CreateMaintenance(Cause.HOST_REBOOT, ("h",), 600))
    running.ask(StartMaintenance(1))
    plans = 0
    while not running.plane.state.operations and plans < 5:
        running.pass_time(10 * MINUTE_MS)
        executor.do_next()
        running.settle()
        running.pass_time(MINUTE_MS // 2)
        plans += 1
    states = [each.state for each in running.plane.state.operations.values()]
    running.loop.stop()
    running.store.close()
    assert states == [OperationState.ANNOUNCED]
    assert plans <= 3
