"""The agent's core before odd documents, changing events and several at once."""

from __future__ import annotations

from forewarn.agent.core.event_tracking import FINISHED_MAX
from forewarn.agent.core.rules import Match
from forewarn.agent.core.values import (
    ApprovalEnded,
    HookEnded,
)
from tests.agent.making import (
    DRAIN,
    NOW,
    STARTED,
    brief,
    core,
    event,
    polled,
    prepared,
    said,
    told,
)

# ---- documents that are odd --------------------------------------------------------------------


def test_stale_document_must_be_read_twice() -> None:
    """One odd answer must not undo a preparation. Source: C-7, B-2."""
    agent = prepared()
    assert agent.step(polled(0), NOW) == ()
    doubts = [agent.doubts]
    agent.step(polled(1, event()), NOW)
    doubts.append(agent.doubts)
    assert doubts == [True, False]
    agent.step(polled(0), NOW)
    assert brief(agent.step(polled(0), NOW)) == ["Recover drain"]


def test_event_that_comes_back_is_prepared_again() -> None:
    """Nobody knows why it left; an unprepared VM is worse than a second preparation."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    agent.step(polled(2), NOW)
    agent.step(polled(3, event()), NOW)  # while the first is being undone
    agent.step(HookEnded("drain", -15), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    assert brief(agent.step(polled(3, event()), NOW)) == ["Prepare drain"]


def test_event_that_is_over_does_not_come_back() -> None:
    """A stale document cannot repeat a recovery. Source: D-3."""
    agent = core((DRAIN,))
    agent.step(polled(1, STARTED), NOW)
    agent.step(polled(2), NOW)
    assert agent.step(polled(3, event()), NOW) == ()


def test_only_so_many_ended_events_are_remembered() -> None:
    """The journal does not grow with the years."""
    agent = core((DRAIN,), action="notify")
    for number in range(FINISHED_MAX + 10):
        agent.step(polled(2 * number, event(f"E{number}")), NOW)
        agent.step(polled(2 * number + 1), NOW)
    assert len(agent.journal()["finished"]) == FINISHED_MAX  # type: ignore[arg-type]


# ---- events that change ------------------------------------------------------------------------


def test_changed_event_is_decided_anew_while_nothing_is_begun() -> None:
    """A host update with restart may turn out to be a Freeze. Source: section 10."""
    agent = core((DRAIN,), match=Match(types=("Reboot",)))
    agent.step(polled(1, event(event_type="Freeze")), NOW)
    assert brief(agent.step(polled(2, event()), NOW)) == ["Prepare drain"]
    assert brief(agent.step(polled(3, event(event_type="Freeze")), NOW)) == []
    assert agent.events[0].stage == "preparing"


def test_event_that_no_longer_names_this_vm_is_undone() -> None:
    """Resources may change before the start; the preparation then has no purpose."""
    agent = prepared()
    assert brief(agent.step(polled(2, event(resources=("vm_1",))), NOW)) == ["Cancel drain"]
    agent.step(HookEnded("drain", 0), NOW)
    assert agent.events[0].stage == "aborted"
    assert brief(agent.step(polled(3, event()), NOW)) == ["Prepare drain"]


def test_started_event_that_changes_again_changes_nothing() -> None:
    """What is under way is only waited for."""
    agent = prepared()
    agent.step(polled(2, STARTED), NOW)
    result = agent.step(polled(3, event(status="Started", description="x")), NOW)
    assert (brief(result), told(result)) == ([], ["changed"])


def test_event_that_starts_while_being_aborted_is_still_undone() -> None:
    """An abort is carried to its end."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 77), NOW)
    agent.step(polled(2, STARTED), NOW)
    assert agent.events[0].stage == "aborting"
    agent.step(polled(3), NOW)
    assert told(agent.step(HookEnded("drain", 0), NOW)) == ["finished"]


# ---- several events at once --------------------------------------------------------------------


def test_step_that_two_events_need_is_done_once_and_undone_last() -> None:
    """A drained VM stays drained until the last event is over. Source: C-2."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    assert brief(agent.step(polled(2, event(), event("E2")), NOW)) == []
    assert brief(agent.step(HookEnded("drain", 0), NOW)) == ["Approve E1", "Approve E2"]
    assert brief(agent.step(polled(3, event("E2")), NOW)) == []
    assert brief(agent.step(polled(4), NOW)) == ["Recover drain"]


def test_step_that_is_being_undone_is_prepared_again_afterwards() -> None:
    """Preparing and undoing the same thing never overlap."""
    agent = prepared()
    agent.step(polled(2), NOW)
    assert brief(agent.step(polled(3, event("E2")), NOW)) == []
    assert brief(agent.step(HookEnded("drain", 0), NOW)) == ["Prepare drain"]


def test_step_that_failed_is_tried_again_for_the_next_event() -> None:
    """A failure is not inherited."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 1), NOW)
    assert brief(agent.step(polled(2, event(), event("E2")), NOW)) == ["Prepare drain"]


def test_start_seen_before_the_approval_ends_is_told_as_such() -> None:
    """An approval starts an event; the document that says so may be there first. Source: L-1."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    started = agent.step(polled(2, STARTED), NOW)
    assert said(started) == ["Reboot E1 has started, with the approval on its way."]
    approved = agent.step(ApprovalEnded("E1", accepted=True), NOW)
    assert said(approved) == ["Reboot E1 was approved."]
