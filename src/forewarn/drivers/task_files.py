"""What a driver keeps of its tasks on disk, so that it finds them again after a crash.

One directory for each operation, one in it for each attempt. No program is run from here.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forewarn.drivers import Task

#: Operations that are kept after their end; the oldest go first.
KEPT_MAX = 1000
#: The name of a task, which becomes a path.
TASK_NAME = re.compile(r"op-[0-9]{1,18}/[0-9]{1,9}", re.ASCII)
GENERATION, ABORTED, DONE, LOCK = "generation", "aborted", "done", "lock"


class TaskSuperseded(PeerError):
    """A driver is called in the name of a writer that another one has taken the place of."""

    code = "driver-task-superseded"
    message = "{task} comes from writer generation {generation}, and {newest} was seen already."
    advice = "Another process is the writer now; nothing was done."


class TaskAborted(PeerError):
    """A driver is asked to begin an aborted task."""

    code = "driver-task-aborted"
    message = "{task} was aborted before it was to begin."
    advice = "Nothing was done; request the work again."


class TaskForgotten(PeerError):
    """A driver is asked after a task it knows nothing of."""

    code = "driver-task-forgotten"
    message = "Nothing is known of {task}."
    advice = "Look whether its state directory was lost; then retry, complete or fail it."


class TaskFiles:
    """The tasks of one driver, under one directory that it alone uses. Safe between threads."""

    def __init__(self, directory: Path) -> None:
        """Use a directory; it is made when the first task comes."""
        self._directory = directory

    def attempt(self, task: Task) -> Path:
        """Return where an attempt has its files."""
        return self._directory / task.operation.id / str(task.operation.attempt)

    def known(self, task: Task) -> Path:
        """Return where an attempt that was begun has its files.

        Raises:
            TaskForgotten: it was not begun here.
        """
        path = self.attempt(task)
        if not path.is_dir():
            raise TaskForgotten(task=task.id)
        return path

    def named(self, name: str) -> Path | None:
        """Return where the attempt `op-12/1` has its files, if it was begun and not aborted."""
        if not TASK_NAME.fullmatch(name):
            return None
        path = self._directory / name
        return path if path.is_dir() and not (path.parent / ABORTED).exists() else None

    def others(self, task: Task) -> list[Path]:
        """Return where the operation's other attempts have their files."""
        attempt = self.attempt(task)
        return [each for each in attempt.parent.glob("[0-9]*") if each != attempt]

    @contextmanager
    def changing(self, task: Task) -> Iterator[None]:
        """Hold the driver's tasks still, in the name of the task's writer.

        Raises:
            TaskSuperseded: a later writer was here.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._directory / LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self._directory / GENERATION
            newest = int(path.read_text()) if path.exists() else 0
            if task.generation < newest:
                facts = {"task": task.id, "generation": task.generation, "newest": newest}
                raise TaskSuperseded(**facts)
            if task.generation > newest:
                write_durably(path, str(task.generation).encode())
            yield

    def check_not_aborted(self, task: Task) -> None:
        """Refuse a task of an operation that was aborted.

        Raises:
            TaskAborted: it was.
        """
        if (self.attempt(task).parent / ABORTED).exists():
            raise TaskAborted(task=task.id)

    def mark_aborted(self, task: Task) -> None:
        """Note that nothing more of the operation may begin."""
        directory = self.attempt(task).parent
        directory.mkdir(mode=0o700, exist_ok=True)
        write_durably(directory / ABORTED, b"")
        self._tidy(directory)

    def mark_done(self, task: Task) -> None:
        """Note that an attempt is done: its files may go, once others have ended after it."""
        directory = self.attempt(task)
        if (directory / DONE).exists():
            return
        with suppress(TaskSuperseded), self.changing(task):  # the later writer notes it, too
            write_durably(directory / DONE, b"")
            self._tidy(directory.parent)

    def _tidy(self, but: Path) -> None:
        """Remove the oldest operations that have ended; costs a look at each that is kept."""
        kept = [each for each in self._directory.glob("op-*") if each != but and _is_over(each)]
        kept.sort(key=lambda each: int(each.name.removeprefix("op-")))
        for each in kept[: max(len(kept) - KEPT_MAX, 0)]:
            shutil.rmtree(each)


def _is_over(operation: Path) -> bool:
    """Whether an operation was aborted, or its last attempt is done, and no program runs on."""
    attempts = sorted(operation.glob("[0-9]*"), key=lambda each: int(each.name))
    over = (operation / ABORTED).exists() or (attempts and (attempts[-1] / DONE).exists())
    return bool(over) and not any(map(held, attempts))


def held(directory: Path) -> bool:
    """Whether a process holds an attempt's lock: it works on it."""
    try:
        with (directory / LOCK).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def write_durably(path: Path, body: bytes) -> None:
    """Write a file so that after a crash it is either whole or missing."""
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
