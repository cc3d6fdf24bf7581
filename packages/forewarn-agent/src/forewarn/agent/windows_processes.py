"""Hooks on Windows, which lacks /bin/sh, process groups and pidfds.

The agent writes the mark file at a hook's start, and detects the end only while running.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.agent.child import Child

if TYPE_CHECKING:
    from collections.abc import Mapping


class WindowsChild(Child):
    """A hook on Windows."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        super().__init__(process.pid, mark)
        self._process = process

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        status = self._process.poll()
        if status is not None:
            Path(f"{self.mark}.ended").write_bytes(b"%d\n" % status)
        return status

    def terminate(self) -> None:
        """Send Ctrl-Break to the hook; this fails in services, which have no console."""
        with contextlib.suppress(OSError):
            self._process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))

    def escalate(self) -> None:
        """Kill the hook and all its child processes."""
        command = ["taskkill", "/F", "/T", "/PID", str(self.pid)]
        subprocess.run(command, check=False, capture_output=True)


def start(command: tuple[str, ...], mark: str, *, env: Mapping[str, str]) -> Child:
    """Start a hook with files as its input and output.

    Raises:
        OSError: the hook cannot be started.
    """
    flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
    with Path(f"{mark}.json").open("rb") as source, Path(f"{mark}.out").open("ab") as output:
        process = subprocess.Popen(
            command, stdin=source, stdout=output, stderr=output, env=env, creationflags=flags
        )
    Path(f"{mark}.begun").write_bytes(b"%d\n" % process.pid)
    return WindowsChild(process, mark)
