"""What the agent's core does where the service's clock and the VM's differ."""

import pytest

from forewarn.agent.core.rules import Match, PreparationStep
from forewarn.agent.core.values import (
    CancelIntent,
    DocumentPolled,
    HookEnded,
    HookIntent,
    RecoverIntent,
    TimePassed,
)
from forewarn_base.protocol.documents import ScheduledEvent
from tests.agent.making import DRAIN, NOTICE_MS, NOW, brief, core, document, event, polled

MINUTES = [pytest.param(300_000, id="ahead"), pytest.param(-300_000, id="behind")]


def preempt(ahead_ms: int, notice_ms: int = 30_000) -> ScheduledEvent:
    """Return an event announced now by a clock that differs."""
    return event(event_type="Preempt", not_before_ms=NOW + ahead_ms + notice_ms)


def read(ahead_ms: int, *events: ScheduledEvent, incarnation: int = 1) -> DocumentPolled:
    """Return the stimulus of a document from a service whose clock differs."""
    return DocumentPolled(document(incarnation, *events), ahead_ms)


@pytest.mark.parametrize("ahead_ms", MINUTES)
def test_hook_gets_the_time_that_the_notice_leaves(ahead_ms: int) -> None:
    """A hook ends before NotBefore by the service's clock, and begins at all. Source: C-11."""
    agent = core((DRAIN,))
    intents = agent.step(read(ahead_ms, preempt(ahead_ms)), NOW)
    (intent,) = (one for one in intents if isinstance(one, HookIntent))
    assert (intent.key, intent.deadline_ms) == ("drain", NOW + 30_000)
    assert brief(agent.step(HookEnded("drain", 0), NOW + 20_000)) == ["Approve E1"]


@pytest.mark.parametrize("ahead_ms", MINUTES)
def test_event_shown_as_scheduled_is_prepared_whatever_the_clocks_say(ahead_ms: int) -> None:
    """A service that sends no date is believed by its status. Source: D-6, C-11."""
    agent = core((DRAIN,))
    assert brief(agent.step(polled(1, preempt(ahead_ms)), NOW)) == ["Prepare drain"]
    assert brief(agent.step(HookEnded("drain", 0), NOW + 20_000)) == ["Approve E1"]


@pytest.mark.parametrize("ahead_ms", MINUTES)
@pytest.mark.parametrize(
    ("after_ms", "hook"), [(0, CancelIntent), (NOTICE_MS, RecoverIntent)], ids=["early", "due"]
)
def test_missing_event_is_over_from_its_not_before_on(
    ahead_ms: int, after_ms: int, hook: type
) -> None:
    """NotBefore is a time of the service's clock. Source: D-7, C-11."""
    agent = core((DRAIN,), then="hold")
    shown = event(not_before_ms=NOW + ahead_ms + NOTICE_MS)
    agent.step(read(ahead_ms, shown), NOW)
    agent.step(HookEnded("drain", 0), NOW)
    intents = agent.step(read(ahead_ms, incarnation=2), NOW + after_ms)
    assert [type(one) for one in intents if isinstance(one, HookIntent)] == [hook]


@pytest.mark.parametrize("ahead_ms", MINUTES)
def test_rule_counts_notice_by_the_services_clock(ahead_ms: int) -> None:
    """A rule for short notice matches what the service gives. Source: C-11."""
    agent = core((DRAIN,), match=Match(notice_s=(20, 40)))
    assert brief(agent.step(read(ahead_ms, preempt(ahead_ms)), NOW)) == ["Prepare drain"]
    other = core((DRAIN,), match=Match(notice_s=(41, 1e6)))
    assert brief(other.step(read(ahead_ms, preempt(ahead_ms)), NOW)) == []


def test_deadline_follows_what_is_learnt_of_the_services_clock() -> None:
    """The first answer tells it to a second, later ones more exactly. Source: C-11."""
    agent = core((PreparationStep("drain", timeout_s=3600),))
    agent.step(read(0, event()), NOW)
    assert agent.next_deadline() == NOW + NOTICE_MS
    agent.step(read(1500, event()), NOW + 1000)
    assert agent.next_deadline() == NOW + NOTICE_MS - 1500
    assert brief(agent.step(TimePassed(), NOW + NOTICE_MS - 1500)) == ["Stop drain"]
