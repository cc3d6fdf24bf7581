"""The commands `clock`, `scenario` and `fault`, and the routes behind them.

No emulator is started here but in a thread; `test_emulate.py` has the processes.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator_tests.conftest import Stage
from forewarn_emulator.faults import FaultKind
from forewarn_emulator.scenario_files import read_scenario, shipped
from forewarn_server.cli.main import main

Run = Callable[..., str]


@pytest.fixture
def command(stage: Stage, capsys: pytest.CaptureFixture[str]) -> Run:
    """Type a command; it returns what was printed."""

    def run(*words: str, status: int = 0) -> str:
        assert main([*words, "--server", stage.emulator.operator_url]) == status
        captured = capsys.readouterr()
        return captured.err if status else captured.out

    return run


def test_clock_is_shown_and_changed(command: Run) -> None:
    """Each action prints the clock as it is then."""
    assert "stopped" in command("emulator", "clock", "show")
    assert "times real time" in command("emulator", "clock", "start")
    assert "runs at 60 times" in command("emulator", "clock", "speed", "60")
    assert "stopped" in command("emulator", "clock", "stop")
    before = json.loads(command("emulator", "clock", "show", "--json"))
    after = json.loads(command("emulator", "clock", "advance", "15m", "--json"))
    assert after["now"][:11] >= before["now"][:11]
    assert after != before
    assert "cannot run at speed 0." in command("emulator", "clock", "speed", "0", status=1)
    assert "speed must be a number from 0 to 1000000, not 2000000000.0" in command(
        "emulator", "clock", "speed", "2e9", status=1
    )
    assert "DURATION must be a duration from 0 s to 31 d, not '1000d'" in command(
        "emulator", "clock", "advance", "1000d", status=2
    )
    assert "DURATION must be" in command("emulator", "clock", "advance", "5q", status=2)


def test_scenarios_are_listed_shown_run_and_stopped(command: Run, stage: Stage) -> None:
    """A scenario's state is told where it is listed."""
    listed = command("emulator", "scenario", "list")
    assert all(name in listed for name in shipped())
    assert "The host is updated with a restart." in command(
        "emulator", "scenario", "show", "host-reboot"
    )
    assert "host-reboot on vm-1: running" in command("emulator", "scenario", "run", "host-reboot")
    stage.emulator.settle()
    assert "running 1/2" in command("emulator")
    form = json.loads(command("emulator", "scenario", "show", "host-reboot", "--json"))
    assert form["run"]["operations"] == ["op-1"]
    assert "[[steps]]" in form["text"]
    assert "stopped" in command("emulator", "scenario", "stop", "host-reboot")
    assert "is not running" in command("emulator", "scenario", "stop", "host-reboot", status=1)
    unknown = command("emulator", "scenario", "show", "host-rebot", status=1)
    assert "does not exist" in unknown
    assert "Did you mean host-reboot?" in unknown


def test_shown_scenario_is_a_file_that_runs(
    stage: Stage, story: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """What `show` prints is the text alone, also of a scenario that has run."""
    stage.run("host-reboot")
    capsys.readouterr()
    assert (
        main(
            ["emulator", "scenario", "show", "host-reboot", "--server", stage.emulator.operator_url]
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert err == "scenario host-reboot on vm-1: running\n"
    assert read_scenario("mine", out).steps


def test_every_fault_is_named_where_one_is_set(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever asks for help learns which kinds of fault there are."""
    for words in (["emulator", "fault", "set", "--help"], ["emulate", "--help"]):
        assert main(words) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert [kind.value for kind in FaultKind if kind.value not in said] == []


def test_fault_of_a_vm_that_is_not_there_is_refused(command: Run) -> None:
    """A misspelt VM would meet nothing, and nobody would know why."""
    assert "There is no VM nope." in command("emulator", "fault", "set", "500=vm=nope", status=1)
    assert command("emulator", "fault", "list") == ""


def test_scenario_file_is_read_where_it_is_typed(
    command: Run, stage: Stage, story: Callable[[str], Path]
) -> None:
    """A file of one's own is sent to the emulator, and known there by its name."""
    path = story('about = "Mine."\n[[steps]]\ndo = "reboot"\non = "$vm"\n')
    assert "mine on vm-1" in command("emulator", "scenario", "run", str(path))
    stage.emulator.settle()
    assert "mine" in command("emulator", "scenario", "list")
    assert "Mine." in command("emulator", "scenario", "show", "mine")
    assert "cannot be read" in command("emulator", "scenario", "run", "/nowhere/x.toml", status=2)
    story("[[steps]]\nnonsense = 1\n")
    assert "unknown member 'nonsense'" in command(
        "emulator", "scenario", "run", str(path), status=1
    )


def test_faults_are_set_listed_and_cleared(command: Run) -> None:
    """What is set is printed after each change."""
    command("emulator", "fault", "list")
    assert "500=10%" in command("emulator", "fault", "set", "500=10%")
    assert "429=3x" in command("emulator", "fault", "set", "429=3x")
    assert "500" not in command("emulator", "fault", "clear", "500")
    assert command("emulator", "fault", "clear") == ""
    assert json.loads(command("emulator", "fault", "list", "--json")) == {"faults": []}
    assert "unknown fault" in command("emulator", "fault", "set", "teapot", status=1)


def test_routes_are_in_the_openapi_document(stage: Stage) -> None:
    """The emulator's routes are documented like all others."""
    paths = stage.api.get("/v1/openapi.json")["paths"]
    ours = {
        path
        for path in paths
        if path.split("/")[2:] and path.split("/")[2] in {"clock", "scenarios", "faults"}
    }
    assert ours == {
        *("/v1/clock", "/v1/clock/advance", "/v1/clock/speed", "/v1/clock/stop"),
        *("/v1/clock/start", "/v1/scenarios", "/v1/scenarios/{name}"),
        *("/v1/scenarios/{name}/run", "/v1/scenarios/{name}/stop"),
        *("/v1/faults", "/v1/faults/{kind}"),
    }


def test_commands_of_the_service_work_in_the_emulator(command: Run, stage: Stage) -> None:
    """The emulator's API is the service's: reboot, events, why, history. Source: L-1."""
    command("vm", "reboot", "vm-1")
    assert stage.sees() == ["Reboot Scheduled vm-1 User -1"]
    assert "Reboot" in command("event")
    assert "has not approved" in command("operation", "why", "op-1")
    assert "announced" in command("history")
