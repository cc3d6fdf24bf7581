"""Gates of the settings, in a running service: checked between waves, unknown ones refused."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_base.settings import GateSettings, NamedTable
from forewarn_base.values import replace
from forewarn_server.control.gate_checks import make_gates
from forewarn_server.settings_loader import load_settings
from tests.api.live import FLEET, SETTINGS, Json, Live
from tests.waiting import wait_until

HOWTO = Path(__file__).resolve().parents[2] / "docs/howto/maintenance-gates.md"
FORM = {"cause": "host-reboot", "hosts": ["h1", "h2"], "duration": "PT10M", "max_at_once": 1}


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[Live]:
    """A service with a gate that passes while there is a file, and one for polls."""
    options = {"command": ["test", "-e", str(tmp_path / "fine")]}
    (tmp_path / "fine").touch()
    tables = (NamedTable("fine", options), NamedTable("back", {"polls": True, "tries": 1}))
    with Live(replace(SETTINGS, gates=GateSettings(tables))) as live:
        live.fleet(**FLEET)
        yield live


def read(live: Live, name: str) -> Json:
    """A maintenance as it is once no plan is made and no gate is checked."""

    def idle() -> bool:
        made = live.get(f"/v1/maintenances/{name}")["maintenance"]
        return not made["planning"] and not made["checking"]

    wait_until(idle)
    live.settle()
    return live.get(f"/v1/maintenances/{name}")["maintenance"]


def complete_wave(live: Live, name: str) -> None:
    """Let the wave at hand come, and say that it is done."""
    live.advance(3600)
    running = live.get("/v1/operations?state=running")["operations"]
    assert running
    for each in running:
        live.post(f"/v1/operations/{each['id']}/complete")
    read(live, name)


def test_gate_stops_a_maintenance_between_waves(gated: Live, tmp_path: Path) -> None:
    """It goes on while the check passes, and is stopped when it fails. Source: F-5."""
    made = gated.call("POST", "/v1/maintenances", {**FORM, "gate": "fine"})
    assert made.status == 201, made
    name = made.json["maintenance"]["id"]
    read(gated, name)
    gated.post(f"/v1/maintenances/{name}/start")
    read(gated, name)
    complete_wave(gated, name)
    assert read(gated, name)["state"] == "running"
    (tmp_path / "fine").unlink()
    complete_wave(gated, name)
    stopped = read(gated, name)
    assert stopped["state"] == "stopped"
    assert "gate fine: test ended with status 1" in stopped["halt_reason"]
    actions = {each["action"] for each in gated.get("/v1/history?limit=1000")["entries"]}
    assert {"maintenance.gate-passed", "maintenance.stopped"} <= actions


def test_gate_stops_where_nobody_polls_after_the_wave(gated: Live) -> None:
    """Groups that polled before and no longer poll are named. Source: F-5."""
    gated.enable("web-0", "db-0")
    made = gated.call("POST", "/v1/maintenances", {**FORM, "gate": "back"})
    name = made.json["maintenance"]["id"]
    read(gated, name)
    gated.post(f"/v1/maintenances/{name}/start")
    read(gated, name)
    complete_wave(gated, name)
    stopped = read(gated, name)
    assert stopped["state"] == "stopped"
    assert "gate back: no poll since the last wave from " in stopped["halt_reason"]
    assert "web" in stopped["halt_reason"]


def test_gate_that_is_not_there_is_refused(gated: Live) -> None:
    """A maintenance cannot name a gate that the settings do not have. Source: F-5."""
    refused = gated.call("POST", "/v1/maintenances", {**FORM, "gate": "fien"})
    assert (refused.status, refused.code) == (422, "gate-unknown")
    assert gated.get("/v1/maintenances")["maintenances"] == []


def test_examples_of_the_howto_are_gates(tmp_path: Path) -> None:
    """What the document tells a reader to write down, the service takes."""
    example = "\n".join(re.findall(r"```toml\n(.*?)```", HOWTO.read_text("utf-8"), re.DOTALL))
    (tmp_path / "forewarn.toml").write_text(textwrap.dedent(example))
    settings = load_settings([tmp_path / "forewarn.toml"], {})
    gates = make_gates({each.name: each.values for each in settings.gates.tables})
    assert {gate.name for gate in gates.values()} == {
        "back-again",
        "burn-in",
        "errors",
        "front-page",
        "smoke-test",
    }
    assert (gates["errors"].tries, gates["smoke-test"].timeout_s) == (10, 300)
