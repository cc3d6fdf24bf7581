"""The order in which the run loop takes what waits for it."""

from concurrent.futures import Future

import pytest

from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import Cancel, GroupsPolled
from forewarn_core.requests import ApprovalRequest
from forewarn_server.control import inbox as inbox_module
from forewarn_server.control.driver_calls import CallEnded, DriverCall, Verb
from forewarn_server.control.inbox import (
    Inbox,
    Overloaded,
    StateQuery,
    Stopping,
    Submission,
    refuse,
)
from forewarn_server.control.service_state import ServiceState, ServiceStatus
from tests.drivers.tasks import task


def an_end(number: int) -> CallEnded:
    """What became of a call for an operation."""
    return CallEnded(DriverCall(Verb.BEGIN, "manual", task(number), 0))


def taken(inbox: Inbox) -> list[object]:
    """Everything that waits, in the order of the loop: a request is its stimulus."""
    items = [inbox.take(0) for _ in range(len(inbox))]
    return [item.stimulus if isinstance(item, Submission) else item for item in items]


def test_whoever_waits_for_an_answer_comes_first() -> None:
    """An approval does not wait behind what nobody waits for, which keeps its order."""
    inbox = Inbox(ServiceStatus())
    ended, effects, approval = an_end(1), StepResult(), ApprovalRequest("v", (), "")
    inbox.put(ended)
    inbox.note(GroupsPolled(frozenset()), "metadata")
    inbox.put(effects)
    inbox.submit(approval, "vm v", shown=False)
    assert taken(inbox) == [approval, ended, GroupsPolled(frozenset()), effects]


def test_inbox_that_is_full_refuses_requests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has ended elsewhere is taken, questions too; notes are left out. Source: L-7."""
    monkeypatch.setattr(inbox_module, "INBOX_MAX", 3)
    monkeypatch.setattr(inbox_module, "CALLS_RESERVED", 0)
    inbox = Inbox(ServiceStatus())
    inbox.put(an_end(1))
    inbox.note(GroupsPolled(frozenset({"g"})), "metadata")
    assert not inbox.submit(ApprovalRequest("v", (), ""), "vm v", shown=False).done()
    inbox.note(GroupsPolled(frozenset()), "metadata")
    with pytest.raises(Overloaded, match="3 requests"):
        inbox.submit(ApprovalRequest("v", (), ""), "vm v", shown=False).result(0)
    inbox.put(an_end(2))
    assert not inbox.read(lambda plane: plane).done()
    kinds = [type(each) for each in taken(inbox)]
    assert kinds == [StateQuery, ApprovalRequest, CallEnded, GroupsPolled, CallEnded]
    assert len(inbox) == 0


def test_inbox_that_is_full_of_requests_of_vms_takes_calls_of_operators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rush of approvals, and reports, leave room for those who may end its cause."""
    monkeypatch.setattr(inbox_module, "INBOX_MAX", 5)
    monkeypatch.setattr(inbox_module, "CALLS_RESERVED", 2)
    inbox = Inbox(ServiceStatus())
    approvals = [
        inbox.submit(ApprovalRequest(f"v{n}", (), ""), "vm", shown=False) for n in range(4)
    ]
    inbox.note(GroupsPolled(frozenset()), "metadata")
    calls = [inbox.submit(Cancel(n), "operator", shown=False) for n in range(3)]
    assert [each.done() for each in approvals] == [False, False, False, True]
    assert [each.done() for each in calls] == [False, False, True]
    assert len(inbox) == 5


def test_call_of_an_operator_waits_for_one_request_of_a_vm_at_most() -> None:
    """They take turns, each in its order, and whatever nobody waits for comes last."""
    inbox = Inbox(ServiceStatus())
    ended = an_end(1)
    inbox.put(ended)
    approvals = [ApprovalRequest(f"v{n}", (), "") for n in range(3)]
    for approval in approvals:
        inbox.submit(approval, "vm", shown=False)
    calls = [Cancel(n) for n in range(2)]
    for call in calls:
        inbox.submit(call, "operator", shown=False)
    turns = [calls[0], approvals[0], calls[1], approvals[1], ended, approvals[2]]
    assert taken(inbox) == turns


def test_batch_is_what_waits_of_vms_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a later request, and a call of an operator is a batch of its own."""
    monkeypatch.setattr(inbox_module, "BATCH_MAX", 3)
    inbox = Inbox(ServiceStatus())
    for number in range(4):
        inbox.submit(ApprovalRequest(f"v{number}", (), ""), "vm", shown=False)
    inbox.submit(Cancel(1), "operator", shown=False)
    batches = []
    while len(inbox):
        first = inbox.take(0)
        assert isinstance(first, Submission)
        batches.append([each.stimulus for each in inbox.take_batch(first)])
    first_three = [ApprovalRequest(f"v{number}", (), "") for number in range(3)]
    assert batches == [[Cancel(1)], first_three, [ApprovalRequest("v3", (), "")]]


def test_inbox_of_a_service_that_has_ended_refuses_whoever_waits() -> None:
    """Before and after, requests and questions alike; nothing was done. Source: L-7."""
    status = ServiceStatus()
    inbox = Inbox(status)
    request, question = (
        inbox.submit(ApprovalRequest("v", (), ""), "vm v", shown=False),
        inbox.read(lambda plane: plane),
    )
    withdrawn = inbox.submit(ApprovalRequest("w", (), ""), "vm w", shown=False)
    inbox.note(GroupsPolled(frozenset()), "metadata")
    inbox.put(an_end(1))
    assert withdrawn.cancel()
    status.become(ServiceState.STOPPING)
    inbox.refuse_waiting()
    late, later = (
        inbox.submit(ApprovalRequest("v", (), ""), "vm v", shown=False),
        inbox.read(lambda plane: plane),
    )
    for result in (request.result, question.result, late.result, later.result):
        with pytest.raises(Stopping):
            result(0)
    assert len(inbox) == 0


def test_question_fails_for_whoever_asked_it_alone() -> None:
    """A bug in it is theirs, and one that nobody waits for any more is not asked."""
    inbox = Inbox(ServiceStatus())
    asked: list[object] = []
    wrong, withdrawn = inbox.read(lambda _: 1 // 0), inbox.read(asked.append)
    assert withdrawn.cancel()
    for _ in range(2):
        query = inbox.take(0)
        assert isinstance(query, StateQuery)
        query.run(None)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        wrong.result(0)
    assert asked == []
    gone: Future[object] = Future()
    assert gone.cancel()
    refuse(gone)  # nobody is told
