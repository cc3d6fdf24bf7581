"""A policy applied while maintenances run: kept, replayed, and what it changes."""

import json

import pytest

from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.refusals import PlanSuperseded
from forewarn_core.fleet.stimulus import PutOff, RequestMaintenance
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.planning.policy_text import policy_text, read_policy
from forewarn_core.rules.blockers import code_of
from forewarn_core.rules.local_time import Window
from forewarn_core.rules.members import ChoiceKind, ListKind, members_of
from tests.core.maintenance import fleet
from tests.core.rig import DAY_MS, MINUTE_MS

FULL = MaintenancePolicy(
    budgets=(Budget(Scope.RACK, 10, percent=True), Budget(Scope.LABEL, 1, name="tier=db")),
    windows=(Window("nights", "Europe/Berlin", (0, 4), 1320, 240, ("2028-02-29",), ("zone=1",)),),
    freezes=((1, 2), (5, 9)),
    pause_s=60,
    owner_rest_s=3600,
    canary_count=2,
    notice_s=1200,
    max_failures=3,
)


def test_policy_is_the_same_after_its_text() -> None:
    """What the store and history keep gives back the policy, member by member."""
    assert read_policy(policy_text(FULL)) == FULL
    assert read_policy(policy_text(MaintenancePolicy())) == MaintenancePolicy()


def test_stored_policy_has_the_form_of_the_first_release() -> None:
    """The release before reads the members that it knows, in the form that it wrote. H-8."""
    stored = json.loads(policy_text(FULL))
    window = ["nights", "Europe/Berlin", [0, 4], 1320, 240, ["2028-02-29"], ["zone=1"], None]
    first = {
        "budgets": [["rack", 10, 1, ""], ["label", 1, 0, "tier=db"]],
        "windows": [[*window, "", ""]],
        "freezes": [[1, 2], [5, 9]],
        "confirm": [],
        "pause_s": 60,
        "owner_rest_s": 3600,
        "canary_count": 2,
        "notice_s": 1200,
        "max_failures": 3,
        "postpone_max_s": 0,
        "confirm_within_s": 3600,
        "confirm_above": 0,
    }
    assert stored.items() >= first.items()
    assert read_policy(json.dumps(first)) == FULL


def test_policy_knows_every_impact() -> None:
    """Work of every impact may wait until its VMs can read its notice. Source: H-7."""
    [member] = [each for name, each in members_of(MaintenancePolicy) if name == "wait_until_shown"]
    assert isinstance(member.kind, ListKind)
    assert isinstance(member.kind.kind, ChoiceKind)
    assert [*member.kind.kind.words] == [each.value for each in Impact]


def test_applied_policy_is_kept_and_replayed() -> None:
    """It is one line of history, and replaying that gives it back. Source: F-3."""
    rig = fleet()
    outcome = rig.tell(words.ApplyPolicy(FULL))
    assert [entry.action for entry in outcome.changes.entries] == ["policy.applied"]
    assert rig.state.applied_policy is not None
    assert rig.state.applied_policy.policy == FULL
    assert not rig.tell(words.ApplyPolicy(FULL)).changes.entries
    rig.check_replay()


def test_new_budget_holds_for_what_is_announced() -> None:
    """Announced work stays, and starts as the policy applied meanwhile leaves room. F-2, F-3."""
    rig = fleet(domains=1)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(budgets=(Budget(Scope.FLEET, 3),))))
    number = rig.start(*(f"h{n}" for n in range(6)))
    assert len(rig.working(number)) == 3
    rig.tell(words.ApplyPolicy(MaintenancePolicy(budgets=(Budget(Scope.FLEET, 1),))))
    assert len(rig.working(number)) == 3, "what is announced stays"
    assert [len(started) for started in rig.run()] == [1] * 6
    rig.check_replay()


def test_announced_work_waits_for_the_plan_by_a_new_policy() -> None:
    """Until it is made, nobody knows whether the new budgets have room. Source: F-3, F-4."""
    rig = fleet(domains=1)
    number = rig.start("h0", "h1")
    first, second = rig.working(number).values()
    rig.approve("web_0", first)
    rig.plans_made = False
    rig.tell(words.ApplyPolicy(MaintenancePolicy(budgets=(Budget(Scope.FLEET, 1),))))
    rig.approve("web_1", second)
    assert [each.code for each in rig.why(second)] == [code_of("planning")]
    rig.make_plan(number)
    assert [each.code for each in rig.why(second)] == [code_of("budget")]
    rig.finish(first)
    assert rig.now(second).state is OperationState.RUNNING


def test_new_freeze_withdraws_what_it_closes() -> None:
    """Announced work whose time a new policy closes is withdrawn and planned for later. F-3."""
    rig = fleet()
    number = rig.start("h0", "h1")
    rig.show()
    assert rig.working(number)
    closed = (rig.now_ms, rig.now_ms + DAY_MS)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(freezes=(closed,))))
    assert not rig.working(number)
    rig.run()
    assert (rig.maintenance(number).ended_ms or 0) >= closed[1]
    rig.check_replay()


def test_new_window_leaves_what_it_allows() -> None:
    """Announced work whose whole time stays open goes on. Source: F-2."""
    rig = fleet()
    number = rig.start("h0")
    before = rig.working(number)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(windows=(Window("always"),))))
    assert rig.working(number) == before


def test_running_work_ends_whatever_is_applied() -> None:
    """What disturbs VMs already is not cut off by a policy. Source: F-3."""
    rig = fleet()
    number = rig.start("h0")
    rig.show()
    [operation] = rig.working(number).values()
    rig.wait(operation.not_before_ms - rig.now_ms + MINUTE_MS)
    assert rig.working(number)["h0"].state is OperationState.RUNNING
    rig.tell(words.ApplyPolicy(MaintenancePolicy(freezes=((rig.now_ms, rig.now_ms + DAY_MS),))))
    assert rig.working(number)["h0"].state is OperationState.RUNNING


def test_plan_made_by_the_old_policy_takes_no_force() -> None:
    """A plan from before the policy is refused and changes nothing. Source: F-2."""
    rig = fleet()
    rig.plans_made = False
    number = rig.create("h0")
    stale = rig.planned(number)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(pause_s=1)))
    before = rig.state.maintenances[number]
    with pytest.raises(PlanSuperseded):
        rig.tell(stale)
    assert rig.state.maintenances[number] == before


def test_plan_made_while_work_was_under_way_takes_no_force_without_it() -> None:
    """Hosts whose work ends as the plan is made would be in none of its waves. Source: F-2."""
    rig = fleet()
    number = rig.start("h0", "h1")
    assert set(rig.working(number)) == {"h0"}
    lost = RequestMaintenance(cause=Cause.HOST_LOST, targets=("h3",), destination="h0")
    [elsewhere] = rig.tell(lost).numbers
    rig.plans_made = False
    rig.tell(words.ApplyPolicy(MaintenancePolicy(budgets=(Budget(Scope.FLEET, 2),))))
    stale = rig.planned(number)
    rig.finish(elsewhere)
    assert not rig.working(number), "the VMs of h3 have arrived on h0"
    with pytest.raises(PlanSuperseded):
        rig.tell(stale)
    rig.plans_made = True
    rig.make_plan(number)
    assert [sorted(started) for started in rig.run()] == [["h0"], ["h1"]]
    rig.check_replay()


def test_clock_put_back_into_closed_time_withdraws() -> None:
    """Work that was announced after a freeze does not start in it. Source: F-3, N-4."""
    rig = fleet()
    freeze = (rig.now_ms - 2 * DAY_MS, rig.now_ms - DAY_MS)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(freezes=(freeze,))))
    rig.wait(MINUTE_MS)
    number = rig.start("h0")
    rig.show()
    [operation] = rig.working(number).values()
    rig.now_ms = freeze[0] + 1
    rig.approve(operation.vms[0], operation)
    assert not rig.working(number)


def test_clock_put_ahead_into_closed_time_withdraws() -> None:
    """Work that is put off with its notice does not start in a freeze. Source: F-3, N-4."""
    rig = fleet()
    freeze = (rig.now_ms + DAY_MS, rig.now_ms + 2 * DAY_MS)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(freezes=(freeze,))))
    rig.wait(MINUTE_MS)
    number = rig.start("h0")
    rig.show()
    assert rig.working(number)
    rig.tell(PutOff(60 * MINUTE_MS))
    assert rig.working(number)
    rig.now_ms += 60 * MINUTE_MS
    rig.plans_made = False
    rig.tell(PutOff(freeze[0] - rig.now_ms))
    assert not rig.working(number)


def test_clock_put_ahead_beyond_the_deadline_withdraws() -> None:
    """Work that is put off with its notice does not end after its deadline. Source: F-1, N-4."""
    rig = fleet()
    number = rig.start("h0", deadline_ms=rig.now_ms + DAY_MS)
    rig.show()
    rig.plans_made = False
    rig.tell(PutOff(60 * MINUTE_MS))
    assert rig.working(number)
    rig.now_ms += 60 * MINUTE_MS
    rig.tell(PutOff(DAY_MS))
    assert not rig.working(number)


def test_new_budget_holds_for_what_a_pause_keeps_announced() -> None:
    """Also where the plan that finds it is being made as the pause begins. Source: F-3, F-6."""
    rig = fleet(domains=1)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(budgets=(Budget(Scope.FLEET, 3),))))
    number = rig.start(*(f"h{n}" for n in range(3)))
    assert len(rig.working(number)) == 3
    rig.plans_made = False
    rig.tell(words.ApplyPolicy(MaintenancePolicy(budgets=(Budget(Scope.FLEET, 1),))))
    rig.tell(words.PauseMaintenance(number, keep_announced=True))
    rig.make_plan(number)
    assert [len(started) for started in rig.run()] == [1] * 3
    rig.check_replay()


def test_budget_applied_during_a_pause_holds_for_what_stays_announced() -> None:
    """Its plan is made although the maintenance is paused. Source: F-3, F-6."""
    rig = fleet(domains=1)
    number = rig.start(*(f"h{n}" for n in range(3)))
    rig.tell(words.PauseMaintenance(number, keep_announced=True))
    rig.tell(words.ApplyPolicy(MaintenancePolicy(budgets=(Budget(Scope.FLEET, 1),))))
    assert len(rig.working(number)) == 3
    assert [len(started) for started in rig.run()] == [1] * 3


def test_pause_between_waves_is_as_long_as_the_new_policy_says() -> None:
    """A pause that has begun grows and shrinks with the policy, and history says so. F-2, F-3."""
    rig = fleet()
    rig.tell(words.ApplyPolicy(MaintenancePolicy(pause_s=3600)))
    number = rig.start("h0", "h1")
    while not (rests_until_ms := rig.maintenance(number).rests_until_ms):
        rig.run(limit=1)
    ended_ms = rests_until_ms - 60 * MINUTE_MS
    for pause_s in (7200, 1800):
        rig.tell(words.ApplyPolicy(MaintenancePolicy(pause_s=pause_s)))
        assert rig.maintenance(number).rests_until_ms == ended_ms + pause_s * 1000
        changed = [each for each in rig.entries if each.action == "maintenance.pause-changed"]
        assert changed[-1].text == f"m-{number} pauses as long as the new policy says"
    rig.check_replay()
