"""The agent's core before odd documents, changing events and several at once."""

from __future__ import annotations

import pytest

from forewarn.agent.core.event_tracking import EVENTS_MAX, FINISHED_MAX, MISSING_MS
from forewarn.agent.core.rules import Match, PreparationStep
from forewarn.agent.core.values import (
    ApprovalEnded,
    HookEnded,
    TimePassed,
)
from tests.agent.making import (
    DRAIN,
    ME,
    NOTICE_MS,
    NOW,
    STARTED,
    STOP,
    Watched,
    brief,
    core,
    event,
    polled,
    prepared,
    rule,
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
    assert brief(agent.step(polled(0), NOW)) == []


@pytest.mark.parametrize("incarnation", [0, 1], ids=["before", "the same"])
def test_event_is_missed_for_a_while_before_it_is_over(incarnation: int) -> None:
    """Without a newer incarnation it cannot have left, but for a new beginning. Source: D-1, B-2.

    Odd answers pass within seconds, and a group that begins again is still there after 30.
    """
    agent = prepared()
    agent.step(ApprovalEnded("E1", accepted=True), NOW)
    for second in range(3):
        assert agent.step(polled(incarnation), NOW + second * 1000) == ()
    due_ms = agent.next_deadline()
    assert due_ms == NOW + 1000 + MISSING_MS
    assert (agent.step(TimePassed(), due_ms), agent.doubts) == ((), True)
    assert agent.next_deadline() is None
    assert brief(agent.step(polled(incarnation), due_ms)) == ["Recover drain"]
    assert not agent.doubts


def test_event_that_is_shown_again_was_never_missed() -> None:
    """Two empty answers undo nothing, and nothing is prepared twice. Source: C-7, D-3."""
    agent = prepared()
    agent.step(ApprovalEnded("E1", accepted=True), NOW)
    agent.step(polled(0), NOW)
    agent.step(polled(0), NOW)
    assert agent.step(polled(1, event()), NOW + 2000) == ()
    assert agent.next_deadline() is None
    assert brief(agent.step(polled(2, STARTED), NOW + 2 * MISSING_MS)) == []
    assert brief(agent.step(polled(3), NOW + 3 * MISSING_MS)) == ["Recover drain"]


def test_new_event_of_a_doubtful_document_is_met_at_once() -> None:
    """Whatever is missing, a Preempt leaves 30 seconds."""
    agent = prepared()
    fresh = event("E2", event_type="Preempt", not_before_ms=NOW + 30_000)
    agent.step(polled(0, fresh), NOW)
    assert brief(agent.step(polled(0, fresh), NOW)) == ["Approve E2"]


def test_event_that_comes_back_is_prepared_again() -> None:
    """Nobody knows why it left; an unprepared VM is worse than a second preparation."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    agent.step(polled(2), NOW)
    agent.step(polled(3, event()), NOW)  # while the first is being undone
    assert brief(agent.step(HookEnded("drain", -15), NOW)) == ["Cancel drain"]
    assert brief(agent.step(HookEnded("drain", 0), NOW)) == ["Prepare drain"]


def test_approved_event_that_comes_back_is_the_same_event() -> None:
    """It was not seen to start, so it is still ahead. Source: D-3, L-1."""
    agent = prepared()
    agent.step(ApprovalEnded("E1", accepted=True), NOW)
    assert brief(agent.step(polled(2), NOW)) == ["Recover drain"]
    agent.step(polled(3, event()), NOW)
    assert brief(agent.step(HookEnded("drain", 0), NOW)) == ["Prepare drain"]
    assert brief(agent.step(HookEnded("drain", 0), NOW)) == ["Approve E1"]
    assert brief(agent.step(polled(4, STARTED), NOW)) == []
    assert brief(agent.step(polled(5), NOW)) == ["Recover drain"]
    agent.step(HookEnded("drain", 0), NOW)
    assert agent.step(polled(6, STARTED), NOW) == ()


def test_event_that_comes_back_before_it_could_be_undone_is_prepared_again() -> None:
    """Undoing that fails is given up for it; nothing waits for the next try."""
    agent = core((DRAIN,), (STOP,))
    agent.step(polled(1, event()), NOW)
    for key in ("drain", "stop"):
        agent.step(HookEnded(key, 0), NOW)
    agent.step(polled(2), NOW)
    agent.step(HookEnded("stop", 1), NOW)
    assert told(agent.step(polled(3, event()), NOW)) == ["seen"]
    assert agent.events[0].stage == "preparing"
    assert brief(agent.step(TimePassed(), NOW)) == []


def test_event_that_comes_back_takes_back_only_its_own_undoing() -> None:
    """What another event has left to be undone is tried again as before."""
    rules = (
        rule((DRAIN,), match=Match(types=("Reboot",))),
        rule((STOP,), match=Match(types=("Freeze",))),
    )
    agent = Watched(ME, rules)
    agent.step(polled(1, event(), event("E2", event_type="Freeze")), NOW)
    for key in ("drain", "stop"):
        agent.step(HookEnded(key, 0), NOW)
    agent.step(polled(2), NOW)
    for key in ("drain", "stop"):
        agent.step(HookEnded(key, 1), NOW)
    assert brief(agent.step(polled(3, event()), NOW)) == ["Prepare drain"]
    due_ms = agent.next_deadline() or 0
    assert brief(agent.step(TimePassed(), due_ms)) == ["Recover stop"]


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


def test_events_beyond_the_limit_are_told_of() -> None:
    """None is passed over in silence, and those of this VM come first."""
    agent = core((DRAIN,))
    others = tuple(event(f"E{n}", resources=("vm_1",)) for n in range(1, EVENTS_MAX + 2))
    intents = agent.step(polled(1, *others, event("E0")), NOW)
    assert brief(intents) == ["Prepare drain"]
    assert told(intents).count("not-followed") == 1
    assert told(agent.step(polled(2, *others, event("E0"), event("E999")), NOW)) == []
    assert len(agent.events) == EVENTS_MAX


# ---- events that change ------------------------------------------------------------------------


@pytest.mark.parametrize("moved_ms", [600_000, -600_000], ids=["later", "earlier"])
def test_hook_may_run_until_the_event_as_it_is_now(moved_ms: int) -> None:
    """A NotBefore that was put off is the hook's time, too. Source: C-6, F-8."""
    agent = core((PreparationStep("drain", timeout_s=7200),))
    agent.step(polled(1, event()), NOW)
    due_ms = NOW + NOTICE_MS + moved_ms
    agent.step(polled(2, event(not_before_ms=due_ms)), NOW + 1000)
    assert agent.next_deadline() == due_ms
    assert brief(agent.step(TimePassed(), due_ms - 1)) == []
    assert brief(agent.step(TimePassed(), due_ms)) == ["Stop drain"]


def test_time_of_an_event_moves_only_its_own_hooks() -> None:
    """Each hook runs until the NotBefore of the event it prepares for. Source: C-6."""
    rules = (
        rule((DRAIN,), match=Match(types=("Reboot",))),
        rule((STOP,), match=Match(types=("Freeze",))),
    )
    agent = Watched(ME, rules)
    other = event("E2", event_type="Freeze")
    agent.step(polled(1, event(), other), NOW)
    agent.step(polled(2, event(not_before_ms=NOW + 2 * NOTICE_MS), other), NOW + 1000)
    assert {step.key: step.event.event_id for step in agent.steps} == {"drain": "E1", "stop": "E2"}


def test_changed_event_is_decided_anew_while_nothing_is_begun() -> None:
    """A host update with restart may turn out to be a Freeze. Source: O-2."""
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
