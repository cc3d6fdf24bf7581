"""The agent's core undoing what was done, and coming back after a crash or a reboot."""

import json

import pytest

from forewarn.agent.core.agent_core import AgentCore
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.rules import PreparationStep
from forewarn.agent.core.values import (
    AnnounceIntent,
    ApprovalEnded,
    HookEnded,
    PersonAsked,
    Resumed,
    TimePassed,
)
from forewarn.agent.status_server import prepared_form
from tests.agent.making import (
    BOTH,
    DRAIN,
    ME,
    NOW,
    STARTED,
    STOP,
    Watched,
    brief,
    core,
    event,
    polled,
    prepared,
    restarted,
    rule,
    said,
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


def failing(failures: int) -> tuple[AgentCore, int]:
    """Return a core whose recovery has failed so often, and the time of the last failure."""
    agent, now_ms = prepared(), NOW
    agent.step(polled(2), now_ms)
    for _ in range(failures - 1):
        agent.step(HookEnded("drain", 1), now_ms)
        now_ms = agent.next_deadline() or 0
        agent.step(TimePassed(), now_ms)
    agent.step(HookEnded("drain", 1), now_ms)
    return agent, now_ms


def test_recovery_that_fails_is_tried_until_it_succeeds() -> None:
    """The pauses grow up to a limit; a cordoned node does not stay cordoned. Source: C-9."""
    agent, now_ms = prepared(), NOW
    agent.step(polled(2), NOW)
    pauses_s = []
    for _ in range(10):
        assert "finished" not in told(agent.step(HookEnded("drain", 1), now_ms))
        due_ms = agent.next_deadline() or 0
        pauses_s.append((due_ms - now_ms) // 1000)
        assert agent.step(TimePassed(), due_ms - 1) == ()
        now_ms = due_ms
        assert brief(agent.step(TimePassed(), now_ms)) == ["Recover drain"]
    assert pauses_s == [10, 20, 40, 80, 160, 320, 640, 900, 900, 900]
    assert told(agent.step(HookEnded("drain", 0), now_ms)) == ["finished"]
    assert (agent.events, agent.steps) == ((), ())


def test_people_are_told_of_what_is_not_undone() -> None:
    """From the third failure on, in status and log, at each doubling; then it is clear again."""
    agent, now_ms = prepared(), NOW
    agent.step(polled(2), NOW)
    said: list[str] = []
    for _ in range(9):
        said += told(agent.step(HookEnded("drain", 1), now_ms)) or ["-"]
        now_ms = agent.next_deadline() or 0
        agent.step(TimePassed(), now_ms)
    complaint = {"drain": "exit status 1"}
    assert said == [*["undo-failed"] * 2, *["unrecovered"] * 2, "-", "-", "-", "unrecovered", "-"]
    assert agent.unrecovered == complaint
    assert restarted(agent).unrecovered == complaint
    agent.step(HookEnded("drain", 0), now_ms)
    assert agent.unrecovered == {}


@pytest.mark.parametrize("name", ["drain", "e1"], ids=["step", "event"])
def test_person_has_it_undone_at_once(name: str) -> None:
    """What was in the way is gone, and nobody waits for the next try."""
    agent, now_ms = failing(8)
    assert agent.step(PersonAsked("undo", "other"), now_ms) == ()
    assert brief(agent.step(PersonAsked("undo", name), now_ms)) == ["Recover drain"]
    assert agent.step(PersonAsked("undo", name), now_ms) == ()


def test_person_takes_over_what_is_not_undone() -> None:
    """It is given up at that word alone, and never called undone."""
    agent, now_ms = failing(3)
    intents = agent.step(PersonAsked("forget", "E1"), now_ms)
    assert (brief(intents), told(intents)) == ([], ["forgotten", "finished"])
    assert said(intents) == [
        "Reboot E1: recover drain was dropped at an operator's request and is NOT undone.",
        "Reboot E1 is over; an operator has taken over the steps that are not undone.",
    ]
    assert (agent.events, agent.steps, agent.unrecovered) == ((), (), {})


def test_undoing_that_runs_is_not_forgotten() -> None:
    """Its end is awaited; a person can ask again."""
    agent = prepared()
    agent.step(polled(2), NOW)
    assert agent.step(PersonAsked("forget", "drain"), NOW) == ()
    assert agent.running() == {"drain": 2}


def test_step_that_is_not_undone_serves_the_next_event() -> None:
    """What cannot be undone must not keep the next event from being prepared for."""
    agent, now_ms = failing(4)
    intents = agent.step(polled(3, event("E2")), now_ms)
    assert brief(intents) == ["Prepare drain"]
    assert said(intents)[-1].endswith("its steps still serve another event.")
    agent.step(HookEnded("drain", 0), now_ms)
    assert brief(agent.step(polled(4), now_ms)) == ["Recover drain"]


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
    again = Watched(ME, (rule(),), journal=form)
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
    step = PreparationStep("drain", repeatable=True) if repeatable else DRAIN
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
    words = after.step(Resumed({}, rebooted=True), NOW)
    assert [intent.prepared for intent in words if isinstance(intent, AnnounceIntent)] == [False]
    assert prepared_form("vm_0", after)["prepared"] == []


@pytest.mark.parametrize(
    ("repeatable", "then", "after_that"),
    [
        (True, ["Prepare drain"], ["Approve E2", "Recover drain"]),
        (False, [], ["Recover drain"]),
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


def test_event_left_alone_under_another_name_is_judged_again() -> None:
    """A VM that was named wrongly prepares once it knows its name. Source: C-3, C-9."""
    stranger = Watched(Identity("host"), (rule((DRAIN,)),))
    assert brief(stranger.step(polled(1, event()), NOW)) == []
    agent = restarted(stranger, (DRAIN,))
    assert brief(agent.step(Resumed({}), NOW)) == []
    assert brief(agent.step(polled(1, event()), NOW)) == ["Prepare drain"]


def test_preparation_goes_on_under_a_further_name() -> None:
    """What was begun is not begun again because the VM has got an alias. Source: C-9."""
    before = core((DRAIN,))
    before.step(polled(1, event()), NOW)
    rules = (rule((DRAIN,)),)
    agent = Watched(Identity("vm_0", ("other",)), rules, journal=before.journal())
    assert brief(agent.step(Resumed({"drain": "running"}), NOW)) == []
    assert brief(agent.step(polled(1, event()), NOW)) == []
