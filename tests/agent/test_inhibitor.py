"""The inhibitor in a running agent, with a stand-in for systemd-inhibit that says what it does.

The real one, with the real logind, is in test_prepare_systemd.py.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.agents import Agent
from tests.agent.making import event
from tests.agent.service import Service
from tests.waiting import wait_until

AHEAD = event(not_before_ms=4_000_000_000_000)
ON = "inhibit_shutdown = true"
STAND_IN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do echo "$1" >>WORDS; shift; done
echo held >>LOCK; "$@"; echo released >>LOCK
"""


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Put a stand-in on the path; return what tells how the lock fared."""
    said = tmp_path / "lock"
    text = STAND_IN.replace("LOCK", str(said)).replace("WORDS", str(tmp_path / "words"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "systemd-inhibit").write_text(text)
    (tmp_path / "bin" / "systemd-inhibit").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return lambda: said.read_text().split() if said.exists() else []


def test_lock_is_held_while_a_hook_runs(
    service: Service, tmp_path: Path, lock: Callable[[], list[str]]
) -> None:
    """Held for the preparation, not while the event is awaited, and for the recovery. C-3."""
    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"
    with Agent(tmp_path, service.endpoint, prepare=wait, recover=wait, agent=ON) as agent:
        agent.until_said("named")
        assert lock() == []
        service.show(AHEAD)
        wait_until(lambda: lock() == ["held"])
        (tmp_path / "go").touch()
        service.until(lambda: service.approvals == ["E1"], "the approval")
        wait_until(lambda: lock() == ["held", "released"])
        (tmp_path / "go").unlink()
        service.show(event(status="Started"))
        agent.until_said("started")
        service.show()
        wait_until(lambda: lock() == ["held", "released", "held"])
        (tmp_path / "go").touch()
        wait_until(lambda: lock() == ["held", "released"] * 2)
    words = (tmp_path / "words").read_text()
    assert "--what=shutdown\n--mode=delay\n" in words


@pytest.mark.parametrize("way", ["cancelled", "stopped", "crashed"])
def test_lock_is_released_on_every_way_out(
    way: str, service: Service, tmp_path: Path, lock: Callable[[], list[str]]
) -> None:
    """A shutdown never waits for an agent that is gone, nor for an event that is."""
    with Agent(tmp_path, service.endpoint, prepare="sleep 600", agent=ON) as agent:
        service.show(AHEAD)
        wait_until(lambda: lock() == ["held"])
        agent.until_acts("prepare")
        if way == "cancelled":
            service.show()
            agent.until_said("finished")
        elif way == "stopped":
            assert agent.stop() == 0
        else:
            agent.kill()
        wait_until(lambda: len(lock()) >= 2 and lock()[-1] == "released")
        assert lock().count("held") == lock().count("released")


def test_restarted_agent_takes_the_lock_again(
    service: Service, tmp_path: Path, lock: Callable[[], list[str]]
) -> None:
    """A hook that outlives the agent is waited for again once it is taken up."""
    with Agent(tmp_path, service.endpoint, prepare="sleep 600", agent=ON) as agent:
        service.show(AHEAD)
        wait_until(lambda: lock() == ["held"])
        agent.until_acts("prepare")
        agent.kill()
        wait_until(lambda: lock() == ["held", "released"])
        agent.start()
        wait_until(lambda: lock() == ["held", "released", "held"])


def test_lock_that_cannot_be_had_is_told_of_once(
    service: Service, tmp_path: Path, lock: Callable[[], list[str]]
) -> None:
    """Without logind the agent works all the same."""
    (tmp_path / "bin" / "systemd-inhibit").write_text("#!/bin/sh\nexit 1\n")
    with Agent(tmp_path, service.endpoint, prepare="sleep 0.2", agent=ON) as agent:
        service.show(AHEAD)
        service.until(lambda: service.approvals == ["E1"], "the approval")
        agent.until_said("inhibit-failed")
        assert agent.log().count("action=inhibit-failed") == 1
        assert lock() == []


def test_nothing_is_started_unless_it_is_wanted(
    service: Service, tmp_path: Path, lock: Callable[[], list[str]]
) -> None:
    """To make a shutdown wait is for the machine's owner to decide."""
    with Agent(tmp_path, service.endpoint) as agent:
        service.show(AHEAD)
        service.until(lambda: service.approvals == ["E1"], "the approval")
        agent.until_acts("prepare")
    assert lock() == []
