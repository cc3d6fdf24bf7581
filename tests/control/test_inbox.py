"""The order in which the run loop takes what waits for it."""

from __future__ import annotations

from forewarn.control.driver_calls import CallEnded, DriverCall, Verb
from forewarn.control.inbox import AHEAD_MAX, ENDS_MAX, Inbox, Submission
from forewarn.control.publishing import FollowUp
from forewarn.control.service_state import ServiceStatus
from forewarn.core.stimulus import Approve, GroupsPolled
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
    ended, follow_up, approval = an_end(1), FollowUp(), Approve("v", ())
    inbox.put(ended)
    inbox.note(GroupsPolled(frozenset()), "metadata")
    inbox.put(follow_up)
    inbox.submit(approval, "vm v")
    assert taken(inbox) == [approval, ended, GroupsPolled(frozenset()), follow_up]


def test_requests_without_end_hold_nothing_else_up() -> None:
    """Behind a few requests one of the other things has its turn."""
    inbox = Inbox(ServiceStatus())
    ends = [an_end(1), an_end(2)]
    for ended in ends:
        inbox.put(ended)
    for _ in range(3 * AHEAD_MAX):
        inbox.submit(Approve("v", ()), "vm v")
    order = taken(inbox)
    assert [order.index(ended) for ended in ends] == [AHEAD_MAX, 2 * AHEAD_MAX + 1]


def test_calls_that_end_together_are_taken_together() -> None:
    """As many as stand in a row, and no more than fit one transaction."""
    inbox = Inbox(ServiceStatus())
    ends = [an_end(number) for number in range(1, ENDS_MAX + 3)]
    for ended in ends:
        inbox.put(ended)
    first = inbox.take(0)
    assert isinstance(first, CallEnded)
    assert inbox.take_ends(first) == ends[:ENDS_MAX]
    inbox.put(FollowUp())
    inbox.put(an_end(100))
    following = inbox.take(0)
    assert isinstance(following, CallEnded)
    assert inbox.take_ends(following) == ends[ENDS_MAX:]
    assert len(inbox) == 2
