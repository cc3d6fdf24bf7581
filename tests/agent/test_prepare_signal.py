"""The preparation `signal` against real processes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forewarn.agent.preparations.wait_until import SPARE_S
from forewarn_base.clock import SystemClock
from tests.agent.programs import do, done

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")

PROGRAM = """
import signal, sys
number = signal.Signals["SIG" + sys.argv[2]]
signal.pthread_sigmask(signal.SIG_BLOCK, [number])
print("ready", flush=True)
signal.sigwait([number])
if sys.argv[3:] != ["stays"]:
    sys.exit(7)
print("again", flush=True)
signal.sigwait([number])
sys.exit(8)
"""


@contextmanager
def waiting(argument: str, name: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that waits for a signal."""
    words = (sys.executable, "-c", PROGRAM, argument, name, *more)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.mark.parametrize("name", ["TERM", "USR1", "PWR"])
def test_programs_with_the_argument_end_by_the_signal(name: str, tmp_path: Path) -> None:
    """Other programs go on. Source: J-3."""
    argument = f"{tmp_path}.Executor"
    settings = {"argument": argument, "signal": name}
    with waiting(argument, name) as one, waiting(f"{argument}s", name) as other:
        said = done("signal", "prepare", settings, tmp_path / "s")
        assert (said, one.wait()) == (f"1 processes have ended after SIG{name}", 7)
        assert other.poll() is None
    done("signal", "recover", settings, tmp_path / "s")
    assert done("signal", "prepare", settings, tmp_path / "s").startswith("0 processes")


def test_program_receives_no_second_signal(tmp_path: Path) -> None:
    """A second signal would cut a shutdown short, as torchrun's does. Source: J-3."""
    argument = f"{tmp_path}.launcher"
    settings = {"argument": argument}
    with waiting(argument, "TERM", "stays") as process:
        for _ in range(2):
            result = do("signal", "prepare", settings, tmp_path / "s", seconds=3)
            assert (result.returncode, "have ended" in result.stderr) == (1, True)
        assert process.stdout is not None
        assert process.stdout.readline() == "again\n"
        assert process.poll() is None


def test_program_that_is_started_again_is_left_alone(tmp_path: Path) -> None:
    """The processes of the notice are chosen once; a process with a used pid is another."""
    argument = f"{tmp_path}.service"
    (tmp_path / "s").mkdir()
    with waiting(argument, "TERM") as process:
        notes = {"left": [], "signalled": [f"{process.pid}:1"]}
        (tmp_path / "s" / "notes.json").write_text(json.dumps(notes))
        said = done("signal", "prepare", {"argument": argument}, tmp_path / "s")
        assert (said, process.poll()) == ("1 processes have ended after SIGTERM", None)


@pytest.mark.slow
def test_signal_waits_for_its_time(tmp_path: Path) -> None:
    """`before_s` leaves a program the longest time for its work. Source: J-3."""
    argument = f"{tmp_path}.trainer"
    settings = {"argument": argument, "before_s": 24}
    with waiting(argument, "TERM") as process:
        begun_s = SystemClock().now_ms() // 1000
        result = do("signal", "prepare", settings, tmp_path / "s", seconds=30)
        assert (result.returncode, process.wait()) == (0, 7), result.stderr
        assert SystemClock().now_ms() / 1000 >= begun_s + 30 - SPARE_S - 24
