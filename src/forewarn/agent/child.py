"""Child: one hook that runs, or ran: whether it ended and how, and how it is ended."""

from __future__ import annotations

import os
import signal

OUTPUT_BYTES_MAX = 256 * 1024  # more than anyone reads; beyond it a hook's output is dropped
OUTPUT_SHOWN_BYTES = 2048  # the end of it goes into the log


class Child:
    """A hook that runs, or ran."""

    def __init__(self, pid: int, mark: str, *, own: bool = True) -> None:
        """Follow a process; one of an earlier agent (not `own`) can only be watched."""
        self.pid = pid
        self.mark = mark
        self._own = own
        self.pidfd = -1
        """Becomes readable when the process ends; -1 where the system has no such thing."""
        if hasattr(os, "pidfd_open"):
            try:
                self.pidfd = os.pidfd_open(pid)
            except OSError:
                self.pidfd = -1

    def poll(self) -> int | None:
        """Return the exit status (negative: the signal), or None while it runs."""
        if self._own:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return os.waitstatus_to_exitcode(status) if pid else None
        if is_running(self.pid, self.mark):
            return None
        _reap(self.pid)
        ended = read_mark(f"{self.mark}.ended")
        return int(ended) if ended.isdigit() else -signal.SIGKILL

    def terminate(self) -> None:
        """Ask the hook and all it started to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the hook and all it started."""
        self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))

    def close(self) -> None:
        """Stop watching."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def output(self) -> str:
        """Return the end of what the hook has printed."""
        try:
            with open(f"{self.mark}.out", "rb") as file:  # noqa: PTH123  `pathlib` is too heavy
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - OUTPUT_SHOWN_BYTES))
                return file.read(OUTPUT_SHOWN_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def trim(self) -> bool:
        """Drop what was printed if it is too much; return whether it was. The hook may append."""
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


def read_mark(path: str) -> str:
    """Return the line a mark holds; nothing where it is missing or was cut short."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  the same
            line = file.read(64).decode("ascii", "replace")
    except OSError:
        return ""
    return line[:-1] if line.endswith("\n") else ""


def write_mark(path: str, number: int) -> None:
    """Write a mark, which outlives this process but not a power cut."""
    with open(path, "wb") as file:  # noqa: PTH123  the same
        file.write(b"%d\n" % number)


def is_running(pid: int, mark: str) -> bool:
    """Return whether a process is the hook of that mark, and not a later one of the same number."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123  the same
            return mark.encode() in file.read(65536).split(b"\0")
    except OSError:
        return False


def _reap(pid: int) -> None:
    """Reap a process if it is a child that this process started before it re-executed itself."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except OSError:
        return
