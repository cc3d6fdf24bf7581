"""Hooks as Windows runs them: the parts that any system can show."""

import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.agent.hooks import HookRoom
from forewarn.agent.windows_processes import WindowsChild, start
from tests.waiting import wait_until

PRINTS = "import sys; print(sys.stdin.read()); sys.exit(3)"
WAITS = "import threading; threading.Event().wait(60)"


def begun(directory: Path, program: str) -> WindowsChild:
    """Start a hook as run 7, with a word on its input."""
    (directory / "7.json").write_bytes(b"word")
    child = start((sys.executable, "-c", program), str(directory / "7"), env={})
    assert isinstance(child, WindowsChild)
    return child


def test_end_is_written_down(tmp_path: Path) -> None:
    """A restarted agent believes the marks, as it does elsewhere. Source: C-9."""
    child = begun(tmp_path, PRINTS)
    wait_until(lambda: child.poll() is not None, what="the hook's end")
    assert (child.poll(), child.output()) == (3, "word")
    assert HookRoom(str(tmp_path)).fate("7") == ("3", None)
    assert (tmp_path / "7.begun").read_bytes() == b"%d\n" % child.pid


def test_hook_that_cannot_be_asked_is_left_to_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service has no console, so Windows refuses Ctrl-Break; the agent goes on."""

    def refuse(*_: object) -> None:
        raise OSError(6, "The handle is invalid")

    child = begun(tmp_path, WAITS)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "send_signal", refuse)
        child.terminate()
    assert child.poll() is None
    child._process.kill()
    wait_until(lambda: child.poll() is not None, what="the hook's end")
