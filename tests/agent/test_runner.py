"""The running agent, as a process, before a small metadata service: hooks, crashes, signals."""

import os
import signal
from pathlib import Path

import pytest

from tests.agent.agents import HOOK_S, Agent
from tests.agent.making import event
from tests.agent.service import Service
from tests.waiting import wait_until

FAR_MS = 4_000_000_000_000
AHEAD = event(not_before_ms=FAR_MS)
STARTED = event(status="Started")


def test_cancellation_in_mid_preparation_stops_and_undoes(service: Service, tmp_path: Path) -> None:
    """An event may be cancelled at any time. Source: C-6, L-3."""
    with Agent(tmp_path, service.endpoint, prepare="sleep 600") as agent:
        service.show(AHEAD)
        agent.until_acts("prepare")
        service.show()
        agent.until_acts("prepare", "cancel")
        agent.until_said("finished")
        assert service.approvals == []


@pytest.mark.parametrize(
    ("prepare", "timeout_s"),
    [("exit 3", 60), ("exit 75", 60), ("sleep 600", HOOK_S), ("trap '' TERM; sleep 600", HOOK_S)],
    ids=["fails", "asks to hold", "hangs", "hangs and ignores TERM"],
)
def test_hook_that_does_not_succeed_is_never_approved(
    service: Service, tmp_path: Path, prepare: str, timeout_s: float
) -> None:
    """No approval without a preparation; what was begun is undone afterwards."""
    with Agent(tmp_path, service.endpoint, prepare=prepare, timeout_s=timeout_s) as agent:
        service.show(AHEAD)
        agent.until_said("held")
        service.show(STARTED)
        agent.until_said("started")
        service.show()
        agent.until_said("finished")
        agent.until_acts("prepare", "recover")
        assert service.approvals == []


def test_hook_that_is_killed_is_never_approved(service: Service, tmp_path: Path) -> None:
    """A hook somebody ends has not succeeded."""
    with Agent(tmp_path, service.endpoint, prepare="sleep 600") as agent:
        service.show(AHEAD)
        agent.until_acts("prepare")
        os.killpg(agent.hook_pid(), signal.SIGKILL)
        agent.until_said("held")
        assert service.approvals == []


def test_hook_gets_a_small_environment(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the agent was given, such as tokens, is not for every program that it runs."""
    for name in ("API_TOKEN", "WANTED", "LC_TIME", "LD_PRELOAD_OF_SOMEBODY"):
        monkeypatch.setenv(name, "x")
    show = f"env | cut -d= -f1 | sort > {tmp_path}/names"
    further = 'pass_environment = ["WANTED"]'
    with Agent(tmp_path, service.endpoint, prepare=show, agent=further) as agent:
        service.show(AHEAD)
        agent.until_said("approved")
        names = set((tmp_path / "names").read_text().split())
    assert {"PATH", "LC_TIME", "WANTED", "FOREWARN_EVENT_ID"} <= names
    assert names.isdisjoint({"API_TOKEN", "LD_PRELOAD_OF_SOMEBODY", "PYTEST_CURRENT_TEST"})


def test_hook_outlives_the_agent_and_is_taken_up_again(service: Service, tmp_path: Path) -> None:
    """An agent that is restarted in mid-preparation neither repeats it nor forgets it."""
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    with Agent(tmp_path, service.endpoint, prepare=wait) as agent:
        service.show(AHEAD)
        agent.until_acts("prepare")
        agent.kill()
        agent.start()
        agent.until_said("named", 2)
        (tmp_path / "go").touch()
        service.until(lambda: service.approvals == ["E1"], "the approval")
        agent.until_acts("prepare")


def test_hook_that_ended_unseen_counts(service: Service, tmp_path: Path) -> None:
    """The hook itself writes down how it ended."""
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    with Agent(tmp_path, service.endpoint, prepare=wait) as agent:
        service.show(AHEAD)
        agent.until_acts("prepare")
        agent.kill()
        (tmp_path / "go").touch()
        hooks = tmp_path / "state" / "hooks"
        wait_until(lambda: list(hooks.glob("*.ended")), what="the end")
        agent.start()
        service.until(lambda: service.approvals == ["E1"], "the approval")
        agent.until_acts("prepare")


def test_hook_cut_off_with_the_agent_is_not_believed(service: Service, tmp_path: Path) -> None:
    """A preparation nobody saw the end of is not approved, but undone."""
    with Agent(tmp_path, service.endpoint, prepare="sleep 600") as agent:
        service.show(AHEAD)
        agent.until_acts("prepare")
        agent.kill()
        os.killpg(agent.hook_pid(), signal.SIGKILL)
        agent.start()
        agent.until_said("held")
        service.show()
        agent.until_acts("prepare", "cancel")
        assert service.approvals == []


def test_recovery_that_was_cut_off_is_finished(service: Service, tmp_path: Path) -> None:
    """A recovery is not forgotten, whatever happens in the middle of it."""
    once = f"[ -e {tmp_path}/second ] || {{ touch {tmp_path}/second; sleep 600; }}"
    with Agent(tmp_path, service.endpoint, recover=once) as agent:
        service.show(AHEAD)
        service.until(lambda: service.approvals == ["E1"], "the approval")
        service.show()
        agent.until_acts("prepare", "recover")
        wait_until((tmp_path / "second").exists, what="the middle of it")
        agent.kill()
        os.killpg(agent.hook_pid(), signal.SIGKILL)
        agent.start()
        agent.until_said("finished")
        agent.until_acts("prepare", "recover", "recover")


def test_second_event_is_seen_while_a_hook_runs(service: Service, tmp_path: Path) -> None:
    """Polling is never blocked by a hook. Source: C-6."""
    with Agent(tmp_path, service.endpoint, prepare="sleep 600") as agent:
        service.show(AHEAD)
        agent.until_acts("prepare")
        service.show(AHEAD, event("E2", not_before_ms=FAR_MS))
        agent.until_said("seen", 2)
        service.show(STARTED, event("E2", not_before_ms=FAR_MS))
        agent.until_said("started")
        agent.until_acts("prepare")


def test_journal_that_cannot_be_written_lets_nothing_begin(
    service: Service, tmp_path: Path
) -> None:
    """What is not on disk does not begin, and begins when it is. Source: C-9."""
    with Agent(tmp_path, service.endpoint) as agent:
        agent.until_said("named")
        blocked = tmp_path / "state" / "journal.1"
        blocked.rename(tmp_path / "aside")
        blocked.mkdir()
        service.show(AHEAD)
        agent.until_said("journal-lost")
        assert agent.acts() == []
        blocked.rmdir()
        service.until(lambda: service.approvals == ["E1"], "the approval")
        agent.until_acts("prepare")


def test_unreadable_journal_is_put_aside(service: Service, tmp_path: Path) -> None:
    """A damaged journal is told of and kept; the agent works."""
    agent = Agent(tmp_path, service.endpoint)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "journal.0").write_text("00000000 1 2\n{}")
    with agent:
        agent.until_said("journal-corrupt")
        service.show(AHEAD)
        service.until(lambda: service.approvals == ["E1"], "the approval")
    assert (tmp_path / "state" / "journal.0.corrupt").exists()


def test_second_agent_on_the_same_directory_is_refused(service: Service, tmp_path: Path) -> None:
    """Two agents would prepare everything twice."""
    with Agent(tmp_path, service.endpoint) as agent:
        agent.until_said("named")
        first, agent.process = agent.process, None
        agent.start()
        assert agent.exit_status() == 2
        assert "Another agent" in agent.log()
        agent.process = first


def test_guessed_name_is_asked_for_again(tmp_path: Path) -> None:
    """The host's name must do where a service knows none, until it does. Source: C-3, I-2."""
    with Service(name="", waits=False) as service, Agent(tmp_path, service.endpoint) as agent:
        agent.until_said("name-guessed")
        service.name = "vm_0"
        agent.until_said("name-learned")
        service.show(AHEAD)
        service.until(lambda: service.approvals == ["E1"], "the approval")
        service.show()
        agent.until_acts("prepare", "recover")
        assert agent.log().count(" action=name-guessed") == 1


def test_old_service_is_spoken_to_in_its_version(tmp_path: Path) -> None:
    """The whole story with the first version, underscores included. Source: V-1."""
    old = ("2017-03-01",)
    with Service(versions=old, waits=False) as service, Agent(tmp_path, service.endpoint) as agent:
        service.show(AHEAD)
        service.until(lambda: service.approvals == ["E1"], "the approval")
        service.show()
        agent.until_acts("prepare", "recover")
