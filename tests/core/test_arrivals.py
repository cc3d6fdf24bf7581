"""VMs that arrive on a host or are gone while work on it is announced, planned or running."""

from __future__ import annotations

from forewarn.core.impact import Cause
from forewarn.core.lifecycle import OperationState
from forewarn.core.stimulus import (
    ChangeTopology,
)
from forewarn.core.topology import Vm
from tests.core.rig import MINUTE_MS, small

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
        assert (rig.now(other).state, rig.now(other).reason) == (S.CANCELLED, "vm web_0 is gone")


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


def test_vm_that_has_left_is_not_moved_again() -> None:
    """A host's evacuation moves only the VMs that are still on it. Source: L-5."""
    rig = small()
    evacuation = rig.ask(Cause.HARDWARE_DEGRADED, "h0", destination="h1")
    move = rig.ask(Cause.REDEPLOY, "web_0", destination="h2")
    rig.approve("web_1", move)
    rig.finish(move)
    rig.approve("web_1", evacuation)
    rig.approve("db_0", evacuation)
    rig.finish(evacuation)
    assert rig.state.topology.vms["web_0"].host == "h2"
    assert rig.state.topology.vms["db_0"].host == "h1"


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
