"""The agent's core where an event names several VMs: who approves, and what is told whom."""

import pytest

from forewarn.agent.core.agent_core import CHECK_RETRY_S, AgentCore
from forewarn.agent.core.coordination import LEADER_ANSWER_S, LEADER_ASK_S
from forewarn.agent.core.rules import HOLD_STATUS, PreparationStep, default_rules
from forewarn.agent.core.values import (
    AnnounceIntent,
    AskPeersIntent,
    HookEnded,
    Intent,
    PeersSeen,
    Resumed,
    TimePassed,
)
from forewarn.agent.status_server import prepared_form
from forewarn_base.protocol.documents import ScheduledEvent
from tests.agent.making import (
    BOTH,
    DRAIN,
    ME,
    NOW,
    Watched,
    brief,
    core,
    event,
    polled,
    prepared,
    restarted,
)


def test_second_vm_stands_in_after_a_delay() -> None:
    """The leader approves; the next one only if the leader does not. Source: C-5."""
    agent = core((DRAIN,), stand_in_s=100)
    agent.step(polled(1, event(resources=("vm_1", "vm_0"))), NOW)
    assert brief(agent.step(HookEnded("drain", 0), NOW)) == []
    assert agent.next_deadline() == NOW + 100_000
    assert brief(agent.step(TimePassed(), NOW + 99_999)) == []
    assert brief(agent.step(TimePassed(), NOW + 100_000)) == ["AskPeers E1"]
    assert brief(agent.step(PeersSeen("E1", ()), NOW + 100_001)) == ["Approve E1"]


def test_leader_that_cannot_be_asked_is_silent() -> None:
    """Only silence lets the stand-in act; nobody waits for an answer for ever. Source: C-5."""
    agent = core((DRAIN,), stand_in_s=100)
    agent.step(polled(1, event(resources=("vm_1", "vm_0"))), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    agent.step(TimePassed(), NOW + 100_000)
    due_ms = NOW + 100_000 + LEADER_ANSWER_S * 1000
    assert agent.next_deadline() == due_ms
    assert brief(agent.step(TimePassed(), due_ms - 1)) == []
    assert brief(agent.step(TimePassed(), due_ms)) == ["Approve E1"]


def test_leader_that_was_asked_has_time_to_answer() -> None:
    """Whatever else is learnt meanwhile, nobody stands in before its time is over. Source: C-5."""
    agent = core((DRAIN,), stand_in_s=100)
    asked = event(resources=("vm_1", "vm_0"))
    agent.step(polled(1, asked), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    agent.step(TimePassed(), NOW + 100_000)
    other = event("E2", resources=("vm_7",))
    assert brief(agent.step(polled(2, asked, other), NOW + 101_000)) == []
    assert brief(agent.step(PeersSeen("E2", ()), NOW + 102_000)) == []


def test_leader_that_holds_is_not_overruled() -> None:
    """Holding is an answer; it is asked again, and heard when it falls silent. Source: C-5."""
    agent = core((DRAIN,), stand_in_s=100)
    agent.step(polled(1, event(resources=("vm_1", "vm_0"))), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    now_ms = NOW + 100_000
    for _ in range(5):
        assert brief(agent.step(TimePassed(), now_ms)) == ["AskPeers E1"]
        seen = PeersSeen("E1", ("vm_1",), deciding=("vm_1",))
        assert brief(agent.step(seen, now_ms)) == []
        assert agent.events[0].why == "vm_1 decides and has not approved yet"
        assert agent.next_deadline() == now_ms + LEADER_ASK_S * 1000
        now_ms += LEADER_ASK_S * 1000
    assert brief(agent.step(TimePassed(), now_ms)) == ["AskPeers E1"]
    assert brief(agent.step(PeersSeen("E1", ()), now_ms)) == ["Approve E1"]


def test_leader_that_holds_says_so() -> None:
    """Where VMs meet at a shared place, its word is there; it is taken back in the end."""
    agent = core((DRAIN,), then="hold")
    agent.step(polled(1, event(resources=BOTH)), NOW)
    intents = agent.step(HookEnded("drain", 0), NOW)
    intents += agent.step(polled(2), NOW)
    words = [one.holds for one in intents if isinstance(one, AnnounceIntent)]
    assert words == [True, False]


@pytest.mark.parametrize(
    ("fields", "word"),
    [({}, "prepared"), ({"then": "hold"}, "prepared deciding"), ({"action": "notify"}, "")],
    ids=["approving", "held", "only watching"],
)
def test_status_tells_who_decides(fields: dict[str, object], word: str) -> None:
    """The other VMs ask there. Source: C-5."""
    agent = core((DRAIN,), **fields)
    agent.step(polled(1, event(resources=BOTH)), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    form = prepared_form("vm_0", agent)
    words = [key for key in ("prepared", "deciding") if form[key] == ["E1"]]
    assert words == (word.split() if word != "prepared" else ["prepared", "deciding"])


@pytest.mark.parametrize(
    "second",
    [
        event(resources=("vm_1", "vm_0"), source="User"),
        event(resources=("vm_1", "vm_0"), event_type="Freeze", duration_s=5),
    ],
    ids=["user", "freeze"],
)
def test_at_once_waits_for_no_leader(second: ScheduledEvent) -> None:
    """The default rules approve at once whoever else is named first. Source: C-4, A-1."""
    agent = Watched(ME, default_rules())
    assert brief(agent.step(polled(1, second), NOW)) == ["Approve E1"]


def test_all_waits_for_the_others() -> None:
    """Under `all` nobody approves while a named VM is unprepared. Source: C-5, A-4."""
    agent = core((DRAIN,), coordination="all")
    agent.step(polled(1, event(resources=BOTH)), NOW)
    result = brief(agent.step(HookEnded("drain", 0), NOW))
    assert result == ["Announce E1", "Announce E1", "AskPeers E1"]
    assert agent.step(PeersSeen("E1", ()), NOW) == ()
    assert brief(agent.step(TimePassed(), NOW + 5000)) == ["Announce E1", "AskPeers E1"]
    assert brief(agent.step(PeersSeen("E1", ("VM_1",)), NOW + 5001)) == ["Approve E1"]
    assert agent.step(PeersSeen("E1", ()), NOW + 5002) == ()
    assert agent.step(PeersSeen("unknown", ()), NOW) == ()


def test_all_asks_also_where_nothing_is_prepared() -> None:
    """An event that is only approved needs the others, too, and tells them. Source: C-4, C-5."""
    agent = core(action="approve", coordination="all")
    told_all = brief(agent.step(polled(1, event(resources=BOTH)), NOW))
    assert told_all == ["Announce E1", "Announce E1", "AskPeers E1"]
    assert brief(agent.step(PeersSeen("E1", ("vm_1",)), NOW)) == ["Approve E1"]
    assert brief(agent.step(polled(2), NOW)) == ["Announce E1"]


def test_all_takes_the_announcement_back() -> None:
    """What was announced is withdrawn before anything is undone."""
    agent = core((DRAIN,), coordination="all")
    agent.step(polled(1, event(resources=BOTH)), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    intents = agent.step(polled(2), NOW)
    assert brief(intents) == ["Announce E1", "Cancel drain"]


def second_of_three() -> AgentCore:
    """Return the second of three VMs, which knows since NOW that all are prepared."""
    agent = core((DRAIN,), coordination="all", stand_in_s=100)
    agent.step(polled(1, event(resources=("vm_1", "vm_0", "vm_2"))), NOW - 1)
    agent.step(HookEnded("drain", 0), NOW - 1)
    agent.step(PeersSeen("E1", ("vm_1", "vm_2")), NOW)
    return agent


def asked(intents: tuple[Intent, ...]) -> list[tuple[str, ...]]:
    """Return which VMs each question goes to."""
    return [intent.names for intent in intents if isinstance(intent, AskPeersIntent)]


def test_stand_in_asks_all_whether_they_still_are_prepared() -> None:
    """A VM that was restarted since is waited for again, from the beginning. Source: A-4, C-5."""
    agent = second_of_three()
    now_ms = NOW + 100_000
    assert asked(agent.step(TimePassed(), now_ms)) == [("vm_1", "vm_2")]
    lost = PeersSeen("E1", ("vm_1",), unprepared=("VM_2",))
    assert brief(agent.step(lost, now_ms)) == ["Announce E1", "AskPeers E1"]
    assert agent.events[0].why == "waiting for vm_2 to be prepared"
    assert brief(agent.step(PeersSeen("E1", ("vm_1", "vm_2")), now_ms + 1)) == [
        "Announce E1",
        "AskPeers E1",
    ]
    due_ms = now_ms + 1 + 100_000
    assert asked(agent.step(TimePassed(), due_ms)) == [("vm_1", "vm_2")]
    assert brief(agent.step(PeersSeen("E1", ("vm_2",)), due_ms)) == ["Approve E1"]


def test_silent_vm_counts_as_what_it_said_last() -> None:
    """A VM whose preparation was to shut down cannot say so again. Source: C-5."""
    agent = second_of_three()
    agent.step(TimePassed(), NOW + 100_000)
    assert brief(agent.step(PeersSeen("E1", ()), NOW + 100_001)) == ["Approve E1"]


def test_who_comes_after_does_not_decide_for_a_stand_in() -> None:
    """Only those before it do; that it is asked along with them changes nothing. Source: C-5."""
    agent = second_of_three()
    agent.step(TimePassed(), NOW + 100_000)
    seen = PeersSeen("E1", ("vm_2",), deciding=("vm_2",))
    assert brief(agent.step(seen, NOW + 100_001)) == ["Approve E1"]


def test_all_never_acts_without_an_answer() -> None:
    """Where the place they meet at is away, it is asked again and again. Source: C-5."""
    agent = second_of_three()
    now_ms = NOW + 100_000
    for _ in range(3):
        assert brief(agent.step(TimePassed(), now_ms)) == ["AskPeers E1"]
        now_ms += LEADER_ANSWER_S * 1000
    assert brief(agent.step(TimePassed(), now_ms)) == ["AskPeers E1"]
    assert brief(agent.step(PeersSeen("E1", ()), now_ms)) == ["Approve E1"]


def test_leader_that_died_over_its_approval_asks_again() -> None:
    """Nobody knows for how long it was away. Source: A-4, C-5."""
    agent = core((DRAIN,), coordination="all")
    agent.step(polled(1, event(resources=BOTH)), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    assert brief(agent.step(PeersSeen("E1", ("vm_1",)), NOW)) == ["Approve E1"]
    after = restarted(agent, (DRAIN,), coordination="all")
    after.step(Resumed({}, rebooted=False), NOW)
    found = after.step(polled(1, event(resources=BOTH)), NOW)
    assert brief(found) == ["Announce E1", "AskPeers E1"]
    assert brief(after.step(PeersSeen("E1", ("vm_1",)), NOW)) == ["Approve E1"]


@pytest.mark.parametrize(
    ("resources", "asks"), [(BOTH, True), (("vm_1", "vm_0"), False)], ids=["leader", "stand-in"]
)
def test_leader_told_not_now_asks_again(resources: tuple[str, ...], *, asks: bool) -> None:
    """An approve hook may put it off for hours; who stands in asks anyway. Source: C-5."""
    check = PreparationStep("check")
    agent = core((DRAIN,), coordination="all", checks=(check,), stand_in_s=100)
    agent.step(polled(1, event(resources=resources)), NOW - 1)
    agent.step(HookEnded("drain", 0), NOW - 1)
    agent.step(PeersSeen("E1", ("vm_1",)), NOW)
    if not asks:
        agent.step(TimePassed(), NOW + 100_000)
        agent.step(PeersSeen("E1", ()), NOW + 100_000)
    assert agent.events[0].stage == "checking"
    now_ms = NOW + 100_000
    agent.step(HookEnded("E1/check", HOLD_STATUS), now_ms)
    assert agent.events[0].why == "an approve hook answered: not now"
    assert bool(agent.events[0].peers) is not asks
    assert asked(agent.step(TimePassed(), now_ms + CHECK_RETRY_S * 1000)) == [("vm_1",)]


def test_all_with_this_vm_alone_asks_nobody() -> None:
    """One VM needs no coordination."""
    assert prepared(coordination="all").events[0].stage == "approving"
