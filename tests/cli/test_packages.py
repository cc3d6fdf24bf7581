"""What a bare installation says to a command of the server side."""

import os
import subprocess
import sys
from pathlib import Path

from forewarn import exit_codes

TYPED = ("emulate", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0")
SOURCE = Path(__file__).resolve().parents[2] / "src"


def test_missing_package_is_named_with_its_remedy() -> None:
    """A command that needs a package that is not there says which, and how to get it."""
    program = "import sys; sys.modules['msgspec'] = None\n"
    program += "from forewarn.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, *TYPED],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == exit_codes.REFUSED
    assert "needs the package msgspec" in done.stderr
    assert "pip install './forewarn[server]'" in done.stderr
