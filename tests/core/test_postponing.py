"""Postponing hosts of a maintenance at an owner's request."""

import pytest

from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.host_admission import POSTPONED_MAX
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.maintenance import MaintenanceState, postponed_hosts
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.refusals import PlanSuperseded, PostponementRefused
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.blockers import code_of
from tests.core.maintenance import MaintenanceRig, fleet

HOUR_MS = 3_600_000


def postponing(**more: object) -> MaintenanceRig:
    """Six hosts whose owners may postpone work by a day."""
    allowed = MaintenancePolicy(postpone_max_s=86_400, **more)  # type: ignore[arg-type]
    return fleet(policy=NoticePolicy(maintenance=allowed))


def test_announced_host_is_withdrawn_alone() -> None:
    """The others of its wave stay as announced; it starts at the earliest then. Source: F-8."""
    rig = postponing()
    number = rig.start("h0", "h3")
    before = rig.working(number)
    assert set(before) == {"h0", "h3"}
    until_ms = rig.now_ms + 5 * HOUR_MS
    rig.tell(words.PostponeHosts(number, ("h0",), until_ms, "alice", "a release"))
    assert rig.working(number) == {"h3": before["h3"]}
    assert rig.waits(number, "h0").code is code_of("postponed")
    assert rig.waits(number, "h0").clears_ms == until_ms
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE
    [last] = [
        each for each in rig.operations.values() if each.host == "h0" and each.execution.started_ms
    ]
    started_ms = last.execution.started_ms or 0
    assert started_ms >= until_ms
    assert started_ms - last.announced_ms >= last.notice_s * SECOND_MS
    rig.check_replay()


def test_planned_host_is_postponed_before_it_is_announced() -> None:
    """A host of a later wave gets a later place; nothing announced moves. Source: F-8."""
    rig = postponing()
    number = rig.start("h0", "h1", "h2")
    until_ms = rig.now_ms + 5 * HOUR_MS
    before = rig.working(number)
    rig.tell(words.PostponeHosts(number, ("h1",), until_ms, "alice"))
    assert rig.working(number) == before
    assert rig.run() == [{"h0"}, {"h2"}, {"h1"}]


def test_draft_is_planned_by_its_postponements() -> None:
    """A draft's plan is made again, and a plan made before takes no force. Source: F-2, F-8."""
    rig = postponing()
    rig.plans_made = False
    number = rig.create("h0", "h1")
    rig.make_plan(number)
    old = rig.plans[rig.maintenance(number).plan]
    until_ms = rig.now_ms + 5 * HOUR_MS
    rig.tell(words.PostponeHosts(number, ("h0",), until_ms, "alice"))
    assert rig.maintenance(number).plan_wanted
    rig.make_plan(number)
    new = rig.plans[rig.maintenance(number).plan]
    assert new.parent == old.id
    late = next(wave for wave in new.waves if "h0" in wave.hosts)
    assert late.earliest_start_ms >= until_ms


def test_plan_from_before_a_postponement_takes_no_force() -> None:
    """A plan that knows nothing of a postponement is superseded by it. Source: F-2, F-8."""
    rig = postponing()
    rig.plans_made = False
    number = rig.create("h0", "h1")
    stale = rig.planned(number)
    rig.tell(words.PostponeHosts(number, ("h0",), rig.now_ms + HOUR_MS, "alice"))
    rig.refuses(stale, PlanSuperseded)


def test_postponing_again_counts_from_the_first_time() -> None:
    """The limit is not renewed by a postponement that was granted. Source: F-8."""
    rig = postponing()
    number = rig.start("h0")
    first_ms = rig.working(number)["h0"].not_before_ms
    day_ms = 24 * HOUR_MS
    rig.tell(words.PostponeHosts(number, ("h0",), first_ms + day_ms, "alice"))
    later = words.PostponeHosts(number, ("h0",), first_ms + day_ms + 1, "alice")
    refused = rig.refuses(later, PostponementRefused)
    assert "at the latest" in str(refused)
    assert postponed_hosts(rig.maintenance(number)) == (("h0", first_ms + day_ms, "alice"),)


def test_no_postponing_without_a_policy() -> None:
    """Where the policy says nothing, nothing is postponed; nor into the past. Source: F-8."""
    rig = fleet()
    number = rig.start("h0", "h1")
    rig.refuses(words.PostponeHosts(number, ("h1",), rig.now_ms + 1, "alice"), PostponementRefused)
    allowed = postponing()
    number = allowed.start("h0", "h1")
    past = words.PostponeHosts(number, ("h1",), allowed.now_ms, "alice")
    assert "has passed" in str(allowed.refuses(past, PostponementRefused))


def test_maintenance_keeps_only_so_many_postponements() -> None:
    """As many as the limit says, and not one more. Source: F-8."""
    count = POSTPONED_MAX + 1
    rig = fleet(count, policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=86_400)))
    rig.plans_made = False
    names = tuple(f"h{n}" for n in range(count))
    number = rig.create(*names)
    until_ms = rig.now_ms + HOUR_MS
    rig.tell(words.PostponeHosts(number, names[:POSTPONED_MAX], until_ms, "alice"))
    assert len(rig.maintenance(number).postponed) == POSTPONED_MAX
    further = words.PostponeHosts(number, names[POSTPONED_MAX:], until_ms, "alice")
    with pytest.raises(PostponementRefused, match="at most"):
        rig.tell(further)


def test_wave_whose_hosts_are_all_postponed_is_not_over() -> None:
    """Nothing of it was done: it is planned again, without a check or a pause. Source: F-8."""
    rig = postponing(pause_s=3600)
    number = rig.start("h0", "h3", "h1")
    [host] = rig.working(number)
    rig.tell(words.PostponeHosts(number, (host,), rig.now_ms + 5 * HOUR_MS, "alice"))
    assert rig.waits(number, host).text == f"host {host} is postponed at the request of alice"
    assert not [each for each in rig.entries if each.action == "maintenance.wave-over"]
    assert set(rig.working(number)) == {"h0", "h3"}
    rig.run()
    over = [each.text for each in rig.entries if each.action == "maintenance.wave-over"]
    assert over == [f"wave 1 of m-{number} is over; 1 host left"]


def test_postponed_host_has_time_for_its_vms_to_leave() -> None:
    """The deadline leaves room for the moves before the work, too. Source: F-8, F-1."""
    rig = postponing()
    rig.plans_made = False
    deadline_ms = rig.now_ms + 10 * HOUR_MS
    number = rig.create("h0", move_s=1800, deadline_ms=deadline_ms)
    last_ms = deadline_ms - (1800 + 600) * SECOND_MS
    late = words.PostponeHosts(number, ("h0",), last_ms + 1, "alice")
    assert "after the deadline" in str(rig.refuses(late, PostponementRefused))
    rig.tell(words.PostponeHosts(number, ("h0",), last_ms, "alice"))
    assert postponed_hosts(rig.maintenance(number)) == (("h0", last_ms, "alice"),)
