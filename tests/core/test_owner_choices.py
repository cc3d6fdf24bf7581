"""Owners choose when declared work starts on their hosts. Source: T-2, T-3."""

import pytest

from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.choice_commands import ChoiceResult, results
from forewarn_core.fleet.declarations import DeclaredResource, ResourceState
from forewarn_core.fleet.declarations import declared as declared_maintenances
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import SECOND_MS, Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.openings import Opening, Openings
from forewarn_core.fleet.owner_choices import Decision
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.refusals import ChoiceRefused
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    Enable,
    HostChoice,
    RequestMaintenance,
    Tick,
)
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.hand_back import Severity
from forewarn_core.rules.local_time import Window
from tests.core.maintenance import MaintenanceRig
from tests.core.rig import DAY_MS, MINUTE_MS
from tests.core.steps import steps
from tests.core.test_moving import begun

HOUR_MS = 60 * MINUTE_MS
AT, NOW, RELEASE = Decision.AT, Decision.NOW, Decision.RELEASE


def shared(**more: object) -> MaintenanceRig:
    """Three hosts in two fault domains: shop on all, bank on the last as well."""
    policy = MaintenancePolicy(**more)  # type: ignore[arg-type]
    rig = MaintenanceRig(policy=NoticePolicy(maintenance=policy))
    hosts = tuple(Host(f"h{n}", n % 2, n) for n in range(3))
    groups = (Group("web", owner="shop"), Group("db", owner="bank"))
    vms = (*(Vm(f"web_{n}", f"h{n}", "web") for n in range(3)), Vm("db_0", "h2", "db"))
    rig.tell(ChangeTopology(hosts=hosts, groups=groups, vms=vms), Enable("web"), Enable("db"))
    return rig


def declared(rig: MaintenanceRig) -> int:
    """Declare routine work on every host; return its number."""
    number = rig.create("h0", "h1", "h2")
    rig.tell(words.DeclareMaintenance(number, Severity.ROUTINE))
    return number


def choose(rig: MaintenanceRig, number: int, *choices: HostChoice) -> None:
    """Choose as an owner does."""
    rig.tell(words.ChooseStarts(number, choices, "owner"))


def opened(rig: MaintenanceRig, number: int) -> Openings:
    """Return the openings of a maintenance as of now."""
    return Openings(Draft(rig.state, rig.now_ms, rig.terms()), live(rig, number))


def live(rig: MaintenanceRig, number: int) -> Maintenance:
    """Return a live maintenance."""
    return rig.state.maintenances[number]


def wave_of(rig: MaintenanceRig, number: int, host: str) -> int:
    """Return the planned start of a host."""
    plan = rig.state.plans[live(rig, number).plan]
    [start_ms] = [each.latest_start_ms for each in plan.waves if host in each.hosts]
    return start_ms


def test_chosen_start_is_the_not_before_of_the_event() -> None:
    """An approval does not start the work earlier. Source: T-2."""
    rig = shared()
    number, start_ms = declared(rig), rig.now_ms + 3 * DAY_MS
    choose(rig, number, HostChoice("h0", "shop", AT, start_ms))
    rig.now_ms = rig.due_ms(number)
    rig.tell(Tick())
    rig.show()
    work = rig.working(number)["h0"]
    assert work.not_before_ms == start_ms
    rig.approve("web_0", work)
    assert rig.now(work.number).execution.started_ms is None
    rig.now_ms = start_ms
    rig.tell(Tick())
    assert rig.now(work.number).execution.started_ms == start_ms


def test_shared_host_waits_until_every_owner_agrees() -> None:
    """One owner's choice alone is no reason to disturb another. Source: T-2, T-3."""
    rig = shared()
    number, start_ms = declared(rig), rig.now_ms + 3 * DAY_MS
    deadline_ms = rig.now_ms + 14 * DAY_MS
    choose(rig, number, HostChoice("h2", "shop", AT, start_ms))
    assert wave_of(rig, number, "h2") >= deadline_ms
    choose(rig, number, HostChoice("h2", "bank", AT, start_ms + HOUR_MS))
    assert wave_of(rig, number, "h2") >= deadline_ms, "they chose different times"
    choose(rig, number, HostChoice("h2", "bank", RELEASE))
    assert wave_of(rig, number, "h2") == start_ms


def test_now_and_release_start_with_the_notice() -> None:
    """Nothing else holds the hosts back. Source: T-2."""
    rig = shared()
    number = declared(rig)
    choose(rig, number, HostChoice("h0", "shop", NOW), HostChoice("h2", "shop", RELEASE))
    assert wave_of(rig, number, "h2") > rig.now_ms + 13 * DAY_MS
    choose(rig, number, HostChoice("h2", "bank", NOW))
    assert rig.working(number)["h0"].not_before_ms < rig.now_ms + HOUR_MS


def test_choice_of_now_may_approve_the_event() -> None:
    """The work starts once its event is shown. Never for strict groups. Source: T-2, A-7."""
    rig = shared()
    number = declared(rig)
    choose(rig, number, HostChoice("h0", "shop", NOW, approves=True))
    rig.show()
    assert rig.working(number)["h0"].execution.started_ms == rig.now_ms
    strict = shared()
    strict.tell(ChangeTopology(groups=(Group("web", owner="shop", strict_approval=True),)))
    number = declared(strict)
    choose(strict, number, HostChoice("h0", "shop", NOW, approves=True))
    strict.show()
    assert strict.working(number)["h0"].execution.started_ms is None


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        (HostChoice("h0", "shop", AT, 15 * DAY_MS), "after the hand-back deadline"),
        (HostChoice("h0", "shop", AT, MINUTE_MS), "notice"),
        (HostChoice("h0", "bank", AT, 3 * DAY_MS), "no VM there"),
        (HostChoice("h9", "shop", AT, 3 * DAY_MS), "not among the declared hosts"),
        (HostChoice("h1", "shop", AT, 2 * DAY_MS), "another fault domain"),
        (HostChoice("h1", "shop", AT, 2 * DAY_MS + MINUTE_MS), "other work"),
    ],
)
def test_choice_that_breaks_a_rule_is_refused(choice: HostChoice, problem: str) -> None:
    """The refusal has the reason; nothing is recorded. Source: T-2."""
    rig = shared()
    number = declared(rig)
    choose(rig, number, HostChoice("h0", "shop", AT, rig.now_ms + 2 * DAY_MS))
    before = dict(rig.state.choices)
    start_ms = rig.now_ms + choice.start_ms
    word = HostChoice(choice.host, choice.owner, AT, start_ms)
    with pytest.raises(ChoiceRefused, match=problem):
        choose(rig, number, HostChoice("h2", "shop", RELEASE), word)
    assert rig.state.choices == before


def test_refusal_names_the_nearest_openings() -> None:
    """They are possible choices. Source: T-2."""
    rig = shared()
    number, start_ms = declared(rig), rig.now_ms + 2 * DAY_MS
    choose(rig, number, HostChoice("h0", "shop", AT, start_ms))
    openings = opened(rig, number)
    nearest = openings.nearest("h1", start_ms)
    assert len(nearest) == 2
    assert all(openings.blocker("h1", each.start_ms) is None for each in nearest)
    assert all(openings.blocker("h1", each.latest_ms) is None for each in nearest)
    assert openings.blocker("h1", nearest[0].latest_ms + SECOND_MS) is not None


def test_openings_follow_windows_and_other_choices() -> None:
    """Work fits into each window; a start that others chose has the room that is left. T-2."""
    nights = Window("nights", from_min=60, to_min=120)
    rig = shared(windows=(nights,), budgets=(Budget(Scope.FLEET, 2),))
    number = declared(rig)
    free = opened(rig, number).of("h0")
    assert len(free) >= 13
    assert {each.latest_ms - each.start_ms for each in free[1:]} == {50 * MINUTE_MS}
    chosen_ms = free[3].start_ms + 20 * MINUTE_MS
    choose(rig, number, HostChoice("h0", "shop", AT, chosen_ms))
    beside = [each for each in opened(rig, number).of("h2") if each.start_ms == chosen_ms]
    assert beside == [Opening(chosen_ms, chosen_ms, 1)]


def test_window_that_is_shorter_than_the_work_is_no_opening() -> None:
    """Also not before a start that others chose: each opening begins before it ends. T-2, F-7."""
    windows = (Window("nights", from_min=60, to_min=120), Window("short", from_min=30, to_min=35))
    rig = shared(windows=windows)
    number = declared(rig)
    choose(rig, number, HostChoice("h0", "shop", AT, opened(rig, number).of("h0")[3].start_ms))
    openings = opened(rig, number).of("h2")
    assert len(openings) >= 13
    assert [each for each in openings if each.latest_ms < each.start_ms] == []


def test_choice_may_be_changed_until_the_event_is_announced() -> None:
    """The last choice counts. Source: T-2."""
    rig = shared()
    number, start_ms = declared(rig), rig.now_ms + 2 * DAY_MS
    choose(rig, number, HostChoice("h0", "shop", AT, start_ms))
    choose(rig, number, HostChoice("h0", "shop", AT, start_ms + MINUTE_MS))
    assert wave_of(rig, number, "h0") == start_ms + MINUTE_MS
    rig.now_ms = rig.due_ms(number)
    rig.tell(Tick())
    with pytest.raises(ChoiceRefused, match="announced already"):
        choose(rig, number, HostChoice("h0", "shop", AT, start_ms + DAY_MS))


def test_rule_gives_way_to_a_choice_made_in_the_same_moment() -> None:
    """It replaces a choice only if the plan cannot keep it. Source: T-2."""
    rig = shared()
    number, start_ms = declared(rig), rig.now_ms + 2 * DAY_MS
    choose(rig, number, HostChoice("h0", "shop", AT, start_ms))
    before = live(rig, number).declaration
    ruled_ms = start_ms + DAY_MS
    choose(rig, number, HostChoice("h0", "shop", AT, ruled_ms, gives_way=True))
    assert wave_of(rig, number, "h0") == start_ms, "the rule replaced the owner's choice"
    assert live(rig, number).declaration == before
    freeze = (start_ms - HOUR_MS, start_ms + HOUR_MS)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(freezes=(freeze,))))
    choose(rig, number, HostChoice("h0", "shop", AT, ruled_ms, gives_way=True))
    assert wave_of(rig, number, "h0") == ruled_ms


def test_choice_that_a_policy_breaks_is_displaced() -> None:
    """It is marked, and no longer once the plan keeps it again. Source: T-2."""
    rig = shared()
    number, start_ms = declared(rig), rig.now_ms + 2 * DAY_MS
    choose(rig, number, HostChoice("h0", "shop", AT, start_ms))
    freeze = (start_ms - HOUR_MS, start_ms + HOUR_MS)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(freezes=(freeze,))))
    [choice] = rig.state.choices.values()
    assert choice.displaced_ms == rig.now_ms
    rig.tell(words.ApplyPolicy(MaintenancePolicy()))
    [choice] = rig.state.choices.values()
    assert choice.displaced_ms is None
    assert wave_of(rig, number, "h0") == start_ms


def test_displaced_choice_disturbs_nobody_before_the_deadline() -> None:
    """Nobody chose the time after a freeze: the host waits for its deadline. Source: T-2, T-3."""
    rig = shared()
    number, start_ms = declared(rig), rig.now_ms + 2 * DAY_MS
    deadline_ms = rig.now_ms + 14 * DAY_MS
    choose(rig, number, HostChoice("h0", "shop", AT, start_ms))
    freeze = (start_ms - HOUR_MS, start_ms + HOUR_MS)
    rig.tell(words.ApplyPolicy(MaintenancePolicy(freezes=(freeze,))))
    assert wave_of(rig, number, "h0") >= deadline_ms
    rig.now_ms = start_ms + DAY_MS
    rig.tell(Tick())
    assert rig.working(number) == {}
    [choice] = rig.state.choices.values()
    assert choice.displaced_ms


def test_last_opening_ends_with_a_second_before_the_deadline() -> None:
    """Callers give whole seconds, so a start within the deadline's last second cannot be given."""
    rig = shared()
    rig.now_ms += 988
    number = declared(rig)
    last_ms = opened(rig, number).of("h0")[-1].latest_ms
    assert last_ms % SECOND_MS == 0
    choose(rig, number, HostChoice("h0", "shop", AT, last_ms))


def test_openings_while_vms_wait_to_return() -> None:
    """The return has no time before it is announced; others may still choose. Source: T-2, F-1."""
    rig = MaintenanceRig()
    hosts = tuple(Host(f"h{n}", n, n, memory_mib=2048) for n in range(3))
    group = Group("web", owner="shop")
    vms = tuple(Vm(f"web_{n}", f"h{n}", "web", memory_mib=1024) for n in range(2))
    rig.tell(ChangeTopology(hosts=hosts, groups=(group,), vms=vms), Enable("web"))
    number = rig.create("h0", "h1", move_s=600, return_vms=True)
    rig.tell(words.DeclareMaintenance(number, Severity.ROUTINE))
    choose(rig, number, HostChoice("h0", "shop", NOW), HostChoice("h1", "shop", RELEASE))
    rig.finish(begun(rig, "h0", "web_0", number))
    reboot = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h1",))
    rig.tell(reboot)  # the group is disturbed elsewhere, so that the return waits
    rig.finish(rig.working(number)["h0"])
    [back] = [each for each in rig.state.operations.values() if each.is_return]
    assert back.state is OperationState.PLANNED
    assert opened(rig, number).of("h1")[0].start_ms >= rig.now_ms + 600 * SECOND_MS
    rig.tell(ChangeTopology(vms=(Vm("new", "h0", "web", memory_mib=1024),)))
    [seen] = declared_maintenances(rig.state, rig.state.topology, rig.now_ms)
    states = {each.host: each.state for each in seen.resources}
    assert states["h0"] is ResourceState.STARTED


def test_choices_end_with_their_maintenance() -> None:
    """A cancelled maintenance leaves none in the state. Source: T-1."""
    rig = shared()
    number = declared(rig)
    choose(rig, number, HostChoice("h0", "shop", AT, rig.now_ms + 2 * DAY_MS))
    rig.tell(words.CancelMaintenance(number))
    assert rig.state.choices == {}


def answers(rig: MaintenanceRig, number: int, *choices: HostChoice) -> list[ChoiceResult]:
    """Return the answers to choices, without making them."""
    draft = Draft(rig.state, rig.now_ms, rig.terms())
    return results(draft, words.ChooseStarts(number, choices, "owner"))


def test_last_owner_of_a_shared_host_needs_no_further_agreement() -> None:
    """Whatever the others chose, the work then has a start before the deadline. Source: T-2."""
    rig = shared()
    number, start_ms = declared(rig), rig.now_ms + 2 * DAY_MS
    shop_now, bank_now = HostChoice("h2", "shop", NOW), HostChoice("h2", "bank", NOW)
    bank_at = HostChoice("h2", "bank", AT, start_ms)
    assert [each.agreed for each in answers(rig, number, shop_now)] == [False]
    assert [each.agreed for each in answers(rig, number, shop_now, bank_now)] == [True, True]
    choose(rig, number, bank_at)
    for mine in (
        shop_now,
        HostChoice("h2", "shop", AT, start_ms),
        HostChoice("h2", "shop", RELEASE),
    ):
        assert [each.agreed for each in answers(rig, number, mine)] == [True], mine
    other = HostChoice("h2", "shop", AT, start_ms + DAY_MS)
    assert [each.agreed for each in answers(rig, number, other)] == [False]
    rig.now_ms = start_ms + HOUR_MS  # the start of the other owner is past, and counts no more
    assert [each.agreed for each in answers(rig, number, shop_now)] == [False]


def test_now_is_refused_without_an_opening() -> None:
    """Work that cannot start before the deadline does not start now. Source: T-2."""
    rig = shared()
    number = declared(rig)
    rig.tell(
        words.ApplyPolicy(MaintenancePolicy(freezes=((rig.now_ms, rig.now_ms + 20 * DAY_MS),)))
    )
    with pytest.raises(ChoiceRefused, match="freeze"):
        choose(rig, number, HostChoice("h0", "shop", NOW))
    choose(rig, number, HostChoice("h0", "shop", RELEASE))


def test_chosen_start_is_shown_while_a_wave_is_at_hand() -> None:
    """The plan in force is older than the choice. Source: T-2."""
    rig = shared()
    number, start_ms = declared(rig), rig.now_ms + 3 * DAY_MS
    choose(rig, number, HostChoice("h0", "shop", AT, start_ms))
    rig.now_ms = rig.due_ms(number)
    rig.tell(Tick())
    later_ms = start_ms + 2 * DAY_MS
    choose(rig, number, HostChoice("h1", "shop", AT, later_ms))
    shown = {each.host: each.start_ms for each in resources(rig, number) if each.owner == "shop"}
    assert shown["h1"] == later_ms
    choose(rig, number, HostChoice("h1", "shop", NOW))
    shown = {each.host: each.start_ms for each in resources(rig, number) if each.owner == "shop"}
    assert shown["h1"] == 0, "its start is planned once the wave has ended"


def resources(rig: MaintenanceRig, number: int) -> tuple[DeclaredResource, ...]:
    """Return the resources of a declared maintenance."""
    [found] = declared_maintenances(rig.state, rig.state.topology, rig.now_ms, only=number)
    return found.resources


def test_refusal_says_that_the_work_is_done() -> None:
    """Not that it is announced already. Source: T-2."""
    rig = shared()
    number = declared(rig)
    choose(rig, number, HostChoice("h0", "shop", NOW))
    while "h0" not in rig.working(number):
        rig.now_ms = rig.due_ms(number)
        rig.tell(Tick())
    rig.show()
    operation = rig.working(number)["h0"]
    rig.now_ms = operation.not_before_ms
    rig.tell(Tick())
    with pytest.raises(ChoiceRefused, match="has started"):
        choose(rig, number, HostChoice("h0", "shop", RELEASE))
    rig.finish(rig.state.operations[operation.number])
    with pytest.raises(ChoiceRefused, match="its work is done"):
        choose(rig, number, HostChoice("h0", "shop", RELEASE))


def test_choices_of_one_start_cost_their_number() -> None:
    """Each choice is checked against what the earlier ones use, not against each of them. T-2."""

    def cost(count: int) -> int:
        budgets = (Budget(Scope.FLEET, 10_000),)
        policy = NoticePolicy(maintenance=MaintenancePolicy(budgets=budgets))
        rig = MaintenanceRig(policy=policy)
        hosts = [Host(f"h{n}", n % 2, 0) for n in range(count)]
        groups = tuple(Group(f"g{n}", owner="shop") for n in range(2))
        vms = [Vm(f"v{n}", f"h{n}", f"g{n % 2}") for n in range(count)]
        rig.tell(ChangeTopology(hosts=tuple(hosts), groups=groups, vms=tuple(vms)))
        number, start_ms = rig.create(*(each.name for each in hosts)), rig.now_ms + 3 * DAY_MS
        rig.tell(words.DeclareMaintenance(number, Severity.ROUTINE))
        choices = tuple(HostChoice(each.name, "shop", AT, start_ms) for each in hosts)
        draft = Draft(rig.state, rig.now_ms, rig.terms())
        word = words.ChooseStarts(number, choices, "shop")
        assert not any(each.blocker for each in results(draft, word))
        return steps(lambda: results(draft, word))

    assert cost(200) < 4.4 * cost(50)


def test_host_that_chooses_its_start_once_more_has_room() -> None:
    """A host does not use up the budget for itself, nor for an owner beside it. Source: T-2."""
    rig = shared(budgets=(Budget(Scope.FLEET, 1),))
    number, start_ms = declared(rig), rig.now_ms + 3 * DAY_MS
    both = [HostChoice("h2", owner, AT, start_ms) for owner in ("shop", "bank")]
    choose(rig, number, *both)
    choose(rig, number, *both)
    with pytest.raises(ChoiceRefused, match="budget"):
        choose(rig, number, HostChoice("h0", "shop", AT, start_ms))
