"""Approvals: who may give them, what they release, and what they never do."""

import pytest

from forewarn_base.protocol.approvals import UnknownEvent
from forewarn_base.protocol.identity import CallerIdentity
from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.lifecycle import EventState, OperationState
from forewarn_core.fleet.refusals import Unknown
from forewarn_core.fleet.stimulus import Acknowledge, Cancel, ChangeTopology, Enable, Tick
from forewarn_core.fleet.topology import Group, GroupKind, Vm
from forewarn_core.requests import ApprovalRequest
from tests.core.rig import DAY_MS, MINUTE_MS, Rig, small, small_fleet

S = OperationState


def test_approval_starts_it_early() -> None:
    """Approved by everybody, it starts now, for all resources. Source: A-1, A-4, L-1, L-6, N-3."""
    rig = small()
    operation = rig.ask(Cause.REBOOT, "far_0")
    rig.approve("far_0", operation)
    assert rig.now(operation).state is S.RUNNING
    assert rig.shown("far") == ["Reboot Started"]
    assert rig.begun == [operation.number]


def test_any_vm_of_the_group_may_approve() -> None:
    """A VM that is not named may approve its group's event. Source: S-1, A-4."""
    rig = small()
    operation = rig.ask(Cause.REBOOT, "web_0")
    rig.approve("web_1", operation)
    assert rig.now(operation).state is S.RUNNING


def test_shared_host_waits_for_every_group() -> None:
    """An operation on shared hardware waits until all groups approved. Source: L-2, S-5."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    assert [waiting.subject for waiting in rig.why(operation)] == ["db", "web"]
    rig.approve("web_0", operation)
    assert rig.now(operation).state is S.ANNOUNCED
    assert [waiting.subject for waiting in rig.why(operation)] == ["db"]
    rig.approve("db_0", operation)
    assert rig.now(operation).state is S.RUNNING


def test_approval_leaves_the_document_as_it_is() -> None:
    """An approved event is still shown as Scheduled, at the same incarnation. Source: D-1, D-6."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    before = rig.document("web")
    rig.approve("web_0", operation)
    assert rig.document("web") == before


@pytest.mark.parametrize("moment", ["approved", "started"])
def test_approving_again_changes_nothing(moment: str) -> None:
    """An event approved or started already is approved again without effect. Source: A-1."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.approve("web_0", operation)
    if moment == "started":
        rig.approve("db_0", operation)
    event = rig.event_of(operation, "web")
    assert not rig.tell(ApprovalRequest("web_1", (event.id,), "")).changes


def test_ids_are_compared_without_case_and_once() -> None:
    """An id in either case is the same id, also twice in one request. Source: A-5, D-3."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    event_id = rig.event_of(operation, "web").id
    outcome = rig.tell(ApprovalRequest("web_0", (event_id.lower(), event_id), ""))
    assert [entry.action for entry in outcome.changes.entries] == ["event.approved"]
    assert rig.events[event_id].approved_by == ("web_0",)


def test_foreign_and_unknown_ids_are_refused_alike() -> None:
    """Another group's id, a finished or invented one: the same refusal. Source: S-4, A-3."""
    rig = small()
    ended = rig.ask(Cause.REBOOT, "web_0")
    rig.tell(Cancel(ended.number))
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    ids = (rig.event_of(operation, "db").id, rig.event_of(ended, "web").id, "NO-SUCH")
    for event_id in ids:
        error = rig.refuses(ApprovalRequest("web_0", (event_id,), ""), UnknownEvent)
        assert str(error).replace(event_id, "?") == (
            "Bad request. EventId ? is not a scheduled event of this VM."
        )
    rig.refuses(ApprovalRequest("nobody", (rig.event_of(operation, "web").id,), ""), UnknownEvent)


@pytest.mark.parametrize(
    ("known", "now", "counts"),
    [
        (("10.0.0.4", "", ""), {"addresses": ("10.0.0.4",)}, True),
        (("10.0.0.4", "", ""), {"addresses": ("10.0.0.5",)}, False),
        (("10.0.0.4", "", ""), {"addresses": ("10.0.0.4",), "interface": "eth1"}, False),
        (("10.0.0.4", "eth1", ""), {"addresses": ("10.0.0.4",), "interface": "eth1"}, True),
        (("10.0.0.4", "eth0", ""), {"addresses": ("10.0.0.4",), "interface": "eth1"}, False),
        (("", "", "i-1"), {"instance_id": "i-1"}, True),
        (("", "", "i-1"), {"instance_id": "i-2"}, False),
        (("", "", ""), {}, True),
    ],
)
def test_approval_counts_while_its_caller_is_still_that_vm(
    known: tuple[str, str, str], now: dict[str, object], counts: bool
) -> None:
    """What a VM was recognised by may be another's when its approval comes. Source: S-4, S-6."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.tell(ChangeTopology(vms=(replace(rig.state.topology.vms["web_0"], **now),)))
    event_id = rig.event_of(operation, "web").id
    approval = ApprovalRequest("web_0", (event_id,), "", identity=CallerIdentity(*known))
    if counts:
        rig.tell(approval)
        assert rig.events[event_id].approved_by == ("web_0",)
    else:
        rig.refuses(approval, UnknownEvent)


def test_all_ids_or_none() -> None:
    """One wrong id among good ones approves nothing. Source: A-2, A-3."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    good, foreign = (rig.event_of(operation, group).id for group in ("web", "db"))
    rig.refuses(ApprovalRequest("web_0", (good, foreign), ""), UnknownEvent)
    assert rig.event_of(operation, "web").state is EventState.SCHEDULED


def test_vm_with_a_document_of_its_own_approves_only_what_it_shows() -> None:
    """A GPU VM can approve no event that does not name it. Source: S-3, S-4."""
    rig = Rig()
    rig.tell(
        small_fleet(web=Group("web", GroupKind.SCALE_SET, fault_domain_count=1)),
        ChangeTopology(vms=(Vm("web_2", "h2", "web", gpu=True),)),
        Enable("web"),
    )
    operation = rig.ask(Cause.REBOOT, "web_0")
    assert rig.document("web/web_2") == (0, ())
    rig.refuses(ApprovalRequest("web_2", (rig.event_of(operation, "web").id,), ""), UnknownEvent)


def test_operator_acknowledges_from_outside() -> None:
    """An operator's acknowledgement counts as an approval. Source: A-9."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h2")
    event_id = rig.event_of(operation, "far").id
    rig.tell(Acknowledge((event_id.lower(),)))
    assert rig.now(operation).state is S.RUNNING
    assert not rig.tell(Acknowledge((event_id,))).changes
    rig.finish(operation)
    rig.refuses(Acknowledge((event_id,)), Unknown)
    rig.refuses(Acknowledge(("NO-SUCH",)), Unknown)


def test_operator_acknowledges_all_or_none() -> None:
    """Of several events none is approved if one is over; several are one step. Source: A-9."""
    rig = small()
    over, operation = rig.ask(Cause.HOST_REBOOT, "h2"), rig.ask(Cause.HOST_REBOOT, "h0")
    rig.approve("far_0", over)
    rig.finish(over)
    rig.refuses(Acknowledge((*operation.events, *rig.now(over).events)), Unknown)
    assert len(operation.events) == 2
    assert rig.tell(Acknowledge(operation.events)).numbers == (operation.number,)
    assert rig.now(operation).state is S.RUNNING


def strict() -> Rig:
    """The small fleet with a strict `web`, and a third VM of it on the first host."""
    rig = Rig()
    rig.tell(
        small_fleet(web=Group("web", strict_approval=True)),
        ChangeTopology(vms=(Vm("web_2", "h0", "web"),)),
        Enable("web"),
    )
    return rig


def test_strict_group_needs_every_named_vm() -> None:
    """In a strict group every VM of the resources must approve. Source: A-7."""
    rig = strict()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    event_id = rig.event_of(operation, "web").id
    assert not rig.tell(ApprovalRequest("web_1", (event_id,), "")).changes, "it is not named"
    rig.approve("web_2", operation)
    assert not rig.tell(ApprovalRequest("web_2", (event_id,), "")).changes, "it has approved"
    assert rig.events[event_id].approved_by == ("web_2",)
    assert rig.now(operation).state is S.ANNOUNCED
    assert "missing: web_0" in rig.why(operation)[0].text
    rig.approve("web_0", operation)
    assert rig.now(operation).state is S.RUNNING


def test_given_approval_counts_once_the_group_is_not_strict() -> None:
    """An approval that was counted in a strict group is enough once it is not. Source: A-4."""
    rig = strict()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.approve("web_2", operation)
    rig.tell(ChangeTopology(groups=(Group("web"),)))
    assert rig.now(operation).state is S.RUNNING
    rig.check_replay()


def test_strict_group_is_not_asked_for_ever() -> None:
    """Strict approval delays no longer than NotBefore. Source: A-7, L-1."""
    rig = strict()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.show()
    rig.approve("web_2", operation)
    rig.wait(15 * MINUTE_MS)
    assert rig.now(operation).state is S.RUNNING


def test_acknowledgement_stands_for_a_strict_group() -> None:
    """The operator's acknowledgement approves a strict group's event at once. Source: A-9, A-7."""
    rig = strict()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.tell(Acknowledge((rig.event_of(operation, "web").id,)))
    assert rig.now(operation).state is S.RUNNING


def automatic() -> Rig:
    """The small fleet with a `web` that approves users' reboots by policy."""
    rig = Rig()
    rig.tell(
        small_fleet(web=Group("web", automatic_approval=frozenset({Impact.REBOOT}))),
        Enable("web"),
        Enable("db"),
    )
    return rig


def test_automatic_approval_skips_scheduled() -> None:
    """A user's reboot of such a group is first seen Started. Source: A-10."""
    rig = automatic()
    operation = rig.ask(Cause.REBOOT, "web_0")
    assert operation.state is S.RUNNING
    assert rig.document("web")[0] == 1
    assert rig.shown("web") == ["Reboot Started"]


@pytest.mark.parametrize(
    ("cause", "target"),
    [(Cause.REDEPLOY, "web_0"), (Cause.HOST_REBOOT, "h0"), (Cause.EVICTION, "web_0")],
    ids=lambda each: each.value if isinstance(each, Cause) else "",
)
def test_automatic_approval_covers_nothing_else(cause: Cause, target: str) -> None:
    """Other impacts, and the platform's work, are announced as ever. Source: A-10."""
    rig = automatic()
    assert rig.ask(cause, target).state is S.ANNOUNCED


def test_automatic_approval_leaves_platform_work_alone() -> None:
    """What the platform does to a VM is announced, whatever users have approved. Source: A-10."""
    rig = automatic()
    operation = rig.ask(Cause.REBOOT, "web_0", source=Source.PLATFORM)
    assert rig.shown("web") == ["Reboot Scheduled"]
    rig.show()
    rig.wait(15 * MINUTE_MS)
    assert rig.now(operation).state is S.RUNNING


def test_automatic_approval_keeps_the_time_asked_for() -> None:
    """A reboot asked for later is announced and starts then, not before. Source: A-10, L-6, N-3."""
    rig = automatic()
    operation = rig.ask(Cause.REBOOT, "web_0", not_before_ms=rig.now_ms + 20 * 60 * MINUTE_MS)
    rig.show()
    assert rig.shown("web") == ["Reboot Scheduled"]
    rig.wait(20 * 60 * MINUTE_MS - 1)
    assert rig.now(operation).state is S.ANNOUNCED
    rig.wait(1)
    assert rig.now(operation).state is S.RUNNING


def test_group_that_falls_silent_is_waited_for_no_longer() -> None:
    """When an unapproved group is disabled the operation starts. Source: B-2, B-3."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0", not_before_ms=rig.now_ms + 3 * DAY_MS)
    rig.show()
    rig.now_ms += 2 * DAY_MS
    rig.tell(Tick())
    assert not rig.state.enrolments
    assert rig.now(operation).state is S.ANNOUNCED, "the operator asked for later"
    rig.wait(DAY_MS)
    assert rig.now(operation).state is S.RUNNING


@pytest.mark.parametrize("first", ["approval", "deletion"])
def test_a_vm_that_is_gone_is_not_waited_for(first: str) -> None:
    """In a strict group only those that still exist must approve, in any order. Source: A-7."""
    rig = small()
    rig.tell(
        ChangeTopology(
            groups=(Group("str", strict_approval=True),),
            vms=(Vm("str_0", "h0", "str"), Vm("str_1", "h0", "str"), Vm("str_2", "h0", "str")),
        ),
        Enable("str"),
    )
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.approve("web_0", operation)
    rig.approve("db_0", operation)
    rig.approve("str_0", operation)
    if first == "approval":
        rig.approve("str_1", operation)
    assert "(missing: " in rig.why(operation)[0].text
    rig.finish(rig.ask(Cause.DELETION, "str_2"))
    if first == "deletion":
        assert rig.why(operation)[0].text.endswith("(missing: str_1)")
        rig.approve("str_1", operation)
    assert rig.now(operation).state is S.RUNNING
    rig.check_replay()


def test_an_event_of_vms_that_are_all_gone_is_not_waited_for() -> None:
    """Nobody is left to prepare, so the other groups' approval is enough. Source: L-2."""
    rig = small()
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.finish(rig.ask(Cause.DELETION, "web_0"))
    assert [waits.subject for waits in rig.why(operation)] == ["db"]
    rig.approve("db_0", operation)
    assert rig.now(operation).state is S.RUNNING


def test_an_event_is_waited_for_while_one_of_its_vms_is_left() -> None:
    """Any VM may approve for all, so the last one is asked, too. Source: L-2, A-4."""
    rig = small()
    rig.tell(ChangeTopology(vms=(Vm("web_9", "h0", "web"),)))
    operation = rig.ask(Cause.HOST_REBOOT, "h0")
    rig.approve("db_0", operation)
    rig.finish(rig.ask(Cause.DELETION, "web_9"))
    assert [waits.subject for waits in rig.why(operation)] == ["web"]
    rig.approve("web_0", operation)
    assert rig.now(operation).state is S.RUNNING
