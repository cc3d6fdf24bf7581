"""The next of many deadlines, and those that are due, against a plain table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn_core.fleet.deadlines import SLACK, Deadlines
from forewarn_core.fleet.impact import Cause, Source
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import MaintenanceState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import Cancel, ChangeTopology, DriverDone, Tick
from forewarn_core.fleet.topology import Group
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.local_time import Window
from tests.core.maintenance import MaintenanceRig, fleet
from tests.core.rig import DAY_MS, MINUTE_MS

KEYS = st.integers(1, 6)
TIMES = st.integers(0, 20)


@given(
    st.lists(
        st.tuples(st.just("put"), KEYS, TIMES)
        | st.tuples(st.just("drop"), KEYS)
        | st.tuples(st.just("next_ms"), TIMES)
        | st.tuples(st.just("due"), TIMES)
    )
)
def test_deadlines_are_those_of_a_table(steps: list[tuple[str, int, int]]) -> None:
    """Whatever is put, put off and dropped: a look finds what a scan would."""
    deadlines: Deadlines[int] = Deadlines()
    table: dict[int, int] = {}
    for name, value, *rest in steps:
        found = getattr(deadlines, name)(value, *rest)
        if name == "put":
            table[value] = rest[0]
        elif name == "drop":
            table.pop(value, None)
        elif name == "next_ms":
            assert found == min((at for at in table.values() if at > value), default=None)
        else:
            assert found == sorted(key for key, at in table.items() if at <= value)
        assert len(deadlines._at) == len(table)


@given(st.lists(st.tuples(TIMES, st.dictionaries(KEYS, TIMES, max_size=3))))
def test_passed_deadlines_come_again_only_if_time_goes_back(
    steps: list[tuple[int, dict[int, int]]],
) -> None:
    """What was handled is not due again, unless it is put again or the clock is put back."""
    deadlines: Deadlines[int] = Deadlines()
    table: dict[int, int] = {}
    passed: set[int] = set()
    for now_ms, written in steps:
        for key, at_ms in written.items():
            if table.get(key) != at_ms:
                passed.discard(key)
            table[key] = at_ms
            deadlines.put(key, at_ms)
        passed = {key for key in passed if table[key] <= now_ms} | (
            passed if now_ms >= max((t for t, _ in steps), default=0) else set()
        )
        due = {key for key, at_ms in table.items() if at_ms <= now_ms}
        assert set(deadlines.due(now_ms)) <= due
        assert set(deadlines.due(now_ms)) >= due - passed
        deadlines.passed(now_ms)
        passed |= due
        assert deadlines.due(now_ms) == []
        assert deadlines.next_ms(now_ms) == min(
            (at_ms for at_ms in table.values() if at_ms > now_ms), default=None
        )


def test_deadlines_stay_in_order_when_many_are_dropped() -> None:
    """What is left comes due one after another, whatever was dropped or put off. Source: L-1."""
    deadlines: Deadlines[int] = Deadlines()
    count = 8 * SLACK
    for number in range(count):
        deadlines.put(number, (number * 7919) % count + 1)
    left = {number: (number * 7919) % count + 1 for number in range(0, count, 9)}
    for number in range(count):
        if number not in left:
            deadlines.drop(number)
    now_ms, came = 0, []
    while (next_ms := deadlines.next_ms(now_ms)) is not None:
        now_ms = next_ms
        came += deadlines.due(now_ms)
        deadlines.passed(now_ms)
    assert came == sorted(left, key=left.__getitem__)


# -- work of maintenances that comes late: what may still start, and what counts afterwards ------


HOUR_MS = 60 * MINUTE_MS


def held_back(**more: object) -> tuple[MaintenanceRig, int, int]:
    """Announced work on `h0` that is due and waits for a user's own work on `h2`."""
    window = Window("night", from_min=0, to_min=240)
    policy = MaintenancePolicy(windows=(window,)) if more.pop("in_window", False) else None
    rig = fleet(policy=NoticePolicy(maintenance=policy) if policy else None)
    number = rig.start("h0", **more)
    while not rig.working(number):
        rig.wait(rig.due_ms(number) - rig.now_ms)
    rig.show()
    own = rig.ask(Cause.HOST_REBOOT, "h2", source=Source.USER)
    rig.approve("web_2", own)
    due_ms = rig.working(number)["h0"].not_before_ms
    rig.wait(due_ms - rig.now_ms)
    assert rig.working(number)["h0"].state is OperationState.ANNOUNCED
    waits = [waiting.code.value for waiting in rig.why(rig.working(number)["h0"])]
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
        assert rig.now(operation).reason == "its window closes before the work would end"


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
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(owner_rest_s=rest_s)))
    rig.tell(ChangeTopology(groups=(Group("web", owner="anna"),)))
    by_hand = rig.ask(Cause.HOST_REBOOT, "h3")
    rig.approve("web_3", by_hand)
    rig.finish(by_hand)
    ended_ms = rig.now_ms
    number = rig.start("h0")
    rig.run()
    [work] = [each for each in rig.operations.values() if each.maintenance == number]
    earliest_ms = ended_ms + rest_s * 1000
    assert 0 <= (work.execution.started_ms or 0) - earliest_ms < 30 * MINUTE_MS
    assert (work.announced_ms > ended_ms) is waits
