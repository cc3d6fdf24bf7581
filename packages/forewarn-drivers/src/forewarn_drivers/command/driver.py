"""The driver that runs an operator's program for each call. Source: R-4.

Without a `progress` program, `begin` does all the work and prints its progress. Otherwise, `begin`
starts the work, and `progress` reports on the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from forewarn_base.programs import (
    ANSWER_BEGINS,
    ProgramFailed,
    ProgramLimits,
    ProgramUndecided,
    program_output,
)
from forewarn_base.validation.fields import Number
from forewarn_base.validation.forms import read_table
from forewarn_base.validation.json_reader import read_json
from forewarn_base.values import replace, value
from forewarn_drivers import PlatformUnanswered, Progress, Task
from forewarn_drivers.command.runner import ProgramRuns
from forewarn_drivers.host_command import COMMAND_TYPE
from forewarn_drivers.messages import encoded, read_answer, task_message
from forewarn_drivers.task_records import TaskForgotten, TaskRecords


@value
class Programs:
    """The settings of one driver."""

    #: Program that starts a task's work, or does all the work.
    begin: Annotated[tuple[str, ...], COMMAND_TYPE]
    #: Program that reports a task's progress; by default, `begin` does all the work.
    progress: Annotated[tuple[str, ...], COMMAND_TYPE] = ()
    #: Program that cleans up after an aborted task, once `begin` has been stopped.
    abort: Annotated[tuple[str, ...], COMMAND_TYPE] = ()
    #: Program that lists the machines.
    discover: Annotated[tuple[str, ...], COMMAND_TYPE] = ()
    #: Time limit of `begin`, which may do the work, in seconds.
    timeout_s: Annotated[float, Number(1, 7 * 86_400)] = 3600.0
    #: Time limit of each program except `begin`, in seconds.
    call_timeout_s: Annotated[float, Number(0.1, 3600)] = 30.0
    #: Interval between checks of a task, in seconds.
    poll_s: Annotated[float, Number(0.1, 86_400)] = 2.0


class ProgressUnanswered(PlatformUnanswered):
    """A driver's program for progress took too long, or cannot answer now."""

    code = "driver-progress-unanswered"
    message = "{reason}"
    advice = "Check the program {program}; Forewarn asks again."


def create(name: str, options: Mapping[str, object], records: TaskRecords) -> CommandDriver:
    """Create a driver from its options, with task records in the store.

    Raises:
        ValidationFailed: an option is unknown, missing or invalid.
    """
    programs = read_table(Programs, options, f"[drivers.{name}]")
    return CommandDriver(name, programs, records)


class CommandDriver:
    """Runs programs, and stores the records of its tasks in the store."""

    def __init__(self, name: str, programs: Programs, records: TaskRecords) -> None:
        self.name = name
        self._programs = programs
        self._records = records
        self._runs = ProgramRuns(records)

    def begin(self, task: Task) -> None:
        """Start the program `begin` in the background, once per attempt.

        The call first ends a previous attempt.
        """
        self._records.check(task.key)
        operation = task.operation
        if self._runs.look(operation.number, operation.execution.attempt).begun:
            return
        self._stop_all(task)
        self._runs.start(
            task.key,
            self._programs.begin,
            encoded(task_message("begin", task)),
            limits_s=(self._programs.timeout_s, self._programs.call_timeout_s),
        )

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Return the last output of `begin`, its result, or the output of `progress`."""
        run = self._runs.look(task.operation.number, task.attempt)
        if not run.begun:
            raise TaskForgotten(task=task.id)
        again_ms = now_ms + int(self._programs.poll_s * 1000)
        progress = Progress()
        if run.answer:  # malformed output fails the attempt: R-1
            progress = read_answer(run.answer.encode(), "begin", task.id, now_ms=now_ms)
        if run.running:
            return replace(progress, done=False, failed="", again_ms=again_ms)
        if run.end is None:
            return Progress(
                failed=("the program was killed or never ran, so the progress is unknown")
            )
        if progress.failed or run.end:
            return Progress(failed=progress.failed or run.end.removesuffix("."))
        if progress.done or not self._programs.progress:
            return replace(progress, done=True, again_ms=0)
        try:
            lines = self._call(self._programs.progress, "progress", task)
        except ProgramUndecided as error:
            raise ProgressUnanswered(program=self._programs.progress[0], reason=error) from error
        if not lines:
            raise ProgramFailed(program=self._programs.progress[0], problem="said nothing")
        answer = read_answer(lines[-1], "progress", task.id, now_ms=now_ms)
        if answer.done or answer.failed or answer.again_ms:
            return answer
        return replace(answer, again_ms=again_ms)

    def abort(self, task: Task) -> None:
        """Stop a running `begin`, prevent a new start, and run `abort`."""
        self._records.abort(task.key)
        self._stop_all(task)
        if self._programs.abort:
            self._call(self._programs.abort, "abort", task)

    def discover(self) -> dict[str, object]:
        """Return the output of `discover`: all lines together, as one topology."""
        topology: dict[str, dict[str, object]] = {}
        if not self._programs.discover:
            return {}
        for line in self._run(self._programs.discover, encoded({"verb": "discover"})):
            part = read_json(line)
            if not isinstance(part, dict) or not all(isinstance(v, dict) for v in part.values()):
                raise ProgramFailed(
                    program=self._programs.discover[0],
                    problem="printed a line that is not part of a topology",
                )
            for kind, records in part.items():
                topology.setdefault(kind, {}).update(records)
        return dict(topology)

    def _stop_all(self, task: Task) -> None:
        """Stop the programs of all attempts at an operation."""
        for attempt in self._records.notes(task.operation.number):
            self._runs.stop(task.operation.number, attempt)

    def _call(self, words: tuple[str, ...], verb: str, task: Task) -> list[bytes]:
        return self._run(words, encoded(task_message(verb, task)))

    def _run(self, words: tuple[str, ...], message: bytes) -> list[bytes]:
        output = program_output(words, message, ProgramLimits(self._programs.call_timeout_s))
        return [each for each in output.split(b"\n") if each.startswith(ANSWER_BEGINS)]
