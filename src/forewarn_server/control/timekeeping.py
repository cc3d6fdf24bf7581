"""Chooses the service's time: the service's own clock during a notice, otherwise the system's.

A step of the system's clock during a notice is followed after an hour at the latest. `clock.py`
defines the clocks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from forewarn_base.clock import NO_MARK, STEP_MS_MIN, Clock, SystemClock
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.stimulus import ClockMarked, PutOff
from forewarn_server.control.plane import ControlPlane

log = logging.getLogger("forewarn.control")

#: Interval at which the loop checks for steps of the system's clock, in milliseconds.
STEP_LOOK_MS = 60_000
#: How long a clock step waits for running notices to end, in milliseconds. Then the service follows
#: the step: a step forward postpones announced work, and a step back lengthens notice.
STEP_WAIT_MS = 3_600_000
#: Steps smaller than this are not logged, in milliseconds.
STEP_SAID_MS = 1000


class Timekeeping:
    """Manages the clock of one control plane; on the loop's thread only.

    The clock's mark is durable before any decision uses its time, so that a restart within the same
    boot continues with the same time. Another machine continues with the database's clock plus the
    writer's lead over it. N-4, H-6, ADR 0012.
    """

    def __init__(self, clock: Clock, plane: ControlPlane) -> None:
        """Start without a change; virtual and scaled clocks never change."""
        self._clock = clock if isinstance(clock, SystemClock) else None
        self._plane = plane
        self._resumed = False
        #: How far the chosen clock was ahead of the previous one, until polls are corrected; in ms.
        self._step_ms = 0
        #: Time of the next check for a step, ms since the epoch UTC.
        self._look_ms = 0
        #: When a waiting step was first seen, ms since the epoch UTC.
        self._seen_ms: int | None = None

    def take_up(self) -> None:
        """Continue the clock of the previous process during a notice; otherwise use the system's.

        Call it before any decision or publication, and again whenever the state was read from the
        store.

        Raises:
            ForewarnError: the store could not keep the clock's mark; nothing may be decided.
        """
        clock = self._clock
        if clock is None:
            return
        if not self._resumed:  # only once: between two tries the system's clock may be stepped
            self._step_ms, self._resumed = self._resume(clock), True
        self._keep_mark(clock)
        self._forgive_silence(clock, self._step_ms)
        self._step_ms = 0

    def follow(self, put_off: Callable[[PutOff], object]) -> int:
        """Follow a step of the system's clock if no notice runs, or after a wait; return it in ms.

        A negative step goes back; 0: none. `put_off` commits and publishes the later NotBefore of
        announced work.

        Raises:
            ForewarnError: the store could not keep the clock's mark; nothing may be decided until
                `take_up` succeeds.
        """
        clock = self._clock
        if clock is None or clock.now_ms() < self._look_ms:
            return 0
        step_ms = 0
        if not self._announced() or self._has_waited(clock):
            step_ms = self._adopt_step(clock, put_off)
        self._look_ms = clock.now_ms() + STEP_LOOK_MS
        return step_ms

    def _adopt_step(self, clock: SystemClock, put_off: Callable[[PutOff], object]) -> int:
        """Take the system's time; return how far it was ahead, in ms.

        Running notices keep their length: announced work moves with the skipped time.
        """
        skipped_ms = clock.skipped_ms()
        if self._announced() and skipped_ms > 0:
            put_off(PutOff(skipped_ms))
        step_ms = clock.adopt()
        self._seen_ms = None
        _log_step("the system's clock was %.3f s ahead of the service's, which adopts it", step_ms)
        self._keep_mark(clock)
        self._forgive_silence(clock, step_ms)
        return step_ms

    def _has_waited(self, clock: SystemClock) -> bool:
        """Whether a clock step has waited long enough for running notices."""
        if abs(clock.off_ms()) < STEP_SAID_MS or not clock.mark[0]:
            self._seen_ms = None  # the jump is unknown without a boot id
            return False
        if self._seen_ms is None:
            self._seen_ms = clock.now_ms()
        return clock.now_ms() - self._seen_ms >= STEP_WAIT_MS

    def _resume(self, clock: SystemClock) -> int:
        """Choose the old or the new time; return how far the new time is ahead, in ms."""
        operations = (self._plane.state.operations[number] for number in self._announced())
        announced_ms = max((each.announced_ms for each in operations), default=0)
        mark = self._plane.state.mark
        step_ms = clock.resume(mark, since_ms=announced_ms)
        if announced_ms:
            writer_ms = self._plane.store.writer_now_ms() if clock.mark[0] != mark[0] else None
            if writer_ms is not None:  # the mark is from another machine
                step_ms = clock.resume_at(writer_ms, since_ms=announced_ms)
            text = "the system's clock is %.3f s ahead; a notice goes on by the service's own"
            _log_step(text, step_ms)
            return 0
        if abs(step_ms) < STEP_MS_MIN:
            return 0
        clock.resume(NO_MARK, since_ms=0)
        return step_ms

    def _announced(self) -> Collection[int]:
        """Return the operations whose notice is running."""
        return self._plane.state.places.of(("state", OperationState.ANNOUNCED.value))

    def _keep_mark(self, clock: SystemClock) -> None:
        """Write the clock's mark to the store if needed: once per start and once per step."""
        if clock.mark != self._plane.state.mark:
            marked = ClockMarked(*clock.mark)
            self._plane.commit(marked, actor="clock", now_ms=clock.now_ms())
            assert clock.mark == self._plane.state.mark

    def _forgive_silence(self, clock: SystemClock, step_ms: int) -> None:
        """Do not count skipped time as silence of a group. Source: B-2, F-5."""
        if abs(step_ms) >= STEP_SAID_MS:
            self._plane.forgive_silence(step_ms, clock.now_ms())


def _log_step(text: str, step_ms: int) -> None:
    if abs(step_ms) >= STEP_SAID_MS:
        log.warning(text, step_ms / 1000, extra={"action": "clock.stepped"})
