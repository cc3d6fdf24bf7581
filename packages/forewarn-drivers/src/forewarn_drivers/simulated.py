"""The simulated driver, in which work takes its announced time or longer, and changes no machine.

The service chooses the destinations of VMs that leave their host. An event is Started for as long
as the work takes, which usually is longer than the interruption of its VMs: in the public cloud a
Started of ten minutes is typical for an interruption of seven seconds, and shorter interruptions
may follow. See D-9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from forewarn_base.validation.fields import Integer
from forewarn_base.validation.forms import read_table
from forewarn_base.values import value
from forewarn_core.fleet.impact import DURATION_S_MAX, SECOND_MS, TRAITS, Impact
from forewarn_core.fleet.lifecycle import Operation, with_execution
from forewarn_drivers import Progress, Task
from forewarn_drivers.task_records import TaskRecords

#: Interruptions of impacts without an announced duration, in seconds, as in published examples:
#: freezes of 5 to 9 s and reboots of less than a minute.
USUAL_S: dict[Impact, int] = {
    Impact.FREEZE: 9,
    Impact.REBOOT: 60,
    Impact.REDEPLOY: 180,
    Impact.PREEMPT: 10,
    Impact.TERMINATE: 10,
}

#: Duration of a failed host's return, in seconds.
FAILURE_S = 300


@value
class SimulatedOptions:
    """Options of the simulated driver."""

    started_for_s: Annotated[
        int, Integer(0, DURATION_S_MAX), "Least time in seconds for which events are Started."
    ] = 0


@value
class WorkCourse:
    """The course of one operation's work."""

    #: Least time for which its events are Started, in seconds.
    started_for_s: int = 0
    #: Further interruptions, as seconds after the start and length in seconds.
    further: tuple[tuple[int, int], ...] = ()


def create(
    name: str, options: Mapping[str, object], _: TaskRecords | None = None
) -> SimulatedDriver:
    """Create a driver.

    Raises:
        ValidationFailed: an option is unknown or invalid.
    """
    given = read_table(SimulatedOptions, options, f"[drivers.{name}]")
    return SimulatedDriver(name, given)


class SimulatedDriver:
    """Reports the end of each operation after its announced duration, or later."""

    name = "simulated"
    #: See `registry.unscheduled`.
    unscheduled = True

    def __init__(self, name: str = "", options: SimulatedOptions | None = None) -> None:
        self.name = name or self.name
        self._usual = WorkCourse((options or SimulatedOptions()).started_for_s)
        #: Operation -> a course of its own; the emulator sets it for a scenario's work.
        self.courses: dict[int, WorkCourse] = {}
        #: Operation and attempt -> when its progress was first asked for, ms since the epoch UTC,
        #: for retries.
        self._asked_ms: dict[tuple[int, int], int] = {}

    def begin(self, task: Task) -> None:
        """Do nothing, because `progress` counts from the operation's start."""

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Report each interruption, and the end once the time is over."""
        operation = task.operation
        if operation.execution.attempt > 1 and operation.execution.begun_ms is None:
            # The begin is not recorded yet: the work counts from the first question.
            begun_ms = self._asked_ms.setdefault(
                (operation.number, operation.execution.attempt), now_ms
            )
            operation = with_execution(operation, begun_ms=begun_ms)
        measured_ms = max(lasts_s for _, lasts_s in self._interruptions(operation)) * SECOND_MS
        if now_ms >= self.end_ms(operation):
            self._asked_ms.pop((operation.number, operation.execution.attempt), None)
            return Progress(done=True, interruption_ms=measured_ms)
        return Progress(
            again_ms=self.next_ms(operation, now_ms), text=self._text(operation, now_ms)
        )

    def abort(self, task: Task) -> None:
        """Do nothing, because the driver has begun no work."""

    def end_ms(self, operation: Operation) -> int:
        """Return the end of running work, ms since the epoch UTC."""
        course = self.courses.get(operation.number, self._usual)
        ends_s = [after_s + lasts_s for after_s, lasts_s in self._interruptions(operation)]
        return _started_ms(operation) + max(course.started_for_s, *ends_s) * SECOND_MS

    def next_ms(self, operation: Operation, now_ms: int) -> int:
        """Return the next interruption or the end of running work, ms since the epoch UTC."""
        since_ms = _started_ms(operation)
        times_ms = [since_ms + after_s * SECOND_MS for after_s, _ in self._interruptions(operation)]
        times_ms.append(self.end_ms(operation))
        return min((each for each in times_ms if each > now_ms), default=times_ms[-1])

    def _text(self, operation: Operation, now_ms: int) -> str:
        """Return a clause about the last interruption; empty if the work has only one."""
        interruptions = self._interruptions(operation)
        passed_s = (now_ms - _started_ms(operation)) / SECOND_MS
        begun = [lasts_s for after_s, lasts_s in interruptions if after_s <= passed_s]
        if len(interruptions) == 1 or not begun:
            return ""
        again = " once more" if len(begun) > 1 else ""
        return f"its VMs are interrupted{again}, for {begun[-1]} s"

    def _interruptions(self, operation: Operation) -> list[tuple[int, int]]:
        course = self.courses.get(operation.number, self._usual)
        return [(0, duration_s(operation)), *course.further]


def _started_ms(operation: Operation) -> int:
    """Return the start of the work, or of its present attempt, ms since the epoch UTC."""
    execution = operation.execution
    assert execution.started_ms is not None, operation
    return execution.started_ms if execution.attempt <= 1 else execution.since_ms


def duration_s(operation: Operation) -> int:
    """Return the announced or else usual interruption of an operation, in seconds."""
    if operation.duration_s >= 0:
        return operation.duration_s
    return FAILURE_S if TRAITS[operation.cause].fault else USUAL_S[operation.impact]
