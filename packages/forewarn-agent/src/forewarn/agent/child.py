"""Child: a running or ended hook process; checks its status, and stops it."""

from __future__ import annotations

import os
import signal

OUTPUT_BYTES_MAX = 256 * 1024  # limit of a hook's output; more is dropped
OUTPUT_SHOWN_BYTES = 2048  # length of the part of the output that is logged, its end


class Child:
    """The process of a running or ended hook."""

    def __init__(self, pid: int, mark: str, *, own: bool = True) -> None:
        """Watch a process; without `own`, the process belongs to an earlier agent."""
        self.pid = pid
        self.mark = mark
        self._own = own
        #: Descriptor that becomes readable when the process ends; -1 without support for pidfds.
        self.pidfd = -1
        if hasattr(os, "pidfd_open"):
            try:
                self.pidfd = os.pidfd_open(pid)
            except OSError:
                self.pidfd = -1

    def poll(self) -> int | None:
        """Return the exit status (negative: the signal), or None while the process runs."""
        if self._own:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return os.waitstatus_to_exitcode(status) if pid else None
        if is_running(self.pid, self.mark):
            return None
        _reap(self.pid)
        ended = read_status_file(f"{self.mark}.ended")
        return int(ended) if ended.isdigit() else -signal.SIGKILL

    def terminate(self) -> None:
        """Send SIGTERM to the hook and all its child processes."""
        self._signal(signal.SIGTERM)

    def escalate(self) -> None:
        """Kill the hook and all its child processes."""
        self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))

    def close(self) -> None:
        """Close the files of the process."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def output(self) -> str:
        """Return the end of the hook's output."""
        try:
            with open(f"{self.mark}.out", "rb") as file:  # noqa: PTH123  `pathlib` is too heavy
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - OUTPUT_SHOWN_BYTES))
                return file.read(OUTPUT_SHOWN_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def trim(self) -> bool:
        """Truncate an output that is too long; return whether the output was too long."""
        try:
            if os.stat(f"{self.mark}.out").st_size <= OUTPUT_BYTES_MAX:  # noqa: PTH116  the same
                return False
            os.truncate(f"{self.mark}.out", 0)
        except OSError:
            return False
        return True

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except OSError:
            return


def read_status_file(path: str) -> str:
    """Return the line of a status file; empty if the file is missing or incomplete."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  the same
            line = file.read(64).decode("ascii", "replace")
    except OSError:
        return ""
    return line[:-1] if line.endswith("\n") else ""


def write_status_file(path: str, number: int) -> None:
    """Write a status file without synchronising the disk."""
    with open(path, "wb") as file:  # noqa: PTH123  the same
        file.write(b"%d\n" % number)


def is_running(pid: int, mark: str) -> bool:
    """Return whether a process id still belongs to the hook of a mark file."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123  the same
            return mark.encode() in file.read(65536).split(b"\0")
    except OSError:
        return False


def _reap(pid: int) -> None:
    """Reap a child that this process started before re-executing itself; ignore other processes."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except OSError:
        return
