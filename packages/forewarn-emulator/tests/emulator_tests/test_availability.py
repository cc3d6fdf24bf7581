"""`forewarn availability` and the published procedure, against the emulator."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from emulator_tests.conftest import Stage
from forewarn_server.cli.main import main

ROOT = Path(__file__).resolve().parents[4]
CHECK = ROOT / "docs/howto/check-availability.py"


def test_published_procedure_gives_the_services_figures(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A tenant computes the same availability from the export. Source: T-13."""
    monkeypatch.setenv("FOREWARN_SERVER", stage.emulator.operator_url)
    for scenario in ("host-reboot", "live-migration", "hardware-failure"):
        stage.run(scenario)
        stage.advance("10h")
    path = tmp_path / "export.jsonl"
    assert main(["availability", "export", "--output", str(path)]) == 0
    done = subprocess.run(
        [sys.executable, str(CHECK), str(path)], check=True, capture_output=True, text=True
    )
    figures = json.loads(done.stdout)
    capfd.readouterr()
    assert main(["availability", "show", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["disturbed_ms"] > 0
    for name in ("disturbed_ms", "available_percent"):
        assert figures[name] == report[name]


def test_procedure_is_short_and_needs_nothing() -> None:
    """It has at most 100 lines, and imports Python's standard library alone. Source: T-13."""
    lines = CHECK.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 100
    names = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
    assert names <= sys.stdlib_module_names


def test_report_is_shown_for_people(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Figures first, then each VM and each event that disturbed it. Source: T-13."""
    monkeypatch.setenv("FOREWARN_SERVER", stage.emulator.operator_url)
    stage.run("host-reboot")
    stage.advance("10h")
    assert main(["availability", "--from", "1d"]) == 0
    printed = capfd.readouterr().out
    assert "availability" in printed
    assert "Reboot" in printed
    assert "5 min" in printed
    assert main(["availability", "--from", "soon"]) != 0
    assert "is not a time for --from" in capfd.readouterr().err
