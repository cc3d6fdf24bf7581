"""Which drivers a control plane has, and its calls of them: this many at a time, each with a limit.

Calls are made outside the writer's thread. What an answer means is decided in `driver_host.py`; no
state of an operation may be read here.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeAlias

from forewarn.drivers import INTERRUPTION_MS_MAX, PLACEMENTS_MAX, Progress, Task
from forewarn.errors import CallerError, ForewarnError, PeerError, clean_text
from forewarn.store.errors import StoreFull, StoreLost, StoreUnavailable, StoreUncertain
from forewarn.values import Word, value

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.control.gate_checks import Gate
    from forewarn.control.planning import Planner
    from forewarn.drivers import Driver
    from forewarn.store import Store


#: Latest time a driver may want to be asked again at, in milliseconds from now.
AGAIN_MS_MAX = 24 * 3600 * 1000


class DriverHung(PeerError):
    """A driver has not returned from a call in time."""

    code = "driver-hung"
    message = "Driver {driver} has not answered {verb} of {task} since {since}."
    advice = "Look at the system behind the driver; then retry, complete or fail the operation."


class DriverExhausted(PeerError):
    """All the calls a driver may have under way hang."""

    code = "driver-exhausted"
    message = "All {count} calls that driver {driver} may have under way hang."
    advice = "Its operations wait until a call returns. Restart the service to give them up."


class Verb(Word):
    """What a driver can be called for."""

    BEGIN = "begin"
    PROGRESS = "progress"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, eq=False)
class DriverCall:
    """One call of one driver."""

    verb: Verb
    driver: str
    task: Task
    #: When it was made, ms since the epoch UTC.
    made_ms: int


@value
class CallEnded:
    """What became of a call; as it came from outside, but bounded and clean."""

    call: DriverCall
    #: What `progress` said; None for the other verbs, or where it failed.
    progress: Progress | None = None
    #: Why it failed; empty if it did not.
    failed: str = ""
    #: Why the driver was not called: this process may no longer be the writer.
    unconfirmed: ForewarnError | None = None


@value
class CallLimits:
    """What a driver may take of the service."""

    #: How long a call may take, in milliseconds of the service's clock.
    timeout_ms: int = 60_000
    #: Calls of one driver at a time, those that hang included.
    max_concurrent: int = 32


class CallResult(Word):
    """What became of a call, in one word."""

    OK = "ok"
    FAILED = "failed"
    #: It took too long and was given up.
    HUNG = "hung"
    #: It was not made: this process may not be the writer.
    UNCONFIRMED = "unconfirmed"


#: Called with a call, what became of it, and how long it took in milliseconds.
CallObserver: TypeAlias = "Callable[[DriverCall, CallResult, int], None]"


class Executor(Protocol):
    """Where calls are made."""

    def submit(self, work: Callable[[], None]) -> None:
        """Start some work; return at once, even if the work never ends."""


class DaemonThreads:
    """Makes each call on a thread that does not keep the process from ending.

    There are as many threads as there were ever calls at a time; the caller limits those.
    """

    def __init__(self) -> None:
        """Start none."""
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
            threading.Thread(target=self._serve, name="driver call", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._work.get()()
            with self._lock:
                self._idle += 1


@dataclass(slots=True)
class _Slots:
    """The calls of one driver."""

    #: Call -> since when it is under way, ms since the epoch UTC.
    running: dict[DriverCall, int] = field(default_factory=dict)
    hanging: dict[DriverCall, int] = field(default_factory=dict)


class DriverCalls:
    """Keeps count of calls; on the writer's thread only, but for the calls themselves."""

    def __init__(
        self,
        executor: Executor,
        limits: CallLimits,
        deliver: Callable[[CallEnded], None],
        *,
        observe: CallObserver = lambda *_: None,
    ) -> None:
        """Make no call yet.

        Args:
            executor: makes the calls.
            limits: how many at a time, and for how long.
            deliver: is given the end of each, on whatever thread it was made.
            observe: called for each that has ended or was given up.
        """
        self._executor = executor
        self._limits = limits
        self._deliver = deliver
        self._observe = observe
        self._drivers: dict[str, _Slots] = {}
        #: Calls whose end waits for the writer's thread.
        self._returned: set[DriverCall] = set()

    @property
    def next_ms(self) -> int | None:
        """When the oldest call has taken too long, ms since the epoch UTC; None: none runs."""
        oldest = [min(each.running.values()) for each in self._drivers.values() if each.running]
        return min(oldest) + self._limits.timeout_ms if oldest else None

    def free(self, driver: str) -> bool:
        """Whether a driver may have one more call under way."""
        slots = self._drivers.get(driver)
        if slots is None:
            return True
        return len(slots.running) + len(slots.hanging) < self._limits.max_concurrent

    def exhausted(self, driver: str) -> DriverExhausted | None:
        """Return an error if every call that a driver may have under way hangs; else None."""
        slots = self._drivers.get(driver)
        if slots is None or len(slots.hanging) < self._limits.max_concurrent:
            return None
        return DriverExhausted(driver=driver, count=self._limits.max_concurrent)

    def make(self, call: DriverCall, act: Callable[[], Progress | None], now_ms: int) -> None:
        """Make a call.

        Args:
            call: which one.
            act: makes it; a `ForewarnError` out of it means that the driver was not called.
            now_ms: the service's time.
        """
        assert self.free(call.driver), call
        self._drivers.setdefault(call.driver, _Slots()).running[call] = now_ms
        self._executor.submit(partial(self._make, call, act))

    def _make(self, call: DriverCall, act: Callable[[], Progress | None]) -> None:
        """Make a call on the thread it was given to."""
        ended = _made(call, act)
        self._returned.add(call)  # a busy writer may look at it only after its time was up
        self._deliver(ended)

    def ended(self, ended: CallEnded, now_ms: int) -> None:
        """Note that a call has returned, however late."""
        call = ended.call
        self._returned.discard(call)
        slots = self._drivers[call.driver]
        since_ms = slots.running.pop(call, None)
        if since_ms is None:
            del slots.hanging[call]
        else:
            self._observe(call, _result(ended), now_ms - since_ms)

    def overdue(self, now_ms: int) -> list[tuple[DriverCall, int]]:
        """Give up every call that has taken too long; return them, and since when each runs.

        Each still takes a place among the driver's calls until it returns.
        """
        calls = []
        for slots in self._drivers.values():
            for call, since_ms in list(slots.running.items()):
                if since_ms + self._limits.timeout_ms > now_ms:
                    break  # they stand in the order of their beginning
                if call in self._returned:
                    continue
                slots.hanging[call] = slots.running.pop(call)
                self._observe(call, CallResult.HUNG, now_ms - since_ms)
                calls.append((call, since_ms))
        return calls

    def put_by(self, step_ms: int) -> None:
        """Count from as long ago where the service's clock was put by so much."""
        for slots in self._drivers.values():
            for call in slots.running:
                slots.running[call] += step_ms


class WriterUnconfirmed(Exception):
    """This process could not be confirmed as the writer, so that the driver was not called."""

    def __init__(self, reason: ForewarnError) -> None:
        """Carry the store's reason."""
        super().__init__(str(reason))
        self.reason = reason


def _result(ended: CallEnded) -> CallResult:
    if ended.unconfirmed is not None:
        return CallResult.UNCONFIRMED
    failed = ended.failed or (ended.progress is not None and ended.progress.failed)
    return CallResult.FAILED if failed else CallResult.OK


def _made(call: DriverCall, act: Callable[[], Progress | None]) -> CallEnded:
    """Make a call and return its result; only the end of the process is raised."""
    try:
        answer = act()
        if call.verb is not Verb.PROGRESS:
            return CallEnded(call)
        return CallEnded(call, progress=_clean_progress(answer))
    except WriterUnconfirmed as unconfirmed:
        return CallEnded(call, unconfirmed=unconfirmed.reason)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a driver does is its failure
        return CallEnded(call, failed=clean_text(error) or type(error).__name__)


def _clean_progress(answer: object) -> Progress:
    if not isinstance(answer, Progress):
        raise TypeError(f"its progress is a {type(answer).__name__}")
    return Progress(
        done=bool(answer.done),
        failed=clean_text(answer.failed),
        again_ms=int(answer.again_ms),
        waits=clean_text(answer.waits),
        text=clean_text(answer.text),
        share=_share(answer.share),
        placements=_placements(answer.placements),
        interruption_ms=min(max(int(answer.interruption_ms), -1), INTERRUPTION_MS_MAX),
    )


def _placements(answer: object) -> dict[str, str]:
    """Return where a driver takes VMs; the names are looked at by the core."""
    if not isinstance(answer, Mapping):
        return {}
    chosen = islice(answer.items(), PLACEMENTS_MAX)
    return {clean_text(vm): clean_text(host) for vm, host in chosen}


def _share(answer: object) -> float | None:
    """Return a reported share; None if it is invalid: a display value fails no work."""
    known = isinstance(answer, int | float) and not isinstance(answer, bool) and 0 <= answer <= 1
    return float(answer) if known else None  # type: ignore[arg-type]


def make_call(call: DriverCall, driver: Driver, store: Store, *, now_ms: int) -> Progress | None:
    """Call a driver, on any thread.

    Only the writer may call a driver with an effect, and another process may have become the
    writer during a pause: the lease is checked right before each such call. A driver that cannot
    reach its records in the store is called again. Source: R-2, L-7.
    """
    try:
        if call.verb is Verb.PROGRESS:
            return driver.progress(call.task, now_ms)
        store.confirm()
        if call.verb is Verb.BEGIN:
            driver.begin(call.task)
        else:
            driver.abort(call.task)
    except (StoreFull, StoreLost, StoreUnavailable, StoreUncertain) as error:
        raise WriterUnconfirmed(error) from error
    return None


class DriverUnknown(CallerError):
    """A driver that is not built in."""

    code = "driver-unknown"
    status = 422
    message = "There is no driver {name}."
    advice = "Use one of: {known}."


@value
class DriverSetup:
    """The drivers of one control plane."""

    #: By name.
    drivers: Mapping[str, Driver]
    #: For hosts that name none.
    default: str
    limits: CallLimits = field(default_factory=CallLimits)
    executor: Executor = field(default_factory=DaemonThreads)
    #: Checks between the waves of maintenances, by name.
    gates: Mapping[str, Gate] = field(default_factory=dict)
    #: Makes plans on a thread of `executor`; None: there and then.
    planner: Planner | None = None
    #: Called for each call; must be quick.
    observe: CallObserver = lambda *_: None

    def named(self, name: str) -> Driver:
        """Return a driver.

        Raises:
            DriverUnknown: there is none of that name.
        """
        driver = self.drivers.get(name)
        if driver is None:
            raise DriverUnknown(name=name, known=", ".join(self.drivers))
        return driver
