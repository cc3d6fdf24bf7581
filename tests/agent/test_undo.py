"""What the agent could not undo: tried again, asked for, given up; with a real agent."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.agent import undo_commands
from forewarn.agent.cli import main
from forewarn_base import exit_codes
from tests.agent.agents import Agent
from tests.agent.making import event
from tests.agent.service import Service
from tests.waiting import wait_until

AHEAD = event(not_before_ms=4_000_000_000_000)


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Agent]:
    """An agent whose recovery fails until a file is there."""
    with (
        Service() as service,
        Agent(tmp_path, service.endpoint, recover=f"test -e {tmp_path}/free") as agent,
    ):
        service.show(AHEAD)
        service.until(lambda: service.approvals == ["E1"], "the approval")
        service.show()
        agent.until_said("undo-failed")
        yield agent


@pytest.mark.parametrize("name", ["work", "E1"], ids=["step", "event"])
def test_person_has_the_agent_try_again(
    stuck: Agent, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without waiting for the next pause to end."""
    (stuck.directory / "free").touch()
    assert main(["undo", name, "--config", str(stuck.config)]) == exit_codes.OK
    stuck.until_said("finished")
    stuck.until_acts("prepare", "recover", "recover")
    assert capsys.readouterr().out == f"The agent was asked to undo {name}.\n"
    assert not list((stuck.directory / "state").glob("request*"))


def test_person_takes_it_over(stuck: Agent) -> None:
    """What is given up is never called undone."""
    assert main(["forget", "work", "--config", str(stuck.config)]) == exit_codes.OK
    stuck.until_said("finished")
    assert "an operator has taken over the steps that are not undone" in stuck.log()
    assert "is undone." not in stuck.log()
    stuck.until_acts("prepare", "recover")


@pytest.fixture
def stopped(stuck: Agent, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """The same, not running; nobody waits long for it."""
    stuck.kill()
    monkeypatch.setattr(undo_commands, "TAKEN_S", 0.1)
    return stuck


def test_word_for_an_agent_that_does_not_run_is_kept(
    stopped: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is heeded at the next start."""
    (stopped.directory / "free").touch()
    assert main(["undo", "work", "--config", str(stopped.config)]) == exit_codes.OK
    assert "is not running" in capsys.readouterr().out
    stopped.start()
    stopped.until_said("finished")


def test_what_is_not_being_undone_is_said(stuck: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped name asks the agent for nothing."""
    assert main(["forget", "wrok", "--config", str(stuck.config)]) == exit_codes.USAGE
    assert "known names: work" in capsys.readouterr().err


def test_request_that_is_none_is_removed(stuck: Agent) -> None:
    """Only the owner and root can write there; what is damaged does not stay."""
    odd = stuck.directory / "state" / "request-1.json"
    odd.write_text('{"verb": "prepare", "name": 3}')
    wait_until(lambda: not odd.exists(), what="its end")


def test_request_follows_no_link(stopped: Agent) -> None:
    """The agent's user owns the directory, and may have put links where root is going to write."""
    precious = stopped.directory / "precious"
    precious.write_text("of root")
    (stopped.directory / f"state/request-{os.getpid()}.json.new").symlink_to(precious)
    assert main(["forget", "work", "--config", str(stopped.config)]) == exit_codes.OK
    assert precious.read_text() == "of root"


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can give up")
def test_root_asks_as_the_owner_of_the_directory(stopped: Agent) -> None:
    """What root does in a directory of another user is done with that user's rights."""
    with tempfile.TemporaryDirectory() as place:
        state = Path(place, "state")
        shutil.copytree(stopped.directory / "state", state)
        for path in (Path(place), state, *state.iterdir()):
            os.chown(path, 65534, 65534)
        config = Path(place, "agent.toml")
        config.write_text(f'[agent]\nstate_dir = "{state}"\ncheck_permissions = false\n')
        command = (sys.executable, "-m", "forewarn.agent", "forget", "work", "--config", config)
        with subprocess.Popen(command) as process:
            wait_until(lambda: list(state.glob("request-*.json")), what="the request")
            process.kill()  # it would wait for the agent
        assert [path.owner() for path in state.glob("request-*.json")] == ["nobody"]
