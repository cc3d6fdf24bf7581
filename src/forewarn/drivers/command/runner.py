"""Runs one task's program apart from the service, which may end and start again meanwhile.

`python -m forewarn.drivers.command.runner DIRECTORY` returns once the program may run, and goes
on in the background. What it finds out stands in files; it decides nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.drivers.task_files import LOCK, write_durably
from forewarn.programs import (
    ANSWER_BEGINS,
    ProgramFailed,
    ProgramLimits,
    Watch,
    run_program,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What is to be run; the task on its standard input; that it was begun; what it said last; how it
#: ended; whose process it is.
RUN, TASK, STARTED, ANSWER, END, PID = "run", "task", "started", "answer", "end", "pid"
RUNNER, PROGRAM = "runner", "program"
STOPPED: list[int] = []


def start(
    directory: Path, words: Sequence[str], message: bytes, *, timeout_s: float, start_s: float
) -> None:
    """Start a task's program in the background; return once it may run.

    Args:
        directory: of the attempt; it is made where there is none.
        words: the program and its arguments.
        message: what it reads on its standard input.
        timeout_s: how long it may take.
        start_s: how long it may take until it runs.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(directory / TASK, message)
    run = {"words": list(words), "timeout_s": timeout_s}
    write_durably(directory / RUN, json.dumps(run).encode())
    subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", "forewarn.drivers.command.runner", str(directory)],
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=start_s,
    )


def main(directory: Path) -> int:
    """Run a task's program, unless that was done before."""
    lock = (directory / LOCK).open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # From here on it has been begun, whatever happens: nothing begins it twice.
        os.close(os.open(directory / STARTED, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        write_durably(directory / RUNNER, b"")  # makes the directory durable, too
    except (BlockingIOError, FileExistsError):
        return 0
    signal.signal(signal.SIGTERM, lambda number, _: STOPPED.append(number))
    if os.fork():
        os._exit(0)  # the lock stays with the child
    os.setsid()
    write_durably(directory / PID, str(os.getpid()).encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    _run(directory)
    os._exit(0)


def _run(directory: Path) -> None:
    run = json.loads((directory / RUN).read_bytes())
    failed = ""

    def keep(line: bytes) -> None:
        if not line.startswith(ANSWER_BEGINS):
            return  # output for people
        part = directory / f"{ANSWER}.part"
        part.write_bytes(line)
        part.replace(directory / ANSWER)

    def begun(pid: int) -> None:
        write_durably(directory / PROGRAM, f"{pid} {_born(pid)}".encode())

    try:
        with (directory / TASK).open("rb") as stdin:
            watch = Watch(keep, begun, lambda: bool(STOPPED))
            run_program(run["words"], stdin, ProgramLimits(run["timeout_s"]), watch=watch)
    except ProgramFailed as error:
        failed = str(error)
    except Exception as error:  # noqa: BLE001 - nobody else hears of it
        failed = f"{type(error).__name__}: {error}"
    write_durably(directory / END, failed.encode("utf-8", "backslashreplace"))


def stop(directory: Path) -> None:
    """Stop a task's program, if it runs."""
    with suppress(FileNotFoundError, ValueError, ProcessLookupError):
        pid = os.pidfd_open(int((directory / PID).read_text()))
        try:
            with (directory / LOCK).open("r") as lock, suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return  # it has ended, and its number may be another process's
            signal.pidfd_send_signal(pid, signal.SIGTERM)
        finally:
            os.close(pid)


def end_orphan(directory: Path) -> None:
    """End a program whose runner was killed: it would go on beside a retry."""
    with suppress(FileNotFoundError, ProcessLookupError):
        pid, born = (directory / PROGRAM).read_text().split()
        if not (directory / END).exists() and _born(int(pid)) == born:
            os.killpg(int(pid), signal.SIGKILL)


def _born(pid: int) -> str:
    """Return when a process began, in ticks since boot: its number may be given away again."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
