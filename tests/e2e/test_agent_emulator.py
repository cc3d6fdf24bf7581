"""The agent and the emulator, as two programs: every scenario, and every fault on demand."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from forewarn.cli.main import main as command_line
from forewarn.emulator.scenario_files import shipped
from tests.agent.agents import Agent
from tests.agent.programs import answers, free_port
from tests.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

MAIN = "import sys; from forewarn.cli.main import main; sys.exit(main())"
SPEED = 600
SPEEDS = {
    "degraded-hardware": 6000,
    "hardware-failure": 200,
    "host-lost": 200,
    "spot-preemption": 20,
    "storm": 60,
    "window-closes": 300,
}
"""Scenarios that take days, or that an agent has little time for."""
SKIPPED = {"window-closes": "23h"}
"""What the clock is moved by once the agent's own event is over: a night without work."""
FAULT_SPEED = 200  # slow enough for a client that pauses between its tries
FAULT_SEED = 23  # of its first sixty chances of 40 %, never three in a row cost the client pauses

FAULTS = (
    "slow-first=1s",
    "empty-200=40%",
    "410=3x",
    "429=2x",
    "500=40%",
    "reset=40%",
    "truncate=40%",
    "incarnation=40%",
)
EVERY_TIME = (
    "cancelled-maintenance",
    "spot-preemption",
    "rolling-update",
    "410=3x",
    "truncate=40%",
)
"""The cases that differ most; the others are nightly."""


@contextlib.contextmanager
def emulator(directory: Path, *words: str) -> Iterator[tuple[str, str, Path]]:
    """Run `forewarn emulate`; give its endpoint, its operator API and its log."""
    port = free_port()
    endpoint, operator = f"127.0.0.1:{free_port()}", f"127.0.0.1:{port}"
    log = directory / "emulator.log"
    listen = ["--listen", endpoint, "--operator-listen", operator]
    command = [sys.executable, "-c", MAIN, "emulate", *listen, *words]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until(lambda: answers(port), what="the operator API")
        yield f"http://{endpoint}", f"http://{operator}", log
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def play(directory: Path, scenario: str, *words: str, speed: int = 0, **changes: object) -> Agent:
    """Let an agent live through a scenario, to the end; return it, stopped.

    The scenario begins when the agent follows the events, however long both took to start.
    """
    pace = str(speed or SPEEDS.get(scenario, SPEED))
    words = ("--speed", pace, *words)
    started = emulator(directory, *words)
    with started as (url, operator, log), Agent(directory, url, **changes) as agent:
        agent.until_said("named")
        assert command_line(["--server", operator, "emulator", "scenario", "run", scenario]) == 0
        if scenario in SKIPPED:
            agent.until_said("finished")
            assert (
                command_line(
                    ["--server", operator, "emulator", "clock", "advance", SKIPPED[scenario]]
                )
                == 0
            )
        over = f"scenario {scenario} is over"
        wait_until(lambda: over in log.read_text(), what=over)
        wait_until(lambda: agent.stages() == [], what="no event left")
        assert agent.stop() == 0
    print(log.read_text(), agent.log())
    return agent


def check(agent: Agent) -> None:
    """Whatever was prepared was undone, once, before it was prepared again. Invariant 14."""
    acts = agent.acts()
    assert all(act == "prepare" for act in acts[::2]), acts
    assert all(act in ("recover", "cancel") for act in acts[1::2]), acts
    assert len(acts) % 2 == 0, acts
    for trouble in ("unrecovered", "undo-failed", "step-failed", "approval-failed"):
        assert f"action={trouble}" not in agent.log()


def mostly_nightly(names: Iterable[str], always: Container[str]) -> list[object]:
    """Mark every case nightly but some."""
    return [
        name if name in always else pytest.param(name, marks=pytest.mark.nightly) for name in names
    ]


@pytest.mark.parametrize("scenario", mostly_nightly(shipped(), EVERY_TIME))
def test_agent_lives_through_every_scenario(scenario: str, tmp_path: Path) -> None:
    """Prepare, approve, recover, in every story the emulator tells. Source: C-2, C-4."""
    then = "hold" if "cancel" in scenario else "approve"
    agent = play(tmp_path, scenario, then=then)
    check(agent)
    assert "action=seen" in agent.log()


@pytest.mark.parametrize("fault", mostly_nightly(FAULTS, EVERY_TIME))
def test_agent_lives_through_every_fault(fault: str, tmp_path: Path) -> None:
    """Faults delay a story but change nothing about it. Source: E-10, C-7."""
    chances = ("--seed", str(FAULT_SEED))
    agent = play(tmp_path, "host-reboot", "--fault", fault, *chances, speed=FAULT_SPEED)
    log = agent.log().replace("action=approval-failed", "")
    assert agent.acts() == ["prepare", "recover"], log


def test_agent_is_killed_by_the_reboot_it_approved(tmp_path: Path) -> None:
    """The story of the README: prepared, approved, rebooted, recovered once. Source: C-9."""
    words = ("--scenario", "host-reboot", "--speed", "200")
    with emulator(tmp_path, *words) as (url, _, _), Agent(tmp_path, url) as agent:
        agent.until_said("approved")
        agent.until_said("started")
        agent.kill()
        agent.start()
        agent.until_said("finished")
        assert agent.acts() == ["prepare", "recover"]
