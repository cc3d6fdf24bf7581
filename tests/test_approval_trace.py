"""An approval passes no more shapes than the architecture's table says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_an_approval_passes_what_the_architecture_says() -> None:
    """Shapes have a limit; functions and files vary with what else the process does."""
    words = [sys.executable, "-m", "tools.approval_trace"]
    printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^to the (\w+) +(\d+) +(\d+) +(\d+)$", printed, re.MULTILINE)
    written = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    limits = re.findall(
        r"^\| shapes to the (\w+) \| \d+ \| (\d+) \| \d+ \|$", written, re.MULTILINE
    )
    assert [row[0] for row in rows] == [limit[0] for limit in limits] == ["200", "driver"]
    for (_, *_, found), (_, most) in zip(rows, limits, strict=True):
        assert int(found) <= int(most), printed
