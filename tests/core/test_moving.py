"""VMs leave their hosts before a maintenance works on them: where to, and what can go wrong."""

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as words
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_core.fleet.lifecycle import Operation, OperationState, with_execution
from forewarn_core.fleet.maintenance import MaintenanceState
from forewarn_core.fleet.outlook import memory_by_wave, outlook
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.refusals import FleetBusy, MaintenanceImpossible, PostponementRefused
from forewarn_core.fleet.step import next_deadline_ms
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    Complete,
    DriverFailed,
    DriverProgressed,
    Enable,
    GroupsPolled,
    Tick,
)
from forewarn_core.fleet.targets import silent_groups
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.fleet.waiting import lack_of_room
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.blockers import code_of
from tests.core.maintenance import MaintenanceRig
from tests.core.rig import MINUTE_MS

HOUR_MS = 60 * MINUTE_MS


def fleet(hosts: int = 4, *, spare: int = 1, policy: NoticePolicy | None = None) -> MaintenanceRig:
    """Hosts with room for two VMs and one VM each; the last ones are empty."""
    layout = ChangeTopology(
        hosts=tuple(Host(f"h{n}", n, n, memory_mib=2048) for n in range(hosts)),
        groups=tuple(Group(f"g{n}") for n in range(hosts - spare)),
        vms=tuple(Vm(f"v{n}", f"h{n}", f"g{n}", memory_mib=1024) for n in range(hosts - spare)),
    )
    rig = MaintenanceRig(policy=policy or NoticePolicy())
    rig.tell(layout, *(Enable(each.name) for each in layout.groups))
    return rig


def web(hosts: int, *, spare: int = 0) -> MaintenanceRig:
    """Hosts of a fault domain each; one group has a VM on each but the last ones."""
    layout = ChangeTopology(
        hosts=tuple(Host(f"h{n}", n, n, memory_mib=4096) for n in range(hosts)),
        groups=(Group("web"),),
        vms=tuple(Vm(f"web_{n}", f"h{n}", "web", memory_mib=1024) for n in range(hosts - spare)),
    )
    rig = MaintenanceRig()
    rig.tell(layout, Enable("web"))
    return rig


def begun(rig: MaintenanceRig, host: str, vm: str, number: int) -> Operation:
    """Have the VM of a host approve; return the move, which runs."""
    rig.show()
    operation = rig.working(number)[host]
    rig.approve(vm, operation)
    return rig.now(operation)


def test_host_is_worked_on_once_its_vms_have_left() -> None:
    """The VM is frozen for its move alone; the empty host reboots without notice. Source: F-1."""
    rig = fleet()
    number = rig.start("h0", move_s=600, description="New kernel.")
    move = begun(rig, "h0", "v0", number)
    assert (move.cause, move.impact) == (Cause.LIVE_MIGRATION, Impact.FREEZE)
    assert move.execution.placements == (("v0", "h1"),)  # the fullest host with room
    rig.finish(move)
    assert rig.state.topology.vms["v0"].host == "h1"
    assert rig.shown("g0") == []
    work = rig.working(number)["h0"]
    assert (work.cause, work.vms, work.state) == (Cause.HOST_REBOOT, (), OperationState.RUNNING)
    assert work.description == "New kernel."
    rig.finish(work)
    assert rig.maintenance(number).state is MaintenanceState.DONE
    rig.check_replay()


def test_empty_host_is_not_worked_on_beyond_the_deadline() -> None:
    """The move took longer than planned, so the work would end too late. Source: F-2."""
    rig = fleet()
    number = rig.start("h0", move_s=600, deadline_ms=rig.now_ms + 60 * MINUTE_MS)
    move = begun(rig, "h0", "v0", number)
    rig.wait(55 * MINUTE_MS)
    rig.finish(move)
    assert rig.state.topology.vms["v0"].host == "h1"
    assert all(each.ended_ms for each in rig.working(number).values())
    assert rig.maintenance(number).state is not MaintenanceState.DONE


def test_hosts_are_emptied_and_refilled() -> None:
    """All hosts are done, and no host ever holds more than it can. Source: F-3."""
    rig = fleet(6)
    number = rig.start(*(f"h{n}" for n in range(6)), move_s=600)
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE
    held = [len(rig.state.topology.vms_on(f"h{n}")) for n in range(6)]
    assert sum(held) == 5
    assert max(held) <= 2


def test_fleet_without_room_waits_for_capacity() -> None:
    """The blocker names the hosts that would have to give room. Source: F-4."""
    rig = fleet(2, spare=0)
    rig.tell(ChangeTopology(vms=(Vm("big", "h1", "g1", memory_mib=1024),)))
    number = rig.start("h0", move_s=600)
    assert rig.waits(number, "h0").code is code_of("capacity")
    assert rig.waits(number, "h0").subject == "h1"
    rig.tell(ChangeTopology(removed=(("vm", "big"),)))
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE


def test_move_is_withdrawn_where_its_destination_fills_up() -> None:
    """A VM that has come to the destination since is not squeezed; another host is planned. F-3."""
    rig = fleet(4, spare=2)
    number = rig.start("h0", move_s=600)
    rig.show()
    [(_, to)] = rig.working(number)["h0"].execution.placements
    rig.tell(ChangeTopology(vms=(Vm("new", to, "g1", memory_mib=2048 - 512),)))
    again = rig.working(number)["h0"]
    assert to not in again.destinations
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE


def test_move_is_withdrawn_where_its_vm_grows() -> None:
    """It is planned again to a host with room for it, or waits for capacity. Source: F-3."""
    rig = fleet(4, spare=2)
    number = rig.start("h0", move_s=600)
    [(_, to)] = rig.working(number)["h0"].execution.placements
    rig.tell(ChangeTopology(vms=(replace(rig.state.topology.vms["v0"], memory_mib=2048),)))
    assert to not in rig.working(number)["h0"].destinations
    rig.tell(ChangeTopology(vms=(replace(rig.state.topology.vms["v0"], memory_mib=4096),)))
    assert not rig.working(number)
    assert rig.waits(number, "h0").code is code_of("capacity")


def test_vm_that_comes_late_to_a_host_is_refused() -> None:
    """Nobody comes to a host that is announced to be emptied, nor while it is worked on. G-1."""
    rig = fleet()
    number = rig.start("h0", move_s=600)
    late = ChangeTopology(vms=(Vm("late", "h0", "g0", memory_mib=1),))
    with pytest.raises(FleetBusy):
        rig.tell(late)
    rig.finish(begun(rig, "h0", "v0", number))
    assert rig.working(number)["h0"].state is OperationState.RUNNING
    with pytest.raises(FleetBusy):
        rig.tell(late)


def test_move_is_withdrawn_where_its_destination_fails() -> None:
    """Nobody is moved to a host that has failed since it was planned. Source: F-3."""
    rig = fleet(4, spare=2)
    number = rig.start("h0", move_s=600)
    rig.show()
    [(_, to)] = rig.working(number)["h0"].execution.placements
    rig.ask(Cause.HARDWARE_FAILURE, to)
    assert to not in rig.working(number)["h0"].destinations


def test_move_that_fails_counts_and_the_host_is_not_worked_on() -> None:
    """Its VMs are on the host yet, so it does not reboot. Source: F-5."""
    rig = fleet()
    number = rig.start("h0", move_s=600)
    move = begun(rig, "h0", "v0", number)
    rig.tell(DriverFailed(move.number, move.execution.attempt, "no route"))
    assert rig.maintenance(number).state is MaintenanceState.STOPPED
    rig.tell(Complete(move.number, failed=True, reason="given up"))
    assert not rig.working(number)
    assert rig.state.topology.vms["v0"].host == "h0"


def test_nothing_follows_the_move_of_a_paused_maintenance() -> None:
    """The VMs have left, and the host waits; it is done without notice when it goes on. F-6."""
    rig = fleet()
    number = rig.start("h0", move_s=600)
    move = begun(rig, "h0", "v0", number)
    rig.tell(words.PauseMaintenance(number))
    rig.finish(move)
    assert not rig.working(number)
    rig.tell(words.ResumeMaintenance(number))
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE
    assert rig.state.topology.vms["v0"].host == "h1"


def test_host_whose_work_waits_after_the_move_is_not_postponed() -> None:
    """Its VMs have left, and a reboot by hand comes first; a later start is refused. F-8."""
    rig = fleet(policy=NoticePolicy(maintenance=MaintenancePolicy(postpone_max_s=86_400)))
    number = rig.start("h0", move_s=600)
    move = begun(rig, "h0", "v0", number)
    by_hand = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.finish(move)
    assert rig.now(by_hand).state is OperationState.RUNNING
    [work] = [each for each in rig.state.operations.values() if each.maintenance]
    assert work.state is OperationState.PLANNED
    with pytest.raises(PostponementRefused, match="its work has started already"):
        rig.tell(words.PostponeHosts(number, ("h0",), rig.now_ms + 3_600_000, "alice"))


def test_no_vm_arrives_where_others_are_on_their_way() -> None:
    """Work by hand on a destination waits until the VMs have arrived. Source: G-1."""
    rig = fleet()
    number = rig.start("h0", move_s=600)
    other = rig.ask(Cause.HOST_REBOOT, "h1")
    assert rig.now(other).state is OperationState.PLANNED
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE


def test_driver_that_chooses_gets_no_destination() -> None:
    """Its scheduler knows the room; where VMs went it reports. Source: F-3."""
    rig = fleet(policy=NoticePolicy(scheduling_drivers=frozenset({""})))
    number = rig.start("h0", move_s=600)
    assert rig.plans[rig.maintenance(number).plan].body.moves == {"h0": (("v0", ""),)}
    assert rig.working(number)["h0"].execution.placements == ()


def test_gate_expects_polls_of_vms_that_have_left() -> None:
    """A group that fell silent after its VM was moved is found where the VM is now. F-5."""
    rig = fleet()
    number = rig.start("h0", move_s=600, gate="polls")
    rig.tell(GroupsPolled(frozenset({"g0"})))
    rig.wait(60_000)
    rig.finish(begun(rig, "h0", "v0", number))
    rig.finish(rig.working(number)["h0"])
    draft = Draft(rig.state, rig.now_ms, rig.terms())
    assert silent_groups(draft, number, 0) == ("g0",)


def returning(rig: MaintenanceRig) -> tuple[int, Operation]:
    """Have h0 emptied and worked on; return the maintenance and the VM's return, which waits."""
    number = rig.start("h0", move_s=600, return_vms=True)
    rig.finish(begun(rig, "h0", "v0", number))
    [back] = [each for each in rig.state.operations.values() if each.is_return]
    assert (back.state, back.vms, back.destination) == (OperationState.PLANNED, ("v0",), "h0")
    return number, back


def test_vm_returns_where_a_scheduler_chose_its_destination() -> None:
    """The driver is asked for the home host; the scheduler checks its unknown memory. F-1, F-3."""
    rig = fleet(policy=NoticePolicy(scheduling_drivers=frozenset({""})))
    rig.tell(ChangeTopology(vms=(replace(rig.state.topology.vms["v0"], memory_mib=0),)))
    number = rig.start("h0", move_s=600, return_vms=True)
    move = begun(rig, "h0", "v0", number)
    rig.tell(DriverProgressed(move.number, 1, placements=(("v0", "h2"),)))
    rig.finish(rig.now(move))
    assert rig.state.topology.vms["v0"].host == "h2"
    [back] = [each for each in rig.state.operations.values() if each.is_return]
    assert (back.host, back.destination) == ("h2", "h0")
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE
    assert rig.state.topology.vms["v0"].host == "h0"


def work_on(rig: MaintenanceRig, host: str) -> Operation:
    """Return the work on a host itself."""
    [work] = [each for each in rig.state.operations.values() if each.host == host]
    return work


def test_vm_returns_once_its_host_is_done() -> None:
    """It gets notice, approves, and the host is done when it is back. Source: F-1."""
    rig = fleet()
    number, back = returning(rig)
    assert rig.why(back)[0].text == f"m-{number} is not done with host h0"
    rig.finish(work_on(rig, "h0"))
    assert rig.now(back).state is OperationState.ANNOUNCED
    assert rig.maintenance(number).state is MaintenanceState.RUNNING
    rig.show()
    rig.approve("v0", rig.now(back))
    rig.finish(rig.now(back))
    assert rig.state.topology.vms["v0"].host == "h0"
    assert rig.maintenance(number).state is MaintenanceState.DONE
    rig.check_replay()


def test_all_vms_are_home_after_a_maintenance_that_returns_them() -> None:
    """Each wave ends with its VMs where they were, and the next one has the same room. F-3."""
    rig = fleet(6)
    before = {name: vm.host for name, vm in rig.state.topology.vms.items()}
    number = rig.start(*(f"h{n}" for n in range(6)), move_s=600, return_vms=True)
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE
    assert {name: vm.host for name, vm in rig.state.topology.vms.items()} == before


def test_vm_returns_after_a_retry_of_its_host() -> None:
    """It waits while its host has failed, also through a stop and a resume. Source: F-5."""
    rig = fleet()
    number, back = returning(rig)
    rig.tell(Complete(work_on(rig, "h0").number, failed=True, reason="no boot"))
    assert rig.maintenance(number).state is MaintenanceState.STOPPED
    assert rig.now(back).state is OperationState.PLANNED
    rig.tell(words.ResumeMaintenance(number))
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE
    assert rig.state.topology.vms["v0"].host == "h0"


def test_vm_returns_after_a_cancel() -> None:
    """What runs ends, and the VMs return. Source: F-6."""
    rig = fleet()
    number, back = returning(rig)
    rig.tell(words.CancelMaintenance(number))
    assert rig.now(back).state is OperationState.PLANNED
    rig.finish(work_on(rig, "h0"))
    assert rig.now(back).state is OperationState.ANNOUNCED


def test_vm_that_does_not_return_counts_as_a_failure() -> None:
    """The host's record names it. Source: F-5."""
    rig = fleet()
    number, back = returning(rig)
    rig.finish(work_on(rig, "h0"))
    rig.show()
    rig.approve("v0", rig.now(back))
    rig.tell(DriverFailed(back.number, 1, "no route"))
    target = rig.state.targets[f"{number}/h0"]
    assert target.reason == "VM v0 has not returned: no route"
    assert rig.maintenance(number).state is MaintenanceState.STOPPED


def test_host_that_fails_while_its_vms_return_counts_as_a_failure() -> None:
    """Its service is over, though the host is not done before the VMs are back. Source: F-5."""
    rig = fleet()
    number, _ = returning(rig)
    rig.finish(work_on(rig, "h0"))
    rig.ask(Cause.HARDWARE_FAILURE, "h0")
    assert rig.state.targets[f"{number}/h0"].reason == "the host failed after its service"
    assert rig.maintenance(number).state is MaintenanceState.STOPPED


def test_vm_that_two_works_move_to_a_host_takes_its_room_once() -> None:
    """A user moves it to the same destination: nothing is withdrawn. Source: F-3, F-6."""
    rig = fleet(4, spare=2)
    work = rig.working(rig.start("h0", move_s=600))["h0"]
    [(vm, to)] = work.execution.placements
    rig.ask(Cause.REDEPLOY, vm, destination=to)
    rig.tell(ChangeTopology(vms=(replace(rig.state.topology.vms["v1"], memory_mib=1000),)))
    assert rig.now(work).state is OperationState.ANNOUNCED


def test_room_is_kept_for_vms_that_return() -> None:
    """Another maintenance moves nobody to a host that waits for its VMs. Source: F-3."""
    rig = fleet(3, spare=1)
    rig.tell(ChangeTopology(vms=(replace(rig.state.topology.vms["v0"], memory_mib=2048),)))
    first, back = returning(rig)
    rig.tell(Complete(work_on(rig, "h0").number, failed=True, reason="no boot"))
    second = rig.start("h1", move_s=600)
    assert rig.waits(second, "h1").code is code_of("capacity")
    rig.tell(words.CancelMaintenance(first))
    assert rig.now(back).state is OperationState.ANNOUNCED


def test_no_vm_is_admitted_to_the_room_of_one_that_returns() -> None:
    """Also where the plan was made before that VM had left. Source: F-3."""
    rig = fleet(3, spare=1)
    rig.tell(ChangeTopology(vms=(replace(rig.state.topology.vms["v0"], memory_mib=2048),)))
    returning(rig)
    move = with_execution(work_on(rig, "h0"), placements=(("v1", "h0"),))
    lack = lack_of_room(Draft(rig.state, rig.now_ms, rig.terms()), replace(move, number=99))
    assert lack is not None
    assert (lack.code, lack.subject) == (code_of("capacity"), "h0")


def test_vm_that_its_owner_brings_home_returns_no_second_time() -> None:
    """Its own redeploy has taken it back, so the host is done. Source: F-1, L-9."""
    rig = fleet()
    number, back = returning(rig)
    home = rig.ask(Cause.REDEPLOY, "v0", destination="h0")
    rig.finish(work_on(rig, "h0"))
    rig.approve("v0", home)
    rig.finish(home)
    assert (rig.now(back).state, rig.now(back).reason) == (
        OperationState.CANCELLED,
        "VM v0 is on h0 already",
    )
    assert rig.maintenance(number).state is MaintenanceState.DONE
    rig.check_replay()


def test_vm_deleted_while_it_is_away_is_no_failure() -> None:
    """Its user deletes it: nothing is left to return, and the host is done. Source: F-1, F-5."""
    rig = fleet()
    number, back = returning(rig)
    rig.finish(work_on(rig, "h0"))
    rig.finish(rig.ask(Cause.DELETION, "v0"))
    assert rig.now(back).state is OperationState.CANCELLED
    assert rig.maintenance(number).state is MaintenanceState.DONE


def test_no_vm_moves_to_a_host_that_got_work_since_the_plan() -> None:
    """Work by hand came to the destination before the wave was due. Source: F-3, G-1."""
    rig = fleet(4, spare=2)
    number = rig.start("h0", move_s=600, earliest_ms=rig.now_ms + 24 * 3_600_000)
    plan = rig.plans[rig.maintenance(number).plan]
    [(_, to)] = plan.body.moves["h0"]
    rig.plans_made = False
    rig.now_ms = rig.due_ms(number) - 1
    rig.ask(Cause.HOST_REBOOT, to)
    rig.now_ms += 1
    rig.tell(Tick())
    assert not rig.working(number)


def test_host_that_vms_came_to_waits_for_its_next_plan() -> None:
    """The wave in force moves none of them; the next plan, made when it says, does. F-4."""
    rig = fleet(3, spare=2)
    rig.ask(Cause.LIVE_MIGRATION, "h1", destination="h2", not_before_ms=rig.now_ms + 9 * HOUR_MS)
    number = rig.start("h2", move_s=600)
    assert rig.waits(number).code is code_of("arrivals")
    rig.tell(ChangeTopology(vms=(Vm("late", "h2", "g0", memory_mib=512),)))
    blocker = rig.waits(number)
    assert (blocker.code, blocker.clears_ms) == (code_of("planning"), rig.due_ms(number))
    rig.wait(blocker.clears_ms - rig.now_ms)
    assert rig.waits(number).code is code_of("arrivals")


def test_moves_never_bring_a_group_together() -> None:
    """A budget of one VM allows every host: each is emptied to the one before. Source: F-3."""
    rig = web(4, spare=1)
    rig.tell(words.ApplyPolicy(MaintenancePolicy((Budget(Scope.GROUP, 1),))))
    number = rig.start("h0", "h1", "h2", "h3", move_s=600)
    rig.run()
    assert rig.maintenance(number).state is MaintenanceState.DONE
    assert len({vm.host for vm in rig.state.topology.vms.values()}) == 3


def test_maintenance_that_its_own_moves_would_block_does_not_start() -> None:
    """Without a spare host one host ends with two VMs, beyond the group's budget. F-1, F-3."""
    rig = web(3)
    rig.tell(words.ApplyPolicy(MaintenancePolicy((Budget(Scope.GROUP, 1),))))
    number = rig.create("h0", "h1", "h2", move_s=600)
    assert rig.waits(number).code is code_of("own-moves")
    refused = rig.refuses(words.StartMaintenance(number), MaintenanceImpossible)
    assert "other moves of the plan keep host h1 from being done" in str(refused)


@pytest.mark.parametrize(
    ("returns", "least", "after_mib"), [(False, 1, [0, 2048]), (True, 2, [1024, 1024])]
)
def test_outlook_follows_the_moves_of_earlier_waves(
    returns: bool, least: int, after_mib: list[int]
) -> None:
    """Without a spare host one wave freezes two of three VMs, unless VMs return. Source: F-2."""
    rig = web(3)
    number = rig.create("h0", "h1", "h2", move_s=600, return_vms=returns)
    [plan] = rig.plans.values()
    [group] = outlook(plan.body, rig.state.topology, (), returning=returns)
    assert (group.vms, group.up_before, group.up_least, group.waves) == (3, 3, least, 3)
    room = memory_by_wave(plan, rig.state.topology, returning=returns)
    assert [each.after_mib for each in room if each.wave == 1] == after_mib
    assert rig.maintenance(number).plan == plan.id


def test_destinations_are_planned_again_before_a_wave() -> None:
    """A VM that was moved by hand meanwhile keeps another one away from its host. Source: F-3."""
    rig = web(5, spare=2)
    night = rig.now_ms + 20 * HOUR_MS
    number = rig.start("h0", move_s=600, earliest_ms=night)
    [(_, planned)] = rig.state.plans[rig.maintenance(number).plan].body.moves["h0"]
    rig.tell(ChangeTopology(vms=(replace(rig.state.topology.vms["web_1"], host=planned),)))
    rig.run()
    hosts = {vm.host for vm in rig.state.topology.vms.values()}
    assert (len(hosts), rig.maintenance(number).state) == (3, MaintenanceState.DONE)


@pytest.mark.parametrize(("freeze_s", "reboot_s"), [(3600, 1800), (1800, 7200)])
def test_notice_is_that_of_the_move_and_not_of_the_work(freeze_s: int, reboot_s: int) -> None:
    """VMs that leave are frozen for a moment; the empty host reboots without notice. N-1, F-1."""
    notice_s = {**NoticePolicy().notice_s, Impact.FREEZE: freeze_s, Impact.REBOOT: reboot_s}
    for move_s, owed_s in ((600, freeze_s), (0, reboot_s)):
        rig = fleet(policy=NoticePolicy(notice_s=notice_s))
        operation = rig.working(rig.start("h0", move_s=move_s))["h0"]
        given_s = (operation.not_before_ms - rig.now_ms) // 1000
        text = f"a {operation.impact.value} has {given_s} s of notice, {owed_s} s are owed"
        assert owed_s <= given_s <= owed_s + 60, text


def moves_of(rig: MaintenanceRig, number: int) -> list[tuple[str, int, int]]:
    """Run a maintenance; return each move's VM, start and end, in minutes from now."""
    moves: list[tuple[str, int, int]] = []
    begin_ms = rig.now_ms
    while rig.maintenance(number).live:
        rig.show()
        for each in list(rig.working(number).values()):
            if each.state is OperationState.RUNNING:
                started = ((each.execution.started_ms or 0) - begin_ms) // MINUTE_MS
                rig.wait(5 * MINUTE_MS)
                ended = (rig.now_ms - begin_ms) // MINUTE_MS
                moves += [(vm, started, ended) for vm in each.vms]
                rig.finish(each)
                break
        else:
            next_ms = next_deadline_ms(rig.state, rig.policy, rig.now_ms)
            assert next_ms is not None, "nothing is due"
            rig.now_ms = next_ms
            rig.tell(Tick())
    return moves


@pytest.mark.parametrize("rest_s", [0, 3600])
def test_owner_of_a_vm_that_has_moved_rests_before_the_next_host(rest_s: int) -> None:
    """The rest counts where the VM is then, from the end of its last move. Source: F-3."""
    policy = MaintenancePolicy((Budget(Scope.FLEET, 1),), owner_rest_s=rest_s)
    rig = fleet(2, spare=0, policy=NoticePolicy(maintenance=policy))
    rig.tell(ChangeTopology(groups=(Group("g0", owner="ann"), Group("g1", owner="bob"))))
    moves = moves_of(rig, rig.start("h0", "h1", move_s=600))
    assert sorted(vm for vm, _, _ in moves) == ["v0", "v0", "v1"], moves
    (_, _, end), (_, again, _) = (each for each in moves if each[0] == "v0")
    assert (again - end >= 60) == bool(rest_s), f"v0 moves {again - end} min after its last move"


def test_owner_rests_from_the_return_of_its_vms() -> None:
    """The way back disturbs, too; it belongs to its host's work and need not wait. F-1, F-3."""
    policy = MaintenancePolicy((Budget(Scope.FLEET, 1),), owner_rest_s=3600)
    rig = fleet(policy=NoticePolicy(maintenance=policy))
    rig.tell(ChangeTopology(groups=(Group("g0", owner="ann"), Group("g1", owner="ann"))))
    moves = moves_of(rig, rig.start("h0", "h1", move_s=600, return_vms=True))
    assert [vm for vm, _, _ in moves] == ["v0", "v0", "v1", "v1"]
    (_, _, left), (_, back, returned), (_, then, _), _ = moves
    assert back - left < 60, f"v0 waits {back - left} min for its way back"
    assert then - returned >= 60, f"its owner rests {then - returned} min after v0 is back"


@pytest.mark.parametrize("done", [False, True], ids=["under-work", "done"])
def test_owner_does_not_rest_between_the_hosts_of_a_wave(*, done: bool) -> None:
    """Its VM has left the first host, whose wave disturbs the owner once. Source: F-3, F-4."""
    rig = fleet(4, spare=2, policy=NoticePolicy(maintenance=MaintenancePolicy(owner_rest_s=3600)))
    rig.tell(ChangeTopology(groups=(Group("g0", owner="ann"), Group("g1", owner="ann"))))
    number = rig.start("h0", "h1", move_s=600)
    assert rig.working(number).keys() == {"h0", "h1"}, "both hosts are in one wave"
    move = begun(rig, "h0", "v0", number)
    rig.finish(move)
    if done:
        rig.finish(rig.working(number)["h0"])
    second = begun(rig, "h1", "v1", number)
    waits = rig.waits(number, "h1") if second.state is not OperationState.RUNNING else None
    assert second.state is OperationState.RUNNING, f"F-3: approved work on h1 waits for {waits}"
