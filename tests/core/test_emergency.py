"""Emergencies: what they override, what they keep, and their review. Source: T-6."""

from dataclasses import replace

import pytest

from forewarn_core.access.roles import Authority
from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.owner_choices import Decision
from forewarn_core.fleet.refusals import (
    ChoiceRefused,
    DeclarationRefused,
    DeferralRefused,
    OwnReview,
    PostponementRefused,
)
from forewarn_core.fleet.stimulus import HostChoice, MoveTicket, Tick
from forewarn_core.fleet.ticket import Ticket, TicketMove, TicketState, TicketType
from forewarn_core.planning.checker import check
from forewarn_core.planning.planner import plan as make_plan
from forewarn_core.planning.policy import Budget, Scope
from forewarn_core.rules.exempt import NONE
from forewarn_core.rules.hand_back import Severity
from forewarn_core.rules.local_time import Window
from forewarn_server.control.planning import fleet_of, plan_of, planner_task
from tests.core.maintenance import MaintenanceRig
from tests.core.rig import DAY_MS, MINUTE_MS
from tests.core.test_owner_choices import choose, shared
from tests.core.test_windows import tickets

HOUR_MS = 60 * MINUTE_MS
PAST = Window("past", last_date="2020-06-30")
#: A policy that lets nothing run for days.
CLOSED = {
    "windows": (PAST,),
    "pause_s": 86_400,
    "owner_rest_s": 7 * 86_400,
    "postpone_max_s": 86_400,
}


def emergency(rig: MaintenanceRig, *waived: str, minutes: int | None = 20, **more: object) -> int:
    """Declare an emergency on every host; return its number."""
    number = rig.create("h0", "h1", "h2", **more)  # type: ignore[arg-type]
    hand_back_s = None if minutes is None else minutes * 60
    rig.tell(
        words.DeclareMaintenance(number, Severity.EMERGENCY, hand_back_s, "coolant leak", waived)
    )
    return number


def starts(rig: MaintenanceRig, number: int) -> dict[str, int]:
    """Return the planned start of each host, ms since the epoch UTC."""
    plan = rig.state.plans[rig.state.maintenances[number].plan]
    return {host: wave.latest_start_ms for wave in plan.waves for host in wave.hosts}


def review_of(rig: MaintenanceRig) -> Ticket:
    """Return the only review."""
    [review] = [each for each in tickets(rig) if each.type is TicketType.REVIEW]
    return review


def test_emergency_overrides_windows_freezes_pauses_and_rests() -> None:
    """It is done within hours, where other work waits for days. Source: T-6."""
    rig = shared(**CLOSED)
    freeze = (rig.now_ms, rig.now_ms + 9 * DAY_MS)
    policy = replace(rig.policy.maintenance, freezes=(freeze,))
    rig.tell(words.ApplyPolicy(policy))
    began_ms, number = rig.now_ms, emergency(rig)
    assert sorted(map(sorted, rig.run())) == [["h0", "h2"], ["h1"]]
    assert rig.maintenance(number).state.value == "done"
    assert rig.now_ms - began_ms < 3 * HOUR_MS


def test_emergency_waits_for_its_hand_back_deadline() -> None:
    """Unless its owners hand their VMs back. Source: T-3, T-6."""
    rig = shared()
    deadline_ms = rig.now_ms + 2 * HOUR_MS
    number = emergency(rig, minutes=120)
    assert starts(rig, number)["h0"] >= deadline_ms
    assert rig.waits(number, "h0").code.value == "hand-back"
    release = HostChoice("h0", "shop", Decision.RELEASE)
    choose(rig, number, release)
    assert rig.working(number)["h0"].not_before_ms < deadline_ms


def test_emergency_admits_no_later_start() -> None:
    """Neither a chosen start, nor a deferral, nor a postponement. Source: T-4, T-6."""
    rig = shared(postpone_max_s=86_400)
    number = emergency(rig, minutes=120)
    at = HostChoice("h0", "shop", Decision.AT, rig.now_ms + HOUR_MS)
    with pytest.raises(ChoiceRefused, match="emergency"):
        choose(rig, number, at)
    request = words.AskDeferral(number, (("h0", "shop"),), rig.now_ms + DAY_MS, "closing", "alice")
    with pytest.raises(DeferralRefused, match="emergency"):
        rig.tell(request)
    later = words.PostponeHosts(number, ("h0",), rig.now_ms + 3 * HOUR_MS, "alice")
    with pytest.raises(PostponementRefused, match="emergency"):
        rig.tell(later)


def test_emergency_keeps_notice_and_one_fault_domain_at_a_time() -> None:
    """Its hand-back window is never below the notice. Source: T-6, N-1, G-1."""
    rig = shared()
    number = rig.create("h0")
    word = words.DeclareMaintenance(number, Severity.EMERGENCY, 600, "leak")
    rig.refuses(word, DeclarationRefused)
    emergency(rig, minutes=None)
    assert sorted(map(sorted, rig.run())) == [["h0", "h2"], ["h1"]]
    notices = [each for each in rig.entries if each.action == "operation.announced"]
    assert notices


def test_waived_fault_domains_are_disturbed_together() -> None:
    """Both domains at once. Source: T-6."""
    rig = shared()
    emergency(rig, "fault-domain")
    assert rig.run() == [{"h0", "h1", "h2"}]


def test_emergency_keeps_budgets_unless_they_are_waived() -> None:
    """Those of the policy, and of the maintenance. Source: T-6."""
    kept = shared(budgets=(Budget(Scope.FLEET, 1),))
    emergency(kept, "fault-domain")
    assert len(kept.run()) == 3
    waived = shared(budgets=(Budget(Scope.FLEET, 1),))
    both = ("fault-domain", "budgets")
    emergency(waived, *both, budgets=(Budget(Scope.FLEET, 2),))
    assert len(waived.run()) == 1


def test_waived_notice_lets_work_start_within_minutes() -> None:
    """Its VMs see the event, for as long as it takes to announce it. Source: T-6."""
    rig = shared()
    began_ms = rig.now_ms
    number = emergency(rig, "notice", minutes=0)
    rig.now_ms = rig.due_ms(number) if not rig.working(number) else rig.now_ms
    rig.tell(Tick())
    rig.show()
    work = next(iter(rig.working(number).values()))
    assert work.notice_s == 0
    assert work.not_before_ms - began_ms < 5 * MINUTE_MS


def test_earlier_postponements_of_the_draft_do_not_count() -> None:
    """They were granted before it was an emergency. Source: T-6."""
    rig = shared(postpone_max_s=30 * 86_400)
    number = rig.create("h0")
    rig.tell(words.PostponeHosts(number, ("h0",), rig.now_ms + 9 * DAY_MS, "alice"))
    rig.tell(words.DeclareMaintenance(number, Severity.EMERGENCY, None, "leak"))
    assert starts(rig, number)["h0"] < rig.now_ms + HOUR_MS


def test_review_stays_open_until_another_person_closes_it_with_a_text() -> None:
    """It shows the reason and what was waived. Source: T-6."""
    rig = shared()
    rig.caller = Authority("kim")
    number = emergency(rig, "budgets")
    review = review_of(rig)
    assert (review.target, review.description) == (f"m-{number}", "coolant leak")
    assert (review.account, review.maintenance) == ("kim", number)
    assert [each.text for each in review.texts] == ["waived: budgets"]
    rig.refuses(MoveTicket(review.number, TicketMove.CLOSE, "fine"), OwnReview)
    rig.caller = Authority("lee")
    rig.refuses(MoveTicket(review.number, TicketMove.CLOSE), OwnReview)
    rig.run()
    assert review_of(rig).live
    rig.tell(MoveTicket(review.number, TicketMove.CLOSE, "the pump was replaced"))
    assert all(each.state is not TicketState.OPEN for each in tickets(rig))


def test_checker_knows_the_exemptions_of_an_emergency() -> None:
    """The same plan breaks rules without them. Source: T-6, invariant 19."""
    rig = shared(**CLOSED, budgets=(Budget(Scope.FLEET, 1),))
    number = emergency(rig, "fault-domain", "budgets")
    maintenance = rig.state.maintenances[number]
    task = planner_task(rig.state, maintenance, policy=rig.policy, now_ms=rig.now_ms)
    assert task.in_force is not None
    parent = plan_of(task.in_force, task.request)
    fleet, state = fleet_of(task.fleet), replace(task.state, in_force=parent)
    plan = make_plan(fleet, state, task.policy, now_ms=rig.now_ms, request=task.request)
    assert check(plan, fleet, state=state, policy=task.policy) == ()
    bound = replace(plan, request=replace(plan.request, exemption=NONE))
    broken = {each.rule for each in check(bound, fleet, state=state, policy=task.policy)}
    assert {"window", "fault-domain", "budget"} <= broken
