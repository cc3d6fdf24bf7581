"""The agent and the emulator, as two programs, in every scenario."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_emulator.scenario_files import shipped
from forewarn_server.cli.main import main as command_line
from tests.agent.agents import Agent
from tests.agent.programs import answers, free_port
from tests.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.slow

SPEED = 600
#: Scenarios that take days, or that an agent has little time for.
SPEEDS = {
    "degraded-hardware": 6000,
    "hardware-failure": 200,
    "host-lost": 200,
    "spot-preemption": 20,
    "storm": 60,
    "window-closes": 300,
}
#: What the clock is moved by once the agent's own event is over: a night without work.
SKIPPED = {"window-closes": "23h"}
#: The cases that differ most; the others are nightly.
EVERY_TIME = (
    "cancelled-maintenance",
    "spot-preemption",
    "rolling-update",
)


@pytest.mark.parametrize(
    "scenario",
    [
        name if name in EVERY_TIME else pytest.param(name, marks=pytest.mark.nightly)
        for name in shipped()
    ],
)
def test_agent_lives_through_every_scenario(scenario: str, tmp_path: Path) -> None:
    """What was prepared is undone, once, before it is prepared again.

    Source: C-2, C-4, invariant 14.
    """
    with story(tmp_path, scenario) as (operator, log, agent):
        agent.until_said("named")  # the scenario begins when the agent follows the events
        command = ["--server", operator, "emulator"]
        assert command_line([*command, "scenario", "run", scenario]) == 0
        if scenario in SKIPPED:
            agent.until_said("finished")
            assert command_line([*command, "clock", "advance", SKIPPED[scenario]]) == 0
        over = f"scenario {scenario} is over"
        wait_until(lambda: over in log.read_text(), what=over)
        wait_until(lambda: agent.stages() == [], what="no event left")
        assert agent.stop() == 0
    acts = agent.acts()
    assert all(act == "prepare" for act in acts[::2]), acts
    assert all(act in ("recover", "cancel") for act in acts[1::2]), acts
    assert len(acts) % 2 == 0, acts
    assert "action=seen" in agent.log()
    for trouble in ("unrecovered", "undo-failed", "step-failed", "approval-failed"):
        assert f"action={trouble}" not in agent.log()


@contextlib.contextmanager
def story(directory: Path, scenario: str) -> Iterator[tuple[str, Path, Agent]]:
    """Run `forewarn emulate` and an agent; give its operator API, its log and the agent."""
    port = free_port()
    endpoint, operator = f"127.0.0.1:{free_port()}", f"127.0.0.1:{port}"
    log = directory / "emulator.log"
    places = ["--listen", endpoint, "--operator-listen", operator]
    pace = str(SPEEDS.get(scenario, SPEED))
    command = [
        sys.executable,
        "-m",
        "forewarn_server.cli.main",
        "emulate",
        *places,
        "--speed",
        pace,
    ]
    then = "hold" if "cancel" in scenario else "approve"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until(lambda: answers(port), what="the operator API")
        with Agent(directory, f"http://{endpoint}", then=then) as agent:
            yield f"http://{operator}", log, agent
    finally:
        process.terminate()
        process.wait(LIMIT_S)
        print(log.read_text())
