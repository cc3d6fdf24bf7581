"""What the agent's core says and keeps beside its decisions: texts, attempts, times, marks."""

import pytest

from forewarn.agent.core.event_tracking import EVENTS_MAX, FINISHED_MAX, MISSING_MS
from forewarn.agent.core.identity import NAME_CHARACTERS_MAX, is_name
from forewarn.agent.core.rules import Match, PreparationStep
from forewarn.agent.core.values import (
    AnnounceIntent,
    ApprovalEnded,
    AskPeersIntent,
    HookEnded,
    HookIntent,
    Intent,
    NotifyIntent,
    PeersSeen,
    PersonAsked,
    Resumed,
    TimePassed,
)
from forewarn.agent.json_fields import FieldInvalid
from forewarn_base.protocol.documents import ScheduledEvent
from tests.agent.making import (
    BOTH,
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
    restarted,
    rule,
    said,
    told,
)


def announced(intents: tuple[Intent, ...]) -> list[tuple[bool, bool]]:
    """What the other VMs are told: whether this one is prepared, and whether it holds."""
    return [(one.prepared, one.holds) for one in intents if isinstance(one, AnnounceIntent)]


def hooks(intents: tuple[Intent, ...]) -> list[tuple[str, int, int]]:
    """Hooks that begin: key, attempt and run."""
    return [(one.key, one.attempt, one.run) for one in intents if isinstance(one, HookIntent)]


def levels(intents: tuple[Intent, ...]) -> list[str]:
    """How serious each notification is."""
    return [one.level for one in intents if isinstance(one, NotifyIntent)]


def test_life_of_an_event_is_told() -> None:
    """Each turn is one sentence, with what people need to know. Source: C-2, C-6."""
    agent = core((DRAIN,))
    intents = agent.step(polled(1, event()), NOW)
    assert (said(intents), levels(intents)) == (
        ["Reboot E1 is announced; rule: test."],
        ["warning"],
    )
    intents = agent.step(HookEnded("drain", 0), NOW)
    assert (said(intents), levels(intents)) == (["Reboot E1 is prepared for."], ["info"])
    assert said(agent.step(ApprovalEnded("E1", accepted=True), NOW)) == ["Reboot E1 is approved."]
    later = event(not_before_ms=NOW + 2 * NOTICE_MS)
    assert said(agent.step(polled(2, later), NOW)) == ["Reboot E1 has changed."]
    intents = agent.step(polled(3, STARTED), NOW)
    assert (said(intents), levels(intents)) == (["Reboot E1 has started."], ["warning"])
    intents = agent.step(polled(4), NOW)
    assert (said(intents), levels(intents)) == (["Reboot E1 is over."], ["info"])
    intents = agent.step(HookEnded("drain", 0), NOW)
    assert said(intents) == ["Reboot E1 is over, and its steps are undone."]


@pytest.mark.parametrize(
    ("stimuli", "sentence", "level"),
    [
        (
            [polled(1, STARTED)],
            "Reboot E1 is announced and has already started; rule: test.",
            "warning",
        ),
        (
            [polled(1, event(resources=("vm_9",)))],
            "Reboot E1 is announced; rule: events that do not name this VM.",
            "info",
        ),
        (
            [polled(1, event()), polled(2)],
            "Reboot E1 is cancelled.",
            "info",
        ),
        (
            [polled(1, event()), HookEnded("drain", 77)],
            "Reboot E1 is not prepared for: a step asked to abort.",
            "error",
        ),
        (
            [polled(1, event()), HookEnded("drain", 1)],
            "Reboot E1 is not approved by this VM: a step failed or asked to hold.",
            "warning",
        ),
        (
            [
                polled(1, event()),
                HookEnded("drain", 0),
                polled(2, STARTED),
                ApprovalEnded("E1", accepted=True),
            ],
            "Reboot E1 has started.",
            "warning",
        ),
        (
            [
                polled(1, event()),
                HookEnded("drain", 0),
                ApprovalEnded("E1", accepted=False, reason="no answer"),
            ],
            "Reboot E1 is not approved: no answer.",
            "error",
        ),
    ],
)
def test_turn_is_told_with_its_weight(stimuli: list[object], sentence: str, level: str) -> None:
    """What people must see is a warning or an error, the rest is information. Source: C-6."""
    agent = core((DRAIN,))
    intents: tuple[Intent, ...] = ()
    for stimulus in stimuli:
        intents = agent.step(stimulus, NOW)  # type: ignore[arg-type]
    last = [one for one in intents if isinstance(one, NotifyIntent)][-1]
    assert (last.text, last.level) == (sentence, level)


@pytest.mark.parametrize(
    ("exit_status", "reason", "text"),
    [
        (1, "", "exit status 1"),
        (-9, "", "the hook was killed"),
        (-9, "its time is up", "its time is up"),
    ],
)
def test_failure_of_a_step_says_how(exit_status: int, reason: str, text: str) -> None:
    """The sentence has the exit status, or that it was killed, or why it was stopped."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    intents = agent.step(HookEnded("drain", exit_status, reason=reason), NOW)
    assert said(intents)[0] == f"Reboot E1: prepare drain did not succeed: {text}."
    assert levels(intents)[0] == "error"


def test_attempts_and_runs_are_counted() -> None:
    """A hook is told which attempt it is; no two runs have one number. Source: C-9."""
    agent = core((DRAIN,))
    assert hooks(agent.step(polled(1, event()), NOW)) == [("drain", 1, 1)]
    agent.step(HookEnded("drain", 0), NOW)
    assert hooks(agent.step(polled(2), NOW)) == [("drain", 1, 2)]
    agent.step(HookEnded("drain", 1), NOW)
    assert hooks(agent.step(PersonAsked("undo", "drain"), NOW)) == [("drain", 2, 3)]
    again = restarted(agent, (DRAIN,))
    again.step(Resumed({"drain": "1"}), NOW)
    due_ms = again.next_deadline() or 0
    assert hooks(again.step(TimePassed(), due_ms)) == [("drain", 3, 4)]


def test_step_of_an_event_that_is_announced_again_is_a_further_attempt() -> None:
    """What is to be undone and fails is taken back: nothing waits for another try. C-9, D-3."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    agent.step(polled(2), NOW)
    agent.step(HookEnded("drain", 1), NOW)
    intents = agent.step(polled(3, event()), NOW)
    assert hooks(intents) == [("drain", 2, 3)]
    assert said(intents) == ["Reboot E1 is announced again."]
    agent.step(HookEnded("drain", 0), NOW)
    agent.step(polled(4), NOW)
    intents = agent.step(HookEnded("drain", 1), NOW)
    assert "the next attempt is in 10 s" in said(intents)[0], "failures are counted from the start"


def test_step_that_waits_behind_one_that_is_prepared_again_wakes_nobody() -> None:
    """After a restart of the VM, undoing of a later step is given up for an event. C-9."""
    first = PreparationStep("first", repeatable=True)
    agent = core((first,), (STOP,))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("first", 0), NOW)
    agent.step(HookEnded("stop", 0), NOW)
    agent.step(polled(2), NOW)
    agent.step(HookEnded("stop", 1), NOW)
    again = restarted(agent, (first,), (STOP,))
    again.step(Resumed({}, rebooted=True), NOW)
    assert brief(again.step(polled(3, event()), NOW)) == ["Prepare first"]
    assert again.next_deadline() == NOW + 300_000
    assert brief(again.step(HookEnded("first", 0), NOW)) == ["Prepare stop"]


def test_failures_are_a_persons_affair_from_the_third() -> None:
    """Two may pass; the third is in the status. Source: C-9."""
    agent, now_ms = prepared(), NOW
    agent.step(polled(2), NOW)
    for count in range(1, 5):
        agent.step(HookEnded("drain", 1), now_ms)
        assert agent.unrecovered == ({"drain": "exit status 1"} if count >= 3 else {})
        now_ms = agent.next_deadline() or 0
        agent.step(TimePassed(), now_ms)


def test_others_are_told_that_this_vm_is_prepared() -> None:
    """Also where it will not approve; and that it is not, once it undoes. Source: C-5."""
    agent = core((DRAIN,), coordination="all")
    agent.step(polled(1, event(resources=BOTH)), NOW)
    intents = agent.step(HookEnded("drain", 0), NOW)
    assert announced(intents) == [(True, False), (True, False)]
    [asked] = [one for one in intents if isinstance(one, AskPeersIntent)]
    assert asked.names == ("vm_1",)
    assert announced(agent.step(TimePassed(), NOW + 5000)) == [(True, False)]
    assert announced(agent.step(polled(2), NOW + 5000)) == [(False, False)]
    held = core((DRAIN,), coordination="all", then="hold")
    held.step(polled(1, event(resources=BOTH)), NOW)
    assert announced(held.step(HookEnded("drain", 0), NOW)) == [(True, False), (True, True)]


def test_overdue_event_is_prepared_until_it_is_shown_as_started() -> None:
    """The status says whether an event has started, and no clock does. Source: D-6, C-11."""
    lenient = PreparationStep("drain", on_failure="go-on")
    agent = core((lenient,), (STOP,), (PreparationStep("last"),))
    agent.step(polled(1, event()), NOW)
    assert brief(agent.step(TimePassed(), NOW + NOTICE_MS)) == ["Stop drain"]
    assert brief(agent.step(HookEnded("drain", -15), NOW + NOTICE_MS)) == ["Prepare stop"]
    agent.step(polled(2, STARTED), NOW + NOTICE_MS)
    intents = agent.step(HookEnded("stop", 0), NOW + NOTICE_MS)
    why = "the event started before all steps had begun"
    assert said(intents)[-1] == f"Reboot E1 is not approved by this VM: {why}."
    assert agent.events[0].stage == "under-way"


def test_hit_is_known_of_the_events_that_name_this_vm() -> None:
    """Status tells which events have disturbed this VM. Source: C-3."""
    agent = core(action="notify")
    others = event("E2", resources=("vm_9",))
    agent.step(polled(1, event(), others), NOW)
    assert [each.hit for each in agent.events] == [False, False]
    started = event("E2", resources=("vm_9",), status="Started")
    agent.step(polled(2, STARTED, started), NOW)
    assert {each.event_id: each.hit for each in agent.events} == {"E1": True, "E2": False}
    agent.step(polled(3, STARTED, started, event("E3", status="Started")), NOW)
    assert agent.events[-1].hit


def test_event_that_changes_is_asked_about_anew() -> None:
    """A stand-in that had asked about it before asks again, and waits for the answer. C-5."""
    agent = core((DRAIN,), stand_in_s=100)
    agent.step(polled(1, event(resources=("vm_1", "vm_0"))), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    assert brief(agent.step(TimePassed(), NOW + 100_000)) == ["AskPeers E1"]
    changed = event(resources=("vm_1", "vm_0"), description="other")
    agent.step(polled(2, changed), NOW + 101_000)
    due_ms = agent.next_deadline() or 0
    assert brief(agent.step(TimePassed(), due_ms)) == ["AskPeers E1"]
    assert brief(agent.step(PeersSeen("E1", ()), due_ms)) == ["Approve E1"]


def test_hook_may_run_its_whole_time_where_notbefore_has_passed() -> None:
    """A NotBefore that is moved into the past does not end what has begun. Source: D-7."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    agent.step(polled(2, event(not_before_ms=NOW)), NOW + 1000)
    assert agent.next_deadline() == NOW + 300_000


def test_leader_that_decides_is_not_checked_for() -> None:
    """Approve hooks run only where this VM may approve. Source: C-5."""
    agent = core((DRAIN,), stand_in_s=100, checks=(PreparationStep("ask"),))
    agent.step(polled(1, event(resources=("vm_1", "vm_0"))), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    agent.step(TimePassed(), NOW + 100_000)
    decides = PeersSeen("E1", ("vm_1",), deciding=("vm_1",))
    assert brief(agent.step(decides, NOW + 100_000)) == []
    assert agent.events[0].stage == "ready"


def test_event_that_is_missed_is_not_over_at_a_further_look() -> None:
    """However often the same document is read, half a minute passes first. Source: C-7, D-1."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    for second in range(1, 31):
        assert brief(agent.step(polled(1), NOW + second * 1000)) == []
        assert not agent.events[0].gone
    agent.step(polled(1, event()), NOW + 31_000)
    agent.step(TimePassed(), NOW + 90_000)
    assert not agent.doubts, "it is shown again"
    assert not core().doubts, "nothing was read yet"


@pytest.mark.parametrize("stage", ["approved", "held"])
def test_event_that_changes_is_not_decided_again(stage: str) -> None:
    """What is approved, or held, stays so when its text or time changes. Source: A-1, C-4."""
    fields = {"action": "approve"} if stage == "approved" else {"then": "hold"}
    agent = core(**fields)
    agent.step(polled(1, event()), NOW)
    agent.step(ApprovalEnded("E1", accepted=True), NOW)
    assert agent.events[0].stage == stage
    intents = agent.step(polled(2, event(description="other")), NOW)
    assert (brief(intents), told(intents)) == ([], ["changed"])


def test_journal_without_a_version_is_not_read() -> None:
    """What nobody can vouch for is not believed. Source: C-9."""
    form = core().journal()
    del form["version"]
    with pytest.raises(FieldInvalid):
        Watched(ME, (rule(),), journal=form)


def test_event_that_ends_again_is_remembered_from_then() -> None:
    """An id is forgotten after a fixed number of further ends. Source: D-3."""
    agent, incarnation = core(action="notify"), 0

    def end(event_id: str, *, started: bool) -> None:
        nonlocal incarnation
        shown = event(event_id, status="Started") if started else event(event_id)
        for document in ((shown,), ()):
            incarnation += 1
            agent.step(polled(incarnation, *document), NOW)

    end("E0", started=False)
    for number in range(1, FINISHED_MAX):
        end(f"E{number}", started=False)
    end("E0", started=True)
    end("E99", started=True)
    others = event("E98", resources=("vm_9",), status="Started")
    agent.step(polled(incarnation + 1, others), NOW)
    agent.step(polled(incarnation + 2), NOW)
    agent.step(polled(incarnation + 3, event("E0"), event("E4"), others), NOW)
    assert [each.event_id for each in agent.events] == ["E4"]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("vm_0", True),
        ("a" * NAME_CHARACTERS_MAX, True),
        ("a" * (NAME_CHARACTERS_MAX + 1), False),
        ("", False),
        ("ü", True),
        ("a\nb", False),
        ("<html>", False),
        ("a b", False),
    ],
)
def test_name_is_no_page_of_another_server(text: str, *, is_one: bool) -> None:
    """What cannot be a VM's name is not taken for one. Source: C-3."""
    assert is_name(text) is is_one


# -- the agent's core before odd documents, changing events and several at once ------------------


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


def test_hook_that_has_ended_keeps_the_event_that_it_was_given() -> None:
    """Only what still runs is put off with its event. Source: C-6."""
    agent = core((DRAIN,), (STOP,))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    later = event(not_before_ms=NOW + 2 * NOTICE_MS)
    agent.step(polled(2, later), NOW + 1000)
    assert [step.event == later for step in agent.steps] == [False, True]


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


def test_start_seen_before_the_approval_ends_is_told_after_it() -> None:
    """An approval starts an event; the document that says so may be there first. Source: L-1."""
    agent = core((DRAIN,))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    assert said(agent.step(polled(2, STARTED), NOW)) == []
    approved = agent.step(ApprovalEnded("E1", accepted=True), NOW)
    assert said(approved) == ["Reboot E1 is approved.", "Reboot E1 has started."]


def test_start_that_waits_for_an_approval_is_told_after_a_restart() -> None:
    """The answer to the approval ended with the process. Source: L-1."""
    agent = prepared()
    assert said(agent.step(polled(2, STARTED), NOW)) == []
    again = restarted(agent, (DRAIN,))
    assert said(again.step(Resumed({}), NOW)) == ["Reboot E1 has started."]
    last = restarted(again, (DRAIN,))
    assert said(last.step(Resumed({}), NOW)) == [], "the start was told twice"


def test_start_of_an_event_is_told_without_an_answer_to_the_approval() -> None:
    """The agent reports the start once, at the event's end at the latest. Source: L-1."""
    agent = prepared()
    agent.step(polled(2, STARTED), NOW)
    assert said(agent.step(polled(3), NOW)) == ["Reboot E1 has started.", "Reboot E1 is over."]
    refused = ApprovalEnded("E1", accepted=False, reason="x")
    assert said(agent.step(refused, NOW)) == []


@pytest.mark.parametrize(
    ("later", "intents"),
    [
        pytest.param(event(), ["Prepare drain"], id="announced"),
        pytest.param(STARTED, [], id="started"),
    ],
)
def test_recommendation_is_only_told_until_it_is_announced(
    later: ScheduledEvent, intents: list[str]
) -> None:
    """Approving it does nothing, and it may have no NotBefore. Source: V-4."""
    agent = core((DRAIN,))
    advice = event(status="Advisory", not_before_ms=None)
    result = agent.step(polled(1, advice, event("E2", resources=("vm_9",), status="Advisory")), NOW)
    assert (brief(result), levels(result)) == ([], ["warning", "info"])
    assert brief(agent.step(polled(2, later), NOW)) == intents
    agent.step(HookEnded("drain", 1), NOW)
    agent.step(polled(3, STARTED), NOW)
    assert brief(agent.step(polled(4), NOW)) == ["Recover drain"]
