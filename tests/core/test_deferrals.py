"""Owners ask for a later hand-back deadline; policy or an operator answers. Source: T-4."""

import pytest

from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.declarations import DeclaredResource, ResourceState, declared
from forewarn_core.fleet.deferrals import Deferral, DeferralState, answered
from forewarn_core.fleet.lifecycle import IllegalMove
from forewarn_core.fleet.owner_choices import Decision
from forewarn_core.fleet.refusals import DeferralRefused, DeferralUndecided
from forewarn_core.fleet.stimulus import HostChoice, Tick
from forewarn_core.rules.hand_back import Severity
from tests.core.maintenance import MaintenanceRig
from tests.core.rig import DAY_MS
from tests.core.test_owner_choices import choose, shared, wave_of
from tests.core.test_owner_choices import declared as declare

DAY_S = 86_400


def ask(rig: MaintenanceRig, number: int, until_ms: int, *hosts: str, owner: str = "shop") -> None:
    """Ask as an owner does."""
    places = tuple((host, owner) for host in hosts)
    rig.tell(words.AskDeferral(number, places, until_ms, "closing", "alice"))


def decide(rig: MaintenanceRig, number: int, *, grants: bool, host: str = "") -> None:
    """Decide as an operator does."""
    rig.tell(words.DecideDeferral(number, "shop", grants, "bob", "spare parts", host))


def resource(rig: MaintenanceRig, number: int, host: str, owner: str = "shop") -> DeclaredResource:
    """Return what an owner sees of its VMs on a host."""
    [shown] = declared(rig.state, rig.state.topology, rig.now_ms, only=number)
    [found] = [each for each in shown.resources if (each.host, each.owner) == (host, owner)]
    return found


def asked(rig: MaintenanceRig, number: int, host: str) -> Deferral:
    """Return the request for a host."""
    return rig.state.deferrals[f"{number}/{host}/shop"]


def test_deferral_within_the_limit_is_granted_at_once() -> None:
    """The deadline of this owner's VMs moves, and that of no others. Source: T-4."""
    rig = shared(deferral_limit_s=7 * DAY_S)
    number, deadline_ms = declare(rig), rig.now_ms + 14 * DAY_MS
    ask(rig, number, deadline_ms + 7 * DAY_MS, "h0", "h2")
    assert {asked(rig, number, host).state for host in ("h0", "h2")} == {DeferralState.GRANTED}
    assert wave_of(rig, number, "h0") >= deadline_ms + 7 * DAY_MS
    assert wave_of(rig, number, "h1") < deadline_ms + DAY_MS
    assert resource(rig, number, "h2").deadline_ms == deadline_ms + 7 * DAY_MS
    assert resource(rig, number, "h2", "bank").deadline_ms == deadline_ms


def test_longer_deferral_waits_for_an_operator() -> None:
    """It moves nothing until it is granted; the answer has a reason. Source: T-4."""
    rig = shared(deferral_limit_s=DAY_S)
    number, deadline_ms = declare(rig), rig.now_ms + 14 * DAY_MS
    ask(rig, number, deadline_ms + 9 * DAY_MS, "h0", "h1")
    assert resource(rig, number, "h0").deadline_ms == deadline_ms
    decide(rig, number, grants=True, host="h0")
    decide(rig, number, grants=False)
    assert resource(rig, number, "h0").deadline_ms == deadline_ms + 9 * DAY_MS
    assert resource(rig, number, "h1").deadline_ms == deadline_ms
    refused = asked(rig, number, "h1")
    assert (refused.state, refused.answered_by) == (DeferralState.REFUSED, "bob")
    assert refused.answer == "spare parts"
    with pytest.raises(DeferralUndecided):
        decide(rig, number, grants=True)


def test_why_names_the_request_and_its_answer() -> None:
    """A host waits for its deadline; the request explains why it is not later. Source: T-4."""
    rig = shared()
    number = declare(rig)
    ask(rig, number, rig.now_ms + 20 * DAY_MS, "h0")
    assert rig.waits(number, "h0").text.endswith("Z: asked")
    decide(rig, number, grants=False)
    assert "owner shop asked for" in rig.waits(number, "h0").text
    assert rig.waits(number, "h0").text.endswith("refused, spare parts")
    assert "asked for" not in rig.waits(number, "h1").text


def test_policy_without_operators_refuses_at_once() -> None:
    """The answer names the limit. Source: T-4."""
    rig = shared(deferral_limit_s=DAY_S, deferral_decision_s=0)
    number, deadline_ms = declare(rig), rig.now_ms + 14 * DAY_MS
    ask(rig, number, deadline_ms + 2 * DAY_MS, "h0")
    refused = asked(rig, number, "h0")
    assert refused.state is DeferralState.REFUSED
    assert "until" in refused.answer
    assert resource(rig, number, "h0").deadline_ms == deadline_ms


def test_deferral_that_nobody_decides_is_refused() -> None:
    """At its time, by the clock alone. Source: T-4."""
    rig = shared(deferral_decision_s=3 * DAY_S)
    number = declare(rig)
    ask(rig, number, rig.now_ms + 20 * DAY_MS, "h0")
    decide_by_ms = rig.now_ms + 3 * DAY_MS
    assert asked(rig, number, "h0").decide_by_ms == decide_by_ms
    assert rig.state.decisions.next_ms(rig.now_ms) == decide_by_ms
    rig.now_ms = decide_by_ms - 1
    rig.tell(Tick())
    assert asked(rig, number, "h0").state is DeferralState.ASKED
    rig.now_ms += 1
    rig.tell(Tick())
    assert asked(rig, number, "h0").state is DeferralState.REFUSED
    assert "in time" in asked(rig, number, "h0").answer


def test_request_is_decided_by_the_deadline_that_it_would_move() -> None:
    """An operator has until then, however long the policy gives; by the clock alone. T-4."""
    rig = shared(deferral_decision_s=20 * DAY_S)
    number, deadline_ms = declare(rig), rig.now_ms + 14 * DAY_MS
    ask(rig, number, deadline_ms + 6 * DAY_MS, "h0")
    decide_by_ms = asked(rig, number, "h0").decide_by_ms
    assert decide_by_ms == deadline_ms, f"T-4: decided by {decide_by_ms}, deadline {deadline_ms}"
    rig.now_ms = deadline_ms
    rig.tell(Tick())
    assert asked(rig, number, "h0").state is DeferralState.REFUSED


def test_choice_stands_until_a_deferral_is_granted() -> None:
    """Then the owner may choose again, up to the new deadline. Source: T-4."""
    rig = shared()
    number, start_ms = declare(rig), rig.now_ms + 3 * DAY_MS
    choose(rig, number, HostChoice("h0", "shop", Decision.AT, start_ms))
    ask(rig, number, rig.now_ms + 21 * DAY_MS, "h0")
    assert wave_of(rig, number, "h0") == start_ms
    decide(rig, number, grants=True)
    assert rig.state.choices == {}
    assert resource(rig, number, "h0").state is ResourceState.OPEN
    assert wave_of(rig, number, "h0") >= rig.now_ms + 21 * DAY_MS
    later_ms = rig.now_ms + 18 * DAY_MS
    choose(rig, number, HostChoice("h0", "shop", Decision.AT, later_ms))
    assert wave_of(rig, number, "h0") == later_ms


def test_shared_host_waits_for_the_later_deadline() -> None:
    """A choice after the other owner's deadline needs no agreement. Source: T-2, T-4."""
    rig = shared(deferral_limit_s=7 * DAY_S)
    number, deadline_ms = declare(rig), rig.now_ms + 14 * DAY_MS
    ask(rig, number, deadline_ms + 7 * DAY_MS, "h2")
    assert wave_of(rig, number, "h2") >= deadline_ms + 7 * DAY_MS
    start_ms = deadline_ms + 2 * DAY_MS
    choose(rig, number, HostChoice("h2", "shop", Decision.AT, start_ms))
    assert wave_of(rig, number, "h2") == start_ms
    assert resource(rig, number, "h2").state is ResourceState.CHOSEN
    choose(rig, number, HostChoice("h2", "shop", Decision.AT, deadline_ms - DAY_MS))
    assert wave_of(rig, number, "h2") >= deadline_ms + 7 * DAY_MS
    assert resource(rig, number, "h2").state is ResourceState.WAITING


def test_refused_request_leaves_an_earlier_grant() -> None:
    """Asking for more loses nothing. Source: T-4."""
    rig = shared(deferral_limit_s=7 * DAY_S, deferral_decision_s=0)
    number, deadline_ms = declare(rig), rig.now_ms + 14 * DAY_MS
    ask(rig, number, deadline_ms + 7 * DAY_MS, "h0")
    ask(rig, number, deadline_ms + 9 * DAY_MS, "h0")
    assert asked(rig, number, "h0").state is DeferralState.REFUSED
    assert resource(rig, number, "h0").deadline_ms == deadline_ms + 7 * DAY_MS


@pytest.mark.parametrize(
    ("days", "host", "owner", "problem"),
    [
        (13, "h0", "shop", "already"),
        (91, "h0", "shop", "no hand-back deadline after"),
        (20, "h0", "bank", "no VM there"),
        (20, "h9", "shop", "not among the declared hosts"),
    ],
)
def test_impossible_deferral_changes_nothing(
    days: int, host: str, owner: str, problem: str
) -> None:
    """Whatever the policy says; of several hosts none is asked for. Source: T-4."""
    rig = shared(deferral_limit_s=365 * DAY_S)
    number = declare(rig)
    places = (("h1", "shop"), (host, owner))
    until_ms = rig.now_ms + days * DAY_MS
    with pytest.raises(DeferralRefused, match=problem):
        rig.tell(words.AskDeferral(number, places, until_ms, "closing", "alice"))
    assert rig.state.deferrals == {}


def test_longest_hand_back_counts_from_the_declaration() -> None:
    """However late the owner asks, the last possible deadline is the same. Source: T-4."""
    rig = shared(deferral_limit_s=365 * DAY_S)
    number, longest_ms = declare(rig), rig.now_ms + 90 * DAY_MS
    rig.now_ms += 10 * DAY_MS
    with pytest.raises(DeferralRefused, match="no hand-back deadline after"):
        ask(rig, number, longest_ms + 1000, "h0")
    ask(rig, number, longest_ms, "h0")
    assert asked(rig, number, "h0").granted_ms == longest_ms


def test_deferral_after_the_announcement_is_a_postponement() -> None:
    """The refusal names it; a request of before can no longer be granted. Source: T-4, F-8."""
    rig = shared()
    number, start_ms = declare(rig), rig.now_ms + DAY_MS
    choose(rig, number, HostChoice("h0", "shop", Decision.AT, start_ms))
    ask(rig, number, rig.now_ms + 20 * DAY_MS, "h0")
    rig.now_ms = rig.due_ms(number)
    rig.tell(Tick())
    with pytest.raises(DeferralRefused, match="maintenance postpone"):
        ask(rig, number, rig.now_ms + 20 * DAY_MS, "h0")
    with pytest.raises(DeferralRefused, match="announced"):
        decide(rig, number, grants=True)
    assert asked(rig, number, "h0").state is DeferralState.ASKED


def test_work_does_not_end_after_the_deadline_of_the_maintenance() -> None:
    """A deadline that is moved too far would make the work impossible. Source: T-4."""
    rig = shared(deferral_limit_s=30 * DAY_S)
    number = rig.create("h0", deadline_ms=rig.now_ms + 20 * DAY_MS)
    rig.tell(words.DeclareMaintenance(number, Severity.ROUTINE))
    with pytest.raises(DeferralRefused, match="deadline of the maintenance"):
        ask(rig, number, rig.now_ms + 20 * DAY_MS, "h0")
    ask(rig, number, rig.now_ms + 19 * DAY_MS, "h0")
    assert asked(rig, number, "h0").state is DeferralState.GRANTED


def test_deferrals_end_with_their_maintenance() -> None:
    """A cancelled maintenance leaves none in the state, and no deadline. Source: T-1."""
    rig = shared()
    number = declare(rig)
    ask(rig, number, rig.now_ms + 20 * DAY_MS, "h0")
    rig.tell(words.CancelMaintenance(number))
    assert rig.state.deferrals == {}
    assert rig.state.decisions.next_ms(rig.now_ms) is None


def test_answer_is_given_once() -> None:
    """A request that has its answer keeps it."""
    request = Deferral("7/h0/shop", 7, "h0", "shop", 1, "alice", 9)
    granted = answered(request, DeferralState.GRANTED, 2, by="bob", answer="")
    with pytest.raises(IllegalMove):
        answered(granted, DeferralState.REFUSED, 3, by="bob", answer="")


def test_undecided_deferral_is_withdrawn_by_its_owner() -> None:
    """Deadline and choice stay; nothing is left to decide, and another may be asked. T-4."""
    rig = shared()
    number, deadline_ms = declare(rig), rig.now_ms + 14 * DAY_MS
    ask(rig, number, deadline_ms + DAY_MS, "h0", "h1")
    rig.tell(words.WithdrawDeferral(number, (("h0", "shop"),), "alice"))
    withdrawn = asked(rig, number, "h0")
    assert withdrawn.state is DeferralState.WITHDRAWN
    assert resource(rig, number, "h0").deadline_ms == deadline_ms
    assert asked(rig, number, "h1").state is DeferralState.ASKED
    with pytest.raises(DeferralUndecided, match="the owner on h0"):
        rig.tell(words.WithdrawDeferral(number, (("h0", "shop"),), "alice"))
    ask(rig, number, deadline_ms + 2 * DAY_MS, "h0")
    assert asked(rig, number, "h0").state is DeferralState.ASKED
    rig.check_replay()


def test_refusal_with_any_text_is_a_refusal() -> None:
    """An operator may write `withdrawn` as the reason. Source: T-4."""
    rig = shared()
    number = declare(rig)
    ask(rig, number, rig.now_ms + 15 * DAY_MS, "h0")
    rig.tell(words.DecideDeferral(number, "shop", False, "bob", "withdrawn"))
    assert asked(rig, number, "h0").state is DeferralState.REFUSED
