"""Waves of a maintenance that are announced in more than one step, and what comes in between."""

from __future__ import annotations

from forewarn.core.impact import Cause
from forewarn.core.lifecycle import OperationState
from forewarn.core.maintenance import stimuli as words
from forewarn.core.maintenance.records import MaintenanceState
from forewarn.core.policy import Policy
from forewarn.core.step import PORTION_MAX
from forewarn.core.stimulus import Approve, DriverDone, NoticeShown, Proceed, RequestMaintenance
from forewarn.planning.policy import Policy as MaintenancePolicy
from tests.core.maintenance import MaintenanceRig, fleet
from tests.core.rig import MINUTE_MS

COUNT = PORTION_MAX + 2
NAMES = tuple(f"h{n}" for n in range(COUNT))


def halfway(**policy: object) -> tuple[MaintenanceRig, int, tuple[str, ...]]:
    """A wave of which one portion is announced; its maintenance, and the hosts that are left."""
    maintenance = MaintenancePolicy(**policy)  # type: ignore[arg-type]
    rig = fleet(COUNT, domains=1, policy=Policy(maintenance=maintenance))
    rig.plans_made = False
    number = rig.create(*NAMES)
    rig.tell(words.StartMaintenance(number))
    outcome = rig._tell(rig.planned(number))
    assert number in outcome.rest
    assert len(rig.working(number)) == PORTION_MAX
    rig.plans_made = True
    return rig, number, tuple(name for name in NAMES if name not in rig.working(number))


def finish_all(rig: MaintenanceRig, number: int) -> None:
    """Have all that is announced approved, begun and done."""
    rig.show()
    for each in rig.working(number).values():
        rig.approve(each.vms[0], each)
        if rig.now(each).state is OperationState.RUNNING:
            rig.finish(each)


def test_host_that_is_done_is_not_announced_with_the_rest_of_its_wave() -> None:
    """Who was quick is not disturbed twice. Source: F-1, F-3."""
    rig, number, _ = halfway()
    [first, *_] = rig.working(number).values()
    rig._tell(NoticeShown((first.number,)))
    rig._tell(Approve(first.vms[0], first.events))
    rig._tell(DriverDone(first.number, 1))
    assert rig.now(first).state is OperationState.SUCCEEDED
    rig.tell(Proceed((number,)))
    assert len([each for each in rig.operations.values() if each.host == first.host]) == 1
    assert len(rig.working(number)) == COUNT - 1
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE


def test_wave_whose_rest_has_failed_goes_on_with_what_is_announced() -> None:
    """It ends with the hosts that are worked on, whatever became of the others. Source: F-3."""
    rig, number, left = halfway()
    rig._tell(RequestMaintenance(cause=Cause.HARDWARE_FAILURE, targets=left))
    rig.tell(Proceed((number,)))
    assert rig.maintenance(number).wave == 1
    assert not rig.maintenance(number).due_ms
    assert [e.action for e in rig.entries].count("maintenance.wave-announced") == 1
    assert "maintenance.wave-blocked" not in {entry.action for entry in rig.entries}


def test_hosts_postponed_within_a_wave_wait_for_what_is_announced() -> None:
    """What is planned instead is not announced beside the wave that was cut. Source: F-8, F-3."""
    rig, number, left = halfway(postpone_max_s=86_400)
    until_ms = rig.now_ms + 60 * MINUTE_MS
    rig.tell(words.PostponeHosts(number, left[:1], until_ms, "alice"))
    assert rig.maintenance(number).wave == 0
    assert len(rig.working(number)) == PORTION_MAX
    rig.wait(2 * MINUTE_MS)
    assert len(rig.working(number)) == PORTION_MAX
    finish_all(rig, number)
    assert rig.maintenance(number).rests_until_ms == 0
    assert "maintenance.wave-over" not in {entry.action for entry in rig.entries}
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE
    rig.check_replay()


def test_wave_that_was_cut_is_followed_by_a_pause() -> None:
    """The pause counts from its last host, as after any other wave. Source: F-3, F-8."""
    rig, number, left = halfway(postpone_max_s=86_400, pause_s=1800)
    rig.tell(words.PostponeHosts(number, left[:1], rig.now_ms + 5 * MINUTE_MS, "alice"))
    rig.wait(2 * MINUTE_MS)
    finish_all(rig, number)
    ended_ms = rig.now_ms
    assert rig.maintenance(number).rests_until_ms == ended_ms + 30 * MINUTE_MS
    rig.wait(26 * MINUTE_MS)
    rig.show()
    assert not [each for each in rig.working(number).values() if each.started_ms]
    rig.run()
    later = [each for each in rig.operations.values() if each.host in left]
    assert {each.host for each in later if each.started_ms} == set(left)
    assert all(each.started_ms >= ended_ms + 30 * MINUTE_MS for each in later if each.started_ms)
    rig.check_replay()


def test_owners_rest_after_a_wave_that_was_cut() -> None:
    """Where the policy has no pause of its own, the owners' rest is kept by the next plan. F-3."""
    rig, number, left = halfway(postpone_max_s=86_400, owner_rest_s=3600)
    rig.tell(words.PostponeHosts(number, left[:1], rig.now_ms + 5 * MINUTE_MS, "alice"))
    rig.wait(2 * MINUTE_MS)
    finish_all(rig, number)
    assert rig.maintenance(number).rests_until_ms == rig.now_ms
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE
