"""What an installation says to a command whose packages are not there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn_base import exit_codes
from tools.product import PYTHONPATH

TYPED = ("emulate", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0")


def test_missing_package_is_named_with_its_remedy() -> None:
    """A command that needs a package that is not there says which, and how to get it."""
    program = "import sys; sys.modules['msgspec'] = None\n"
    program += "from forewarn_server.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, *TYPED],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == exit_codes.REFUSED
    assert "needs the package msgspec" in done.stderr
    assert "pip install './forewarn[server]'" in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("--help",), exit_codes.OK, "maintenance"),
        (("explain", "unknown"), exit_codes.OK, "unknown"),
        (("host", "list"), exit_codes.REFUSED, "[extension-missing]"),
        (("host", "--help"), exit_codes.REFUSED, "pip install ./forewarn/packages/forewarn-cli"),
        (("hots", "list"), exit_codes.USAGE, "did you mean `forewarn host`?"),
        (("nonsense",), exit_codes.USAGE, "There is no command 'nonsense'."),
        (("__complete", "maint"), exit_codes.OK, "maintenance"),
    ],
)
def test_missing_package_of_commands_is_named(
    words: tuple[str, ...], status: int, text: str
) -> None:
    """Without forewarn-cli its commands say what to install; the others and the help go on."""
    libraries = Path(pytest.__file__).parents[1]  # without the packages installed from this tree
    done = subprocess.run(
        [sys.executable, "-S", "-m", "forewarn_server.cli.main", *words],
        env={**os.environ, "PYTHONPATH": f"{PYTHONPATH}{os.pathsep}{libraries}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
