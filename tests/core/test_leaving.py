"""VMs that leave a host leave its announced and planned work, whatever the cause and the way."""

from collections.abc import Callable

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_core.fleet.lifecycle import Event, EventState, Operation, OperationState
from forewarn_core.fleet.outcomes import EventOutcome, EventResult
from forewarn_core.fleet.refusals import FleetBusy
from forewarn_core.fleet.stimulus import ChangeTopology, Enable
from forewarn_core.fleet.topology import Group, Vm
from tests.core.rig import DAY_MS, Rig, small, small_fleet

S, E = OperationState, EventState
ANY = (Cause.HOST_REBOOT, Cause.HOST_UPDATE, Cause.HARDWARE_DEGRADED, Cause.LIVE_MIGRATION)


def leave_by_redeploy(rig: Rig, vm: str) -> None:
    """Its owner moves it."""
    move = rig.ask(Cause.REDEPLOY, vm, destination="h2")
    rig.approve(vm, move)
    rig.finish(move)


def leave_by_topology(rig: Rig, vm: str) -> None:
    """An operator, or the hypervisor, says that it is elsewhere."""
    rig.tell(ChangeTopology(vms=(replace(rig.state.topology.vms[vm], host="h2"),)))


def leave_by_eviction(rig: Rig, vm: str) -> None:
    """The platform deletes it."""
    eviction = rig.ask(Cause.EVICTION, vm)
    rig.approve(vm, eviction)
    rig.finish(eviction)


def leave_by_removal(rig: Rig, vm: str) -> None:
    """An operator removes it from the fleet."""
    rig.tell(ChangeTopology(removed=(("vm", vm),)))


WAYS = (leave_by_redeploy, leave_by_topology, leave_by_eviction, leave_by_removal)


@pytest.mark.parametrize("leave", WAYS)
@pytest.mark.parametrize("cause", ANY)
def test_event_of_a_vm_that_has_left_is_withdrawn(
    cause: Cause, leave: Callable[[Rig, str], None]
) -> None:
    """The group's event goes with its last VM on the host; the others keep theirs. Source: L-9."""
    rig = small()
    work = rig.ask(cause, "h0")
    event = rig.event_of(work, "web")
    leave(rig, "web_0")
    assert rig.now(work).vms == ("db_0",)
    assert rig.shown("web") == []
    assert rig.events[event.id].state is E.CANCELLED
    assert EventOutcome(rig.events[event.id], rig.now(work)).result is EventResult.CANCELLED
    assert len(rig.shown("db")) == 1
    rig.check_replay()


@pytest.mark.parametrize("leave", WAYS)
def test_event_names_only_the_vms_that_are_still_there(leave: Callable[[Rig, str], None]) -> None:
    """The event keeps its id and NotBefore for the VMs that stay. Source: L-9, D-3."""
    rig = small()
    rig.tell(ChangeTopology(vms=(Vm("web_9", "h0", "web"),)))
    work = rig.ask(Cause.HOST_REBOOT, "h0")
    before = rig.event_of(work, "web")
    incarnation, _ = rig.document("web")
    leave(rig, "web_0")
    after = rig.event_of(work, "web")
    assert after == replace(before, resources=("web_9",))
    assert rig.now(work).not_before_ms == work.not_before_ms
    now, (shown,) = rig.document("web")
    assert shown.resources == ("web_9",)
    assert now > incarnation


@pytest.mark.parametrize("cause", [Cause.HARDWARE_DEGRADED, Cause.LIVE_MIGRATION])
def test_move_of_a_host_that_all_vms_have_left_is_withdrawn(cause: Cause) -> None:
    """Nothing is left to move, as after the redeploy of a predicted failure. Source: L-9, N-2."""
    rig = small()
    work = rig.ask(cause, "h1")
    leave_by_redeploy(rig, "web_1")
    assert (rig.now(work).state, rig.now(work).reason) == (S.CANCELLED, "no VM is left on host h1")
    assert rig.shown("web") == []


def test_work_on_a_host_that_all_vms_have_left_asks_nobody() -> None:
    """A reboot of the empty host still does its work, without another notice. Source: L-9, B-3."""
    rig = small()
    work = rig.ask(Cause.HOST_REBOOT, "h1")
    rig.show()
    leave_by_redeploy(rig, "web_1")
    assert (rig.now(work).state, rig.now(work).vms) == (S.RUNNING, ())


def test_planned_work_names_the_vms_that_are_there() -> None:
    """Work that waits to be announced follows the VMs of its host. Source: L-9."""
    rig = small()
    first, planned = rig.ask(Cause.HOST_REBOOT, "h0"), rig.ask(Cause.HOST_REBOOT, "h1")
    leave_by_topology(rig, "web_1")
    assert rig.now(first).state is S.ANNOUNCED
    assert rig.now(planned).vms == ()
    rig.check_replay()


def test_last_vm_that_has_not_approved_leaves_a_strict_group() -> None:
    """A VM that has left is not waited for. Source: L-9, A-7."""
    rig = small_strict()
    work = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.approve("db_0", work)
    rig.approve("web_9", work)
    assert rig.now(work).state is S.ANNOUNCED
    leave_by_topology(rig, "web_0")
    assert rig.now(work).state is S.RUNNING


def test_approval_names_no_vm_of_another_group() -> None:
    """The group's history says who of the group has left, and not who else. Source: P-3, L-9."""
    rig = small_strict()
    rig.approve("web_9", rig.ask(Cause.HOST_REBOOT, "h0"))
    vms = [replace(rig.state.topology.vms[name], host="h2") for name in ("web_0", "db_0")]
    rig.tell(ChangeTopology(vms=tuple(vms)))
    [approval] = [each.text for each in rig.entries if each.action == "event.approved"]
    assert approval.endswith("approved for web: VM web_0 has left")


def small_strict() -> Rig:
    """The small fleet, with two VMs of a strict group on the first host."""
    rig = Rig()
    fleet = small_fleet(web=Group("web", strict_approval=True))
    rig.tell(
        replace(fleet, vms=(*fleet.vms, Vm("web_9", "h0", "web"))), Enable("web"), Enable("db")
    )
    return rig


def test_running_work_keeps_its_vms() -> None:
    """Nobody is moved in the middle of work by a change of the topology. Source: L-5."""
    rig = small()
    work = rig.ask(Cause.HARDWARE_FAILURE, "h0")
    vm = replace(rig.state.topology.vms["web_0"], host="h2")
    rig.refuses(ChangeTopology(vms=(vm,)), FleetBusy)
    rig.refuses(ChangeTopology(removed=(("vm", "web_0"),)), FleetBusy)
    assert rig.now(work).vms == ("db_0", "web_0")


def test_vm_that_stays_on_its_host_cannot_leave_its_group() -> None:
    """The event was shown to its old group, which must approve it. Source: S-4."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0")
    vm = replace(rig.state.topology.vms["web_0"], group="db")
    rig.refuses(ChangeTopology(vms=(vm,)), FleetBusy)


def test_failure_is_predicted_anew_for_who_stayed() -> None:
    """The Redeploy of the remaining VM starts at its time and moves only that one. Source: L-9."""
    rig = small()
    work = rig.ask(Cause.HARDWARE_DEGRADED, "h0", destination="h2", impact=Impact.REDEPLOY)
    rig.show()
    leave_by_redeploy(rig, "web_0")
    leave_by_topology(rig, "web_0")
    rig.tell(ChangeTopology(vms=(replace(rig.state.topology.vms["web_0"], host="h1"),)))
    rig.wait(7 * DAY_MS + DAY_MS)
    assert (rig.now(work).state, rig.now(work).vms) == (S.RUNNING, ("db_0",))
    rig.finish(work)
    hosts = {name: vm.host for name, vm in rig.state.topology.vms.items()}
    assert (hosts["web_0"], hosts["db_0"]) == ("h1", "h2")


def test_outcome_of_work_that_restarted_under_new_ids_is_replaced() -> None:
    """Only a withdrawn event counts as cancelled. Source: X-1."""
    event = Event("A", 1, "web", ("web_0",), E.COMPLETED)
    rig = small()
    work: Operation = rig.ask(Cause.HOST_REBOOT, "h0")
    assert EventOutcome(event, work).result is EventResult.REPLACED


def test_notice_is_not_published_with_the_documents_of_who_has_left() -> None:
    """Other groups' documents with the notice may still be on their way. Source: L-7, M-4."""
    rig = small()
    work = rig.ask(Cause.HOST_REBOOT, "h0")
    vm = replace(rig.state.topology.vms["web_0"], host="h2")
    outcome = rig.tell(ChangeTopology(vms=(vm,)))
    assert rig.now(work).unnoticed
    assert outcome.announced == ()
