"""An asyncio event loop in simulated time: what a process runs on, without threads and sockets.

Callbacks, timers, futures and tasks of the standard library run on it unmodified. Nothing of the
product may be known here, and no stream (`memory_transport.py`).
"""

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from tests.simulator.world.crash_points import Violation
from tests.simulator.world.event_queue import START_MS, EventQueue

T = TypeVar("T")

# The interface for event loops.
_running_loop, _set_running_loop = events._get_running_loop, events._set_running_loop

#: Callbacks run at one instant; more would mean that they call each other without an end.
ROUNDS_MAX = 1_000_000


class ProcessKilled(BaseException):
    """The process of a loop ends here and now, in the middle of what it does.

    No `Exception`: nothing in the product may catch it, as nothing can catch SIGKILL.
    """


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process; it ends with it, or stands still with it."""

    def __init__(self, queue: EventQueue) -> None:
        """Begin with nothing to do."""
        self._queue = queue
        self._ready: deque[asyncio.Handle] = deque()
        self._failure: BaseException | None = None
        self._draining = self._woken = self._paused = self._ended = False

    # ---- what the simulator does with it -------------------------------------------------------

    def run(self, act: Callable[..., T], *arguments: object) -> T:
        """Do something as a callback of this loop does it, and what follows from that at once."""
        before = _running_loop()
        if before is not self:
            _set_running_loop(self)
        try:
            result = act(*arguments)
            if self._ready and not self._draining:
                self._drain()
        finally:
            if before is not self:
                _set_running_loop(before)
        return result

    def pause(self) -> None:
        """Stand still, as a process that is stopped."""
        self._paused = True

    def resume(self) -> None:
        """Go on with everything that has come meanwhile."""
        self._paused = False
        self._wake()

    def end(self) -> None:
        """End as a killed process does: nothing of it is ever done again."""
        self._ended = True
        self._ready.clear()

    @property
    def runs(self) -> bool:
        """Whether it does anything."""
        return not (self._ended or self._paused)

    @property
    def ended(self) -> bool:
        """Whether its process is over."""
        return self._ended

    # ---- what callbacks, futures and tasks use -------------------------------------------------

    def time(self) -> float:
        """Return seconds since the world began."""
        return (self._queue.now_ms - START_MS) / 1000

    def get_debug(self) -> bool:
        """Return to futures that nobody debugs."""
        return False

    def is_running(self) -> bool:
        """Return whether callbacks are run now."""
        return _running_loop() is self

    def is_closed(self) -> bool:
        """Return whether its process is over; nothing refuses to be scheduled, it is dropped."""
        return False

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Run a coroutine as a task of this loop."""
        return asyncio.Task(coro, loop=self, name=name or "task", context=context)

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        """Do something next."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self._ended:
            self._ready.append(handle)
            self._wake()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay_s: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Do something this many seconds from now."""
        return self.call_at(self.time() + delay_s, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Do something at a time of this loop: in the first whole millisecond that is not before.

        A part of a millisecond that is less than arithmetic can err by does not count.
        """
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        at_ms = START_MS - int(-(when * 1000 - 1e-4) // 1)
        self._queue.at(at_ms, partial(self._due, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Take note of nothing: a cancelled timer is passed over when it is due."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Take note of what a callback raised; the simulation ends with it."""
        error = context.get("exception")
        if isinstance(error, BaseException) and self._failure is None and not self._ended:
            self._failure = error

    # ---- inside --------------------------------------------------------------------------------

    def _due(self, timer: asyncio.TimerHandle) -> None:
        if not timer.cancelled() and not self._ended:
            self._ready.append(timer)
            self._wake()

    def _wake(self) -> None:
        """Have what is ready done at this instant, after what is already noted for it."""
        if not (self._draining or self._woken or self._paused) and self._ready:
            self._woken = True
            self._queue.after(0, self._woken_up)

    def _woken_up(self) -> None:
        self._woken = False
        if self._ready and not self._draining:
            self.run(_nothing)

    def _drain(self) -> None:
        """Run what is ready, until nothing is.

        Raises:
            Violation: a callback raised, which no callback of the product may.
        """
        self._draining = True
        ready, rounds = self._ready, 0
        try:
            while ready and not self._paused:
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
                    if self._failure is not None:
                        self._raise_failure()
                rounds += 1
                if rounds > ROUNDS_MAX:
                    raise Violation("loop", "an event loop does not settle")
        finally:
            self._draining = False

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if isinstance(failure, Exception):
            raise Violation("loop", f"a callback of a shell failed: {failure!r}") from failure
        if failure is not None:
            raise failure


def _nothing() -> None:
    """Do nothing; what is ready is done after it."""
