"""Plans made beside the run loop: those that take long, and what becomes of them."""

import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.maintenance import MaintenancePlan
from forewarn_core.fleet.stimulus import (
    ApplyPolicy,
    ChangeTopology,
    Complete,
    CreateMaintenance,
    GroupsPolled,
    PauseMaintenance,
    ResumeMaintenance,
    StartMaintenance,
)
from forewarn_core.fleet.topology import Host
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.requests import ApprovalRequest
from forewarn_server.control import planner_host
from forewarn_server.control.driver_calls import DaemonThreads
from forewarn_server.control.gate_checks import Gate, make_gates
from forewarn_server.control.planning import PlannerTask
from forewarn_store.errors import StoreContradiction, StoreFull
from tests.control.rig import Running, refuses
from tests.waiting import LIMIT_S, wait_until

MINUTE_MS = 60_000
#: Pieces of work that a gate and a driver come to, and some more.
WORK_MAX = 10


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
        self._work.get(timeout=LIMIT_S)()

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
    monkeypatch.setattr(planner_host, "APART_MIN", 2)  # its host, and its VM
    running = Running(executor=DaemonThreads())
    looks, go_on = threading.Event(), threading.Event()

    def ponder(_: object) -> bool:
        looks.set()
        return go_on.wait(LIMIT_S)

    answer = running.loop.replica.read(ponder)
    assert looks.wait(LIMIT_S)
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
    running = gated_wave(executor, make_gates({"check": {"command": ["false"]}})["check"])
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


def test_plan_that_the_store_can_never_hold_keeps_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is a bug of one maintenance; the others have their plans. Source: F-2, L-8."""
    executor = ByHand()
    running = Running(executor=executor)
    for _ in range(2):
        running.ask(CreateMaintenance(Cause.HOST_REBOOT, ("h",), 600))
    with monkeypatch.context() as patch:
        refused = StoreContradiction(place="here", reason="it has no such column")
        patch.setattr(running.store, "commit", refuses(refused))
        executor.do_next()
        running.settle()
    executor.do_next()
    running.settle()
    plans = [bool(each.plan) for each in running.plane.state.maintenances.values()]
    running.loop.stop()
    running.store.close()
    assert plans == [False, True]


def test_gate_is_checked_once_at_a_time(tmp_path: Path) -> None:
    """However often its maintenance is looked at meanwhile. Source: F-5."""
    executor, checks = ByHand(), tmp_path / "checks"
    gate = make_gates({"check": {"command": ["sh", "-c", f"echo >> {checks}; false"]}})["check"]
    running = gated_wave(executor, gate)
    for _ in range(2):
        running.ask(PauseMaintenance(1, keep_announced=True))
        running.ask(ResumeMaintenance(1))
    for _ in range(WORK_MAX):
        if not executor.idle:
            executor.do_next()
            running.settle()
    running.loop.stop()
    running.store.close()
    assert checks.read_text(encoding="ascii") == "\n"


def test_plan_that_a_restart_cut_off_is_made_again() -> None:
    """The service that began it is not there any more to take it. Source: F-2, L-7."""
    executor = ByHand()
    running = Running(executor=executor)
    running.ask(CreateMaintenance(Cause.HOST_REBOOT, ("h",), 600))
    running.restart(1000)
    for _ in range(2):  # what the first one makes reaches nobody
        executor.do_next()
    running.settle()
    planned = running.plane.state.maintenances[1].plan
    running.loop.stop()
    running.store.close()
    assert planned


def test_plan_that_was_overtaken_is_made_again() -> None:
    """It breaks the policy that was applied while it was made. Source: F-2, F-3."""
    executor = ByHand()
    running = Running(executor=executor)
    running.ask(CreateMaintenance(Cause.HOST_REBOOT, ("h",), 600))
    running.ask(ApplyPolicy(MaintenancePolicy(pause_s=3600)))
    plans = []
    for _ in range(2):
        executor.do_next()
        running.settle()
        plans.append(bool(running.plane.state.maintenances[1].plan))
    idle = executor.idle
    running.loop.stop()
    running.store.close()
    assert plans == [False, True]
    assert idle


def test_bug_of_the_planner_is_said_to_people(caplog: pytest.LogCaptureFixture) -> None:
    """The maintenance waits and says for what; all else goes on. Source: F-2, L-8."""

    def make(asked: PlannerTask) -> MaintenancePlan:
        raise ZeroDivisionError(asked.maintenance)

    running = Running(planner=make)
    running.ask(CreateMaintenance(Cause.HOST_REBOOT, ("h",), 600))
    running.ask(StartMaintenance(1))
    running.settle()
    why, goes_on = running.why_maintenance(1), running.announce()
    running.loop.stop()
    running.store.close()
    caplog.clear()  # this bug was to be
    assert why == "no plan of m-1 could be made: the planner has a bug; see the log of the service"
    assert goes_on.state is OperationState.ANNOUNCED


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
    running.ask(ApprovalRequest("v", operation.events, ""))
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


def gated_wave(executor: ByHand, gate: Gate) -> Running:
    """A maintenance whose first wave has ended, and whose gate is to be checked."""
    running = Running(executor=executor, gates={gate.name: gate})
    running.ask(ChangeTopology(hosts=(Host("other"),)))
    hosts = ("h", "other")
    running.ask(
        CreateMaintenance(Cause.HOST_REBOOT, hosts, 600, canary_hosts=("h",), gate=gate.name)
    )
    executor.do_next()
    running.ask(StartMaintenance(1))
    executor.do_next()
    while not running.plane.state.operations:
        running.pass_time(MINUTE_MS)
    [operation] = running.plane.state.operations.values()
    running.ask(ApprovalRequest("v", operation.events, ""))
    executor.do_next()
    running.settle()
    running.ask(Complete(operation.number))
    return running
