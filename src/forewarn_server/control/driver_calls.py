"""Drivers of a control plane, and limited concurrent calls to them.

Calls run outside the writer's thread. `driver_host.py` interprets the answers.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Protocol, TypeAlias

from forewarn_base.errors import CallerError, ForewarnError, PeerError, clean_text
from forewarn_base.values import Word, value
from forewarn_drivers import (
    INTERRUPTION_MS_MAX,
    PLACEMENTS_MAX,
    Driver,
    PlatformUnanswered,
    Progress,
    Task,
)
from forewarn_drivers.task_records import TaskOfLaterWriter
from forewarn_server.control.gate_checks import Gate
from forewarn_server.control.planning import Planner
from forewarn_store import Store
from forewarn_store.errors import (
    StoreFull,
    StoreLost,
    StoreUnavailable,
    StoreUncertain,
    StoreWentBack,
)

#: Longest delay of the next call that a driver may request, in milliseconds.
AGAIN_MS_MAX = 24 * 3600 * 1000


class DriverHung(PeerError):
    """A driver did not return from a call in time."""

    code = "driver-hung"
    message = "Driver {driver} has not answered {verb} of {task} since {since}."
    advice = "Look at the system behind the driver; then retry, complete or fail the operation."


class DriverExhausted(PeerError):
    """All calls that a driver may run at a time hang."""

    code = "driver-exhausted"
    message = "All {count} calls that driver {driver} may run at a time hang."
    advice = "The operations wait until a call returns. Restart the service to abandon these calls."


class Verb(Word):
    """The purpose of a call to a driver."""

    BEGIN = "begin"
    PROGRESS = "progress"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, eq=False)
class DriverCall:
    """One call of one driver."""

    verb: Verb
    driver: str
    task: Task
    #: Time of the call, ms since the epoch UTC.
    made_ms: int


@value
class CallEnded:
    """The result of a call, without invalid and oversized parts of the driver's answer."""

    call: DriverCall
    #: The answer of `progress`; None for the other calls, or after a failure.
    progress: Progress | None = None
    #: Why the call failed; empty: success.
    failed: str = ""
    #: Why the result is unknown: the driver's platform did not answer; empty: it did.
    unanswered: str = ""
    #: Why the driver was not called: this process may no longer be the writer.
    unconfirmed: ForewarnError | None = None


@value
class CallLimits:
    """Limits on a driver's calls."""

    #: Time limit of a call, in milliseconds of the service's clock.
    timeout_ms: int = 60_000
    #: Maximum concurrent calls of one driver, hanging calls included.
    max_concurrent: int = 32
    #: Longest time for which unanswered calls are repeated, in ms of the service's clock.
    unanswered_ms: int = 300_000


class CallResult(Word):
    """The result of a call, in one word."""

    OK = "ok"
    FAILED = "failed"
    #: The call exceeded its time limit.
    HUNG = "hung"
    #: The driver was not called: this process may not be the writer.
    UNCONFIRMED = "unconfirmed"


#: Called with a call, its result, and its duration in milliseconds.
CallObserver: TypeAlias = "Callable[[DriverCall, CallResult, int], None]"


class Executor(Protocol):
    """Runs calls."""

    def submit(self, work: Callable[[], None]) -> None:
        """Start work in the background; return at once, even if the work never ends."""


class DaemonThreads:
    """Runs each call on a daemon thread, so that no call delays the end of the process.

    If all threads are busy, it starts another one and keeps it. The caller limits the calls.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def submit(self, work: Callable[[], None]) -> None:
        """Run work on an idle thread, or on a new one."""
        with self._lock:
            new = not self._idle
            self._idle -= not new
        self._work.put(work)
        if new:
            threading.Thread(target=self._run, name="driver call", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._work.get()()
            with self._lock:
                self._idle += 1


@dataclass(slots=True)
class _Slots:
    """The calls of one driver."""

    #: Call -> its start, ms since the epoch UTC.
    running: dict[DriverCall, int] = field(default_factory=dict)
    hanging: dict[DriverCall, int] = field(default_factory=dict)


class DriverCalls:
    """Starts and counts driver calls; only the calls themselves leave the writer's thread."""

    def __init__(
        self,
        executor: Executor,
        limits: CallLimits,
        deliver: Callable[[CallEnded], None],
        *,
        observe: CallObserver = lambda *_: None,
    ) -> None:
        """Start without calls; `deliver` receives the end of each call, on the call's thread.

        `observe` is called for each ended or abandoned call.
        """
        self._executor = executor
        self._limits = limits
        self._deliver = deliver
        self._observe = observe
        self._drivers: dict[str, _Slots] = {}
        #: Ended calls that the writer's thread has not handled yet.
        self._returned: set[DriverCall] = set()

    @property
    def next_ms(self) -> int | None:
        """When the oldest call times out, ms since the epoch UTC; None: no call runs."""
        oldest = [min(each.running.values()) for each in self._drivers.values() if each.running]
        return min(oldest) + self._limits.timeout_ms if oldest else None

    def free(self, driver: str) -> bool:
        """Whether the limit allows a driver one more call."""
        slots = self._drivers.get(driver)
        if slots is None:
            return True
        return len(slots.running) + len(slots.hanging) < self._limits.max_concurrent

    def exhausted(self, driver: str) -> DriverExhausted | None:
        """Return an error if all of a driver's permitted calls hang; otherwise None."""
        slots = self._drivers.get(driver)
        if slots is None or len(slots.hanging) < self._limits.max_concurrent:
            return None
        return DriverExhausted(driver=driver, count=self._limits.max_concurrent)

    def make(self, call: DriverCall, act: Callable[[], Progress | None], now_ms: int) -> None:
        """Make a call by `act`; a store error that it raises is `CallEnded.unconfirmed`."""
        assert self.free(call.driver), call
        self._drivers.setdefault(call.driver, _Slots()).running[call] = now_ms
        self._executor.submit(partial(self._make, call, act))

    def _make(self, call: DriverCall, act: Callable[[], Progress | None]) -> None:
        """Make a call on the current thread."""
        ended = _made(call, act)
        self._returned.add(call)  # a busy writer may handle the end only after the time limit
        self._deliver(ended)

    def ended(self, ended: CallEnded, now_ms: int) -> None:
        """Handle the return of a call, in time or late."""
        call = ended.call
        self._returned.discard(call)
        slots = self._drivers[call.driver]
        since_ms = slots.running.pop(call, None)
        if since_ms is None:
            del slots.hanging[call]
        else:
            self._observe(call, _result(ended), now_ms - since_ms)

    def overdue(self, now_ms: int) -> list[tuple[DriverCall, int]]:
        """Give up every overdue call; return each with its start time.

        Each call still counts among the driver's calls until it returns.
        """
        calls = []
        for slots in self._drivers.values():
            for call, since_ms in list(slots.running.items()):
                if since_ms + self._limits.timeout_ms > now_ms:
                    break  # ordered by start
                if call in self._returned:
                    continue
                slots.hanging[call] = slots.running.pop(call)
                self._observe(call, CallResult.HUNG, now_ms - since_ms)
                calls.append((call, since_ms))
        return calls

    def shift_times(self, step_ms: int) -> None:
        """Move the start times of calls after a step of the service's clock."""
        for slots in self._drivers.values():
            for call in slots.running:
                slots.running[call] += step_ms


def _result(ended: CallEnded) -> CallResult:
    if ended.unconfirmed is not None:
        return CallResult.UNCONFIRMED
    failed = (
        ended.failed or ended.unanswered or (ended.progress is not None and ended.progress.failed)
    )
    return CallResult.FAILED if failed else CallResult.OK


def _made(call: DriverCall, act: Callable[[], Progress | None]) -> CallEnded:
    """Make a call and return its result; errors are part of the result.

    After a store error this process may not be the writer: the call is made again.
    """
    try:
        progress = act()
        if call.verb is not Verb.PROGRESS:
            return CallEnded(call)
        return CallEnded(call, progress=_clean_progress(progress))
    except (StoreFull, StoreLost, StoreUnavailable, StoreUncertain, StoreWentBack) as error:
        return CallEnded(call, unconfirmed=error)
    except PlatformUnanswered as error:
        return CallEnded(call, unanswered=clean_text(error.clause) or error.code)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a driver does is its failure
        return CallEnded(call, failed=clean_text(error) or type(error).__name__)


def _clean_progress(progress: object) -> Progress:
    if not isinstance(progress, Progress):
        raise TypeError(f"its progress is a {type(progress).__name__}")
    return Progress(
        done=bool(progress.done),
        failed=clean_text(progress.failed),
        again_ms=int(progress.again_ms),
        waits=clean_text(progress.waits),
        text=clean_text(progress.text),
        share=_share(progress.share),
        placements=_placements(progress.placements),
        interruption_ms=min(max(int(progress.interruption_ms), -1), INTERRUPTION_MS_MAX),
    )


def _placements(progress: object) -> dict[str, str]:
    """Return the destinations that a driver reports; the core checks the names."""
    if not isinstance(progress, Mapping):
        return {}
    chosen = islice(progress.items(), PLACEMENTS_MAX)
    return {clean_text(vm): clean_text(host) for vm, host in chosen}


def _share(share: object) -> float | None:
    """Return a reported share; None if invalid: the share is only for display."""
    valid = isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1
    return float(share) if valid else None  # type: ignore[arg-type]


def make_call(call: DriverCall, driver: Driver, store: Store, *, now_ms: int) -> Progress | None:
    """Call a driver, on any thread.

    Only the writer may make calls with an effect. Another process may have become the writer during
    a pause, so the lease is checked right before each call with an effect. Source: R-2, L-7.

    Raises:
        StoreWentBack: the driver has records of a later writer, which the store has lost. H-10.
    """
    try:
        if call.verb is Verb.PROGRESS:
            return driver.progress(call.task, now_ms)
        store.confirm()
        if call.verb is Verb.BEGIN:
            driver.begin(call.task)
        else:
            driver.abort(call.task)
    except TaskOfLaterWriter as later:
        store.check_writer(int(str(later.facts["newest"])), f"driver {call.driver}")
        raise
    return None


class DriverUnknown(CallerError):
    """The settings name an unknown driver."""

    code = "driver-unknown"
    status = 422
    message = "There is no driver {name}."
    advice = "Use one of: {known}."


@value
class DriverSetup:
    """The drivers of one control plane."""

    #: By name.
    drivers: Mapping[str, Driver]
    #: The default driver, for hosts without a named driver.
    default: str
    limits: CallLimits = field(default_factory=CallLimits)
    executor: Executor = field(default_factory=DaemonThreads)
    #: Checks between the waves of maintenances, by name.
    gates: Mapping[str, Gate] = field(default_factory=dict)
    #: Makes plans on a thread of `executor`; None: plans are made on the current thread.
    planner: Planner | None = None
    #: Called after each call; must be quick.
    observe: CallObserver = lambda *_: None

    def named(self, name: str) -> Driver:
        """Return a driver.

        Raises:
            DriverUnknown: no driver has this name.
        """
        driver = self.drivers.get(name)
        if driver is None:
            raise DriverUnknown(name=name, known=", ".join(self.drivers))
        return driver
