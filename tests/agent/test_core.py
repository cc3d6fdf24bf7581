"""The agent's core, decision by decision."""

import pytest

from forewarn.agent.core.event_tracking import EVENTS_MAX
from forewarn.agent.core.rules import PreparationStep
from forewarn.agent.core.values import (
    ApprovalEnded,
    CancelIntent,
    HookEnded,
    NotifyIntent,
    PrepareIntent,
    RecoverIntent,
    TimePassed,
)
from tests.agent.making import (
    DRAIN,
    NOTICE_MS,
    NOW,
    STARTED,
    STOP,
    brief,
    core,
    event,
    polled,
    prepared,
    told,
)


def test_event_is_prepared_then_approved_then_recovered() -> None:
    """The way of an event from notice to recovery. Source: C-2, C-4."""
    agent = core((DRAIN,), (STOP,))
    assert brief(agent.step(polled(1, event()), NOW)) == ["Prepare drain"]
    assert brief(agent.step(HookEnded("drain", 0), NOW)) == ["Prepare stop"]
    assert brief(agent.step(HookEnded("stop", 0), NOW)) == ["Approve E1"]
    assert told(agent.step(ApprovalEnded("E1", accepted=True), NOW)) == ["approved"]
    assert brief(agent.step(polled(2, STARTED), NOW)) == []
    assert brief(agent.step(polled(3), NOW)) == ["Recover stop"]
    assert brief(agent.step(HookEnded("stop", 0), NOW)) == ["Recover drain"]
    assert told(agent.step(HookEnded("drain", 0), NOW)) == ["finished"]
    assert agent.events == ()
    assert agent.steps == ()
    assert agent.next_deadline() is None


def test_same_document_again_asks_for_nothing() -> None:
    """Polling once a second must not repeat anything. Source: D-1."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    generation = agent.generation
    assert agent.step(polled(1, event()), NOW + 1000) == ()
    assert agent.step(polled(2, event()), NOW + 2000) == ()
    assert agent.generation == generation


def test_steps_of_a_group_run_together() -> None:
    """The groups run one after another, the steps of one group at the same time."""
    agent = core((DRAIN, STOP), (PreparationStep("last"),))
    assert brief(agent.step(polled(1, event()), NOW)) == ["Prepare drain", "Prepare stop"]
    assert brief(agent.step(HookEnded("stop", 0), NOW)) == []
    assert brief(agent.step(HookEnded("drain", 0), NOW)) == ["Prepare last"]


def test_cancelled_event_undoes_only_what_was_done() -> None:
    """An event that goes before it started is cancelled. Source: L-3, C-6."""
    agent = core((DRAIN,), (STOP,))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    assert brief(agent.step(polled(2), NOW)) == ["Stop stop"]
    assert brief(agent.step(HookEnded("stop", -15), NOW)) == ["Cancel stop"]
    assert brief(agent.step(HookEnded("stop", 0), NOW)) == ["Cancel drain"]
    assert told(agent.step(HookEnded("drain", 0), NOW)) == ["finished"]


@pytest.mark.parametrize(
    ("last", "at_ms", "hook"),
    [
        pytest.param(STARTED, NOW, RecoverIntent, id="seen started"),
        pytest.param(
            event(), NOW + NOTICE_MS, RecoverIntent, id="due and missed between two polls"
        ),
        pytest.param(event(), NOW, CancelIntent, id="neither"),
    ],
)
def test_gone_event_is_over_or_cancelled(last: object, at_ms: int, hook: type) -> None:
    """What a missing event means depends on what was seen of it. Source: D-6, L-3, L-5."""
    agent = core((DRAIN,), then="hold")
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    agent.step(polled(2, last), NOW)  # type: ignore[arg-type]
    intents = agent.step(polled(3), at_ms)
    (intent,) = (one for one in intents if brief((one,)))
    assert isinstance(intent, hook)
    assert told(intents)[0] == ("ended" if hook is RecoverIntent else "cancelled")


def test_held_rule_never_approves() -> None:
    """`then = "hold"` leaves the start to NotBefore."""
    agent = prepared(then="hold")
    assert agent.events[0].stage == "held"
    assert brief(agent.step(TimePassed(), NOW + NOTICE_MS)) == []


@pytest.mark.parametrize(
    ("exit_status", "on_failure", "stage", "intents"),
    [
        pytest.param(75, "go-on", "held", [], id="asks to hold"),
        pytest.param(77, "go-on", "aborting", ["Cancel drain"], id="asks to abort"),
        pytest.param(1, "hold", "held", [], id="fails, hold"),
        pytest.param(1, "abort", "aborting", ["Cancel drain"], id="fails, abort"),
        pytest.param(1, "go-on", "preparing", ["Prepare stop"], id="fails, go on"),
        pytest.param(-9, "hold", "held", [], id="is killed"),
    ],
)
def test_exit_status_decides(
    exit_status: int, on_failure: str, stage: str, intents: list[str]
) -> None:
    """A hook that does not succeed never leads to an approval unless its step says so."""
    agent = core((PreparationStep("drain", on_failure=on_failure),), (STOP,))
    agent.step(polled(1, event()), NOW)
    result = agent.step(HookEnded("drain", exit_status), NOW)
    assert brief(result) == intents
    assert told(result)[0] == ("step-held" if exit_status == 75 else "step-failed")
    assert agent.events[0].stage == stage


def test_hook_that_asks_to_hold_is_no_error() -> None:
    """75 is a decision of the hook's, EX_TEMPFAIL of sysexits.h."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    intents = agent.step(HookEnded("drain", 75), NOW)
    notes = [intent for intent in intents if isinstance(intent, NotifyIntent)]
    assert [note.level for note in notes] == ["warning", "warning"]
    assert notes[0].text == "Reboot E1: prepare drain asked to hold."


def test_worst_verdict_of_a_group_counts() -> None:
    """One abort among several steps aborts, once all have ended."""
    agent = core((DRAIN, STOP))
    agent.step(polled(1, event()), NOW)
    assert brief(agent.step(HookEnded("drain", 77), NOW)) == []
    assert brief(agent.step(HookEnded("stop", 0), NOW)) == ["Cancel drain", "Cancel stop"]


def test_aborted_event_is_left_alone_until_it_is_gone() -> None:
    """After an abort nothing is prepared, approved or undone again."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 77), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    assert agent.events[0].stage == "aborted"
    assert brief(agent.step(polled(2, event(description="x")), NOW)) == []
    assert brief(agent.step(polled(3, STARTED), NOW)) == []
    assert brief(agent.step(polled(4), NOW)) == []
    assert agent.events == ()


def test_hook_that_hangs_is_stopped_at_its_deadline() -> None:
    """A hook never outlives its time; afterwards nothing is approved."""
    agent = core((PreparationStep("drain", timeout_s=60),))
    (intent,) = (
        one for one in agent.step(polled(1, event()), NOW) if isinstance(one, PrepareIntent)
    )
    assert intent.deadline_ms == NOW + 60_000 == agent.next_deadline()
    assert agent.step(TimePassed(), NOW + 59_999) == ()
    assert brief(agent.step(TimePassed(), NOW + 60_000)) == ["Stop drain"]
    assert agent.step(TimePassed(), NOW + 61_000) == ()
    agent.step(HookEnded("drain", -9, reason="its time is up"), NOW + 65_000)
    assert agent.events[0].stage == "held"


def test_deadline_of_a_step_is_not_after_not_before() -> None:
    """A preparation that is not done by NotBefore has failed. Source: D-7."""
    agent = core((PreparationStep("drain", timeout_s=3600),))
    agent.step(polled(1, event()), NOW)
    assert agent.next_deadline() == NOW + NOTICE_MS


def test_overdue_event_gives_a_step_its_whole_time() -> None:
    """Rules may prepare for an event without a NotBefore that is still Scheduled."""
    agent = core((DRAIN,))
    agent.step(polled(1, event(not_before_ms=None)), NOW)
    assert agent.next_deadline() == NOW + 300_000


def test_started_event_stops_further_steps_but_not_the_running_one() -> None:
    """An event may start early by another VM's approval. Source: C-6, A-4."""
    agent = core((DRAIN,), (STOP,))
    agent.step(polled(1, event()), NOW)
    assert brief(agent.step(polled(2, STARTED), NOW)) == []
    assert brief(agent.step(HookEnded("drain", 0), NOW)) == []
    assert agent.events[0].stage == "under-way"
    assert brief(agent.step(polled(3), NOW)) == ["Recover drain"]


def test_last_step_of_a_started_event_ends_without_approval() -> None:
    """What has started needs no approval."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    agent.step(polled(2, STARTED), NOW)
    assert brief(agent.step(HookEnded("drain", 0), NOW)) == []
    assert agent.events[0].stage == "under-way"


def test_event_first_seen_started_is_not_prepared_and_recovers_once() -> None:
    """A hardware failure gives no notice; its end is the signal to recover. L-4, A-10, C-10."""
    agent = core((DRAIN,), (STOP,))
    result = agent.step(polled(1, STARTED), NOW)
    assert (brief(result), told(result)) == ([], ["seen"])
    assert brief(agent.step(polled(2), NOW)) == ["Recover stop"]
    assert brief(agent.step(HookEnded("stop", 0), NOW)) == ["Recover drain"]
    assert told(agent.step(HookEnded("drain", 0), NOW)) == ["finished"]
    assert brief(agent.step(polled(3, STARTED), NOW)) == [], "a stale document"
    assert (agent.events, agent.steps) == ((), ())


def test_event_of_others_is_ignored_by_default() -> None:
    """Only events that name this VM are acted upon. Source: C-3."""
    agent = core((DRAIN,))
    result = agent.step(polled(1, event(resources=("vm_1",))), NOW)
    assert (brief(result), agent.events[0].rule) == ([], "events that do not name this VM")


def test_event_without_an_id_is_only_told() -> None:
    """What cannot be approved or followed must not be prepared. Source: D-3."""
    agent = core((DRAIN,))
    result = agent.step(polled(1, event("")), NOW)
    assert (brief(result), told(result)) == ([], ["seen"])


def test_more_events_than_the_limit_are_not_followed() -> None:
    """A document without end does not fill the memory."""
    agent = core((DRAIN,), action="notify")
    agent.step(polled(1, *(event(f"E{n}") for n in range(EVENTS_MAX + 5))), NOW)
    assert len(agent.events) == EVENTS_MAX


# ---- approval ----------------------------------------------------------------------------------


def test_approval_that_fails_is_repeated_with_growing_pauses() -> None:
    """An approval is repeated until it is answered. Source: C-7, A-1."""
    agent = prepared()
    now_ms, pauses = NOW, []
    for _ in range(7):
        agent.step(ApprovalEnded("e1", accepted=False, reason="no answer"), now_ms)
        due_ms = agent.next_deadline()
        assert due_ms is not None
        assert brief(agent.step(TimePassed(), due_ms - 1)) == []
        assert brief(agent.step(TimePassed(), due_ms)) == ["Approve E1"]
        pauses.append((due_ms - now_ms) // 1000)
        now_ms = due_ms
    assert pauses == [2, 4, 8, 16, 30, 30, 30]


def test_failed_approval_is_told_once() -> None:
    """Repeats are not news."""
    agent = prepared()
    assert told(agent.step(ApprovalEnded("E1", accepted=False, reason="x"), NOW)) == [
        "approval-failed"
    ]
    agent.step(TimePassed(), NOW + 2000)
    assert told(agent.step(ApprovalEnded("E1", accepted=False, reason="x"), NOW + 2000)) == []


def test_answer_to_an_approval_of_a_vanished_event_wakes_nobody() -> None:
    """A refusal that comes after the event has gone leaves nothing to wait for. Source: L-3."""
    agent = prepared()
    agent.step(polled(2), NOW + 1000)
    agent.step(ApprovalEnded("E1", accepted=False, reason="x"), NOW + 2000)
    deadline_ms = agent.next_deadline()
    assert deadline_ms is None or deadline_ms > NOW + 5000, "only a hook's time may be waited for"


def test_approval_refused_because_the_event_is_over_is_no_news() -> None:
    """The event may be over before the approval arrives. Source: A-3."""
    agent = prepared()
    agent.step(polled(2), NOW)
    assert agent.step(ApprovalEnded("E1", accepted=False, reason="x"), NOW) == ()


def test_answer_to_an_approval_may_come_after_the_start() -> None:
    """The event may start, or end, while the approval is on its way."""
    agent = prepared()
    agent.step(polled(2, STARTED), NOW)
    refused = agent.step(ApprovalEnded("E1", accepted=False, reason="x"), NOW)
    assert told(refused) == ["started"]
    agent.step(ApprovalEnded("E1", accepted=True), NOW)
    assert (agent.events[0].stage, agent.events[0].approved) == ("under-way", True)
    assert agent.step(ApprovalEnded("unknown", accepted=True), NOW) == ()


def test_event_that_goes_while_it_is_approved_is_recovered() -> None:
    """The answer may come later than the end; the approval may well have started it."""
    assert brief(prepared().step(polled(2), NOW)) == ["Recover drain"]


def test_approved_event_that_goes_is_recovered() -> None:
    """An approved event that is gone has most likely happened. Source: L-1."""
    agent = prepared()
    agent.step(ApprovalEnded("E1", accepted=True), NOW)
    assert brief(agent.step(polled(2), NOW)) == ["Recover drain"]


def test_approve_hooks_run_before_the_approval() -> None:
    """Approve hooks have the last word."""
    agent = core((DRAIN,), checks=(PreparationStep("ask"), PreparationStep("look")))
    agent.step(polled(1, event()), NOW)
    assert brief(agent.step(HookEnded("drain", 0), NOW)) == ["Check E1/ask", "Check E1/look"]
    assert brief(agent.step(HookEnded("E1/ask", 0), NOW)) == []
    assert brief(agent.step(HookEnded("E1/look", 0), NOW)) == ["Approve E1"]
    assert [step.key for step in agent.steps] == ["drain"]


def test_approve_hook_that_says_not_now_is_asked_again() -> None:
    """A refusal may be for the moment only."""
    agent = core(action="approve", checks=(PreparationStep("ask"),))
    agent.step(polled(1, event()), NOW)
    assert brief(agent.step(HookEnded("E1/ask", 75), NOW)) == []
    due_ms = agent.next_deadline()
    assert due_ms == NOW + 30_000
    assert brief(agent.step(TimePassed(), due_ms)) == ["Check E1/ask"]


def test_approve_hook_can_abort() -> None:
    """An abort undoes what was prepared."""
    agent = core((DRAIN,), checks=(PreparationStep("ask"),))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    assert brief(agent.step(HookEnded("E1/ask", 77), NOW)) == ["Cancel drain"]


def test_approve_hook_is_stopped_when_the_event_goes() -> None:
    """Nothing is left running for an event that is over."""
    agent = core((DRAIN,), checks=(PreparationStep("ask"), PreparationStep("look")))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    agent.step(HookEnded("E1/look", 0), NOW)
    assert brief(agent.step(polled(2), NOW)) == ["Stop E1/ask"]
    assert brief(agent.step(HookEnded("E1/ask", -15), NOW)) == ["Cancel drain"]
