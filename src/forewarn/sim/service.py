"""The control plane's process: the real run loop without its thread, started, crashed, restarted.

Everything it decides is decided by the product. No fault may be drawn here.
"""

from __future__ import annotations

import logging
import queue
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forewarn.clock import SystemClock
from forewarn.control.loop import RETRY_S, ControlLoop, Stopping
from forewarn.control.plane import ControlPlane
from forewarn.errors import ForewarnError
from forewarn.sim.crash import Crash, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from forewarn.control.plane import Committed
    from forewarn.core.policy import Policy
    from forewarn.core.stimulus import Stimulus
    from forewarn.drivers import Driver
    from forewarn.feed import Change
    from forewarn.sim.agenda import Agenda
    from forewarn.sim.archive import Archive
    from forewarn.sim.crash import Fuse

NS_PER_MS = 1_000_000
TURNS_MAX = 10_000
"""Rounds of the inbox at one instant; more would mean that the service talks to itself."""
WAKE_MS_MIN = 1


class Stepped(ControlLoop):
    """The run loop, turned by hand: what its thread does, without the thread."""

    def turn(self) -> None:
        """Handle what is in the inbox, and look at the time after each, as the thread does."""
        for _ in range(TURNS_MAX):
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                return
            self._handle(item)
            self._pass_time()
        raise Violation("loop", "the run loop does not come to rest")

    def pass_time(self) -> None:
        """Do what time alone makes due."""
        self._handle(None)
        self._pass_time()

    def sleep_ms(self) -> int | None:
        """How long the thread would sleep, in ms of true time; None for until it is woken."""
        if self._unreported or self._uncertain:
            return int(RETRY_S * 1000)
        next_ms = self._next_ms()
        return None if next_ms is None else round(self._clock.wait_s(next_ms) * 1000)

    @property
    def plane(self) -> ControlPlane:
        """What it runs."""
        return self._plane

    @property
    def settled(self) -> bool:
        """Whether it has nothing left to tell the store."""
        return not self._unreported and not self._uncertain


class BugLog(logging.Handler):
    """Takes what the run loop logs with a traceback: an exception it had to survive is a bug."""

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__(logging.ERROR)
        self.bugs: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exception of a record, if it has one."""
        if record.exc_info and record.exc_info[1] is not None:
            self.bugs.append(record.exc_info[1])


@dataclass(slots=True)
class Surroundings:
    """What the process finds when it starts."""

    #: Opens the store, as every process does anew.
    open_archive: Callable[[], Archive]
    policy: Policy
    new_guid: Callable[[], str]
    drivers: Mapping[str, Driver]
    default_driver: str
    #: Shows a change to every metadata node of this service; then settles the future.
    show: Callable[[Change, Future[None]], None]
    #: Called when the process has ended, and when it is up again with how far its clock has
    #: jumped ahead by that, in ms.
    died: Callable[[str], None] = lambda _: None
    risen: Callable[[int], None] = lambda _: None
    bugs: BugLog = field(default_factory=BugLog)


class Service:
    """The process that runs the control plane, up or down."""

    def __init__(self, agenda: Agenda, fuse: Fuse, surroundings: Surroundings) -> None:
        """Begin down."""
        self._agenda = agenda
        self._fuse = fuse
        self._around = surroundings
        self.loop: Stepped | None = None
        #: How far the machine's wall clock is from true time, in ms; may be stepped at any time.
        self.wall_offset_ms = 0
        self._wake_at_ms = 0
        self._turning = False
        self.clock = self._new_clock()

    @property
    def up(self) -> bool:
        """Whether the process runs."""
        return self.loop is not None

    @property
    def plane(self) -> ControlPlane:
        """The running control plane."""
        assert self.loop is not None
        return self.loop.plane

    def start(self) -> bool:
        """Start the process; False if it could not open its store, or crashed again."""
        assert self.loop is None
        around = self._around
        before, self.clock = self.clock, self._new_clock()
        try:
            plane = ControlPlane(around.open_archive(), around.policy, around.new_guid)
        except ForewarnError:
            self.clock = before
            return False
        self.loop = Stepped(
            plane,
            self.clock,
            drivers=around.drivers,
            publisher=self,
            default_driver=around.default_driver,
        )
        self._wake_at_ms = 0
        around.risen(max(self.clock.now_ms() - before.now_ms(), 0))
        self._run(self.loop.recover)
        return self.up

    def crash(self, why: str = "killed") -> None:
        """End the process; whatever it had not written down is lost."""
        self.loop = None
        self._fuse.armed = ""
        self._around.died(why)

    def submit(self, stimulus: Stimulus, actor: str) -> Future[Committed]:
        """Ask for something and have it handled; a dead process refuses the connection."""
        if self.loop is None:
            refused: Future[Committed] = Future()
            refused.set_exception(Stopping())
            return refused
        answer = self.loop.submit(stimulus, actor)
        self.turn()
        return answer

    def note(self, stimulus: Stimulus, actor: str) -> None:
        """Report something nobody waits for."""
        if self.loop is not None:
            self.loop.note(stimulus, actor)
            self.turn()

    def publish(self, change: Change) -> Future[None]:
        """Hand a change on, as the product's publisher does."""
        self._fuse.passes("before publish")
        shown: Future[None] = Future()
        self._around.show(change, shown)
        self._fuse.passes("after publish")
        return shown

    def turn(self) -> None:
        """Handle what waits; to be called after anything was put into the inbox."""
        if self.loop is not None and not self._turning:
            self._run(self.loop.turn)

    def _run(self, work: Callable[[], object]) -> None:
        loop = self.loop
        assert loop is not None
        self._turning = True
        try:
            work()
            loop.turn()
        except Crash as crash:
            self.crash(str(crash))
        finally:
            self._turning = False
        if self._around.bugs.bugs:
            bug = self._around.bugs.bugs[0]
            raise Violation("loop", f"the run loop survived a bug: {bug!r}") from bug
        if self.loop is loop:
            self._plan_to_wake(loop)

    def _plan_to_wake(self, loop: Stepped) -> None:
        sleep_ms = loop.sleep_ms()
        if sleep_ms is None:
            return
        at_ms = self._agenda.now_ms + max(sleep_ms, WAKE_MS_MIN)
        if at_ms < self._wake_at_ms or self._wake_at_ms <= self._agenda.now_ms:
            self._wake_at_ms = at_ms
            self._agenda.at(at_ms, lambda: self._wake(loop))

    def _wake(self, loop: Stepped) -> None:
        if self.loop is loop:
            self._run(loop.pass_time)

    def _new_clock(self) -> SystemClock:
        return SystemClock(
            self._wall_ns, self._true_ns, boottime_ns=self._true_ns, boot_id=lambda: "one boot"
        )

    def _true_ns(self) -> int:
        return self._agenda.now_ms * NS_PER_MS

    def _wall_ns(self) -> int:
        return (self._agenda.now_ms + self.wall_offset_ms) * NS_PER_MS
