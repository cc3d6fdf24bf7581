"""The units in `dist/` are ones that systemd takes."""

import shutil
import subprocess
from pathlib import Path

import pytest

DIST = Path(__file__).resolve().parents[2] / "dist"
UNITS = sorted(DIST.glob("*.service"))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_is_sound(unit: Path, tmp_path: Path) -> None:
    """Every directive is known, and none contradicts another."""
    text = unit.read_text("utf-8").replace("/usr/bin/forewarn", "/bin/true")
    copy = tmp_path / unit.name
    copy.write_text(text)
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        check=False,
        capture_output=True,
        text=True,
    )
    said = [line for line in found.stderr.splitlines() if unit.name in line]
    assert not said


def test_node_unit_has_one_capability() -> None:
    """A node that is taken over can do nothing on its hypervisor but bind a low port. M-5."""
    lines = DIST.joinpath("forewarn-metadata.service").read_text("utf-8").splitlines()
    assert "CapabilityBoundingSet=CAP_NET_BIND_SERVICE" in lines
    assert "NoNewPrivileges=yes" in lines
    assert "User=forewarn" in lines
