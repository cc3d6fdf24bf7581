"""What the agent could not undo: tried again, asked for, given up; with a real agent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forewarn import exit_codes
from forewarn.agent.cli import main
from tests.agent.agents import LIMIT_S, Agent
from tests.agent.making import event
from tests.agent.service import Service
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_word_for_an_agent_that_does_not_run_is_kept(
    stuck: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is heeded at the next start."""
    stuck.kill()
    (stuck.directory / "free").touch()
    assert main(["undo", "work", "--config", str(stuck.config)]) == exit_codes.OK
    assert "is not running" in capsys.readouterr().out
    stuck.start()
    stuck.until_said("finished")


def test_what_is_not_being_undone_is_said(stuck: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped name asks the agent for nothing."""
    assert main(["forget", "wrok", "--config", str(stuck.config)]) == exit_codes.USAGE
    assert "known names: work" in capsys.readouterr().err


def test_request_that_is_none_is_removed(stuck: Agent) -> None:
    """Only the owner and root can write there; what is damaged does not stay."""
    odd = stuck.directory / "state" / "request-1.json"
    odd.write_text('{"verb": "prepare", "name": 3}')
    wait_until(lambda: not odd.exists(), what="its end", limit_s=LIMIT_S)


def test_request_follows_no_link(stuck: Agent) -> None:
    """The agent's user owns the directory, and may have put links where root is going to write."""
    precious = stuck.directory / "precious"
    precious.write_text("of root")
    (stuck.directory / f"state/request-{os.getpid()}.json.new").symlink_to(precious)
    stuck.kill()
    assert main(["forget", "work", "--config", str(stuck.config)]) == exit_codes.OK
    assert precious.read_text() == "of root"


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can give up")
def test_root_asks_as_the_owner_of_the_directory(stuck: Agent) -> None:
    """What root does in a directory of another user is done with that user's rights."""
    stuck.kill()
    with tempfile.TemporaryDirectory() as place:
        state = Path(place, "state")
        shutil.copytree(stuck.directory / "state", state)
        for path in (Path(place), state, *state.iterdir()):
            os.chown(path, 65534, 65534)
        config = Path(place, "agent.toml")
        config.write_text(f'[agent]\nstate_dir = "{state}"\ncheck_permissions = false\n')
        command = (sys.executable, "-m", "forewarn.agent", "forget", "work", "--config", config)
        subprocess.run(command, check=True)
        assert [path.owner() for path in state.glob("request-*.json")] == ["nobody"]
