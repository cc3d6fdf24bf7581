"""Work of maintenances that comes late: what may still start, and what counts afterwards."""

from __future__ import annotations

import pytest

from forewarn.core.impact import Cause, Source
from forewarn.core.lifecycle import OperationState
from forewarn.core.maintenance.records import MaintenanceState
from forewarn.core.policy import Policy
from forewarn.core.stimulus import Cancel, ChangeTopology, DriverDone, Tick
from forewarn.core.topology import Group
from forewarn.planning.policy import Policy as MaintenancePolicy
from forewarn.planning.windows import Window
from tests.core.maintenance import MaintenanceRig, fleet
from tests.core.rig import DAY_MS, MINUTE_MS

HOUR_MS = 60 * MINUTE_MS


def held_back(**more: object) -> tuple[MaintenanceRig, int, int]:
    """Announced work on `h0` that is due and waits for a user's own work on `h2`."""
    window = Window("night", from_min=0, to_min=240)
    policy = MaintenancePolicy(windows=(window,)) if more.pop("in_window", False) else None
    rig = fleet(policy=Policy(maintenance=policy) if policy else None)
    number = rig.start("h0", **more)
    while not rig.working(number):
        rig.wait(rig.maintenance(number).due_ms - rig.now_ms)
    rig.show()
    own = rig.ask(Cause.HOST_REBOOT, "h2", source=Source.USER)
    rig.approve("web_2", own)
    due_ms = rig.working(number)["h0"].not_before_ms
    rig.wait(due_ms - rig.now_ms)
    assert rig.working(number)["h0"].state is OperationState.ANNOUNCED
    waits = [waiting.reason for waiting in rig.why(rig.working(number)["h0"])]
    assert waits == ["fault-domain"], "nobody is waited for to approve any more"
    rig.checked = rig.plans_made = False
    return rig, number, own.number


@pytest.mark.parametrize(("late_ms", "starts"), [(0, True), (1, False)])
def test_late_work_starts_if_it_ends_at_the_deadline(late_ms: int, *, starts: bool) -> None:
    """Ten minutes before the deadline is in time, a millisecond later is not. Source: F-1, F-3."""
    deadline_ms = fleet().now_ms + 3 * HOUR_MS
    rig, number, own = held_back(deadline_ms=deadline_ms)
    rig.now_ms = deadline_ms - 600_000 + late_ms
    rig.tell(DriverDone(own, 1))
    found = rig.working(number)
    assert bool(found) == starts
    if starts:
        assert found["h0"].state is OperationState.RUNNING
    else:
        [ended] = [each for each in rig.operations.values() if each.maintenance == number]
        assert ended.reason == "it would end after the deadline"


@pytest.mark.parametrize(("late_ms", "starts"), [(0, True), (MINUTE_MS, False)])
def test_late_work_starts_if_it_ends_in_its_window(late_ms: int, *, starts: bool) -> None:
    """What would end after its window closes is withdrawn, and done another night. F-3, F-7."""
    rig, number, own = held_back(in_window=True)
    operation = rig.working(number)["h0"]
    closes_ms = operation.not_before_ms // DAY_MS * DAY_MS + 4 * HOUR_MS
    rig.now_ms = closes_ms - 600_000 + late_ms
    rig.tell(DriverDone(own, 1))
    assert bool(rig.working(number)) == starts
    if not starts:
        assert rig.now(operation).reason == "its window closes before it would end"


@pytest.mark.parametrize(("late_ms", "counts"), [(0, True), (1, False)])
def test_host_counts_that_fails_within_an_hour(late_ms: int, *, counts: bool) -> None:
    """A host that fails up to an hour after its service counts, later it does not. F-5, G-3."""
    rig = fleet()
    number = rig.start("h0", "h1")
    rig.show()
    [operation] = rig.working(number).values()
    rig.approve(operation.vms[0], operation)
    rig.finish(operation)
    rig.wait(HOUR_MS + late_ms)
    rig.tell(Tick())
    rig.ask(Cause.HARDWARE_FAILURE, operation.host)
    stopped = rig.maintenance(number).state is MaintenanceState.STOPPED
    assert stopped == counts
    reason = rig.state.targets[f"{number}/{operation.host}"].reason
    assert reason == ("the host failed after its service" if counts else "")


def test_operation_of_a_maintenance_that_is_cancelled_is_done_again() -> None:
    """An operator's word about one host's work holds for that work alone. Source: F-1, L-3."""
    rig = fleet()
    number = rig.start("h0", "h1")
    [operation] = rig.working(number).values()
    rig.tell(Cancel(operation.number, "not now"))
    assert rig.now(operation).reason == "not now"
    assert rig.working(number)[operation.host].number != operation.number
    done = [host for wave in rig.run() for host in wave]
    assert sorted(done) == ["h0", "h1"]


@pytest.mark.parametrize(("rest_s", "waits"), [(0, False), (3600, True)])
def test_owner_that_rests_long_enough_is_not_waited_for(rest_s: int, *, waits: bool) -> None:
    """Work at the very end of the rest is announced; without a rest nobody waits. F-3."""
    rig = fleet(policy=Policy(maintenance=MaintenancePolicy(owner_rest_s=rest_s)))
    rig.tell(ChangeTopology(groups=(Group("web", owner="anna"),)))
    by_hand = rig.ask(Cause.HOST_REBOOT, "h3")
    rig.approve("web_3", by_hand)
    rig.finish(by_hand)
    ended_ms = rig.now_ms
    number = rig.start("h0")
    rig.run()
    [work] = [each for each in rig.operations.values() if each.maintenance == number]
    earliest_ms = ended_ms + rest_s * 1000
    assert work.started_ms >= earliest_ms
    assert (work.started_ms < earliest_ms + 30 * MINUTE_MS) is True
    assert (work.announced_ms > ended_ms) is waits
