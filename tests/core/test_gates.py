"""Gates: nothing goes on after a wave before its check has passed. Source: F-5."""

import pytest

from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import Checking, MaintenanceState
from forewarn_core.fleet.refusals import PlanSuperseded
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    Complete,
    Enable,
    GroupsPolled,
    Recover,
    Tick,
)
from forewarn_core.fleet.targets import silent_groups
from forewarn_core.fleet.topology import Group, Vm
from forewarn_core.fleet.waves import PLAN_AGAIN_S
from tests.core.maintenance import MaintenanceRig, fleet
from tests.core.rig import MINUTE_MS

S = MaintenanceState


def at_its_gate(*, quiet_ms: int = 0) -> tuple[MaintenanceRig, int]:
    """A maintenance of two waves whose first one is over; nobody polled for so long before it."""
    rig = fleet()
    rig.wait(quiet_ms)
    number = rig.start("h0", "h1", gate="errors")
    while not rig.gates:
        rig.run(limit=1)
    return rig, number


def test_gate_is_checked_after_each_wave() -> None:
    """Each wave ends with a check, the last one too, and nothing goes on before. F-5, F-3."""
    rig, number = at_its_gate()
    assert rig.gates == [number]
    assert isinstance(rig.maintenance(number).phase, Checking)
    assert not rig.working(number)
    rig.tell(words.GatePassed(number))
    assert not isinstance(rig.maintenance(number).phase, Checking)
    assert rig.run() == [{"h1"}]
    assert rig.gates == [number, number]
    assert rig.maintenance(number).state is S.RUNNING
    rig.tell(words.GatePassed(number))
    assert rig.maintenance(number).state is S.DONE
    rig.check_replay()


def test_failed_gate_stops_the_maintenance() -> None:
    """A check that fails stops it; an operator's word has it go on. Source: F-1, F-5."""
    rig, number = at_its_gate()
    rig.tell(words.GateFailed(number, "gate errors: `rate` is 0.2"))
    stopped = rig.maintenance(number)
    assert (stopped.state, stopped.halt_reason) == (S.STOPPED, "gate errors: `rate` is 0.2")
    assert not isinstance(stopped.phase, Checking)
    rig.tell(words.ResumeMaintenance(number))
    assert rig.run() == [{"h1"}]
    rig.check_replay()


def test_gate_is_checked_again_after_a_restart() -> None:
    """A check that a crash cut off is made again. Source: F-5."""
    rig, number = at_its_gate()
    rig.tell(Recover(0))
    assert rig.gates == [number, number]


def test_plan_takes_no_force_before_the_gate() -> None:
    """While the check is made no plan takes force. Source: F-2, F-5."""
    rig, number = at_its_gate()
    before = rig.state.maintenances[number]
    with pytest.raises(PlanSuperseded):
        rig.tell(rig.planned(number))
    assert rig.state.maintenances[number] == before


def test_pause_at_a_gate_has_it_checked_on_resuming() -> None:
    """A result that comes while it is paused stops nothing; it is checked again. F-5, F-6."""
    rig, number = at_its_gate()
    rig.tell(words.PauseMaintenance(number))
    rig.tell(words.GateFailed(number, "no"))
    assert rig.maintenance(number).state is S.PAUSED
    rig.tell(words.ResumeMaintenance(number))
    assert rig.gates == [number, number]


def test_group_that_no_longer_polls_is_found() -> None:
    """One that polled before its host's work, and has not since. Source: F-5."""
    rig, number = at_its_gate()
    assert silent(rig, number) == ("web",)
    rig.wait(2 * MINUTE_MS)
    rig.tell(GroupsPolled(frozenset({"web"})))
    assert silent(rig, number) == ()


def test_group_that_was_silent_before_is_not_waited_for() -> None:
    """Nobody expects it to poll after the work, since it did not before. Source: F-5."""
    rig, number = at_its_gate(quiet_ms=3 * 60 * MINUTE_MS)
    assert silent(rig, number) == ()


def test_absence_of_the_service_is_no_poll() -> None:
    """Time without the service counts as no silence (B-2), and not as polls either. F-5."""
    rig, number = at_its_gate()
    rig.wait(50 * MINUTE_MS)
    rig.tell(Recover(50 * MINUTE_MS))
    assert silent(rig, number, rig.now_ms) == ("web",)
    rig.wait(2 * MINUTE_MS)
    rig.tell(GroupsPolled(frozenset({"web"})))
    assert silent(rig, number, rig.now_ms - 2 * MINUTE_MS) == ()


def test_poll_that_is_reported_late_counts_when_it_was_made() -> None:
    """A node that was away reports what it heard before the wave ended, too. Source: F-5, B-2."""
    rig, number = at_its_gate()
    rig.wait(10 * MINUTE_MS)
    rig.tell(GroupsPolled(frozenset({"web"}), age_ms=10 * MINUTE_MS + 1))
    assert silent(rig, number) == ("web",)
    rig.tell(GroupsPolled(frozenset({"web"}), age_ms=5 * MINUTE_MS))
    assert silent(rig, number) == ()
    assert rig.state.enrolments["web"].polled_ms == rig.now_ms - 5 * MINUTE_MS
    assert not rig.tell(GroupsPolled(frozenset({"web"}), age_ms=6 * MINUTE_MS)).changes


def test_marks_ahead_of_the_clock_are_no_polls() -> None:
    """A clock that was put back leaves times ahead of it, which say nothing by it. F-5, N-4."""
    rig, number = at_its_gate()
    rig.wait(2 * MINUTE_MS)
    rig.tell(GroupsPolled(frozenset({"web"})))
    back_ms = rig.now_ms - 30 * MINUTE_MS
    draft = Draft(rig.state, back_ms, rig.terms())
    assert silent_groups(draft, number, back_ms) == ("web",)


def test_marks_ahead_of_the_clock_are_no_polls_once_it_is_there() -> None:
    """A service that starts with its clock put back takes none of them for later ones. F-5, N-4."""
    rig, number = at_its_gate()
    back_ms = rig.now_ms
    rig.wait(2 * MINUTE_MS)
    rig.tell(GroupsPolled(frozenset({"web"})))
    rig.now_ms = back_ms
    rig.tell(Recover(0))
    rig.wait(5 * MINUTE_MS)
    assert silent(rig, number, back_ms) == ("web",)
    rig.tell(GroupsPolled(frozenset({"web"})))
    assert silent(rig, number, back_ms) == ()


def test_work_that_ended_ahead_of_the_clock_waits_for_polls_by_the_clock() -> None:
    """Who polls after the clock was put back need not do so until it is there again. F-5, N-4."""
    rig, number = at_its_gate()
    back_ms = rig.now_ms - 30 * MINUTE_MS
    rig.now_ms = back_ms + 2 * MINUTE_MS
    assert silent(rig, number, back_ms) == ("web",)
    rig.tell(GroupsPolled(frozenset({"web"})))
    assert silent(rig, number, back_ms) == ()


def silent(rig: MaintenanceRig, number: int, since_ms: int = 0) -> tuple[str, ...]:
    """The groups that a gate would wait for."""
    return silent_groups(Draft(rig.state, rig.now_ms, rig.terms()), number, since_ms)


@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_maintenance_says_why_it_has_no_plan(paused: bool) -> None:
    """Until one is made; why it is paused is said first. Source: F-4, F-6."""
    rig = fleet()
    number = rig.create("h0", "h1")
    rig.plans_made = False
    rig.tell(words.StartMaintenance(number))
    if paused:
        rig.tell(words.PauseMaintenance(number, "lunch", keep_announced=True))
    rig.tell(words.PlanFailed(number, "no memory"))
    halt_reason = rig.maintenance(number).halt_reason
    assert halt_reason == ("lunch" if paused else "no memory")
    assert halt_reason in rig.waits(number).sentence("")
    if paused:
        rig.tell(words.ResumeMaintenance(number))
    rig.plans_made = True
    rig.wait(2 * PLAN_AGAIN_S * 1000)
    rig.tell(Tick())
    assert not rig.maintenance(number).halt_reason
    assert "no memory" not in rig.waits(number).sentence("")
    rig.check_replay()


def test_group_is_expected_an_hour_before_its_work_began() -> None:
    """The hour counts from the beginning of the work, not from its end. Source: F-5."""
    for late_ms, found in ((0, ("web",)), (1, ())):
        rig, number = at_its_gate()
        [target] = rig.state.targets.values()
        polled_ms = rig.state.enrolments["web"].polled_ms
        spare_ms = (3600 + 600) * 1000 - ((target.ended_ms or 0) - polled_ms)
        rig, number = at_its_gate(quiet_ms=spare_ms + late_ms)
        assert silent(rig, number) == found


def test_gate_looks_at_the_hosts_that_its_wave_has_done() -> None:
    """Neither a host of an earlier wave, nor one that has failed, has a say in it. F-5."""
    rig = fleet()
    groups = tuple(Group(f"g{n}") for n in (0, 1, 3, 4))
    vms = tuple(Vm(f"vm_{n}", f"h{n}", f"g{n}") for n in (0, 1, 3, 4))
    gone = tuple(("vm", f"web_{n}") for n in (0, 1, 3, 4))
    rig.tell(ChangeTopology(groups=groups, vms=vms, removed=gone))
    rig.tell(*(Enable(group.name) for group in groups))
    number = rig.start("h0", "h1", "h3", "h4", gate="errors", max_failures=1)
    done: list[str] = []
    for _ in range(40):
        if rig.gates:
            break
        rig.show()
        for operation in rig.working(number).values():
            if operation.state is OperationState.RUNNING and done:
                rig.tell(Complete(operation.number, failed=True))
            elif operation.state is OperationState.RUNNING:
                rig.finish(operation)
                done.append(operation.host)
        rig.wait(MINUTE_MS)
    assert silent(rig, number) == (f"g{done[0][1:]}",)


def test_poll_just_after_the_service_is_back_counts() -> None:
    """Whoever polled later than that, by a millisecond, is there. Source: F-5, B-2."""
    rig, number = at_its_gate()
    polled_ms = rig.now_ms
    rig.tell(GroupsPolled(frozenset({"web"})))
    polled_ms = max(polled_ms, rig.state.enrolments["web"].polled_ms)
    [target] = rig.state.targets.values()
    assert silent(rig, number, max(polled_ms, target.ended_ms or 0)) == ("web",)
    rig.wait(2 * MINUTE_MS)
    rig.tell(GroupsPolled(frozenset({"web"})))
    assert silent(rig, number, rig.now_ms) == ("web",)
    assert silent(rig, number, rig.now_ms - 1) == ()


def test_gate_of_a_maintenance_that_has_done_nothing_waits_for_nobody() -> None:
    """Nor does that of one that is over. Source: F-5."""
    rig = fleet()
    assert silent(rig, rig.create("h0")) == ()
    assert silent(rig, 77) == ()


@pytest.mark.parametrize("word", [words.GateFailed, words.PauseMaintenance])
def test_approved_work_that_is_held_is_withdrawn(
    word: type[words.GateFailed | words.PauseMaintenance],
) -> None:
    """It waits for its earliest start alone, and goes at once. Source: F-5, F-6, L-3."""
    rig = fleet()
    number = rig.start("h0", "h3", earliest_ms=rig.now_ms + 24 * 60 * MINUTE_MS)
    rig.now_ms = rig.due_ms(number)
    rig.tell(Tick())
    rig.show()
    for operation in rig.working(number).values():
        rig.approve(operation.vms[0], operation)
        assert rig.now(operation).state is OperationState.ANNOUNCED
    assert len(rig.shown("web")) == 2
    rig.tell(word(number, "errors"))
    assert not rig.working(number)
    assert rig.shown("web") == []
