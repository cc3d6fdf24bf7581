"""The agent's core undoing what was done, and coming back after a crash or a reboot."""

from __future__ import annotations

import json

import pytest

from forewarn.agent.core.engine import AgentEngine
from forewarn.agent.core.rules import PreparationStep
from forewarn.agent.core.step_table import UNDO_TRIES_MAX, UNRECOVERED_MAX
from forewarn.agent.core.values import AnnounceIntent, ApprovalEnded, HookEnded, Resumed, TimePassed
from forewarn.agent.status_server import prepared_form
from tests.agent.making import (
    BOTH,
    DRAIN,
    ME,
    NOW,
    STARTED,
    STOP,
    brief,
    core,
    event,
    polled,
    prepared,
    restarted,
    rule,
    told,
)

# ---- undoing -----------------------------------------------------------------------------------


def test_step_with_nothing_to_do_or_to_undo_runs_no_hook() -> None:
    """A step may have only one side."""
    agent = core(
        (PreparationStep("only recover", does=False), PreparationStep("only prepare", undoes=False))
    )
    assert brief(agent.step(polled(1, event()), NOW)) == ["Prepare only prepare"]
    agent.step(HookEnded("only prepare", 0), NOW)
    assert brief(agent.step(polled(2), NOW)) == ["Recover only recover"]


def test_recovery_that_fails_is_tried_three_times() -> None:
    """After the last try a person is told, and status keeps saying so."""
    agent = prepared()
    agent.step(polled(2), NOW)
    now_ms = NOW
    for _ in range(UNDO_TRIES_MAX - 1):
        assert told(agent.step(HookEnded("drain", 1), now_ms)) == ["undo-failed"]
        assert agent.next_deadline() == now_ms + 10_000
        assert agent.step(TimePassed(), now_ms) == ()
        now_ms += 10_000
        assert brief(agent.step(TimePassed(), now_ms)) == ["Recover drain"]
    assert told(agent.step(HookEnded("drain", 1), now_ms)) == ["unrecovered", "finished"]
    assert agent.unrecovered == {"drain": "exit status 1"}


def test_later_recovery_clears_the_complaint() -> None:
    """A step that was undone after all needs nobody."""
    agent = prepared()
    agent.step(polled(2), NOW)
    for n in range(UNDO_TRIES_MAX):
        agent.step(HookEnded("drain", 1), NOW + n * 10_000)
        agent.step(TimePassed(), NOW + (n + 1) * 10_000)
    agent.step(polled(3, event("E2")), NOW + 40_000)
    agent.step(HookEnded("drain", 0), NOW + 40_000)
    agent.step(polled(4), NOW + 40_000)
    agent.step(HookEnded("drain", 0), NOW + 40_000)
    assert agent.unrecovered == {}


def test_only_so_many_complaints_are_kept() -> None:
    """The journal does not grow with the steps."""
    many = tuple(PreparationStep(f"s{n}") for n in range(UNRECOVERED_MAX + 3))
    agent = core(many)
    agent.step(polled(1, event()), NOW)
    for step in many:
        agent.step(HookEnded(step.name, 0), NOW)
    agent.step(polled(2), NOW)
    for n in range(UNDO_TRIES_MAX):
        for step in many:
            agent.step(HookEnded(step.name, 1), NOW + n * 10_000)
        agent.step(TimePassed(), NOW + (n + 1) * 10_000)
    assert len(agent.unrecovered) == UNRECOVERED_MAX


def test_end_of_a_hook_that_does_not_run_is_ignored() -> None:
    """Ends may be reported twice, or for what is long forgotten."""
    agent = prepared()
    assert agent.step(HookEnded("drain", 0), NOW) == ()
    assert agent.step(HookEnded("unknown", 0), NOW) == ()


# ---- after a crash or a reboot -----------------------------------------------------------------


def test_journal_is_json_and_reads_back_the_same() -> None:
    """What is written is what is known. Source: C-9."""
    agent = core((DRAIN,), (STOP,), checks=(PreparationStep("ask"),))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    form = json.loads(json.dumps(agent.journal()))
    again = AgentEngine(ME, (rule(),), journal=form)
    assert again.journal() == agent.journal()
    assert again.running() == {"stop": 2}


def test_first_stimulus_after_a_restart_is_what_became_of_the_hooks() -> None:
    """A core that does not know what runs must not decide."""
    with pytest.raises(AssertionError):
        restarted(prepared()).step(TimePassed(), NOW)


def test_second_resumption_is_a_bug() -> None:
    """A core is resumed once and changes nothing otherwise."""
    agent = core()
    with pytest.raises(AssertionError):
        agent.step(Resumed({}), NOW)


def test_recovery_runs_once_after_the_reboot() -> None:
    """The VM comes back, the event is gone: recover, once. Source: C-9, invariant 14."""
    agent = prepared()
    agent.step(ApprovalEnded("E1", accepted=True), NOW)
    agent.step(polled(2, STARTED), NOW)
    after = restarted(agent)
    assert brief(after.step(Resumed({}, rebooted=True), NOW)) == []
    assert brief(after.step(polled(2, STARTED), NOW)) == []
    assert brief(after.step(polled(3), NOW)) == ["Recover drain"]
    last = restarted(after)
    assert brief(last.step(Resumed({"drain": "0"}), NOW)) == []
    assert last.events == ()
    assert brief(last.step(polled(3), NOW)) == []


@pytest.mark.parametrize(
    ("fate", "repeatable", "intents", "stage"),
    [
        pytest.param("never", False, ["Prepare drain"], "preparing", id="did not begin"),
        pytest.param("running", False, [], "preparing", id="still runs"),
        pytest.param("0", False, ["Approve E1"], "approving", id="ended unseen"),
        pytest.param("1", False, [], "held", id="failed unseen"),
        pytest.param("interrupted", False, [], "held", id="cut off"),
        pytest.param("interrupted", True, ["Prepare drain"], "preparing", id="cut off, repeatable"),
        pytest.param(None, False, [], "held", id="nothing known"),
    ],
)
def test_interrupted_preparation(
    fate: str | None, repeatable: bool, intents: list[str], stage: str
) -> None:
    """After a crash a preparation is never blindly repeated nor blindly believed."""
    step = PreparationStep("drain", repeatable=repeatable)
    agent = core((step,))
    agent.step(polled(1, event()), NOW)
    after = restarted(agent, (step,))
    assert brief(after.step(Resumed({"drain": fate} if fate else {}), NOW)) == []
    assert after.step(TimePassed(), NOW) == ()
    assert brief(after.step(polled(1, event()), NOW)) == intents
    assert after.events[0].stage == stage


def test_second_try_that_did_not_begin_leaves_the_first_to_be_undone() -> None:
    """A step that failed for one event and was to be tried for another was begun."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 1), NOW)
    agent.step(polled(2, event(), event("E2")), NOW)
    after = restarted(agent)
    after.step(Resumed({"drain": "never"}), NOW)
    assert brief(after.step(polled(3), NOW)) == ["Cancel drain"]


@pytest.mark.parametrize("fate", ["never", "interrupted", None])
def test_interrupted_recovery_is_begun_again(fate: str | None) -> None:
    """A recovery that did not end is not forgotten, even if the service is away."""
    agent = prepared()
    agent.step(polled(2), NOW)
    after = restarted(agent)
    found = {"drain": fate} if fate else {}
    assert brief(after.step(Resumed(found), NOW)) == ["Recover drain"]
    assert brief(after.step(HookEnded("drain", 0), NOW)) == []
    assert after.events == ()


def test_cut_off_repeatable_step_of_a_gone_event_is_undone() -> None:
    """What may have begun is undone, even if it was to be begun again."""
    agent = core((PreparationStep("drain", repeatable=True),))
    agent.step(polled(1, event()), NOW)
    after = restarted(agent)
    after.step(Resumed({}), NOW)
    assert after.next_deadline() is None
    assert brief(after.step(polled(2), NOW)) == ["Cancel drain"]


def test_approval_on_its_way_is_sent_again() -> None:
    """Nobody knows whether it arrived; twice does no harm. Source: A-1."""
    after = restarted(prepared())
    assert brief(after.step(Resumed({}), NOW)) == []
    assert after.next_deadline() is None
    assert brief(after.step(polled(1, event()), NOW)) == ["Approve E1"]


def test_approval_of_an_event_that_has_gone_is_not_waited_for() -> None:
    """While a hook recovers from it, a restarted core has only that hook's end to wait for."""
    agent = prepared()
    assert brief(agent.step(polled(2), NOW)) == ["Recover drain"]
    again = restarted(agent, (DRAIN,))
    again.step(Resumed({"drain": "running"}), NOW + 1000)
    again.step(polled(2), NOW + 2000)
    due_ms = agent.next_deadline()
    assert due_ms is not None
    assert again.next_deadline() == due_ms > NOW + 2000


def test_approve_hook_that_was_cut_off_runs_again() -> None:
    """Asking changes nothing, so it may be asked again."""
    agent = core(action="approve", checks=(PreparationStep("ask"), PreparationStep("look")))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("E1/look", 0), NOW)
    after = restarted(agent)
    after.step(Resumed({}), NOW)
    assert brief(after.step(polled(1, event()), NOW)) == ["Check E1/ask"]


def test_vm_that_was_restarted_before_the_event_does_not_approve() -> None:
    """What was stopped may be up again, so the preparation may be worth nothing."""
    after = restarted(prepared())
    assert told(after.step(Resumed({}, rebooted=True), NOW)) == ["held"]
    assert brief(after.step(polled(1, event()), NOW)) == []
    assert brief(after.step(polled(2), NOW)) == ["Recover drain"]


def test_vm_that_was_restarted_takes_its_word_back() -> None:
    """The other VMs must not count on a preparation that this one doubts. Source: C-5."""
    agent = core((DRAIN,), coordination="all", then="hold")
    agent.step(polled(1, event(resources=BOTH)), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    after = restarted(agent)
    said = after.step(Resumed({}, rebooted=True), NOW)
    assert [intent.prepared for intent in said if isinstance(intent, AnnounceIntent)] == [False]
    assert prepared_form("vm_0", after)["prepared"] == []


@pytest.mark.parametrize(
    ("repeatable", "then", "after_that"),
    [
        (True, ["Prepare drain"], ["Approve E2", "Recover drain"]),
        (False, [], ["Cancel drain"]),
    ],
    ids=["again", "held"],
)
def test_step_of_before_a_restart_is_not_believed(
    then: list[str], after_that: list[str], *, repeatable: bool
) -> None:
    """A later event has it prepared again, or is held where that may not be done twice."""
    drain = PreparationStep("drain", repeatable=repeatable)
    agent = core((drain,))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    after = restarted(agent, (drain,))
    after.step(Resumed({}, rebooted=True), NOW)
    assert brief(after.step(polled(2, event(), event("E2")), NOW)) == then
    assert after.events[1].stage == ("preparing" if repeatable else "held")
    ended = brief(after.step(HookEnded("drain", 0), NOW))
    assert ended + brief(after.step(polled(3), NOW)) == after_that


def test_restart_while_undoing_or_only_watching_changes_nothing() -> None:
    """A reboot is news only for what was prepared and is still ahead."""
    agent = prepared()
    agent.step(polled(2, event("E2", resources=("vm_1",))), NOW)
    after = restarted(agent)
    assert told(after.step(Resumed({"drain": "running"}, rebooted=True), NOW)) == []
    assert [record.stage for record in after.events] == ["approving", "watching"]


def test_pauses_between_recoveries_outlive_a_restart() -> None:
    """A failed recovery waits for its next try in the journal."""
    agent = prepared()
    agent.step(polled(2), NOW)
    agent.step(HookEnded("drain", 1), NOW)
    after = restarted(agent)
    assert brief(after.step(Resumed({}), NOW)) == []
    assert brief(after.step(TimePassed(), NOW + 10_000)) == ["Recover drain"]
