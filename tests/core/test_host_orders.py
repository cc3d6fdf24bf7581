"""Test first: hosts of an owner's test group come before its other hosts. Source: T-8."""

import pytest

from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.choice_commands import results
from forewarn_core.fleet.declarations import DeclaredMaintenance, HostPlace, ResourceState, declared
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.host_orders import owner_orders
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import MaintenanceState
from forewarn_core.fleet.openings import Openings
from forewarn_core.fleet.order_commands import early_choices, name_first_group
from forewarn_core.fleet.owner_choices import Decision
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.refusals import ChoiceRefused, OrderRefused
from forewarn_core.fleet.stimulus import ChangeTopology, Enable, HostChoice, Tick
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.hand_back import HAND_BACK, Severity
from forewarn_core.rules.test_first import TEST_FIRST
from tests.core.maintenance import MaintenanceRig
from tests.core.rig import DAY_MS, MINUTE_MS
from tests.core.steps import steps

HOUR_MS = 60 * MINUTE_MS
DAY_S = 86_400


def shared(**more: object) -> MaintenanceRig:
    """Four hosts: shop tests on h2 and has others on h0 and h1; bank is on h1 and tests on h3."""
    rig = MaintenanceRig(policy=NoticePolicy(maintenance=MaintenancePolicy(**more)))  # type: ignore[arg-type]
    hosts = tuple(Host(f"h{n}", n % 2, n) for n in range(4))
    groups = (
        *(Group(name, owner="shop") for name in ("web", "trial")),
        *(Group(name, owner="bank") for name in ("db", "proof")),
    )
    vms: tuple[Vm, ...] = (Vm("w0", "h0", "web"), Vm("w1", "h1", "web"), Vm("t2", "h2", "trial"))
    vms = (*vms, Vm("d1", "h1", "db"), Vm("p3", "h3", "proof"))
    enabled = [Enable(each.name) for each in groups]
    rig.tell(ChangeTopology(hosts=hosts, groups=groups, vms=vms), *enabled)
    return rig


def declare(rig: MaintenanceRig, **more: object) -> int:
    """Declare routine work on every host; return its number."""
    number = rig.create("h0", "h1", "h2", "h3", **more)  # type: ignore[arg-type]
    rig.tell(words.DeclareMaintenance(number, Severity.ROUTINE))
    return number


def name(rig: MaintenanceRig, number: int, group: str = "trial", owner: str = "shop") -> None:
    """Name a test group, observed for a day."""
    rig.tell(words.NameFirstGroup(number, owner, group, DAY_S, owner))


def choose(rig: MaintenanceRig, number: int, *choices: HostChoice) -> None:
    """Choose as an owner does."""
    rig.tell(words.ChooseStarts(number, choices, "owner"))


def at(host: str, start_ms: int) -> HostChoice:
    """A start that shop chooses for its VMs on a host."""
    return HostChoice(host, "shop", Decision.AT, start_ms)


def starts(rig: MaintenanceRig, number: int) -> dict[str, int]:
    """Return the planned start of each host."""
    plan = rig.state.plans[rig.state.maintenances[number].plan]
    return {host: wave.latest_start_ms for wave in plan.waves for host in wave.hosts}


def seen(rig: MaintenanceRig, number: int) -> DeclaredMaintenance:
    """Return a declared maintenance as an operator sees it."""
    [found] = declared(rig.state, rig.state.topology, rig.now_ms, only=number)
    return found


def test_other_hosts_follow_the_test_after_its_observation() -> None:
    """From the deadline on, the test hosts come first, and a day passes. Source: T-8."""
    rig = shared()
    number = declare(rig)
    name(rig, number)
    planned = starts(rig, number)
    assert min(planned["h0"], planned["h1"]) >= planned["h2"] + 600_000 + DAY_MS
    assert rig.waits(number, "h0").code is HAND_BACK
    deadline_ms = rig.now_ms + 14 * DAY_MS
    waves = rig.run()
    order = [host for wave in waves for host in sorted(wave)]
    assert order.index("h2") < min(order.index("h0"), order.index("h1"))
    assert rig.now_ms >= deadline_ms + DAY_MS
    assert rig.maintenance(number).state is MaintenanceState.DONE
    rig.check_replay()


def test_hosts_after_the_test_say_what_they_wait_for() -> None:
    """Once the deadline has passed, an owner's other hosts wait for its test. Source: F-4, T-8."""
    rig = shared()
    number = declare(rig)
    name(rig, number)
    rig.now_ms += 14 * DAY_MS
    rig.tell(Tick())
    waits = rig.waits(number, "h0")
    assert (waits.code, waits.sentence("h0")) == (
        TEST_FIRST,
        "host h0 waits for the test of an owner on other hosts",
    )


def test_choices_respect_the_test_of_their_owner() -> None:
    """A start before the test is observed is refused, and no opening offers it. Source: T-8."""
    rig = shared()
    number = declare(rig)
    name(rig, number)
    first_ms = rig.now_ms + DAY_MS
    with pytest.raises(ChoiceRefused, match="hosts of the test group first"):
        choose(rig, number, at("h0", first_ms + 3 * DAY_MS))
    choose(rig, number, at("h2", first_ms))
    with pytest.raises(ChoiceRefused, match="would not be observed"):
        choose(rig, number, at("h0", first_ms + HOUR_MS))
    openings = Openings(
        Draft(rig.state, rig.now_ms, rig.terms()), rig.state.maintenances[number]
    ).of("h0")
    assert openings[0].start_ms == first_ms + 600_000 + DAY_MS
    choose(rig, number, at("h0", openings[0].start_ms))
    assert starts(rig, number)["h0"] == openings[0].start_ms


def test_held_hosts_wait_for_their_deadline_whatever_was_chosen() -> None:
    """Choices for hosts after the test do not count while they are held. Source: T-8."""
    rig = shared()
    number = declare(rig)
    name(rig, number)
    start_ms = rig.now_ms + DAY_MS
    choose(rig, number, at("h2", start_ms), at("h0", start_ms + 3 * DAY_MS))
    rig.tell(words.HoldHosts(number, "shop", "errors on h2", "shop"))
    deadline_ms = seen(rig, number).declaration.deadline_ms
    planned = starts(rig, number)
    assert (planned["h2"], planned["h0"] >= deadline_ms) == (start_ms, True)
    states = {each.host: each.state for each in seen(rig, number).resources if each.owner == "shop"}
    held, chosen = ResourceState.HELD, ResourceState.CHOSEN
    assert states == {"h0": held, "h1": held, "h2": chosen}
    rig.tell(words.HoldHosts(number, "shop", "", "shop"))
    assert starts(rig, number)["h0"] == start_ms + 3 * DAY_MS


def test_orders_that_contradict_each_other_do_not_count() -> None:
    """The declaration's order remains, and each owner reads the reason. Source: T-8."""
    rig = shared()
    rig.tell(ChangeTopology(vms=(Vm("d2", "h2", "db"), Vm("w3", "h3", "web"))))
    number = declare(rig)
    name(rig, number)
    assert seen(rig, number).orders[0].problem == ""
    name(rig, number, "proof", "bank")
    orders = owner_orders(rig.state, rig.state.maintenances[number])
    assert {each.problem for each in orders} == {"other owners of its hosts asked for the contrary"}
    assert {each.order for each in seen(rig, number).resources} == {HostPlace.ANY}
    assert len(starts(rig, number)) == 4
    rig.tell(words.NameFirstGroup(number, "bank", "", 1, "bank"))
    places = {(each.host, each.owner): each.order for each in seen(rig, number).resources}
    assert places["h2", "shop"] is HostPlace.FIRST
    assert places["h0", "shop"] is HostPlace.AFTER
    rig.check_replay()


def test_hosts_follow_no_test_that_cannot_be_planned() -> None:
    """While a test host has failed, the owner's other hosts have no wave. Source: T-8."""
    rig = shared()
    number = declare(rig)
    rig.ask(Cause.HARDWARE_FAILURE, "h2")
    name(rig, number)
    plan = rig.state.plans[rig.state.maintenances[number].plan]
    blocked = {host: blocker.code for host, blocker in plan.body.blocked}
    assert blocked["h0"] is TEST_FIRST
    assert "h3" in starts(rig, number)


@pytest.mark.parametrize(
    ("group", "observation_s", "problem"),
    [
        ("db", DAY_S, "shop has no group"),
        ("nothing", DAY_S, "shop has no group"),
        ("spare", DAY_S, "no VM on its hosts"),
        ("everywhere", DAY_S, "on all of the owner's hosts"),
        ("trial", 4 * DAY_S, "observation of at most 3 d"),
        ("", 1, "no test group is named"),
    ],
)
def test_test_group_is_refused_when_it_cannot_be_first(
    group: str, observation_s: int, problem: str
) -> None:
    """It belongs to the owner, lies on the hosts, and is observed as the policy allows. T-8."""
    rig = shared()
    groups = tuple(Group(each, owner="shop") for each in ("spare", "everywhere"))
    vms = tuple(Vm(f"e{n}", f"h{n}", "everywhere") for n in range(3))
    rig.tell(ChangeTopology(groups=groups, vms=vms))
    number = declare(rig)
    with pytest.raises(OrderRefused, match=problem):
        rig.tell(words.NameFirstGroup(number, "shop", group, observation_s, "shop"))
    assert not rig.state.maintenances[number].declaration.first_groups  # type: ignore[union-attr]


def test_order_is_refused_after_the_deadline_and_without_a_test_group() -> None:
    """The order changes only within the hand-back window. Source: T-8."""
    rig = shared()
    number = declare(rig)
    with pytest.raises(OrderRefused, match="name a test group first"):
        rig.tell(words.HoldHosts(number, "shop", "errors", "shop"))
    rig.now_ms += 14 * DAY_MS
    with pytest.raises(OrderRefused, match="hand-back deadline has passed"):
        name(rig, number)


def test_nothing_waits_for_ever_for_a_test_that_cannot_begin() -> None:
    """The test host fails and stays so: the others go on when the order lapses. T-8."""
    rig = shared()
    number = declare(rig)
    name(rig, number)
    deadline_ms = rig.state.maintenances[number].declaration.deadline_ms  # type: ignore[union-attr]
    rig.ask(Cause.HARDWARE_FAILURE, "h2")
    begun_ms: dict[str, int] = {}
    while rig.now_ms < deadline_ms + 4 * DAY_MS:
        rig.show()
        for each in tuple(rig.state.operations.values()):
            if each.state is OperationState.RUNNING and each.maintenance == number:
                begun_ms[each.host] = rig.now_ms
                rig.finish(each)
        rig.now_ms += HOUR_MS
        rig.tell(Tick())
    assert begun_ms.keys() == {"h0", "h1", "h3"}  # nothing on h3 is the owner's
    after = begun_ms["h0"], begun_ms["h1"]
    assert deadline_ms + 2 * DAY_MS <= min(after) <= max(after) <= deadline_ms + 3 * DAY_MS


def test_order_that_leaves_no_time_is_refused() -> None:
    """After the observation, the others could not be done in time. Source: T-8."""
    rig = shared()
    number = declare(rig, deadline_ms=rig.now_ms + 14 * DAY_MS + 12 * HOUR_MS)
    with pytest.raises(OrderRefused, match="after the deadline of the maintenance"):
        name(rig, number)


def test_order_is_taken_back_after_the_deadline() -> None:
    """Nobody has to wait for a test that the owner no longer wants. Source: T-8."""
    rig = shared()
    number = declare(rig)
    name(rig, number)
    rig.ask(Cause.HARDWARE_FAILURE, "h2")
    rig.wait(14 * DAY_MS + HOUR_MS)
    name(rig, number, group="")
    assert not seen(rig, number).orders


def test_first_wave_of_the_operator_comes_before_a_test() -> None:
    """Canary hosts of a maintenance are not moved behind a test. Source: T-8."""
    rig = shared()
    number = declare(rig, canary_hosts=("h0",))
    name(rig, number)
    assert "first wave" in seen(rig, number).orders[0].problem
    assert min(starts(rig, number), key=starts(rig, number).get) == "h0"  # type: ignore[arg-type]


def test_hold_ends_when_the_owner_resumes_within_a_deferral() -> None:
    """A granted deferral moves the time until which the order may change. Source: T-4, T-8."""
    rig = shared(deferral_limit_s=7 * DAY_S)
    number = declare(rig)
    name(rig, number)
    until_ms = rig.now_ms + 20 * DAY_MS
    rig.tell(words.AskDeferral(number, (("h0", "shop"),), until_ms, "a sale", "shop"))
    rig.tell(words.HoldHosts(number, "shop", "errors on h2", "shop"))
    rig.now_ms += 15 * DAY_MS
    rig.tell(words.HoldHosts(number, "shop", "", "shop"))
    assert seen(rig, number).orders[0].first_group.held == ""


def test_entry_about_an_order_names_the_test_group() -> None:
    """So the owner of the group reads it in its history. Source: T-8."""
    rig = shared()
    number = declare(rig)
    answers = seen(rig, number).declaration.answers
    outcome = rig.tell(words.NameFirstGroup(number, "shop", "trial", DAY_S, "shop"))
    [entry] = [each for each in outcome.changes.entries if each.action == "declaration.ordered"]
    assert entry.group == "trial"
    assert seen(rig, number).declaration.answers == answers + 1


def finish(rig: MaintenanceRig, number: int, host: str) -> None:
    """Carry the work on a host through, from its announcement to its end."""
    while not (operation := rig.working(number).get(host)):
        rig.now_ms = rig.due_ms(number)
        rig.tell(Tick())
    rig.show()
    rig.now_ms = operation.not_before_ms
    rig.tell(Tick())
    rig.finish(rig.state.operations[operation.number])


def test_observation_goes_on_when_the_test_vms_leave_their_host() -> None:
    """Other hosts still wait for the end of the observation. Source: T-8."""
    rig = shared()
    number = declare(rig)
    name(rig, number)
    choose(rig, number, at("h2", rig.now_ms + DAY_MS))
    finish(rig, number, "h2")
    tested_ms = rig.now_ms
    rig.tell(ChangeTopology(hosts=(Host("h9", 1, 9),), vms=(Vm("t2", "h9", "trial"),)))
    with pytest.raises(ChoiceRefused, match="would not be observed"):
        choose(rig, number, at("h0", tested_ms + DAY_MS - 1000))
    choose(rig, number, at("h0", tested_ms + DAY_MS))
    assert starts(rig, number)["h0"] == tested_ms + DAY_MS
    rig.check_replay()


def test_order_that_breaks_an_agreed_start_of_another_owner_is_refused() -> None:
    """The owner who agreed has to choose another time first. Source: T-2, T-8."""
    rig = shared()
    number, start_ms = declare(rig), rig.now_ms + 2 * DAY_MS
    choose(rig, number, at("h1", start_ms), HostChoice("h1", "bank", Decision.AT, start_ms))
    with pytest.raises(OrderRefused, match="all owners of host h1 agree on"):
        name(rig, number)
    assert starts(rig, number)["h1"] == start_ms
    choose(rig, number, at("h1", start_ms + 6 * DAY_MS))
    name(rig, number)
    states = {each.owner: each.state for each in seen(rig, number).resources if each.host == "h1"}
    assert states["bank"] is ResourceState.WAITING


def test_order_names_the_choices_that_come_before_its_test() -> None:
    """They are those of other hosts, until the test is over. Source: T-8."""
    rig = shared()
    number, start_ms = declare(rig), rig.now_ms + 2 * DAY_MS
    choose(rig, number, at("h2", start_ms), at("h0", start_ms + DAY_MS))
    assert not early(rig, number)
    name(rig, number)
    assert early(rig, number) == ["h0"]
    choose(rig, number, at("h0", start_ms + 2 * DAY_MS))
    assert not early(rig, number)


def test_order_displaces_the_choices_before_its_test_at_once() -> None:
    """A plan may come late, because none is made while a wave is at hand. Source: T-2, T-8."""
    rig = shared()
    number, start_ms = declare(rig), rig.now_ms + 2 * DAY_MS
    choose(rig, number, at("h2", start_ms), at("h0", start_ms + DAY_MS))
    draft = Draft(rig.state, rig.now_ms, rig.terms())
    name_first_group(draft, words.NameFirstGroup(number, "shop", "trial", DAY_S, "kim"))
    displaced = {each.host: each.displaced_ms for each in draft.state.choices.values()}
    assert displaced == {"h2": None, "h0": rig.now_ms}


def early(rig: MaintenanceRig, number: int) -> list[str]:
    """Return the hosts whose chosen start comes before the test of shop."""
    draft = Draft(rig.state, rig.now_ms, rig.terms())
    return [each.host for each in early_choices(draft, rig.state.maintenances[number], "shop")]


def test_other_owner_reads_what_it_can_do_about_a_test() -> None:
    """The test hosts are not its own, so it cannot choose a time for them. Source: T-2, T-8."""
    rig = shared()
    number = declare(rig)
    name(rig, number)
    with pytest.raises(ChoiceRefused, match="release the host"):
        choose(rig, number, HostChoice("h1", "bank", Decision.AT, rig.now_ms + DAY_MS))
    with pytest.raises(ChoiceRefused, match="release the host"):
        choose(rig, number, HostChoice("h1", "bank", Decision.NOW))


def test_group_of_another_owner_is_no_test_group_any_more() -> None:
    """Its former owner reads the reason, and hosts that it holds stay held. Source: T-8."""
    rig = shared()
    number = declare(rig)
    name(rig, number)
    rig.tell(words.HoldHosts(number, "shop", "errors on h2", "shop"))
    rig.tell(ChangeTopology(groups=(Group("trial", owner="bank"),)))
    [order] = owner_orders(rig.state, rig.state.maintenances[number])
    assert order.problem == "group trial is no longer a group of the owner"
    states = {each.host: each.state for each in seen(rig, number).resources if each.owner == "shop"}
    assert set(states.values()) == {ResourceState.HELD}
    rig.tell(words.HoldHosts(number, "shop", "", "shop"))
    choose(rig, number, at("h0", rig.now_ms + DAY_MS))
    assert starts(rig, number)["h0"] == rig.now_ms + DAY_MS


def test_hold_survives_another_test_group_but_not_the_end_of_the_order() -> None:
    """Without an order there is nothing to hold. Source: T-8."""
    rig = shared()
    rig.tell(ChangeTopology(groups=(Group("more", owner="shop"),), vms=(Vm("m0", "h0", "more"),)))
    number = declare(rig)
    name(rig, number)
    rig.tell(words.HoldHosts(number, "shop", "errors on h2", "shop"))
    name(rig, number, "more")
    assert seen(rig, number).orders[0].first_group.held == "errors on h2"
    name(rig, number, "")
    name(rig, number)
    assert seen(rig, number).orders[0].first_group.held == ""


def wide(hosts: int, *, tests: int, others: int = 0) -> tuple[MaintenanceRig, int]:
    """Declared work on many hosts of shop, which tests on the first of them.

    `others`: the number of groups of other owners without VMs on these hosts.
    """
    rig = MaintenanceRig(policy=NoticePolicy(maintenance=MaintenancePolicy()))
    names = [f"h{n}" for n in range(hosts)]
    own = (Group("trial", owner="shop"), Group("web", owner="shop"))
    groups = (*own, *(Group(f"g{n}", owner=f"owner{n}") for n in range(others)))
    vms = [Vm(f"v{n}", each, "trial" if n < tests else "web") for n, each in enumerate(names)]
    layout = ChangeTopology(
        hosts=tuple(Host(each, 0, 0) for each in names), groups=groups, vms=tuple(vms)
    )
    rig.tell(layout, Enable("trial"), Enable("web"))
    number = rig.create(*names)
    rig.tell(words.DeclareMaintenance(number, Severity.ROUTINE))
    return rig, number


def test_answers_to_choices_before_a_test_cost_their_number() -> None:
    """Each choice costs the same, however many hosts and other choices there are. Source: T-8."""

    def cost(hosts: int, decision: Decision) -> int:
        rig, number = wide(hosts, tests=1)
        name(rig, number)
        start_ms = rig.now_ms + 3 * DAY_MS
        choices = tuple(HostChoice(f"h{n}", "shop", decision, start_ms) for n in range(1, hosts))
        draft = Draft(rig.state, rig.now_ms, rig.terms())
        word = words.ChooseStarts(number, choices, "shop")
        answers = results(draft, word)
        assert {each.blocker.code for each in answers if each.blocker} == {TEST_FIRST}
        return steps(lambda: results(draft, word))

    for decision in (Decision.AT, Decision.NOW):
        assert cost(200, decision) < 4.4 * cost(50, decision)


def test_choices_before_a_test_cost_the_hosts_once() -> None:
    """The end of the test is not computed for each host after it. Source: T-8."""

    def cost(hosts: int) -> int:
        rig, number = wide(hosts, tests=hosts // 2)
        start_ms = rig.now_ms + 3 * DAY_MS
        choose(rig, number, *(at(f"h{n}", start_ms) for n in range(hosts)))
        name(rig, number)
        assert len(early(rig, number)) == hosts // 2
        return steps(lambda: early(rig, number))

    assert cost(200) < 4.4 * cost(50)


def test_name_of_a_test_group_costs_nothing_for_groups_elsewhere() -> None:
    """The owner's groups are those with VMs on the declared hosts. Source: T-8."""

    def cost(others: int) -> int:
        rig, number = wide(4, tests=1, others=others)
        draft = Draft(rig.state, rig.now_ms, rig.terms())
        word = words.NameFirstGroup(number, "shop", "trial", DAY_S, "shop")
        return steps(lambda: name_first_group(draft, word))

    assert cost(4000) < 2 * cost(0)


def test_end_of_a_test_follows_the_choices_of_the_same_call() -> None:
    """A later start of a test host moves the openings of the hosts after it. Source: T-2, T-8."""
    rig = shared()
    number = declare(rig)
    name(rig, number)
    openings = Openings(Draft(rig.state, rig.now_ms, rig.terms()), rig.state.maintenances[number])
    assert openings.tested_ms("h0") is None
    first_ms = rig.now_ms + DAY_MS
    for start_ms in (first_ms, first_ms + DAY_MS):
        openings.take("h2", start_ms)
        assert openings.tested_ms("h0") == start_ms + 600_000 + DAY_MS
