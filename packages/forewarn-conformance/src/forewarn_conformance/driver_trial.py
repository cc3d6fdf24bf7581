"""Calls of a driver under test, with time limits, restarts, and a count of real effects."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import field
from typing import TypeVar

from forewarn_base.clock import SystemClock
from forewarn_base.errors import TEXT_CHARACTERS_MAX
from forewarn_base.values import value
from forewarn_conformance.checks import ConformanceFault, NotApplicable
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.lifecycle import Execution, Operation, OperationState
from forewarn_drivers import Driver, Progress, Task

T = TypeVar("T")

#: Most tasks in one check.
TASKS_MAX = 10
#: Most restarts in one check.
RESTARTS_MAX = 10
#: Default interval of `progress` calls, in seconds.
LOOK_S = 0.05
DAY_MS = 24 * 3600 * 1000


@value
class Subject:
    """The driver to check, and the machine for its work."""

    #: Function that creates the driver, like a restart of the service.
    make: Callable[[], Driver]
    #: Host for the work of the checks, or host of the used VM.
    host: str
    vm: str = ""
    #: Function that returns the number of a task's effects by the task's id; None: unknown.
    effects: Callable[[str], int] | None = None
    #: Timeouts of a call and of a task, in seconds.
    call_s: float = 60.0
    task_s: float = 600.0
    #: First number of the checks' operations, above the numbers of real operations.
    first: int = field(default_factory=lambda: now_ms() // 1000 % 900_000 * 1000 + 1000)
    #: Generation of the writer in the first check. The generation grows by `RESTARTS_MAX` per
    #: check, and with the clock per run, because a driver may store the highest generation.
    generation: int = field(default_factory=lambda: now_ms() * 1000)


class Failure(ConformanceFault):
    """An exception of the driver in a call, with its text."""


class Trial:
    """Calls a driver in the same way as the control plane."""

    def __init__(self, subject: Subject, place: int) -> None:
        """Create the driver; `place` is the index of the check among all checks."""
        self.subject = subject
        self._number = subject.first + place * TASKS_MAX
        self._generation = subject.generation + place * RESTARTS_MAX
        self.driver = subject.make()

    def restart(self) -> None:
        """Create the driver again, for a newer writer."""
        self._generation += 1
        self.driver = self.subject.make()

    def task(self) -> Task:
        """Return a task of a new operation."""
        self._number += 1
        vm = self.subject.vm
        operation = Operation(
            number=self._number,
            request=self._number,
            cause=Cause.REBOOT if vm else Cause.HOST_REBOOT,
            impact=Impact.REBOOT,
            source=Source.PLATFORM,
            routine=not vm,
            host=self.subject.host,
            vms=(vm,) if vm else (),
            of_vm=bool(vm),
            description="conformance of a driver",
            duration_s=0,
            state=OperationState.RUNNING,
            execution=Execution(now_ms(), attempt=1),
        )
        return Task(operation, self._generation)

    def begin(self, task: Task) -> None:
        """Begin a task; an exception of the driver fails the check."""
        self._call("begin", task, lambda: self.driver.begin(task))

    def abort(self, task: Task) -> None:
        """Abort a task; an exception of the driver fails the check."""
        self._call("abort", task, lambda: self.driver.abort(task))

    def progress(self, task: Task) -> Progress:
        """Request the progress of a task, and check the format of the answer."""
        report = self._call("progress", task, lambda: self.driver.progress(task, now_ms()))
        _check_progress(report, task)
        return report

    def refused(self, act: Callable[[Task], object], task: Task) -> bool:
        """Return whether the driver refuses a call with an exception; a timeout is a fault."""
        try:
            act(task)
        except Failure:
            return True
        return False

    def ended(self, task: Task, within_s: float = 0) -> Progress:
        """Request progress until a task has ended, for up to `within_s` or the subject's timeout.

        Raises:
            NotApplicable: the driver waits for an operator.
            Failure: the task does not end in time.
        """
        within_s = within_s or self.subject.task_s
        until_ms = now_ms() + int(within_s * 1000)
        while True:
            report = self.progress(task)
            if report.done or report.failed:
                return report
            if not report.again_ms:
                raise NotApplicable(f"the driver waits for an operator: {report.waits}")
            left_s = (until_ms - now_ms()) / 1000
            if left_s <= 0:
                raise ConformanceFault(f"{task.id} has not ended within {within_s:g} s")
            wait_s = max((report.again_ms - now_ms()) / 1000, LOOK_S)
            threading.Event().wait(min(wait_s, left_s))

    def effects(self, task: Task) -> int:
        """Return the number of a task's effects.

        Raises:
            NotApplicable: no program counts the effects.
        """
        if self.subject.effects is None:
            raise NotApplicable("no program counts the effects; name a program with --effects")
        return self.subject.effects(task.id)

    def _call(self, verb: str, task: Task, act: Callable[[], T]) -> T:
        """Execute a call on a separate thread, like the control plane."""
        answers: list[T] = []
        errors: list[BaseException] = []

        def make() -> None:
            try:
                answers.append(act())
            except BaseException as error:  # noqa: BLE001 - whatever it raises is its answer
                errors.append(error)

        thread = threading.Thread(target=make, daemon=True)
        thread.start()
        thread.join(self.subject.call_s)
        if thread.is_alive():
            raise ConformanceFault(
                f"{verb} of {task.id} has not returned within {self.subject.call_s:g} s"
            )
        if errors:
            error = errors[0]
            if not isinstance(error, Exception):
                raise ConformanceFault(
                    f"{verb} of {task.id} raises {type(error).__name__}, which is not an Exception"
                )
            raise Failure(f"{verb} of {task.id} failed: {error}") from error
        return answers[0]


def now_ms() -> int:
    """Return the time, ms since the epoch UTC."""
    return SystemClock().now_ms()  # drivers use the real clock


def _check_progress(report: object, task: Task) -> None:
    """Reject an answer that the control plane would have to correct. Source: R-1."""
    if not isinstance(report, Progress):
        raise ConformanceFault(
            f"progress of {task.id} is a {type(report).__name__}, not a Progress"
        )
    if report.done is not True and report.done is not False:
        raise ConformanceFault(f"done is {report.done!r}, not a bool")
    if report.done and report.failed:
        raise ConformanceFault(f"{task.id} is done and has failed: {report.failed}")
    for name in ("failed", "waits", "text"):
        text = getattr(report, name)
        if not isinstance(text, str):
            raise ConformanceFault(f"{name} is a {type(text).__name__}, not a string")
        if len(text) > TEXT_CHARACTERS_MAX:
            raise ConformanceFault(f"{name} has {len(text)} characters; only 1000 are shown")
        if not all(one.isprintable() or one.isspace() for one in text):
            raise ConformanceFault(f"{name} has control characters: {text[:60]!r}")
    _check_numbers(report, task)


def _check_numbers(report: Progress, task: Task) -> None:
    share: object = report.share
    again_ms: object = report.again_ms
    if share is not None and not (isinstance(share, float | int) and 0 <= share <= 1):
        raise ConformanceFault(f"share is {share!r}, not between 0 and 1")
    if not isinstance(again_ms, int) or not 0 <= again_ms <= now_ms() + DAY_MS:
        raise ConformanceFault(f"again_ms is {report.again_ms!r}, not a time within a day")
    if not (report.done or report.failed or report.again_ms or report.waits):
        raise ConformanceFault(
            f"{task.id} is not done, but the driver gives neither `again_ms` nor `waits`"
        )
