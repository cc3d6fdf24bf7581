"""The tutorial about maintaining a fleet: what it tells people to type works as it stands."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.testing import EmulatorThread
from forewarn_emulator.options import Options
from tests.waiting import LIMIT_S

PAGE = Path(__file__).parents[2] / "docs/tutorial/maintain-a-fleet.md"

pytestmark = pytest.mark.slow


def blocks(language: str = "") -> list[str]:
    """The fenced blocks of the page in a language."""
    found: list[str] = []
    inside = None
    for line in PAGE.read_text("utf-8").splitlines(keepends=True):
        if line.startswith("```"):
            inside = line[3:].strip() if inside is None else None
            found += [""] if inside == language else []
        elif inside == language:
            found[-1] += line
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The emulator of the page, its clock faster and not set going yet; its operator API."""
    [program] = blocks("python")
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=LIMIT_S)
    topology = (tmp_path / "fleet.toml").read_text()
    options = Options(
        listen=("127.0.0.1:0",),
        operator="127.0.0.1:0",
        topology=topology,
        topology_name="fleet.toml",
        speed=2000.0,
    )
    emulator = EmulatorThread(options).start()
    yield emulator.operator_url
    emulator.stop()


def test_tutorial_of_a_fleet_works_as_written(server: str, tmp_path: Path) -> None:
    """Every command of the page succeeds, and the maintenance is done at its end. Source: F-1."""
    around = {**os.environ, "FOREWARN_SERVER": server}
    said = ""
    for line in "".join(blocks()).splitlines():
        if line.startswith("forewarn emulate"):
            line = "forewarn emulator clock start"
        command = [sys.executable, "-m", "forewarn_server.cli.main", "--server", server]
        words = re.findall(r'"[^"]*"|\S+', line.removeprefix("forewarn "))
        ran = subprocess.run(
            [*command, *(word.strip('"') for word in words)],
            env=around,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert ran.returncode == 0, (line, ran.stdout, ran.stderr)
        said += ran.stdout
    assert "a game is on" in said
    assert "12 of 12 done" in said
    assert "wave 1 of m-1 is over" in said
