"""The checks of a driver, each for a statement of the contract. Source: R-6.

Each check uses separate operations, and ends or aborts all its tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from forewarn_base.values import replace
from forewarn_conformance.checks import CheckList, ConformanceFault, NotApplicable
from forewarn_conformance.driver_trial import Failure, Subject, Trial
from forewarn_conformance.run import Result, judged
from forewarn_core.fleet.lifecycle import Operation, with_execution
from forewarn_drivers import Discovering, Task

#: Kinds of records that discovery may report.
KINDS = {"hosts", "groups", "vms"}
#: Shortest duration of a task, in seconds, for the check of `abort`.
SOON_S = 2.0

DRIVER_CHECKS: CheckList[Trial] = CheckList()
_check = DRIVER_CHECKS.add


def run_driver_checks(subject: Subject) -> Iterator[Result]:
    """Run the checks one after another, each with a new instance of the driver."""
    for place, check in enumerate(DRIVER_CHECKS):
        yield judged(check, partial(check.run, Trial(subject, place)))


def _once(trial: Trial, task: Task, after: str) -> None:
    count = trial.effects(task)
    if count != 1:
        raise ConformanceFault(f"{task.id} took effect {count} times after {after}")


def _attempt(task: Task, attempt: int) -> Task:
    operation: Operation = with_execution(task.operation, attempt=attempt)
    return Task(operation, task.generation)


@_check("R-4", "a task succeeds, and the driver reports the success")
def _ends(trial: Trial) -> None:
    task = trial.task()
    trial.begin(task)
    progress = trial.ended(task)
    if progress.failed:
        raise ConformanceFault(f"{task.id} failed: {progress.failed}")


@_check("R-2", "a task takes effect once after two begins")
def _begins_once(trial: Trial) -> None:
    task = trial.task()
    trial.begin(task)
    trial.begin(task)
    _wait_end(trial, task)
    _once(trial, task, "two begins")


@_check("R-2", "a task takes effect once after a second begin after a restart")
def _begins_once_after_restart(trial: Trial) -> None:
    task = trial.task()
    trial.begin(task)
    trial.restart()
    later = Task(task.operation, task.generation + 1)
    trial.begin(later)
    _wait_end(trial, later)
    _once(trial, task, "a restart")


@_check("R-2", "the driver reports on a task after a restart")
def _remembers(trial: Trial) -> None:
    task = trial.task()
    trial.begin(task)
    trial.restart()
    _wait_end(trial, Task(task.operation, task.generation + 1))


@_check("R-2", "an ended task has the same result, and no further effect, after a restart")
def _stays_ended(trial: Trial) -> None:
    task = trial.task()
    trial.begin(task)
    first = trial.ended(task)
    trial.begin(task)
    again = trial.progress(task)
    if (first.done, bool(first.failed)) != (again.done, bool(again.failed)):
        raise ConformanceFault(
            f"{task.id} had ended, but is reported as running or with another result"
        )
    _once(trial, task, "its end")


@_check("R-2", "a task that never began is not reported as done")
def _does_not_lie(trial: Trial) -> None:
    task = replace_duration(trial.task())
    try:
        progress = trial.progress(task)
    except Failure:
        return
    if progress.done:
        raise ConformanceFault(f"{task.id} never began, but is reported as done")


def replace_duration(task: Task) -> Task:
    """Return a task with an announced duration of an hour, too long for an early end."""
    return Task(replace(task.operation, duration_s=3600), task.generation)


@_check("R-1", "the end of a task does not end another task")
def _separates_tasks(trial: Trial) -> None:
    ending, other = trial.task(), replace_duration(trial.task())
    trial.begin(ending)
    trial.ended(ending)
    try:
        progress = trial.progress(other)
    except Failure:
        return
    if progress.done:
        raise ConformanceFault(f"{other.id} is reported as done after the end of {ending.id}")


@_check("L-7", "abort can be repeated, even after the end of the task")
def _aborts_twice(trial: Trial) -> None:
    task = trial.task()
    trial.begin(task)
    trial.abort(task)
    trial.abort(task)
    trial.restart()
    trial.abort(Task(task.operation, task.generation + 1))


@_check("L-7", "abort of a task that never began returns")
def _aborts_unknown(trial: Trial) -> None:
    trial.abort(trial.task())


@_check("L-7", "an aborted task is not reported as done afterwards")
def _heeds_abort(trial: Trial) -> None:
    task = replace_duration(trial.task())
    trial.begin(task)
    try:
        before = trial.progress(task)
    except Failure:
        before = None
    trial.abort(task)
    if before is None or before.done:
        raise NotApplicable("the task ended before the abort")
    try:
        progress = trial.progress(task)
    except Failure:
        return
    if progress.done and _ends_soon(trial):
        raise NotApplicable("tasks end too soon to check the abort")
    if progress.done:
        raise ConformanceFault(f"{task.id} was aborted, but is reported as done")


def _ends_soon(trial: Trial) -> bool:
    """Return whether a task ends within seconds without an abort."""
    task = replace_duration(trial.task())
    trial.begin(task)
    try:
        return trial.ended(task, SOON_S).done
    except (ConformanceFault, NotApplicable):
        return False
    finally:
        trial.abort(task)


@_check("R-2", "an aborted task does not begin afterwards")
def _stays_aborted(trial: Trial) -> None:
    task = trial.task()
    trial.abort(task)
    trial.refused(trial.begin, task)
    trial.restart()
    trial.refused(trial.begin, Task(task.operation, task.generation + 1))
    count = trial.effects(task)
    if count:
        raise ConformanceFault(f"{task.id} took effect {count} times after its abort")


@_check("L-8", "a retry begins as a new attempt, once")
def _retries(trial: Trial) -> None:
    task = trial.task()
    trial.begin(task)
    _wait_end(trial, task)
    second = _attempt(task, 2)
    trial.begin(second)
    trial.begin(second)
    _wait_end(trial, second)
    _once(trial, task, "a retry")
    _once(trial, second, "two begins of a retry")


@_check("R-2", "a superseded writer cannot begin a task")
def _refuses_late_writer(trial: Trial) -> None:
    newer, late = trial.task(), trial.task()
    late = Task(late.operation, late.generation - 1)
    trial.begin(newer)
    _wait_end(trial, newer)
    trial.refused(trial.begin, late)
    count = trial.effects(late)
    if count:
        raise ConformanceFault(f"{late.id} of an older writer took effect")


@_check("R-4", "discovery returns parts of a topology")
def _discovers(trial: Trial) -> None:
    if not isinstance(trial.driver, Discovering):
        raise NotApplicable("the driver does not support discovery")
    fleet = trial.driver.discover()
    if not fleet:
        raise NotApplicable("the driver discovers nothing")
    unknown = set(fleet) - KINDS
    if unknown:
        raise ConformanceFault(
            f"the driver discovers {', '.join(sorted(map(str, unknown)))}, which a topology "
            f"cannot contain"
        )


def _wait_end(trial: Trial, task: Task) -> None:
    """Wait until a task has ended or waits for an operator."""
    try:
        progress = trial.ended(task)
    except NotApplicable:
        return
    if progress.failed:
        raise ConformanceFault(f"{task.id} failed: {progress.failed}")
