"""Recovery from events that nothing was prepared for: a hardware failure, or lone recover hooks."""

import pytest

from forewarn.agent.core.agent_core import AgentCore
from forewarn.agent.core.rules import PreparationStep
from forewarn.agent.core.values import HookEnded, Resumed
from forewarn.agent.status_server import prepared_form
from forewarn_base.protocol.documents import ScheduledEvent
from tests.agent.making import (
    DRAIN,
    NOW,
    STARTED,
    STOP,
    brief,
    core,
    event,
    polled,
    prepared,
    restarted,
    told,
)

LONE = PreparationStep("lone", does=False)
SECOND = event("E2", status="Started")


def test_recovery_from_a_failure_outlives_a_restart_of_the_vm() -> None:
    """A hardware failure restarts the VM; its recovery comes once it is over. Source: C-10."""
    agent = core((DRAIN,))
    agent.step(polled(1, STARTED), NOW)
    again = restarted(agent, (DRAIN,))
    again.step(Resumed({}, rebooted=True), NOW)
    assert brief(again.step(polled(1, STARTED), NOW)) == []
    assert brief(again.step(polled(2), NOW)) == ["Recover drain"]
    last = restarted(again, (DRAIN,))
    assert brief(last.step(Resumed({"drain": "0"}), NOW)) == []
    assert brief(last.step(polled(2), NOW)) == []
    assert last.events == ()


def test_two_failures_recover_once_after_the_last() -> None:
    """A step recovers after the last event that needs it. Source: C-10."""
    agent = core((DRAIN,))
    agent.step(polled(1, STARTED), NOW)
    agent.step(polled(2, STARTED, SECOND), NOW)
    assert brief(agent.step(polled(3, SECOND), NOW)) == []
    assert brief(agent.step(polled(4), NOW)) == ["Recover drain"]


def test_event_announced_during_a_failure_is_prepared_and_recovers_last() -> None:
    """An unprepared step is prepared like any other when an event is announced. Source: C-10."""
    agent = core((DRAIN,))
    agent.step(polled(1, STARTED), NOW)
    announced = event("E2")
    assert brief(agent.step(polled(2, STARTED, announced), NOW)) == ["Prepare drain"]
    assert brief(agent.step(polled(3, announced), NOW)) == []
    assert brief(agent.step(HookEnded("drain", 0), NOW)) == ["Approve E2"]
    assert brief(agent.step(polled(4), NOW)) == ["Recover drain"]


def test_hook_that_never_began_still_recovers_from_the_failure() -> None:
    """The agent ends between its journal and the hook; the failure is not forgotten. C-9, C-10."""
    agent = core((DRAIN,))
    agent.step(polled(1, STARTED), NOW)
    agent.step(polled(2, STARTED, event("E2")), NOW)
    again = restarted(agent, (DRAIN,))
    again.step(Resumed({"drain": "never"}), NOW)
    assert brief(again.step(polled(3), NOW)) == ["Recover drain"]


def test_step_of_a_cancelled_event_recovers_from_the_one_before() -> None:
    """What has happened is not undone as if nothing had. Source: C-2, C-10."""
    agent = prepared()
    agent.step(polled(2, STARTED, event("E2")), NOW)
    assert brief(agent.step(polled(3, event("E2")), NOW)) == []
    again = restarted(agent, (DRAIN,))
    again.step(Resumed({}), NOW)
    assert brief(again.step(polled(4), NOW)) == ["Recover drain"]


def test_failure_during_a_recovery_recovers_again() -> None:
    """A recovery that ran before the failure was over does not count for it. Source: C-10."""
    agent = core((DRAIN,))
    agent.step(polled(1, STARTED), NOW)
    assert brief(agent.step(polled(2, SECOND), NOW)) == ["Recover drain"]
    agent.step(HookEnded("drain", 0), NOW)
    assert brief(agent.step(polled(3), NOW)) == ["Recover drain"]


def test_event_that_started_while_its_steps_were_being_undone_recovers() -> None:
    """Nothing was prepared for it, as if it had been seen as Started first. Source: C-10."""
    agent = core((DRAIN,))
    agent.step(polled(1, STARTED), NOW)
    agent.step(polled(2, event("E2")), NOW)
    assert "held" in told(agent.step(polled(3, SECOND), NOW))
    agent.step(HookEnded("drain", 0), NOW)
    assert brief(agent.step(polled(4), NOW)) == ["Recover drain"]


@pytest.mark.parametrize(
    ("last", "undone"),
    [
        pytest.param(event(), "Cancel lone", id="cancelled"),
        pytest.param(STARTED, "Recover lone", id="over"),
    ],
)
def test_lone_recover_hook_counts_as_prepared_before_its_turn(
    last: ScheduledEvent, undone: str
) -> None:
    """The steps before it were not prepared; it has nothing to prepare. Source: C-10."""
    agent = core((DRAIN,), (LONE,))
    agent.step(polled(1, event()), NOW)
    agent.step(HookEnded("drain", 1), NOW)
    agent.step(polled(2, last), NOW)
    assert brief(agent.step(polled(3), NOW)) == [undone]


def test_lone_recover_hook_of_an_abort_runs_once() -> None:
    """What an abort has undone is not undone again at the end."""
    agent = core((DRAIN,), (LONE,))
    agent.step(polled(1, event()), NOW)
    assert brief(agent.step(HookEnded("drain", 77), NOW)) == ["Cancel lone"]
    assert brief(agent.step(HookEnded("lone", 0), NOW)) == ["Cancel drain"]
    agent.step(HookEnded("drain", 0), NOW)
    agent.step(polled(2, STARTED), NOW)
    assert brief(agent.step(polled(3), NOW)) == []


def test_unprepared_vm_is_not_shown_as_prepared() -> None:
    """Other VMs and load balancers see the true state. Source: C-5."""
    agent: AgentCore = core((DRAIN,), (STOP,))
    agent.step(polled(1, STARTED), NOW)
    assert prepared_form("vm_0", agent)["prepared"] == []
    assert {step.status for step in agent.steps} == {"unprepared"}
