"""Approvals that a metadata node accepted before their VMs left its hosts."""

from __future__ import annotations

import pytest

from forewarn.core import departures
from forewarn.core.departures import HAND_OVER_S_MAX
from forewarn.core.document import Departure
from forewarn.core.impact import Cause
from forewarn.core.lifecycle import EventState, Operation
from forewarn.core.stimulus import Approve, ChangeTopology, Complete, Enable
from forewarn.core.topology import Group
from forewarn.protocol.approvals import UnknownEvent
from forewarn.values import replace
from tests.core.rig import DAY_MS, Rig, small

LATER_MS = HAND_OVER_S_MAX * 1000 + 1


def move(rig: Rig, vm: str, host: str, **more: str) -> None:
    """An operator says that a VM is on another host."""
    rig.tell(ChangeTopology(vms=(replace(rig.state.topology.vms[vm], host=host, **more),)))


def handed_on(rig: Rig, vm: str, operation: Operation, *hosts: str) -> Approve:
    """The approval of a VM, from a node of some hosts."""
    event = rig.event_of(operation, rig.group_of(vm))
    return Approve(vm, (event.id,), node_hosts=hosts)


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
    rig.refuses(Approve(vm, (event_id,), node_hosts=hosts), UnknownEvent)


def test_event_of_another_group_is_not_the_vms() -> None:
    """A node that has both on its host approves for neither's other group. Source: S-4, M-5."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    move(rig, "web_1", "h2")
    event = rig.event_of(operation, "db")
    rig.refuses(Approve("web_1", (event.id,), node_hosts=("h1",)), UnknownEvent)


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
    monkeypatch.setattr(departures, "DEPARTURES_MAX", 2)
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
    rig.tell(Approve("web_1", (rig.event_of(operation, "web").id,)))
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
