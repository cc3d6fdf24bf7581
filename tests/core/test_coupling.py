"""Coupled deletions: those of one request wait for each other's approvals."""

from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.stimulus import (
    Cancel,
    ChangeTopology,
    Enable,
    GroupsPolled,
)
from forewarn_core.fleet.topology import Group, Vm
from tests.core.rig import DAY_MS, MINUTE_MS, Rig, small_fleet

S = OperationState


def coupled(*enabled: str) -> Rig:
    """A group with terminate notification and three VMs."""
    rig = Rig()
    rig.tell(
        small_fleet(web=Group("web", terminate_notice_s=300)),
        ChangeTopology(vms=(Vm("web_2", "h2", "web"),)),
        *(Enable(group) for group in enabled or ("web",)),
    )
    return rig


def test_deletions_of_one_request_wait_for_each_other() -> None:
    """An approved deletion waits while another of the request is not approved. Source: A-8."""
    rig = coupled()
    first = rig.ask(Cause.DELETION, "web_0", "web_1")
    rig.approve("web_0", first)
    assert rig.now(first).state is S.ANNOUNCED
    assert [waiting.code.value for waiting in rig.why(first)] == ["coupled"]
    rig.approve("web_0", first.number + 1)
    assert rig.now(first).state is rig.now(first.number + 1).state is S.RUNNING


def test_deletions_of_other_requests_do_not_wait() -> None:
    """Another request's deletion holds nothing up. Source: A-8."""
    rig = coupled()
    first = rig.ask(Cause.DELETION, "web_0")
    rig.ask(Cause.DELETION, "web_1")
    rig.approve("web_0", first)
    assert rig.now(first).state is S.RUNNING


def test_cancelled_deletion_lets_the_others_go() -> None:
    """With the unapproved deletion withdrawn, the approved one starts. Source: A-8, L-3."""
    rig = coupled()
    first = rig.ask(Cause.DELETION, "web_0", "web_1")
    rig.approve("web_0", first)
    rig.tell(Cancel(first.number + 1))
    assert rig.now(first).state is S.RUNNING


def test_coupled_deletions_start_at_notbefore_all_the_same() -> None:
    """NotBefore ends the coupling. Source: A-8, L-1."""
    rig = coupled()
    first = rig.ask(Cause.DELETION, "web_0", "web_1")
    rig.show()
    rig.approve("web_0", first)
    rig.wait(5 * MINUTE_MS)
    assert rig.now(first).state is rig.now(first.number + 1).state is S.RUNNING


def test_deletion_names_those_it_waits_for_alone() -> None:
    """Those of its request that are approved hold nothing up. Source: A-8, F-4."""
    rig = coupled()
    first = rig.ask(Cause.DELETION, "web_0", "web_1", "web_2")
    rig.approve("web_0", first)
    rig.approve("web_0", first.number + 1)
    [waiting] = rig.why(first)
    assert waiting.subject == f"op-{first.number + 2}"


def test_deletions_with_other_notbefores_do_not_wait() -> None:
    """Each group has its own notice, so one request has two NotBefore times. Source: A-8."""
    rig = Rig()
    groups = {
        "web": Group("web", terminate_notice_s=300),
        "far": Group("far", terminate_notice_s=600),
    }
    rig.tell(small_fleet(**groups), Enable("web"), Enable("far"))
    first = rig.ask(Cause.DELETION, "web_0", "far_0")
    second = rig.now(first.number + 1)
    assert first.not_before_ms < second.not_before_ms
    rig.approve("web_0", first)
    assert (rig.now(first).state, rig.now(second).state) == (S.RUNNING, S.ANNOUNCED)


def test_deletions_wait_no_longer_for_a_group_that_falls_silent() -> None:
    """Also where that group's own deletion is not to start before a later time. A-8, B-2, L-6."""
    rig = Rig()
    groups = {name: Group(name, terminate_notice_s=300) for name in ("web", "far")}
    rig.tell(small_fleet(**groups), Enable("web"), Enable("far"))
    asked_ms = rig.now_ms + 3 * DAY_MS
    first = rig.ask(Cause.DELETION, "web_0", "far_0", not_before_ms=asked_ms)
    rig.show()
    rig.approve("web_0", first)
    assert rig.now(first).state is S.ANNOUNCED
    rig.wait(DAY_MS // 2)
    rig.tell(GroupsPolled(frozenset({"web"})))
    rig.wait(DAY_MS // 2 + 2 * MINUTE_MS)
    assert "far" not in rig.state.enrolments
    assert rig.now(first).state is S.RUNNING
    assert rig.now(first.number + 1).state is S.ANNOUNCED
