"""The scenarios of maintenances in waves, and what operators are told meanwhile.

Scenarios of single events are in `test_scenarios.py`.
"""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from emulator_tests.conftest import Stage
from forewarn_server.cli.api_client import ApiRefused
from forewarn_server.cli.main import main


def shown(stage: Stage) -> dict[str, Any]:
    """Return the maintenance of a scenario."""
    found: dict[str, Any] = stage.api.get("/v1/maintenances/m-1")
    return found


def why(stage: Stage, name: str) -> str:
    """Return what something waits for first."""
    [first, *_] = stage.api.get("/v1/why", id=name)["blockers"]
    return str(first["text"])


def test_rolling_update_goes_from_wave_to_wave(stage: Stage) -> None:
    """One host first, then at most two at a time in one fault domain. Source: F-1, F-3, G-1."""
    fleet = stage.fleet()
    stage.run("rolling-update")
    assert why(stage, "rolling-4") == "wave 5 waits for wave 4 to end"
    canary = shown(stage)["waves"][0]
    assert (canary["hosts"], canary["canary"]) == (["rolling-2"], True)
    seen = []
    while stage.state("rolling-update") == "running":
        seen.append(sorted(line.split()[2] for line in stage.sees() if "Scheduled" in line))
        stage.approve()
        stage.advance("1m")
    assert seen[0] == ["rolling-vm-2"]
    assert sorted(vm for wave in seen for vm in wave) == sorted(
        ["vm-1", *(f"rolling-vm-{n}" for n in range(2, 7))]
    )
    assert max(len(wave) for wave in seen) == 2
    assert shown(stage)["maintenance"]["state"] == "done"
    assert stage.fleet() == fleet


def test_gate_stops_a_rolling_update(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """A host that fails after its service stops the rest, until an operator resumes. F-5, G-3."""
    fleet = stage.fleet()
    stage.run("gate-trips")
    stage.approve()
    stage.advance("14m")
    assert stage.sees() == ["Reboot Scheduled gate-vm-2 Platform 300"]
    stage.advance("1m")
    assert stage.sees() == ["Reboot Started gate-vm-1 Platform 3600"]
    assert shown(stage)["maintenance"]["state"] == "stopped"
    server = ("--server", stage.emulator.operator_url)
    assert main(["maintenance", "show", "m-1", *server]) == 0
    assert main(["operation", "why", "gate-2", *server]) == 0
    told = capsys.readouterr().out
    assert "stopped" in told
    assert "m-1 waits for an operator: look at m-1, which is stopped, and resume it" in told
    stage.advance("30m")
    assert shown(stage)["maintenance"]["state"] == "running"
    stage.advance("2h")
    assert stage.state("gate-trips") == "finished"
    assert shown(stage)["maintenance"]["done"] == 3
    assert stage.fleet() == fleet


def test_window_closes_in_the_middle_of_a_rolling_update(stage: Stage) -> None:
    """Work that does not fit in the rest of a window waits for the next day's. Source: F-7."""
    fleet, policy = stage.fleet(), stage.api.get("/v1/policy")
    stage.run("window-closes")
    stage.advance("53m")
    assert shown(stage)["maintenance"]["done"] == 2
    assert why(stage, "m-1") == "wave 3 waits for window daily to open"
    stage.advance("20h")
    assert (stage.sees(), shown(stage)["maintenance"]["done"]) == ([], 2)
    stage.advance("5h")
    assert stage.state("window-closes") == "finished"
    assert shown(stage)["maintenance"]["state"] == "done"
    entries = stage.api.get("/v1/history", action="maintenance.host-done")["entries"]
    ended = [datetime.fromisoformat(each["at"]) for each in entries]
    pauses = [later - before for before, later in pairwise(ended)]
    assert sum(each > timedelta(hours=12) for each in pauses) == 1, ended
    assert (stage.fleet(), stage.api.get("/v1/policy")) == (fleet, policy)


@pytest.mark.parametrize("name", ["rolling-update", "gate-trips", "window-closes"])
def test_stopped_scenario_ends_its_maintenance(stage: Stage, name: str) -> None:
    """A scenario that is stopped leaves no maintenance, no machine and no policy behind."""
    fleet, policy = stage.fleet(), stage.api.get("/v1/policy")
    stage.run(name)
    run = stage.api.get(f"/v1/scenarios/{name}")["run"]
    assert run["maintenances"] == ["m-1"]
    stage.api.post(f"/v1/scenarios/{name}/stop")
    assert shown(stage)["maintenance"]["state"] == "cancelled"
    assert (stage.sees(), stage.fleet()) == ([], fleet)
    assert stage.api.get("/v1/policy") == policy


def test_policy_of_an_operator_stays(stage: Stage) -> None:
    """A policy that an operator applies while a scenario runs is in force after it."""
    stage.run("window-closes")
    stage.api.put("/v1/policy", {"pause": "5m"})
    stage.api.post("/v1/scenarios/window-closes/stop")
    assert stage.api.get("/v1/policy") == {"pause": "PT5M"}


def test_two_scenarios_cannot_both_bring_a_policy(stage: Stage) -> None:
    """The second one fails and says so; when the first is over it can run."""
    stage.run("window-closes")
    text = '[policy]\npause = "1m"\n[[steps]]\nafter = "1m"\n'
    stage.run("mine", text=text)
    run = stage.api.get("/v1/scenarios/mine")["run"]
    assert (run["state"], "window-closes" in run["problem"]) == ("failed", True)
    stage.api.post("/v1/scenarios/window-closes/stop")
    stage.run("mine", text=text)
    assert stage.api.get("/v1/policy") == {"pause": "PT1M"}
    stage.advance("1m")
    assert stage.api.get("/v1/policy") == {}


def test_cancelled_maintenance_of_a_scenario_is_withdrawn(stage: Stage) -> None:
    """The steps of single work are there for a maintenance, too. Source: F-6, L-3."""
    text = """
[[steps]]
maintain = "$host"
as = "update"
[[steps]]
wait = "scheduled"
for = "update"
[[steps]]
after = "1m"
cancel = "update"
reason = "not today"
[[steps]]
wait = "ended"
for = "update"
"""
    stage.run("mine", text=text)
    assert stage.sees() == ["Reboot Scheduled vm-1 Platform 300"]
    stage.advance("1m")
    assert (stage.sees(), stage.state("mine")) == ([], "finished")
    assert shown(stage)["maintenance"]["halt_reason"] == "not today"


def test_maintenance_of_no_host_is_refused(stage: Stage) -> None:
    """A scenario whose maintenance cannot be fails with the reason."""
    with pytest.raises(ApiRefused, match="maintain has 0 members"):
        stage.run("mine", text="[[steps]]\nmaintain = []\n")
    stage.run("mine", text="[[steps]]\nmaintain = 'nowhere'\n")
    run = stage.api.get("/v1/scenarios/mine")["run"]
    assert (run["state"], "nowhere" in run["problem"]) == ("failed", True)
