"""Plans made beside the run loop: those that take long, and what becomes of them."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

import pytest

from forewarn.control import planner_host
from forewarn.control.driver_calls import DaemonThreads
from forewarn.control.gate_checks import Gate
from forewarn.core.impact import Cause
from forewarn.core.lifecycle import OperationState
from forewarn.core.maintenance.stimuli import (
    CreateMaintenance,
    PauseMaintenance,
    ResumeMaintenance,
    StartMaintenance,
)
from forewarn.core.stimulus import Approve, ChangeTopology, Complete, GroupsPolled
from forewarn.core.topology import Host
from forewarn.store.errors import StoreFull
from tests.control.rig import WAIT_S, Running, refuses
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.core.lifecycle import Operation

MINUTE_MS = 60_000
WORK_MAX = 10
"""Pieces of work that a gate and a driver come to, and some more."""


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

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self._work.empty()


def test_fleet_whose_planning_takes_long_is_maintained() -> None:
    """The first plan comes too late for its first wave; the next one knows that. Source: F-2."""
    executor = ByHand()
    running = Running(executor=executor)
    running.ask(ChangeTopology(hosts=(Host("other"),)))
    hosts = ("h", "other")
    running.ask(CreateMaintenance(Cause.HOST_REBOOT, hosts, 600, canary_hosts=("h",)))
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


def test_large_fleet_is_not_read_by_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It decides while readers read it; the plan is of the commit that wanted it. Source: F-2."""
    monkeypatch.setattr(planner_host, "APART_MIN", 0)
    running = Running(executor=DaemonThreads())
    looks, go_on = threading.Event(), threading.Event()

    def ponder(_: object) -> bool:
        looks.set()
        return go_on.wait(WAIT_S)

    answer = running.loop.replica.read(ponder)
    assert looks.wait(WAIT_S)
    running.ask(CreateMaintenance(Cause.HOST_REBOOT, ("h",), 600))
    running.ask(StartMaintenance(1))
    running.ask(ChangeTopology(hosts=(Host("later"),)))
    unplanned = running.plane.state.maintenances[1].plan
    go_on.set()
    wait_until(lambda: bool(running.plane.state.maintenances[1].plan))
    [wave] = running.plane.state.plans[running.plane.state.maintenances[1].plan].waves
    running.loop.stop()
    running.store.close()
    assert (answer.result(), unplanned, wave.hosts) == (True, "", ("h",))


def test_nothing_is_planned_in_a_pause_before_its_gate_has_decided() -> None:
    """Such a plan would be refused, and made again at once, as long as the pause. F-5, F-6."""
    executor = ByHand()
    running = Running(executor=executor, gates={"check": Gate("check", command=("false",))})
    running.ask(ChangeTopology(hosts=(Host("other"),)))
    hosts = ("h", "other")
    running.ask(CreateMaintenance(Cause.HOST_REBOOT, hosts, 600, canary_hosts=("h",), gate="check"))
    executor.do_next()
    running.ask(StartMaintenance(1))
    executor.do_next()
    while not running.plane.state.operations:
        running.pass_time(MINUTE_MS)
    [operation] = running.plane.state.operations.values()
    running.ask(Approve("v", operation.events))
    executor.do_next()
    running.settle()
    running.ask(Complete(operation.number))
    running.ask(PauseMaintenance(1, keep_announced=True))
    for _ in range(WORK_MAX):
        if not executor.idle:
            executor.do_next()
            running.settle()
    idle = executor.idle
    running.ask(ResumeMaintenance(1))
    checked_again = not executor.idle
    running.loop.stop()
    running.store.close()
    assert idle
    assert checked_again


def test_plan_that_the_store_would_not_take_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is kept, as other reports are, and takes force later; so a full disk costs one plan."""
    executor = ByHand()
    running = Running(executor=executor)
    running.ask(CreateMaintenance(Cause.HOST_REBOOT, ("h",), 600))
    with monkeypatch.context() as patch:
        refused = StoreFull(place="here", reason="full")
        patch.setattr(running.store, "commit", refuses(refused))
        executor.do_next()
        running.settle()
        running.pass_time()
        idle = executor.idle
    running.pass_time()
    planned = running.plane.state.maintenances[1]
    running.loop.stop()
    running.store.close()
    assert idle
    assert executor.idle
    assert planned.plan
    assert not planned.plan_wanted


@pytest.mark.parametrize("step_ms", [60 * MINUTE_MS, -60 * MINUTE_MS, -2 * MINUTE_MS])
def test_step_of_the_clock_is_no_poll(step_ms: int) -> None:
    """A gate waits for polls that came since, not for marks that forgive silence. F-5, B-2."""
    running, operation = at_work()
    running.end(operation)
    before = running.plane.silent_groups(1, running.clock.now_ms())
    running.pass_time(MINUTE_MS, step_ms=step_ms)
    after = running.plane.silent_groups(1, running.clock.now_ms())
    running.pass_time(2 * MINUTE_MS)
    running.ask(GroupsPolled(frozenset({"g"})))
    polled = running.plane.silent_groups(1, running.clock.now_ms())
    running.loop.stop()
    running.store.close()
    assert before == after == ("g",)
    assert not polled


def test_poll_before_a_step_back_is_none_after_the_work() -> None:
    """Also once the clock is where it was when the group polled. Source: F-5, N-4."""
    running, operation = at_work()
    running.ask(Approve("v", operation.events))
    running.pass_time()
    running.ask(GroupsPolled(frozenset({"g"})))
    running.pass_time(step_ms=-10 * MINUTE_MS)
    running.ask(Complete(operation.number))
    running.pass_time(15 * MINUTE_MS)
    before = running.plane.silent_groups(1, running.clock.now_ms())
    running.ask(GroupsPolled(frozenset({"g"})))
    after = running.plane.silent_groups(1, running.clock.now_ms())
    running.loop.stop()
    running.store.close()
    assert before == ("g",)
    assert not after


def at_work() -> tuple[Running, Operation]:
    """A maintenance whose first host's work is announced, and which goes no further."""
    running = Running()
    running.ask(ChangeTopology(hosts=(Host("other"),)))
    hosts = ("h", "other")
    running.ask(CreateMaintenance(Cause.HOST_REBOOT, hosts, 600, canary_hosts=("h",)))
    running.ask(StartMaintenance(1))
    while not running.plane.state.operations:
        running.pass_time(MINUTE_MS)
    running.ask(PauseMaintenance(1, keep_announced=True))
    [operation] = running.plane.state.operations.values()
    return running, operation
