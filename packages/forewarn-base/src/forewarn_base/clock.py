"""The only reader of time: the service's clock, and a scaled one.

Every time is an int of milliseconds since the epoch, UTC. The agent imports this module, so it
imports nothing heavy.
"""

from __future__ import annotations

import abc
import time
from _thread import allocate_lock  # `threading` would cost the agent memory for one lock

from forewarn_base.errors import ClockSpeedInvalid, ClockWentBack

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Callable

    #: Id of a boot (empty if unknown), and the service clock minus the time since that boot, in ms.
    Mark = tuple[str, int]

#: Maximum wait in seconds that any clock returns; after it the caller asks again.
#:
#: So a stopped clock or a far deadline never causes an infinite or overflowing timeout.
WAIT_TIMEOUT_S = 3600.0

#: Highest speed of a scaled clock: a day takes 86 ms. At higher speeds timers are too coarse.
SPEED_MAX = 1_000_000.0


#: Least step of the system's clock that counts, in milliseconds. Two clocks cannot be read at the
#: same moment, and NTP steps by at least 128 ms.
STEP_MS_MIN = 100

#: A stored time this many milliseconds ahead of the current time is ignored.
#:
#: Correcting a wrong time zone moves a clock by less.
MARK_ABSURD_MS = 24 * 3600 * 1000

#: The mark of a clock that cannot be resumed.
NO_MARK = ("", 0)

#: File with the id of this boot on Linux.
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Clock(abc.ABC):
    """The clock interface, from which every loop reads the time."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Start without listeners."""
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._monotonic_ns = monotonic_ns

    @abc.abstractmethod
    def now_ms(self) -> int:
        """Return the time now, in ms since the epoch UTC.

        The time never decreases, except by `SystemClock.adopt`.
        """

    @abc.abstractmethod
    def wait_s(self, until_ms: int) -> float:
        """Return how many real seconds remain until `until_ms`, from 0 to `WAIT_TIMEOUT_S`.

        A caller calls this function again after the wait, or when the clock changes (`listen`).
        """

    def off_ms(self) -> int:
        """Return how far the system's clock is ahead of this one, in ms; 0 if not applicable."""
        return 0

    def elapsed_ms(self) -> int:
        """Return the real time since some moment, in ms; it runs while this clock is stopped."""
        return self._monotonic_ns() // 1_000_000

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change of the clock, on the thread that changed it."""
        self._listeners = (*self._listeners, listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`; an unknown listener is ignored."""
        self._listeners = tuple(kept for kept in self._listeners if kept != listener)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


def _boot_id() -> str:
    try:
        with open(BOOT_ID, encoding="ascii") as file:  # noqa: PTH123 - the agent has no pathlib
            return file.read(64).strip()
    except (OSError, ValueError):
        return ""


class SystemClock(Clock):
    """The system's wall clock at the start, continued by the monotonic clock.

    So a step of the system clock (NTP, an operator, a resumed VM) neither shortens nor stretches a
    promised notice. `adopt` follows the step when no notice runs; `resume` continues from the
    `mark` of an earlier process of the same boot. Source: N-4.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        *,
        boottime_ns: Callable[[], int] = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        boot_id: Callable[[], str] = _boot_id,
    ) -> None:
        """Start the clock now; tests and the simulator pass their own time sources.

        Args:
            wall_ns: the system's time of day, which may step.
            monotonic_ns: a time that never steps; it may stop while the machine is suspended.
            boottime_ns: time since boot, suspensions included; read only with a boot id.
            boot_id: id of this boot of this machine; empty if unknown.
        """
        super().__init__(monotonic_ns)
        self._wall_ns = wall_ns
        self._boottime_ns = boottime_ns
        self._boot_id = boot_id
        self._offset_ns = wall_ns() - monotonic_ns()
        self._mark: Mark | None = None

    def now_ms(self) -> int:
        """Return the time now."""
        return (self._monotonic_ns() + self._offset_ns) // 1_000_000

    def wait_s(self, until_ms: int) -> float:
        """Return the real seconds until `until_ms`."""
        left_ns = until_ms * 1_000_000 - self._monotonic_ns() - self._offset_ns
        return min(max(left_ns / 1e9, 0.0), WAIT_TIMEOUT_S)

    def off_ms(self) -> int:
        """Return how far the system's clock is ahead of this one, in ms; negative: behind."""
        return (self._wall_ns() - self._monotonic_ns() - self._offset_ns) // 1_000_000

    def skipped_ms(self) -> int:
        """Return how far this clock would jump ahead by `adopt` while no time passes, in ms.

        Suspension of the machine counts as time that passed. The result is 0 if the time since boot
        is unknown.
        """
        boot, ahead_ms = self.mark
        return (
            self._wall_ns() // 1_000_000 - self._boottime_ns() // 1_000_000 - ahead_ms
            if boot
            else 0
        )

    def adopt(self) -> int:
        """Follow the system's wall clock; the caller must postpone running notices first.

        Returns:
            How far the system's clock was ahead of ours, in ms; 0 if that is below `STEP_MS_MIN`
            and nothing was changed. A negative result means that our clock was set back.
        """
        offset_ns = self._wall_ns() - self._monotonic_ns()
        step_ns = offset_ns - self._offset_ns
        if abs(step_ns) < STEP_MS_MIN * 1_000_000:
            return 0
        self._offset_ns = offset_ns
        self._mark = None
        self._notify()
        return step_ns // 1_000_000

    @property
    def mark(self) -> Mark:
        """The mark of this clock, for a later process to `resume` from; `NO_MARK` if impossible.

        The mark changes only when `adopt` or `resume` changes the clock.
        """
        if self._mark is None:
            boot = self._boot_id()
            ahead_ns = self._monotonic_ns() + self._offset_ns - self._boottime_ns() if boot else 0
            self._mark = (boot, ahead_ns // 1_000_000)
        return self._mark

    def resume(self, mark: Mark, *, since_ms: int) -> int:
        """Continue from an earlier clock's mark, or from the system's time if the mark is invalid.

        Call it before the first reading of the time, because the time may go back.

        Args:
            mark: invalid if of another boot or machine, or implausible.
            since_ms: a time that the earlier clock has passed.

        Returns:
            How far the system's clock is ahead of ours now, in ms; 0 if ours started over.
        """
        self._offset_ns = self._wall_ns() - self._monotonic_ns()
        self._mark = None
        boot, ahead_ms = mark
        if not boot or boot != self._boot_id():
            return 0
        system_ms = self.now_ms()
        resumed_ms = self._boottime_ns() // 1_000_000 + ahead_ms
        if not since_ms - MARK_ABSURD_MS <= resumed_ms <= system_ms + MARK_ABSURD_MS:
            return 0
        self._offset_ns += (resumed_ms - system_ms) * 1_000_000
        self._mark = mark
        return system_ms - resumed_ms

    def resume_at(self, now_ms: int, *, since_ms: int) -> int:
        """Continue from the current time of another machine's clock, as `resume` does."""
        boot = self._boot_id()
        ahead_ms = now_ms - self._boottime_ns() // 1_000_000 if boot else 0
        return self.resume((boot, ahead_ms), since_ms=since_ms)


class ScaledClock(Clock):
    """A clock that runs faster or slower than real time, and can be stopped and advanced.

    For the emulator. Safe to read and change from any thread.
    """

    def __init__(
        self,
        speed: float = 1.0,
        *,
        start_ms: int | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Start at `start_ms` (None: the system's time), running at `speed`."""
        super().__init__(monotonic_ns)
        self._lock = allocate_lock()
        self._real_ns = monotonic_ns()
        self._base_ms = float(wall_ns() // 1_000_000 if start_ms is None else start_ms)
        self._speed = _checked_speed(speed)
        self._stopped = False

    @property
    def speed(self) -> float:
        """Seconds of this clock per real second while it is not stopped."""
        return self._speed

    @property
    def stopped(self) -> bool:
        """Whether the clock is stopped."""
        return self._stopped

    def now_ms(self) -> int:
        """Return the scaled time now."""
        with self._lock:
            return int(self._now_ms())

    def wait_s(self, until_ms: int) -> float:
        """Return the real seconds until `until_ms`; `WAIT_TIMEOUT_S` while stopped before it."""
        with self._lock:
            left_ms = until_ms - self._now_ms()
            if left_ms <= 0:
                return 0.0
            if self._stopped:
                return WAIT_TIMEOUT_S
            return min(left_ms / 1000.0 / self._speed, WAIT_TIMEOUT_S)

    def stop(self) -> None:
        """Stop the clock until `start`."""
        self._change(self._speed, stopped=True)

    def start(self) -> None:
        """Start a stopped clock at its current time."""
        self._change(self._speed, stopped=False)

    def set_speed(self, speed: float) -> None:
        """Run at `speed` from now on; a stopped clock stays stopped."""
        self._change(_checked_speed(speed), stopped=self._stopped)

    def advance(self, by_ms: int) -> None:
        """Advance the clock by `by_ms` milliseconds at once."""
        if by_ms < 0:
            now_ms = self.now_ms()
            raise ClockWentBack(now_ms=now_ms, wanted_ms=now_ms + by_ms)
        with self._lock:
            self._base_ms += by_ms
        self._notify()

    def _now_ms(self) -> float:
        if self._stopped:
            return self._base_ms
        return self._base_ms + (self._monotonic_ns() - self._real_ns) / 1e6 * self._speed

    def _change(self, speed: float, *, stopped: bool) -> None:
        with self._lock:
            now_ms = self._now_ms()
            self._base_ms = now_ms
            self._real_ns = self._monotonic_ns()
            self._speed = speed
            self._stopped = stopped
        self._notify()


def _checked_speed(speed: float) -> float:
    if not 0.0 < speed <= SPEED_MAX:  # also refuses a NaN
        raise ClockSpeedInvalid(speed=speed, speed_max=SPEED_MAX)
    return float(speed)
