"""Moves the emulator's clock forward from one deadline to the next.

At each deadline, other modules do the due work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from forewarn_base.clock import ScaledClock
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.maintenance import Checking
from forewarn_drivers.simulated import SimulatedDriver
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.run_loop import ControlLoop

T = TypeVar("T")

#: Most stops in one move; a storm of a day needs a few thousand.
STOPS_MAX = 100_000
#: Most checks for unfinished work at one stop.
LOOKS_MAX = 20_000
#: High speed, in emulated seconds per real second, and most checks at one stop at this speed.
FAST, FAST_LOOKS_MAX = 1_000.0, 1_000
#: Real seconds between two later checks for unfinished work.
LOOK_S = 0.001


class Sleeper(Protocol):
    """A component that acts at times of the emulator's clock."""

    @property
    def waits_until_ms(self) -> int | None:
        """Time of the component's next action, ms since the epoch UTC; None: no action."""

    @property
    def quiet(self) -> bool:
        """Whether the component has done all due actions."""


class ClockControl:
    """Moves a clock forward without skipping actions."""

    def __init__(
        self,
        clock: ScaledClock,
        control: ControlLoop,
        *,
        driver: SimulatedDriver,
        sleepers: Callable[[], Iterable[Sleeper]],
        report_polls: Callable[[], None],
    ) -> None:
        """`report_polls` passes polls to the control loop, so that they count at their own time."""
        self._clock = clock
        self._control = control
        self._driver = driver
        self._sleepers = sleepers
        self._report_polls = report_polls
        self._one_at_a_time = asyncio.Lock()

    async def advance(self, by_ms: int) -> None:
        """Advance the clock by `by_ms` milliseconds; return after all effects have happened."""
        assert by_ms >= 0, by_ms
        async with self._one_at_a_time:
            left_ms = by_ms
            await self.settle()
            for _ in range(STOPS_MAX):
                if left_ms <= 0:
                    return
                now_ms = self._clock.now_ms()
                stop_ms = await self._next_ms(now_ms)
                jump_ms = left_ms if stop_ms is None else min(left_ms, max(stop_ms - now_ms, 1))
                self._clock.advance(jump_ms)
                left_ms -= jump_ms
                await self.settle()
            self._clock.advance(left_ms)

    async def settle(self) -> None:
        """Wait until all due work is done, and earlier polls are recorded. See B-2."""
        self._report_polls()
        for look in range(LOOKS_MAX if self._clock.speed < FAST else FAST_LOOKS_MAX):
            await self._read(_nothing)  # afterwards the control loop has processed the current time
            # Check before and after, because a scenario may request work after the check for
            # unfinished work.
            quiet = all(sleeper.quiet for sleeper in self._sleepers())
            busy = await self._read(self._busy)
            if quiet and not busy and all(sleeper.quiet for sleeper in self._sleepers()):
                return
            await asyncio.sleep(LOOK_S if look else 0)

    async def _next_ms(self, now_ms: int) -> int | None:
        def deadlines(plane: ControlPlane) -> list[int]:
            ends = [
                self._driver.next_ms(operation, now_ms)
                for operation in plane.state.operations.values()
                if self._is_simulated(plane, operation)
            ]
            deadline_ms = plane.next_deadline_ms(now_ms)
            return ends if deadline_ms is None else [*ends, deadline_ms]

        times = await self._read(deadlines)
        times += [s.waits_until_ms for s in self._sleepers() if s.waits_until_ms is not None]
        return min((each for each in times if each > now_ms), default=None)

    def _busy(self, plane: ControlPlane) -> bool:
        """Return whether any operation or maintenance needs an action now."""
        now_ms = self._clock.now_ms()
        for maintenance in plane.state.maintenances.values():
            if maintenance.plan_wanted or isinstance(maintenance.phase, Checking):
                return True
        for operation in plane.state.operations.values():
            if operation.state is OperationState.ANNOUNCED and not operation.notice.shown_ms:
                return True
            waits_to_begin = (
                operation.state is OperationState.RUNNING and not operation.execution.begun_ms
            )
            if waits_to_begin and not operation.reason:
                return True
            if self._is_simulated(plane, operation) and self._driver.end_ms(operation) <= now_ms:
                return True
        return False

    def _is_simulated(self, plane: ControlPlane, operation: Operation) -> bool:
        """Return whether an operation is running on the simulated driver."""
        if operation.state is not OperationState.RUNNING or operation.reason:
            return False
        host = plane.state.topology.hosts.get(operation.host)
        return (host.driver if host else "") in {"", SimulatedDriver.name}

    async def _read(self, query: Callable[[ControlPlane], T]) -> T:
        return await asyncio.wrap_future(self._control.read(query))


def _nothing(_: ControlPlane) -> None:
    """Return None, as a query without effect."""
