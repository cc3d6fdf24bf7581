"""The example package of "Extend Forewarn": built, installed and run, as other people do."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.settings import DriverSettings, NamedTable, OutboxSettings
from forewarn_server.cli.main import main
from forewarn_server.control.gate_checks import make_gates, run_gate
from tests.api.live import SETTINGS, Live
from tests.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "acme-forewarn"
#: Counts the reboots of a task.
EFFECTS = '#!/bin/sh\ngrep -c " $1@" {directory}/boots || true\n'


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the package, and install it into a directory."""
    target = tmp_path_factory.mktemp("installed")
    words = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index")
    options = ("--no-deps", "--no-build-isolation", "--target", str(target))
    subprocess.run([sys.executable, *words, *options, str(EXAMPLE)], check=True)
    return target


@pytest.fixture
def acme(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with two hypervisors; the package is on the path."""
    monkeypatch.syspath_prepend(str(installed))
    for name in ("h1", "h2"):
        host = {"vms": [f"{name}-web"], "zone": "1", "healthy": True}
        (tmp_path / f"{name}.json").write_text(json.dumps(host))
    return tmp_path


def settings_file(acme: Path) -> str:
    """Return the path of settings that name the driver."""
    file = acme / "forewarn.toml"
    file.write_text(f'[drivers.acme]\ndirectory = "{acme}"\n')
    return str(file)


def test_driver_passes_every_check(acme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What people copy is a driver that repeats nothing, and forgets nothing. Source: R-6."""
    effects = acme / "effects"
    effects.write_text(EFFECTS.format(directory=acme))
    effects.chmod(0o755)
    words = ("driver", "check", "acme", "--host", "h1", "--json", "--effects", str(effects))
    assert main([*words, "--config", settings_file(acme)]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [each for each in checks if each["verdict"] == "failed"] == []
    assert sum(each["verdict"] == "passed" for each in checks) > 10, checks


def test_service_works_with_driver_and_destination(
    acme: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hosts are imported and rebooted, the journal has it all, and the command counts. R-4, D-6."""
    journal = acme / "journal.jsonl"
    tables = {
        "drivers": DriverSettings("acme", tables=(NamedTable("acme", {"directory": str(acme)}),)),
        "outbox": OutboxSettings(
            (NamedTable("journal", {"kind": "acme-journal", "path": str(journal)}),)
        ),
    }
    with Live(replace(SETTINGS, **tables)) as live:  # type: ignore[arg-type]
        words = ("topology", "import", "driver", "acme", "--server", live.url)
        assert main([*words, "--config", settings_file(acme)]) == 0
        assert live.get("/v1/topology?format=json")["vms"]["h2-web"]["host"] == "h2"
        [asked] = live.post("/v1/hosts/h1/reboot")["operations"]
        live.advance(1000)
        path = f"/v1/operations/{asked['id']}"
        wait_until(lambda: live.get(path)["operation"]["state"] == "succeeded")
        wait_until(lambda: journal.exists() and "operation.succeeded" in journal.read_text())
    capsys.readouterr()
    assert main(["acme", str(acme)]) == 0
    assert capsys.readouterr().out == "h1\t1\nh2\t0\n"


def test_gate_fails_while_a_host_is_ill(acme: Path) -> None:
    """It gets its own options, and names the host. Source: F-5."""
    gate = make_gates({"health": {"kind": "acme-health", "directory": str(acme)}})["health"]
    assert run_gate(gate, "m-1") == ""
    (acme / "h2.json").write_text('{"healthy": false}')
    assert run_gate(gate, "m-1") == "gate health: h2 is not healthy"
