"""Runs a task's program in a separate process, which survives a restart of the service.

`python -m forewarn_drivers.command.runner` reads its order from standard input, returns once the
program may run, and continues in the background. The runner writes results to the store, which
services on all machines can read.

The runner writes a heartbeat every few seconds. Processes on other machines treat the runner as
lost if the heartbeat stays unchanged for `LOST_S`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from forewarn_base.clock import SystemClock
from forewarn_base.errors import ForewarnError
from forewarn_base.programs import (
    ANSWER_BEGINS,
    ProgramFailed,
    ProgramLimits,
    Watch,
    run_program,
)
from forewarn_base.values import value
from forewarn_drivers import TaskKey
from forewarn_drivers.task_records import BEGUN, TaskRecords
from forewarn_store.errors import (
    StoreFull,
    StoreMissing,
    StoreUnavailable,
    StoreUncertain,
    redacted,
)

#: Names of records: stop request, last answer, result, heartbeat of the runner, and process ids of
#: the runner and the program.
STOP, ANSWER, END, BEAT, RUNNER, PROGRAM = "stop", "answer", "end", "beat", "runner", "program"
#: Interval of heartbeats and checks for stop requests, and interval of writing answers, in seconds.
BEAT_S, ANSWER_S = 3.0, 0.2
#: Time without a new heartbeat after which a runner counts as lost, in seconds.
LOST_S = 15.0
#: Time limit for the end of a stopped program, in seconds. It is longer than `BEAT_S` plus the
#: grace period, and longer than `LOST_S`.
STOP_S = 20.0


@value
class ProgramRun:
    """The records of a task's program."""

    begun: bool = False
    running: bool = False
    #: The last answer of the program, one line.
    answer: str = ""
    #: Reason why the program failed; empty after success; None: still running, or unknown result.
    end: str | None = None


class ProgramRuns:
    """The programs of one driver's tasks; a task may have several, as named parts."""

    def __init__(self, records: TaskRecords) -> None:
        self._records = records
        self._clock = SystemClock()
        #: Operation, attempt and part -> the last heartbeat of a remote runner, and the time of its
        #: first read.
        self._beats: dict[tuple[int, int, str], tuple[str, int]] = {}

    def look(self, operation: int, attempt: int, part: str = "") -> ProgramRun:
        """Return the known facts about a program."""
        run = self._look(operation, attempt, part)
        # A runner writes the result of its program before exiting.
        ended = run.begun and not run.running and run.end is None
        return self._look(operation, attempt, part) if ended else run

    def start(
        self,
        task: TaskKey,
        words: Sequence[str],
        message: bytes,
        *,
        limits_s: tuple[float, float],
        part: str = "",
    ) -> None:
        """Start a program in the background, once per part of a task; return once it may run.

        `limits_s` are the limits of the run and of the start, in seconds.

        Raises:
            StoreUnavailable: the runner cannot reach the store, and has not begun.
        """
        run = {
            "store": self._records.store,
            "driver": self._records.driver,
            "task": [task.operation, task.attempt, task.generation],
            "part": part,
            "words": list(words),
            "message": message.decode(),
            "timeout_s": limits_s[0],
        }
        runner = subprocess.run(
            [sys.executable, "-m", "forewarn_drivers.command.runner"],
            input=json.dumps(run).encode(),
            stdout=subprocess.DEVNULL,
            check=False,
            timeout=limits_s[1],
        )
        if runner.returncode == os.EX_TEMPFAIL:
            place = redacted(self._records.store)
            raise StoreUnavailable(place=place, reason="a task's runner cannot use it")
        runner.check_returncode()

    def stop(self, operation: int, attempt: int, part: str = "") -> None:
        """Stop a program, and wait until the program has ended.

        Raises:
            ProgramFailed: the program continues to run.
        """
        until_ms = self._clock.elapsed_ms() + int(STOP_S * 1000)
        signalled = False
        while (run := self.look(operation, attempt, part)).running:
            if not signalled:
                self.signal(operation, attempt, part)
                signalled = True
            if self._clock.elapsed_ms() >= until_ms:
                raise ProgramFailed(
                    program=f"op-{operation}", problem=f"still runs after {STOP_S:g} s"
                )
            threading.Event().wait(0.02)
        if (
            run.begun and run.end is None
        ):  # the runner was killed; stop the program, which would run in parallel with a retry
            program = self._records.note(operation, attempt, part + PROGRAM)
            with suppress(ProcessLookupError):
                if (pid := _living(program or "")) is not None:
                    os.killpg(pid, signal.SIGKILL)

    def signal(self, operation: int, attempt: int, part: str = "") -> None:
        """Ask the runner to end its running program."""
        notes = self._records.notes(operation).get(attempt, {})
        if part + BEGUN not in notes or part + END in notes:
            return
        self._records.put(operation, attempt, {part + STOP: ""})
        pid = _living(notes.get(part + RUNNER, ""))
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _look(self, operation: int, attempt: int, part: str) -> ProgramRun:
        notes = self._records.notes(operation).get(attempt, {})
        begun, end = part + BEGUN in notes, notes.get(part + END)
        key = operation, attempt, part
        running = begun and end is None and self._lives(key, notes)
        if end is not None:
            self._beats.pop(key, None)
        return ProgramRun(begun, running, notes.get(part + ANSWER, ""), end)

    def _lives(self, key: tuple[int, int, str], notes: dict[str, str]) -> bool:
        """Return whether a program is running under a live runner."""
        runner, beat = notes.get(key[2] + RUNNER, ""), notes.get(key[2] + BEAT, "")
        if runner.partition(" ")[0] == _machine():
            return _living(runner) is not None
        now_ms = self._clock.elapsed_ms()
        known, since_ms = self._beats.get(key, ("", now_ms))
        if known != beat:
            since_ms = now_ms
        self._beats[key] = beat, since_ms
        return now_ms - since_ms < LOST_S * 1000


class _Reporter:
    """Writes a runner's results on a separate thread, because the store may be unavailable."""

    def __init__(self, records: TaskRecords, task: TaskKey, part: str) -> None:
        self._records = records
        self._key = task.operation, task.attempt
        self._part = part
        self._news: dict[str, str] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: Set when the program must end.
        self.stopped = threading.Event()

    def start(self) -> None:
        """Start the writing thread."""
        self._thread.start()

    def write(self, name: str, text: str) -> None:
        """Schedule a record for writing."""
        self._news[self._part + name] = text

    def end(self, failed: str) -> None:
        """Write the result of the program; return once the result is durable."""
        self.write(END, failed)
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        clock, beaten_ms = SystemClock(), -1
        while True:
            ended = self._ended.is_set()
            beat = beaten_ms < 0 or clock.elapsed_ms() - beaten_ms >= BEAT_S * 1000
            if beat:
                beaten_ms = clock.elapsed_ms()
                self.write(BEAT, str(beaten_ms))
            if beat or self._news:
                written = self._try_to_write(look=beat)
                if ended and written:
                    return
            threading.Event().wait(1) if ended else self._ended.wait(ANSWER_S)

    def _try_to_write(self, *, look: bool) -> bool:
        """Write pending records and check for a stop request; return whether the store answered."""
        news = dict(self._news)
        try:
            self._records.put(*self._key, news)
            if look and self._records.note(*self._key, self._part + STOP) is not None:
                self.stopped.set()
        except StoreMissing:
            return True  # the records of the task were deleted
        except ForewarnError:
            return False  # retry, because the store is unavailable
        finally:
            self._records.close()
        for name, text in news.items():
            if self._news[name] == text:
                del self._news[name]
        return True


def main() -> int:
    """Run a task's program, once per task."""
    run = json.load(sys.stdin.buffer)
    records = TaskRecords(run["store"], run["driver"])
    # From now on, the program counts as begun, so that no other runner starts the program.
    task = TaskKey(*run["task"])
    try:
        if not records.begin(task, run["part"] + BEGUN):
            return 0
    except (StoreFull, StoreUncertain, StoreUnavailable):
        return os.EX_TEMPFAIL
    except ForewarnError as error:  # another process is the writer, or the operation was aborted
        sys.stderr.write(f"forewarn: {error}\n")
        return 1
    records.close()
    reporter = _Reporter(records, task, run["part"])
    signal.signal(signal.SIGTERM, lambda *_: reporter.stopped.set())
    if os.fork():
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    reporter.write(RUNNER, _process_identity(os.getpid()))
    reporter.start()
    reporter.end(_run(run, reporter))
    os._exit(0)


def _run(run: dict[str, str], reporter: _Reporter) -> str:
    """Run a program to its end; return the reason of a failure, or an empty text."""

    def keep(line: bytes) -> None:
        if line.startswith(ANSWER_BEGINS):  # ignore other lines, which are for people
            reporter.write(ANSWER, line.decode("utf-8", "backslashreplace"))

    try:
        with tempfile.TemporaryFile() as stdin:
            stdin.write(run["message"].encode())
            stdin.seek(0)
            begun = lambda pid: reporter.write(PROGRAM, _process_identity(pid))  # noqa: E731 - one line
            watch = Watch(keep, begun, reporter.stopped.is_set)
            run_program(run["words"], stdin, ProgramLimits(float(run["timeout_s"])), watch=watch)
    except ProgramFailed as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - nobody else hears of it
        return f"{type(error).__name__}: {error}"
    return ""


def _process_identity(pid: int) -> str:
    """Return the identity of a process as text: machine, process id and start time."""
    return f"{_machine()} {pid} {_born(pid)}"


def _living(name: str) -> int | None:
    """Return the id of a process on this machine; None if the process ended or runs elsewhere."""
    machine, _, process = name.partition(" ")
    pid, _, born = process.partition(" ")
    with suppress(FileNotFoundError, ProcessLookupError):
        if machine == _machine() and _born(int(pid)) == born:
            return int(pid)
    return None


def _machine() -> str:
    """Return an id of this machine's current boot and process namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"


def _born(pid: int) -> str:
    """Return a process's start time, in ticks since boot, because process ids are reused."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


if __name__ == "__main__":
    sys.exit(main())
