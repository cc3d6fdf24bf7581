"""VMs that arrive on a host or are gone while work on it is announced, planned or running."""

import pytest

from forewarn_base.protocol.approvals import UnknownEvent
from forewarn_base.values import replace
from forewarn_core.fleet import approvals
from forewarn_core.fleet.approvals import OLD_NODE_SERVES_S_MAX
from forewarn_core.fleet.document import Departure
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import EventState, Operation, OperationState
from forewarn_core.fleet.stimulus import ChangeTopology, Complete, Enable
from forewarn_core.fleet.topology import Group, Vm
from forewarn_core.requests import ApprovalRequest
from tests.core.rig import DAY_MS, MINUTE_MS, Rig, small

S = OperationState


def test_work_on_a_deleted_vm_is_cancelled() -> None:
    """What was still to be done to a VM that is gone is withdrawn. Source: L-3."""
    rig = small()
    reboot, restarted = rig.ask(Cause.REBOOT, "web_0"), rig.ask(Cause.REDEPLOY, "web_0")
    eviction = rig.ask(Cause.EVICTION, "web_0")
    rig.approve("web_1", eviction)
    rig.approve("web_1", restarted)
    rig.finish(eviction)
    for other in (reboot, restarted):
        assert (rig.now(other).state, rig.now(other).reason) == (S.CANCELLED, "VM web_0 is gone")


def test_arrivals_on_a_host_that_failed_meanwhile_are_told() -> None:
    """VMs that are moved into a running disturbance see it Started. Source: L-5, S-5."""
    rig = small()
    lost = rig.ask(Cause.HOST_LOST, "h0", destination="h2")
    failure = rig.ask(Cause.HARDWARE_FAILURE, "h2")
    rig.finish(lost)
    assert rig.now(failure).vms == ("db_0", "far_0", "web_0")
    assert rig.shown("web") == rig.shown("db") == rig.shown("far") == ["Reboot Started"]
    rig.check_replay()
    rig.finish(failure)
    assert rig.shown("web") == rig.shown("far") == []


def test_announced_work_follows_arriving_vms() -> None:
    """VMs that arrive on a host are told before its announced work begins. Source: N-1, L-5."""
    rig = small()
    announced = rig.ask(Cause.HOST_REBOOT, "h2")
    rig.show()
    lost = rig.ask(Cause.HOST_LOST, "h0", destination="h2")
    rig.wait(10 * MINUTE_MS)
    rig.finish(lost)
    assert rig.now(announced).state is S.CANCELLED
    again = rig.now(max(rig.operations))
    assert (again.host, again.vms) == ("h2", ("db_0", "far_0", "web_0"))
    assert again.not_before_ms == rig.now_ms + 15 * MINUTE_MS
    assert rig.shown("db") == ["Reboot Scheduled"]


def test_vm_may_be_added_beside_announced_work_on_another() -> None:
    """Work on one host is no reason to refuse a VM on another. Source: L-5."""
    rig = small()
    rig.ask(Cause.HOST_REBOOT, "h0")
    rig.tell(ChangeTopology(vms=(Vm("web_9", "h1", "web"),)))
    assert "web_9" in rig.state.topology.vms


def test_planned_work_hits_no_vm_that_arrives_on_its_host() -> None:
    """What waits to be announced names the VMs that are there when it is. Source: L-5, S-5."""
    rig = small()
    first = rig.ask(Cause.HOST_REBOOT, "h0")
    planned = rig.ask(Cause.HOST_REBOOT, "h1")
    assert rig.now(planned).state is OperationState.PLANNED
    moved = rig.ask(Cause.REDEPLOY, "far_0", destination="h1")
    rig.approve("far_0", moved)
    rig.finish(moved)
    assert rig.state.topology.vms["far_0"].host == "h1"
    assert rig.shown("far") == []
    rig.approve("web_0", first)
    rig.approve("db_0", first)
    rig.finish(first)
    assert rig.shown("far") == ["Reboot Scheduled"]


def test_approval_that_was_given_stays_when_its_vm_is_gone() -> None:
    """An event is approved once, whatever becomes of those who did. Source: L-2, A-1."""
    rig = small()
    rig.tell(ChangeTopology(vms=(Vm("web_9", "h0", "web"),)))
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.approve("web_0", operation)
    gone = rig.ask(Cause.EVICTION, "web_0")
    rig.approve("web_0", gone)
    rig.finish(gone)
    assert "web_0" not in rig.state.topology.vms
    assert rig.now(operation).state is OperationState.ANNOUNCED
    approvals = [entry.event for entry in rig.entries if entry.action == "event.approved"]
    assert approvals.count(rig.event_of(operation, "web").id) == 1
    rig.approve("db_0", operation)
    assert rig.now(operation).state is OperationState.RUNNING


# -- approvals that a metadata node accepted before their VMs left its hosts ---------------------


LATER_MS = OLD_NODE_SERVES_S_MAX * 1000 + 1


def move(rig: Rig, vm: str, host: str, **more: str) -> None:
    """An operator says that a VM is on another host."""
    rig.tell(ChangeTopology(vms=(replace(rig.state.topology.vms[vm], host=host, **more),)))


def handed_on(rig: Rig, vm: str, operation: Operation, *hosts: str) -> ApprovalRequest:
    """The approval of a VM, from a node of some hosts."""
    event = rig.event_of(operation, rig.group_of(vm))
    return ApprovalRequest(vm, (event.id,), "", node_hosts=hosts)


def approved_by(rig: Rig, operation: Operation, group: str) -> tuple[str, ...]:
    """Who has approved a group's event."""
    return rig.event_of(operation, group).approved_by


def test_approval_of_a_vm_that_has_left_counts() -> None:
    """Its node was shown the event while the VM was there. Source: M-3, M-5."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    move(rig, "web_1", "h2")
    rig.tell(handed_on(rig, "web_1", operation, "h7", "h1"))
    assert approved_by(rig, operation, "web") == ("web_1",)
    assert rig.event_of(operation, "web").state is EventState.APPROVED


@pytest.mark.parametrize(
    ("vm", "hosts", "event_id"),
    [
        ("web_1", ("h0",), ""),
        ("web_0", ("h1",), ""),
        ("web_1", ("h1",), "11111111-AFDC-4513-B24B-AA5F13A16123"),
        ("nobody", ("h1",), ""),
    ],
    ids=["never-there", "another-vm", "made-up-event", "made-up-vm"],
)
def test_node_cannot_approve_for_what_it_never_served(
    vm: str, hosts: tuple[str, ...], event_id: str
) -> None:
    """Neither for a VM that was elsewhere, nor an event it was not shown. Source: M-5, S-4."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    move(rig, "web_1", "h2")
    event_id = event_id or rig.event_of(operation, "web").id
    rig.refuses(ApprovalRequest(vm, (event_id,), "", node_hosts=hosts), UnknownEvent)


def test_event_of_another_group_is_not_the_vms() -> None:
    """A node that has both on its host approves for neither's other group. Source: S-4, M-5."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    move(rig, "web_1", "h2")
    event = rig.event_of(operation, "db")
    rig.refuses(ApprovalRequest("web_1", (event.id,), "", node_hosts=("h1",)), UnknownEvent)


def test_vm_that_came_back_is_its_nodes_again() -> None:
    """What the feed does not say yet is durable already. Source: M-3."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.tell(handed_on(rig, "web_1", operation, "h1"))
    assert approved_by(rig, operation, "web") == ("web_1",)


@pytest.mark.parametrize("late", [False, True], ids=["while-handed-over", "long-after"])
def test_event_after_the_vm_had_left(*, late: bool) -> None:
    """Its old node serves it until the new one does, and no longer than a limit. M-1, M-5."""
    rig = small()
    move(rig, "web_1", "h2")
    rig.now_ms += LATER_MS if late else LATER_MS - 1
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    approval = handed_on(rig, "web_1", operation, "h1")
    if late:
        rig.refuses(approval, UnknownEvent)
    else:
        rig.tell(approval)
        assert approved_by(rig, operation, "web") == ("web_1",)


def test_departures_are_kept_while_an_event_may_need_them() -> None:
    """Those from before everything that is shown now are forgotten. Source: M-3."""
    rig = small()
    move(rig, "web_1", "h2")
    rig.now_ms += LATER_MS
    operation = rig.ask(Cause.HOST_REBOOT, "h0", not_before_ms=rig.now_ms + DAY_MS)
    rig.now_ms += LATER_MS
    move(rig, "web_1", "h1")
    [back] = rig.state.enrolments["web"].departures
    assert back == Departure("web_1", "h2", rig.now_ms)
    rig.now_ms += LATER_MS
    move(rig, "web_1", "h2")
    assert [each.host for each in rig.state.enrolments["web"].departures] == ["h2", "h1"]
    rig.tell(handed_on(rig, "web_1", operation, "h1"))
    assert approved_by(rig, operation, "web") == ("web_1",)


def test_departures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest ones are kept. Source: M-3."""
    monkeypatch.setattr(approvals, "DEPARTURES_MAX", 2)
    rig = small()
    for host in ("h2", "h0", "h1"):
        move(rig, "web_1", host)
    assert [each.host for each in rig.state.enrolments["web"].departures] == ["h2", "h0"]


@pytest.mark.parametrize("failed", [False, True], ids=["moved", "stayed"])
def test_both_hosts_of_a_move_are_known(*, failed: bool) -> None:
    """Both nodes serve a VM while it is moved, and one of them does not afterwards. Source: M-1."""
    rig = small()
    other = rig.ask(Cause.HOST_REBOOT, "h0")
    operation = rig.ask(Cause.REDEPLOY, "web_1", destination="h2")
    rig.tell(ApprovalRequest("web_1", (rig.event_of(operation, "web").id,), ""))
    rig.tell(Complete(operation.number, failed=failed))
    left = [(each.vm, each.host) for each in rig.state.enrolments["web"].departures]
    assert left == [("web_1", "h2" if failed else "h1")]
    rig.tell(handed_on(rig, "web_1", other, left[0][1]))
    assert approved_by(rig, other, "web") == ("web_1",)


def test_vm_of_a_group_that_is_not_asked_leaves_nothing_behind() -> None:
    """Nobody is shown anything, and nothing can be approved. Source: B-3."""
    rig = small(enabled=("db",))
    rig.tell(ChangeTopology(groups=(Group("new"),)))
    move(rig, "web_1", "h2")
    rig.tell(Enable("web"))
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    move(rig, "far_0", "h1", group="new")
    assert rig.state.enrolments["web"].departures == ()
    rig.refuses(handed_on(rig, "web_1", operation, "h1"), UnknownEvent)


def test_approval_for_a_group_that_is_not_asked_any_more_is_refused() -> None:
    """Its VMs are shown nothing, wherever they were. Source: B-2, B-3."""
    rig = small(enabled=("db",))
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.refuses(handed_on(rig, "web_1", operation, "h2"), UnknownEvent)
