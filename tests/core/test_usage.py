"""What is taken of budgets, kept as work comes and goes; and starts that are held back by it."""

from forewarn_base.values import replace
from forewarn_core.fleet import transitions
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import Cause, Source
from forewarn_core.fleet.lifecycle import Alert, OperationState
from forewarn_core.fleet.maintenance import MaintenanceState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.stimulus import (
    Cancel,
    ChangeTopology,
    Complete,
    Repair,
)
from forewarn_core.fleet.topology import FleetChange, Group, Host, Vm
from forewarn_core.fleet.usage import FLEET, UNCOUNTED_MAX
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from tests.core.invariants import usage_of
from tests.core.maintenance import MaintenanceRig, fleet
from tests.core.rig import DAY_MS, MINUTE_MS


def budgeted(limit: int, scope: Scope = Scope.FLEET) -> MaintenanceRig:
    """Nine hosts in three fault domains, and one budget."""
    budgets = (Budget(scope, limit),)
    return fleet(hosts=9, policy=NoticePolicy(maintenance=MaintenancePolicy(budgets=budgets)))


def test_start_waits_for_room_after_a_failure() -> None:
    """A host that fails after the announcement counts: one start is held back. Source: F-3."""
    rig = budgeted(2)
    number = rig.start("h0", "h3")
    assert set(rig.working(number)) == {"h0", "h3"}
    rig.show()
    rig.ask(Cause.HARDWARE_FAILURE, "h6")
    rig.wait(20 * MINUTE_MS)
    first, second = rig.working(number).values()
    assert first.state is OperationState.RUNNING
    assert second.state is OperationState.ANNOUNCED
    waits = rig.waits(number, second.host)
    assert (waits.code.value, waits.subject) == ("budget", "fleet")
    assert waits.text.endswith(f"the budget of the fleet has no room for host {second.host}")
    assert rig.state.current_usage().running[FLEET] == 2
    rig.finish(first)
    assert rig.now(second).state is OperationState.RUNNING
    rig.check_replay()


def test_start_that_waits_is_woken_by_a_repair() -> None:
    """What waits for room goes on when a failure is over; nothing else has to happen. F-3, F-4."""
    rig = budgeted(1)
    number = rig.start("h0")
    rig.show()
    rig.ask(Cause.HARDWARE_FAILURE, "h3")
    rig.approve("web_0", rig.working(number)["h0"])
    rig.wait(60 * MINUTE_MS)
    assert rig.working(number)["h0"].state is OperationState.ANNOUNCED
    assert rig.working(number)["h0"].alert is not Alert.NONE
    rig.tell(Repair("h3"))
    assert rig.working(number)["h0"].state is OperationState.RUNNING


def test_work_by_hand_counts_at_the_start() -> None:
    """Hosts that an operator reboots take room that was free at the announcement. Source: F-3."""
    rig = budgeted(2)
    by_hand = rig.ask(Cause.HOST_REBOOT, "h1")
    rig.show()
    rig.approve("web_1", by_hand)
    assert rig.now(by_hand).state is OperationState.RUNNING
    number = rig.start("h4", "h7")
    rig.wait(DAY_MS // 24)
    running = [each for each in rig.working(number).values() if each.execution.started_ms]
    assert len(running) <= 1
    rig.finish(by_hand)
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE


def test_budget_of_a_group_counts_its_vms() -> None:
    """A group's budget counts its VMs where they are; what is over takes nothing. Source: F-3."""
    rig = budgeted(1, Scope.GROUP)
    number = rig.start("h0", "h3", "h6")
    assert len(rig.run()) == 3
    assert rig.maintenance(number).state is MaintenanceState.DONE
    assert not rig.state.current_usage().taken
    assert not rig.state.current_usage().running


def test_what_leaves_a_failed_host_takes_nothing_any_more() -> None:
    """Its owner's budget has room as soon as the VM is gone, or elsewhere. Source: F-3."""
    rig = budgeted(1, Scope.OWNER)
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h3")
    rig.tell(Complete(failure.number, failed=True))
    assert rig.state.current_usage().taken[Scope.OWNER, ""] == 1
    rig.tell(ChangeTopology(removed=(("vm", "web_3"),)))
    assert usage_of(rig.state).taken == rig.state.current_usage().taken
    assert (Scope.OWNER, "") not in rig.state.current_usage().taken


def test_entry_of_no_operation_names_none() -> None:
    """History is read by operation."""
    rig = budgeted(1)
    assert {entry.operation for entry in rig.entries} == {0}


def test_copy_knows_who_has_rested() -> None:
    """Readers preview plans from a copy. Source: F-3."""
    rig = budgeted(1)
    rig.tell(ChangeTopology(groups=(Group("web", owner="anna"),)))
    rig.start("h0")
    rig.run()
    assert "anna" in rig.state.last_disturbed_ms
    assert rig.state.copy().last_disturbed_ms == rig.state.last_disturbed_ms


def test_what_comes_to_a_failed_host_takes_room() -> None:
    """A VM that is put on a host that has failed counts from then. Source: F-3."""
    rig = budgeted(1, Scope.OWNER)
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h3")
    rig.tell(Complete(failure.number, failed=True))
    rig.tell(ChangeTopology(vms=(Vm("new", "h3", "web"),)))
    assert rig.state.current_usage().taken[Scope.OWNER, ""] == 2


def test_start_that_waits_is_woken_when_a_vm_leaves() -> None:
    """Room that a VM leaves on a failed host is used at once. Source: F-3, F-4."""
    rig = budgeted(1, Scope.GROUP)
    number = rig.start("h0")
    rig.show()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h3")
    rig.tell(Complete(failure.number, failed=True))
    rig.approve("web_0", rig.working(number)["h0"])
    assert rig.working(number)["h0"].state is OperationState.ANNOUNCED
    rig.tell(ChangeTopology(removed=(("vm", "web_3"),)))
    assert rig.working(number)["h0"].state is OperationState.RUNNING


def test_start_that_waits_is_woken_when_a_host_goes_to_another_rack() -> None:
    """A budget of a rack counts its hosts where they are now. Source: F-3."""
    rig = budgeted(1, Scope.RACK)
    racks = {"h0": "r1", "h3": "r1", "h6": "r2"}
    hosts = [
        replace(rig.state.topology.hosts[name], labels=(("rack", rack),))
        for name, rack in racks.items()
    ]
    rig.tell(ChangeTopology(hosts=tuple(hosts)))
    number = rig.start("h0")
    rig.show()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h3")
    rig.tell(Complete(failure.number, failed=True))
    rig.approve("web_0", rig.working(number)["h0"])
    assert rig.working(number)["h0"].state is OperationState.ANNOUNCED
    rig.tell(ChangeTopology(hosts=(replace(hosts[1], labels=(("rack", "r2"),)),)))
    assert rig.working(number)["h0"].state is OperationState.RUNNING


def agrees(rig: MaintenanceRig) -> None:
    """Assert that what is counted as things change is what a look at everything counts."""
    counted, whole = rig.state.current_usage(), usage_of(rig.state)
    assert (counted.taken, counted.running) == (whole.taken, whole.running)


def test_budgets_are_counted_as_a_step_goes_on_and_when_it_is_undone() -> None:
    """Work on hosts and VMs that is announced, starts, ends, and VMs that go. Source: F-3."""
    rig = fleet()
    on_host = rig.ask(Cause.HOST_REBOOT, "h0")
    on_vm = rig.ask(Cause.REDEPLOY, "web_3", source=Source.PLATFORM)
    by_hand = rig.ask(Cause.HOST_REBOOT, "h4", source=Source.USER)
    planned = rig.ask(Cause.HOST_REBOOT, "h1")
    assert planned.state is OperationState.PLANNED
    assert rig.state.current_usage().taken[FLEET] == 1
    assert rig.state.current_usage().taken[Scope.GROUP, "web"] == 2
    before = usage_of(rig.state)
    draft = Draft(rig.state, rig.now_ms, rig.terms())
    transitions.announce(draft, planned)
    agrees(rig)
    transitions.start(draft, rig.now(on_vm), "it may")
    started = rig.state.operations[on_vm.number]
    agrees(rig)
    transitions.start(draft, rig.now(on_host), "it may")
    transitions.start(draft, rig.now(by_hand), "it may")
    agrees(rig)
    draft.rearrange(FleetChange(vms={"web_0": None, "web_3": None, "new": Vm("new", "h4", "web")}))
    agrees(rig)
    draft.rearrange(FleetChange(groups={"web": Group("web", owner="anna")}))
    agrees(rig)
    transitions.end(draft, started, failed=True)
    agrees(rig)
    rig.state.rollback()
    assert rig.state.current_usage().taken == before.taken


def test_what_waits_for_room_does_so_until_it_starts_or_is_withdrawn() -> None:
    """Nobody is woken for work that has started or ended meanwhile. Source: F-3, F-4."""
    rig = budgeted(1)
    number = rig.start("h0")
    rig.show()
    rig.ask(Cause.HARDWARE_FAILURE, "h3")
    rig.wait(20 * MINUTE_MS)
    [operation] = rig.working(number)
    [waiting] = rig.working(number).values()
    assert rig.state.waits == {waiting.number: FLEET}
    rig.tell(Cancel(waiting.number, "not now"))
    assert rig.state.waits == {}
    assert operation == "h0"


def test_start_that_waits_is_woken_when_a_group_goes_to_another_owner() -> None:
    """An owner's budget counts the VMs of the groups that are his now. Source: F-3, F-4."""
    rig = budgeted(1, Scope.OWNER)
    both = (Group("web", owner="anna"), Group("other", owner="anna"))
    rig.tell(ChangeTopology(groups=both, vms=(Vm("other_3", "h3", "other"),)))
    rig.tell(ChangeTopology(removed=(("vm", "web_3"),)))
    number = rig.start("h0")
    rig.show()
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h3")
    rig.tell(Complete(failure.number, failed=True))
    rig.approve("web_0", rig.working(number)["h0"])
    assert rig.working(number)["h0"].state is OperationState.ANNOUNCED
    rig.tell(ChangeTopology(groups=(Group("other", owner="bob"),)))
    assert rig.working(number)["h0"].state is OperationState.RUNNING


def test_budgets_are_counted_when_they_are_asked() -> None:
    """An order and what becomes of it asks no budget, and counts none; many do not add up. F-3."""
    rig = budgeted(1)
    rig.state.current_usage()
    rebooted = rig.ask(Cause.HOST_REBOOT, "h4")
    assert rig.state.usage.uncounted == {"h4"}
    assert not rig.state.usage.taken
    assert rig.state.current_usage().taken == usage_of(rig.state).taken
    assert not rig.state.usage.uncounted
    rig.tell(Cancel(rebooted.number, "not now"))
    assert rig.state.usage.taken[FLEET] == 1
    rig.tell(ChangeTopology(hosts=tuple(Host(f"new-{n}") for n in range(UNCOUNTED_MAX + 1))))
    assert not rig.state.usage.uncounted
    assert not rig.state.usage.taken


def test_owner_rests_from_the_end_of_any_work() -> None:
    """A failure disturbs an owner as planned work does, for as long as it lasts. Source: F-3."""
    for cause in (Cause.HOST_REBOOT, Cause.HARDWARE_FAILURE):
        rig = budgeted(1)
        rig.tell(ChangeTopology(groups=(Group("web", owner="anna"),)))
        work = rig.ask(cause, "h0")
        if cause is Cause.HOST_REBOOT:
            rig.approve("web_0", work)
        rig.wait(10 * MINUTE_MS)
        rig.finish(work)
        assert rig.state.last_disturbed_ms == {"anna": rig.now_ms}


def test_owner_whose_vm_has_left_before_work_is_not_disturbed() -> None:
    """Only those who are on the host when the work begins are disturbed. Source: F-3, L-9."""
    rig = fleet()
    rig.tell(
        ChangeTopology(
            groups=(Group("web", owner="anna"), Group("db", owner="ben")),
            vms=(Vm("db_0", "h3", "db"),),
        )
    )
    work = rig.ask(Cause.HOST_REBOOT, "h3")
    leaves = rig.ask(Cause.REDEPLOY, "web_3", destination="h0")
    rig.approve("web_3", leaves)
    rig.finish(leaves)
    assert rig.now(work).state is OperationState.RUNNING
    rig.finish(work)
    assert set(rig.state.last_disturbed_ms) == {"ben"}


def test_owner_of_a_vm_that_arrives_during_a_failure_rests() -> None:
    """The failure disturbed the VM from its arrival on. Source: F-3."""
    rig = fleet()
    owned = (Group("web", owner="anna"), Group("db", owner="ben"))
    rig.tell(ChangeTopology(groups=owned, vms=(Vm("db_0", "h3", "db"),)))
    move = rig.ask(Cause.REDEPLOY, "db_0", destination="h0")
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h0")
    rig.wait(20 * MINUTE_MS)
    rig.finish(move)
    assert "db_0" in rig.now(failure).vms
    rig.wait(MINUTE_MS)
    rig.finish(failure)
    assert rig.state.last_disturbed_ms["ben"] == rig.now_ms


def test_vm_counts_once_for_two_works_of_its_own() -> None:
    """One VM is disturbed, until the last of its works has ended. Source: F-3."""
    rig = fleet()
    announced = rig.ask(Cause.REDEPLOY, "web_3", source=Source.PLATFORM)
    own = rig.ask(Cause.REBOOT, "web_3")
    rig.approve("web_3", own)
    assert rig.now(own).state is OperationState.RUNNING
    usage, web = rig.state.current_usage(), (Scope.GROUP, "web")
    assert (usage.taken[web], usage.running[web]) == (1, 1)
    rig.finish(own)
    assert (rig.state.current_usage().taken[web], usage.running[web]) == (1, 0)
    rig.tell(Cancel(announced.number))
    assert not rig.state.current_usage().taken


def test_vm_counts_once_for_its_own_work_and_that_on_its_host() -> None:
    """Work on a VM takes no room from the work on its host. Source: F-3, F-4."""
    rig = budgeted(1, Scope.GROUP)
    own = rig.ask(Cause.REBOOT, "web_0")
    rig.approve("web_0", own)
    web = (Scope.GROUP, "web")
    assert rig.state.current_usage().running[web] == 1
    number = rig.start("h0")
    assert set(rig.working(number)) == {"h0"}
    assert rig.state.current_usage().taken[web] == 1
    rig.show()
    rig.approve("web_0", rig.working(number)["h0"])
    assert rig.working(number)["h0"].state is OperationState.ANNOUNCED
    assert rig.state.current_usage().running[web] == 1
    rig.finish(own)
    assert rig.working(number)["h0"].state is OperationState.RUNNING
    assert rig.state.current_usage().running[web] == 1
    rig.finish(rig.working(number)["h0"])
    assert rig.state.current_usage().running[web] == 0


def test_announced_work_on_a_vm_takes_no_room_from_its_host() -> None:
    """The VM counts once, so its host may be announced beside it. Source: F-3, F-4."""
    rig = budgeted(1, Scope.GROUP)
    own = rig.ask(Cause.REDEPLOY, "web_0", source=Source.PLATFORM)
    number = rig.start("h0")
    assert rig.now(own).state is OperationState.ANNOUNCED
    assert set(rig.working(number)) == {"h0"}
    assert rig.state.current_usage().taken[Scope.GROUP, "web"] == 1
