"""Selects the drivers of operations, reports their progress, and schedules their next calls.

The host only reports drivers' answers. `driver_calls.py` makes the calls.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from forewarn_base.errors import ForewarnError
from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.values import replace
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.stimulus import (
    DriverAborted,
    DriverBegun,
    DriverDone,
    DriverFailed,
    DriverProgressed,
    DriverReport,
    PlaneStimulus,
    Reports,
)
from forewarn_core.fleet.topology import Host
from forewarn_drivers import Progress, Task
from forewarn_server.control.driver_calls import (
    AGAIN_MS_MAX,
    CallEnded,
    DriverCall,
    DriverCalls,
    DriverHung,
    DriverSetup,
    DriverUnknown,
    Verb,
    make_call,
)
from forewarn_server.control.plane import ControlPlane

log = logging.getLogger("forewarn.control")

#: Maximum abort calls for an operation that ended without its driver; then operators must act.
ABORT_TRIES = 8
#: Delay before a failed abort is called again, in milliseconds; doubled each time. All tries
#: together take two minutes, as long as a management board's restart.
ABORT_AGAIN_MS = 1000
#: Delay before a call that was not made, because this process may not be the writer, is tried
#: again, in milliseconds.
CONFIRM_AGAIN_MS = 1000
#: Delay before a call that the driver's platform did not answer is made again, in milliseconds.
UNANSWERED_AGAIN_MS = 2000
#: Minimum time between two progress entries of one operation, in milliseconds.
BETWEEN_MS = 5000
#: The minimum time between entries grows with the age of the work: after an hour it is three
#: minutes. So the number of entries grows with the logarithm of the time.
SHARE_OF_TIME = 20


@dataclass(slots=True)
class _Next:
    """The next call for one operation."""

    verb: Verb
    attempt: int
    #: Time of the call, ms since the epoch UTC.
    due_ms: int
    #: Number of failed abort calls.
    tries: int = 0
    #: Whether the call is due and waits until its driver has a free call.
    ready: bool = False


class DriverHost:
    """Schedules driver calls of one control plane, at most one at a time per operation.

    On the writer's thread only. A turn costs O(due and ended calls).
    """

    def __init__(
        self,
        plane: ControlPlane,
        setup: DriverSetup,
        *,
        deliver: Callable[[CallEnded], None],
        report: Callable[[PlaneStimulus, str], None],
    ) -> None:
        """Start without calls.

        `deliver` receives the end of each call, on any thread, for `ended`. `report` receives the
        reports of a driver together, with the driver's name.

        Raises:
            DriverUnknown: the default driver does not exist.
        """
        self._plane = plane
        setup.named(setup.default)
        self._setup = setup
        self._calls = DriverCalls(setup.executor, setup.limits, deliver, observe=setup.observe)
        plane.default_driver = setup.default
        self._commit = report
        #: Driver -> reports that this turn commits together.
        self._reports: dict[str, list[DriverReport]] = {}
        self._progress = ProgressReports()
        self._next: dict[int, _Next] = {}
        #: (time, operation), the earliest first; an entry is outdated if `_next` has another time.
        self._due: list[tuple[int, int]] = []
        #: Driver -> due operations, in order; entries may be outdated.
        self._ready: dict[str, deque[int]] = {}
        #: Operation -> its call in progress, unless the call was abandoned.
        self._under_way: dict[int, DriverCall] = {}
        #: Operation -> the person or thing that its driver waits for.
        self._waits: dict[int, str] = {}
        #: Operation -> the attempt that its driver has begun or failed to begin since the last
        #: `resume`, until this is recorded.
        self._tried: dict[int, int] = {}
        #: Operation and attempt with an abandoned call that has not returned -> the reason.
        self._given_up: dict[tuple[int, int], str] = {}
        #: Operation -> the attempt whose last calls had no answer, and the time of the first one.
        self._unanswered: dict[int, tuple[int, int]] = {}
        #: Drivers already reported because all of their calls hang.
        self._exhausted: set[str] = set()

    @property
    def next_ms(self) -> int | None:
        """When to call a driver or time out a call next, ms since the epoch UTC; None: never."""
        while self._due and not self._is_due(*self._due[0]):
            heapq.heappop(self._due)
        times = (self._due[0][0] if self._due else None, self._calls.next_ms)
        return min((each for each in times if each is not None), default=None)

    def waits(self, number: int) -> str:
        """Return the reason why a driver waits, on any thread; empty while the driver works."""
        planned = self._next.get(number)
        if planned is not None and planned.ready:
            exhausted = self._calls.exhausted(self._name(self._subject(number, planned)))
            if exhausted is not None:
                return str(exhausted).removesuffix(".")
        return self._waits.get(number, "")

    def check(self, hosts: Iterable[Host]) -> None:
        """Refuse hosts that name an unknown driver.

        Raises:
            DriverUnknown: a host names an unknown driver.
        """
        for host in hosts:
            self._setup.named(host.driver or self._setup.default)

    def resume(self, now_ms: int) -> None:
        """Schedule progress calls for every operation recorded as begun."""
        self._tried.clear()
        for operation in self._plane.state.operations.values():
            if operation.state is OperationState.RUNNING and operation.execution.begun_ms:
                self._plan(
                    operation.number, _Next(Verb.PROGRESS, operation.execution.attempt, now_ms)
                )

    def shift_times(self, step_ms: int) -> None:
        """Move scheduled calls after a step of the service's clock."""
        self._calls.shift_times(step_ms)
        for number, (attempt, since_ms) in self._unanswered.items():
            self._unanswered[number] = attempt, since_ms + step_ms
        for planned in self._next.values():
            planned.due_ms += step_ms
        self._due = [(planned.due_ms, number) for number, planned in self._next.items()]
        heapq.heapify(self._due)

    def begin(self, operation: Operation, now_ms: int) -> None:
        """Schedule the start of an attempt, unless it has begun or has been replaced."""
        number, attempt = operation.number, operation.execution.attempt
        if number not in self._plane.state.operations or self._tried.get(number) == attempt:
            return  # the operation has ended, or several publications led to the call
        self._plan(number, _Next(Verb.BEGIN, attempt, now_ms))

    def withhold(self, numbers: Iterable[int]) -> tuple[Operation, ...]:
        """Postpone the start of these operations; return the operations that were due now. L-7."""
        operations = self._plane.state.operations
        begin = {n for n in numbers if n in self._next and self._next[n].verb is Verb.BEGIN}
        for number in begin:
            del self._next[number]
        return tuple(operations[number] for number in sorted(begin & operations.keys()))

    def abort(self, number: int, now_ms: int) -> None:
        """Schedule the abort of an operation that ended without its driver, unless it is done."""
        for notes in (self._waits, self._tried, self._unanswered):
            notes.pop(number, None)
        self._progress.forget(number)
        self._plan(number, _Next(Verb.ABORT, 0, now_ms))

    def turn(self, now_ms: int) -> None:
        """Give up hanging calls, and make due calls of drivers with capacity."""
        for call, since_ms in self._calls.overdue(now_ms):
            self._give_up(call, since_ms)
        while self._due and self._due[0][0] <= now_ms:
            due_ms, number = heapq.heappop(self._due)
            if self._is_due(due_ms, number):
                self._make_ready(number)
        for driver, numbers in list(self._ready.items()):
            while numbers and self._calls.free(driver):
                self._call(numbers.popleft(), driver, now_ms)
            if not numbers:
                del self._ready[driver]
        self._report_all()

    def ended(self, ends: Iterable[CallEnded], now_ms: int) -> list[ForewarnError]:
        """Handle results of calls; return the reasons of calls that were not made."""
        for ended in ends:
            self._ended(ended, now_ms)
        self._report_all()
        return [ended.unconfirmed for ended in ends if ended.unconfirmed is not None]

    def _ended(self, ended: CallEnded, now_ms: int) -> None:
        call, number = ended.call, ended.call.task.operation.number
        self._calls.ended(ended, now_ms)
        self._exhausted.discard(call.driver)
        if self._under_way.get(number) is call:
            del self._under_way[number]
        self._given_up.pop((number, call.task.attempt), None)
        if not ended.unanswered:
            self._unanswered.pop(number, None)
        if ended.unconfirmed is not None:
            self._call_again(call, now_ms + CONFIRM_AGAIN_MS)
        elif call.verb is Verb.ABORT:
            self._aborted(ended, now_ms)
        elif ended.unanswered and self._asks_again(ended, now_ms):
            pass
        elif self._is_current_attempt(call.task.operation):
            take = self._begun if call.verb is Verb.BEGIN else self._progressed
            take(ended, now_ms)
        if number in self._next:  # the operation may have waited for this call
            self._plan(number, self._next[number])

    def _asks_again(self, ended: CallEnded, now_ms: int) -> bool:
        """Schedule an unanswered call again; return False once that has lasted too long."""
        call = ended.call
        operation, attempt = call.task.operation, call.task.attempt
        if not self._is_current_attempt(operation):
            return False
        last_attempt, since_ms = self._unanswered.get(operation.number, (0, 0))
        if last_attempt != attempt:
            since_ms = now_ms
        if now_ms - since_ms >= self._setup.limits.unanswered_ms:
            self._unanswered.pop(operation.number, None)
            return False
        self._unanswered[operation.number] = attempt, since_ms
        if since_ms == now_ms:
            text = "driver %s has no answer for %s and is called again: %s"
            extra = {"action": "driver.unanswered"}
            log.warning(text, call.driver, call.task.id, ended.unanswered, extra=extra)
        self._waits[operation.number] = (
            f"driver {call.driver} to have an answer: {ended.unanswered}"
        )
        self._call_again(call, now_ms + UNANSWERED_AGAIN_MS)
        return True

    # --- planned calls --------------------------------------------------------------------

    def _call_again(self, call: DriverCall, due_ms: int) -> None:
        """Schedule a call that was not made again, unless another has replaced it."""
        operation = call.task.operation
        planned = self._next.get(operation.number)
        if planned is None:
            planned = _Next(call.verb, operation.execution.attempt, due_ms)
        if planned.verb is call.verb:
            self._plan(operation.number, replace(planned, due_ms=due_ms))

    def _plan(self, number: int, planned: _Next) -> None:
        planned.ready = False
        self._next[number] = planned
        heapq.heappush(self._due, (planned.due_ms, number))

    def _is_due(self, due_ms: int, number: int) -> bool:
        """Whether an entry of `_due` is still valid."""
        planned = self._next.get(number)
        return (
            planned is not None
            and planned.due_ms == due_ms
            and not planned.ready
            and number not in self._under_way  # the entry is added again when the call ends
        )

    def _make_ready(self, number: int) -> None:
        planned = self._next[number]
        operation = self._subject(number, planned)
        if operation is None:
            del self._next[number]  # the operation has ended, or another attempt follows
            return
        planned.ready = True
        self._ready.setdefault(self._name(operation), deque()).append(number)

    def _subject(self, number: int, planned: _Next) -> Operation | None:
        """Return the operation of a scheduled call; None if the call is outdated."""
        if planned.verb is Verb.ABORT:
            return self._plane.state.aborts.get(number)
        operation = self._plane.state.operations.get(number)
        if operation is None or operation.state is not OperationState.RUNNING:
            return None
        if operation.execution.attempt != planned.attempt:
            return None
        return None if planned.verb is Verb.BEGIN and operation.execution.begun_ms else operation

    def _is_current_attempt(self, operation: Operation) -> bool:
        """Whether this attempt is still the current attempt of a running operation."""
        current = self._plane.state.operations.get(operation.number)
        return current is not None and current.execution.attempt == operation.execution.attempt

    def _call(self, number: int, name: str, now_ms: int) -> None:
        """Make the due call of an operation, if it is still valid."""
        planned = self._next.get(number)
        if planned is None or not planned.ready or number in self._under_way:
            return
        operation = self._subject(number, planned)
        if operation is None:
            del self._next[number]
            return
        if planned.verb is not Verb.ABORT:
            del self._next[number]
            self._waits.pop(number, None)
            hung = self._given_up.get((number, operation.execution.attempt))
            if hung is not None:  # the last call still hangs, and its answer is awaited
                if not operation.reason:  # the commit that stored the reason has failed
                    self._report_failure(operation, hung, name)
                return
        store = self._plane.store
        task = Task(operation, store.writer_generation, store.epoch)
        call = DriverCall(planned.verb, name, task, now_ms)
        driver = self._setup.drivers.get(name)
        if driver is None:
            reason = str(DriverUnknown(name=name, known=", ".join(self._setup.drivers)))
            if planned.verb is Verb.ABORT:
                self._aborted(CallEnded(call, failed=reason), now_ms)
            else:
                self._report_failure(operation, reason, name)
            return
        self._under_way[number] = call
        self._calls.make(call, partial(make_call, call, driver, store, now_ms=now_ms), now_ms)

    # --- results of calls -----------------------------------------------------------------

    def _begun(self, ended: CallEnded, now_ms: int) -> None:
        operation, name = ended.call.task.operation, ended.call.driver
        number, attempt = operation.number, operation.execution.attempt
        self._tried[number] = attempt
        planned = self._next.get(number)
        if planned is not None and planned.verb is Verb.BEGIN and planned.attempt == attempt:
            del self._next[number]  # another publication also scheduled the call
        failed = ended.failed or ended.unanswered
        if failed:
            self._report_failure(operation, failed, name)
            return
        if number not in self._next:
            self._plan(number, _Next(Verb.PROGRESS, attempt, now_ms))
        self._report(DriverBegun(number, attempt), name)

    def _progressed(self, ended: CallEnded, now_ms: int) -> None:
        operation, name = ended.call.task.operation, ended.call.driver
        number, attempt = operation.number, operation.execution.attempt
        progress = ended.progress or Progress(failed=ended.failed or ended.unanswered)
        further = self._progress.report(self._plane.state.operations[number], progress, now_ms)
        if further is not None:
            self._report(further, name)
        if progress.done:
            self._progress.forget(number)
            self._report(DriverDone(number, attempt, progress.interruption_ms), name)
        elif progress.failed:
            self._report_failure(operation, progress.failed, name)
        elif number not in self._next:
            if progress.waits:
                self._waits[number] = progress.waits
            if progress.again_ms:
                again_ms = max(progress.again_ms, ended.call.made_ms + 1)  # never earlier
                due_ms = min(again_ms, now_ms + AGAIN_MS_MAX)
                self._plan(number, _Next(Verb.PROGRESS, attempt, due_ms))

    def _aborted(self, ended: CallEnded, now_ms: int) -> None:
        operation, name = ended.call.task.operation, ended.call.driver
        planned = self._next.pop(operation.number, None)
        failed = ended.failed or ended.unanswered
        if not failed:
            self._report(DriverAborted(operation.number), name)
            return
        if planned is None:
            return  # the call was abandoned before
        tries = planned.tries + 1
        if tries >= ABORT_TRIES:
            self._report(DriverAborted(operation.number, failed), name)
            return
        due_ms = now_ms + ABORT_AGAIN_MS * 2 ** (tries - 1)
        self._plan(operation.number, replace(planned, due_ms=due_ms, tries=tries))
        if tries == 1:
            text = "the driver could not abort %s and is called again: %s"
            log.warning(text, operation.id, failed, extra={"action": "driver.abort-failed"})

    def _give_up(self, call: DriverCall, since_ms: int) -> None:
        """Give up a call, and mark its operation as stuck for an operator. Source: L-8, R-1."""
        operation, name = call.task.operation, call.driver
        since = iso8601(since_ms)
        hung = DriverHung(driver=name, verb=call.verb.value, task=call.task.id, since=since)
        log.warning("%s %s", hung, hung.advice_text(), extra={"action": "driver.hung"})
        reason = str(hung).removesuffix(".")
        exhausted = self._calls.exhausted(name)
        if exhausted is not None and name not in self._exhausted:
            self._exhausted.add(name)
            text = "%s %s"
            log.error(text, exhausted, exhausted.advice_text(), extra={"action": exhausted.code})
        if self._under_way.get(operation.number) is call:
            del self._under_way[operation.number]
        if call.verb is Verb.ABORT:
            self._next.pop(operation.number, None)
            self._report(DriverAborted(operation.number, reason), name)
            return
        self._given_up[operation.number, operation.execution.attempt] = reason
        planned = self._next.get(operation.number)
        if planned is not None:  # the operation had to wait for this call
            self._plan(operation.number, planned)
        self._report_failure(operation, reason, name)

    def _report(self, report: DriverReport, driver: str) -> None:
        self._reports.setdefault(driver, []).append(report)

    def _report_failure(self, operation: Operation, reason: str, driver: str) -> None:
        self._report(DriverFailed(operation.number, operation.execution.attempt, reason), driver)

    def _report_all(self) -> None:
        """Commit the reports of drivers, and forget each attempt whose start is now recorded.

        The reports of a driver's calls that end together cost one transaction.
        """
        batches, self._reports = self._reports, {}
        for driver, reports in batches.items():
            self._commit(reports[0] if len(reports) == 1 else Reports(tuple(reports)), driver)
        for report in itertools.chain(*batches.values()):
            operation = self._plane.state.operations.get(report.operation)
            if operation is None or operation.execution.begun_ms:
                self._tried.pop(report.operation, None)

    def _name(self, operation: Operation | None) -> str:
        """Return the name of the driver that began an operation. Source: R-3."""
        if operation is None:
            return self._setup.default
        if operation.execution.driver:
            return operation.execution.driver
        host = self._plane.state.topology.hosts.get(operation.host)  # begun by an older version
        return (host.driver if host else "") or self._setup.default


class ProgressReports:
    """Selects the progress to report, and stores the last report of each operation."""

    def __init__(self) -> None:
        #: Operation -> its attempt and its last report, ms since the epoch UTC.
        self._last: dict[int, tuple[int, int]] = {}

    def report(
        self, operation: Operation, progress: Progress, now_ms: int
    ) -> DriverProgressed | None:
        """Return a report of the progress; None if nothing is new, or too soon."""
        percent = -1 if progress.share is None else int(progress.share * 100)
        number, attempt = operation.number, operation.execution.attempt
        chosen = tuple(sorted(progress.placements.items() - set(operation.execution.placements)))
        if chosen:  # report destinations at once: a VM may poll there soon
            return DriverProgressed(number, attempt, progress.text, percent, chosen)
        if progress.done or progress.failed or (not progress.text and percent < 0):
            return None
        if (progress.text, percent) == (
            operation.execution.progress,
            operation.execution.progress_percent,
        ):
            return None
        reported_attempt, reported_ms = self._last.get(number, (0, 0))
        apart_ms = max(BETWEEN_MS, (now_ms - (operation.execution.begun_ms or 0)) // SHARE_OF_TIME)
        if reported_attempt == attempt and 0 <= now_ms - reported_ms < apart_ms:
            return None
        self._last[number] = attempt, now_ms
        return DriverProgressed(number, attempt, progress.text, percent)

    def forget(self, number: int) -> None:
        """Forget an operation that has ended."""
        self._last.pop(number, None)
