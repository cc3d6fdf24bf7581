"""The control plane's process: the real run loop without its thread, started, crashed, restarted.

Everything it decides is decided by the product. No fault may be drawn here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from forewarn_base.clock import SystemClock
from forewarn_base.errors import ForewarnError
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import PlaneStimulus, PlannerReport
from forewarn_drivers import Driver, Task
from forewarn_metadata.replication.messages import DocumentChange, PublishResult
from forewarn_server.control.driver_calls import CallLimits, DriverSetup, Executor
from forewarn_server.control.gate_checks import Gate
from forewarn_server.control.inbox import Stopping, Submission
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.run_loop import RETRY_S, ControlLoop
from tests.simulator.world.crash_points import Crash, CrashPoint, Violation
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.simulated_store import SimulatedStore

NS_PER_MS = 1_000_000
NS_PER_S = 1000 * NS_PER_MS
#: Rounds of the inbox at one instant; more would mean that the service talks to itself.
TURNS_MAX = 10_000
WAKE_MS_MIN = 1
#: Calls of a driver at a time: those that hang are not to hold up the others of a long run.
CALLS_MAX = 10_000


class SteppedLoop(ControlLoop):
    """The run loop, turned by hand: what its thread does, without the thread."""

    #: Called before what was cut off is taken up: publishing and beginning may be repeated.
    on_recover: Callable[[], None] = staticmethod(lambda: None)

    def _take_up(self) -> Future[None]:
        """Take up what was left, once that was reported."""
        self.on_recover()
        return super()._take_up()

    #: Called for each commit of several requests of VMs.
    on_batch: Callable[[], None] = staticmethod(lambda: None)

    def _answer(self, first: Submission) -> int:
        """Answer a request, and others with it; say whether there were any."""
        count = super()._answer(first)
        if count > 1:
            self.on_batch()
        return count

    def empty_inbox(self) -> None:
        """Handle what is in the inbox, and look at the time after each, as the thread does."""
        for _ in range(TURNS_MAX):
            if not len(self._inbox) or self._ends():
                return
            self.turn(self._inbox.take(0))
        raise Violation("loop", "the run loop does not settle")

    def bring(self, report: PlannerReport) -> None:
        """Put into the inbox the results of work beside the loop."""
        self._inbox.put(report)

    def pass_time(self) -> None:
        """Do what time alone makes due."""
        self.turn(None)
        self._ends()

    def _ends(self) -> bool:
        """Whether it has given up, and the thread would end."""
        if self._status.ended:
            self._inbox.refuse_waiting()
        return self._status.ended

    def sleep_ns(self) -> int | None:
        """How long the thread would sleep, in ns by its own clock; None for until it is woken."""
        if self._kept or not self._status.ready:
            return int(RETRY_S * NS_PER_S)
        if self._remaining:
            return 0
        next_ms = self._next_ms()
        return None if next_ms is None else round(self._clock.wait_s(next_ms) * NS_PER_S)

    @property
    def plane(self) -> ControlPlane:
        """What it runs."""
        return self._plane

    @property
    def settled(self) -> bool:
        """Whether it has nothing left to report to the store."""
        return not self._kept and self._status.ready


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


class ObservedDriver:
    """A driver in the hands of one process, so that it is seen which of them begins."""

    def __init__(self, driver: Driver, begins: Callable[[Operation], None]) -> None:
        """Call `begins` at each beginning, before the driver is called."""
        self.name = driver.name
        self.progress = driver.progress
        self.abort = driver.abort
        self._driver = driver
        self._begins = begins

    def begin(self, task: Task) -> None:
        """Begin, once that was reported."""
        self._begins(task.operation)
        self._driver.begin(task)


@dataclass(slots=True)
class ProcessEnvironment:
    """What a process finds when it starts."""

    #: Opens the store, as every process does again.
    open_store: Callable[[], SimulatedStore]
    policy: NoticePolicy
    new_guid: Callable[[], str]
    drivers: Mapping[str, Driver]
    default_driver: str
    #: Shows a change to every metadata node of this service; then the future is done.
    show: Callable[[SimulatedControl, DocumentChange], Future[PublishResult]]
    #: Called at each beginning, before a driver is.
    begins: Callable[[SimulatedControl, Operation], None]
    #: Called before a process takes up what was cut off: at its start, or after a lost commit.
    recovers: Callable[[], None]
    #: Called when the process has ended, and when it has read its store, with how far its clock
    #: is ahead of the one before it, in ms: only within one boot of one machine can it go on.
    process_ended: Callable[[SimulatedControl, str], None]
    process_started: Callable[[SimulatedControl, int], None]
    #: Where a process has work done beside its loop, and the gates its settings have.
    new_executor: Callable[[SimulatedControl], Executor]
    gates: Mapping[str, Gate]
    bugs: BugLog = field(default_factory=BugLog)


class SimulatedControl:
    """The process that runs the control plane, up or down."""

    def __init__(
        self,
        queue: EventQueue,
        crash_point: CrashPoint,
        environment: ProcessEnvironment,
        *,
        boot: str = "one boot",
    ) -> None:
        """Begin down; `boot` is that of the machine it runs on."""
        self._queue = queue
        self._crash_point = crash_point
        self._environment = environment
        self.loop: SteppedLoop | None = None
        #: The store as the running process has it open.
        self.store: SimulatedStore | None = None
        #: Whether the process is stopped in its tracks, alive and unaware of it.
        self.paused = False
        self.boot = boot
        #: How long the loop is busy after what it does, in ms: its store is slow. What is asked of
        #: it meanwhile waits, and is decided on together.
        self.slow_ms = 0
        self._busy: SteppedLoop | None = None
        #: Commits of several requests of VMs.
        self.batches = 0
        #: Changes that the node in it is still to be shown.
        self.late_shows = 0
        self._held: list[Callable[[], None]] = []
        self._lost = ""
        #: How far the machine's wall clock is from its monotonic one, which counts from 1970
        #: here, in ms; may be stepped at any time.
        self.wall_offset_ms = 0
        #: By how much too fast the machine's clocks run, and since when, by true time and theirs.
        self._rate_ppm = 0
        self._since_ms, self._since_ns = queue.now_ms, queue.now_ms * NS_PER_MS
        self._wake_at_ms = 0
        self._turning = False
        self.clock = self._new_clock()

    def run_at(self, rate_ppm: int) -> None:
        """Let the machine's clocks run this many millionths too fast from now on."""
        self._since_ms, self._since_ns = self._queue.now_ms, self._own_ns()
        self._rate_ppm = rate_ppm

    def set_wall(self, off_ms: int) -> None:
        """Step the machine's wall clock to this many ms off true time, whatever it was before."""
        self.wall_offset_ms = self._queue.now_ms + off_ms - self._own_ns() // NS_PER_MS

    @property
    def up(self) -> bool:
        """Whether the process runs."""
        return self.loop is not None

    @property
    def plane(self) -> ControlPlane:
        """The running control plane."""
        assert self.loop is not None
        return self.loop.plane

    def start(
        self, after: SimulatedControl | None = None, store: SimulatedStore | None = None
    ) -> bool:
        """Start the process; False if it could not open its store, or crashed again.

        Args:
            after: the process before it, if that ran on another machine.
            store: the store, where a standby has opened it already.
        """
        assert self.loop is None
        environment = self._environment
        before, self.clock = self.clock, self._new_clock()
        self.store = store or environment.open_store()
        try:
            plane = ControlPlane(self.store, environment.policy, environment.new_guid)
        except ForewarnError:
            self.clock = before
            return False
        self.loop = SteppedLoop(
            plane,
            self.clock,
            drivers=DriverSetup(
                {
                    name: ObservedDriver(driver, partial(environment.begins, self))
                    for name, driver in environment.drivers.items()
                },
                environment.default_driver,
                CallLimits(max_concurrent=CALLS_MAX),
                environment.new_executor(self),
                environment.gates,
            ),
            publisher=self,
            on_lost=self._loses,
        )
        self.loop.on_recover = environment.recovers
        self.loop.on_batch = self._count_batch
        self._wake_at_ms = 0
        self._lost = ""
        self.late_shows = 0
        before = after.clock if after is not None else before
        jumped_ms = self.clock.now_ms() - before.now_ms()
        goes_on = plane.state.mark[0] == self.boot
        environment.process_started(self, 0 if goes_on else max(jumped_ms, 0))
        self._run(self.loop.recover)
        return self.up

    def crash(self, why: str = "killed") -> None:
        """End the process; whatever it had not written down is lost."""
        self._crash_point.armed = ""
        self.end(why)

    def end(self, why: str) -> None:
        """End the process."""
        self.loop = None
        self.paused = False
        self._held.clear()
        self._environment.process_ended(self, why)

    def pause(self) -> None:
        """Stop the process in its tracks; what is asked of it waits."""
        assert self.loop is not None
        self.paused = True

    def resume(self) -> None:
        """Let it go on where it stood, with everything that has come meanwhile."""
        self.paused = False
        held, self._held = self._held, []
        for act in held:
            act()
        self.turn()
        if self.loop is not None:
            self._run(self.loop.pass_time)

    def once_awake(self, act: Callable[[], None]) -> None:
        """Do something in the process: now, or when it goes on."""
        if self.paused:
            self._held.append(act)
        else:
            act()

    def _loses(self, why: ForewarnError) -> None:
        """Another process is the writer: the daemon ends as soon as its loop has."""
        self._lost = str(why)

    def submit(self, stimulus: PlaneStimulus, actor: str) -> Future[StepResult]:
        """Ask for something and have it handled; a dead process refuses the connection."""
        if self.loop is None:
            refused: Future[StepResult] = Future()
            refused.set_exception(Stopping())
            return refused
        answer = self.loop.submit(stimulus, actor)
        self.turn()
        return answer

    def note(self, stimulus: PlaneStimulus, actor: str) -> None:
        """Report something nobody waits for."""
        if self.loop is not None:
            self.loop.note(stimulus, actor)
            self.turn()

    def publish(self, change: DocumentChange) -> Future[PublishResult]:
        """Hand a change on, as the product's publisher does."""
        self._crash_point.passes("before publish")
        shown = self._environment.show(self, change)
        self._crash_point.passes("after publish")
        return shown

    def turn(self) -> None:
        """Handle what waits; to be called after anything was put into the inbox."""
        loop = self.loop
        if loop is None or self._turning or self.paused or self._busy is loop:
            return
        self._run(loop.empty_inbox)
        if self.slow_ms:
            self._busy = loop
            self._queue.after(self.slow_ms, lambda: self._is_free(loop))

    def _is_free(self, loop: SteppedLoop) -> None:
        """The store has written what the loop has last decided."""
        self._busy = None
        if len(loop._inbox):
            self.turn()
        else:
            self._wake(loop)

    def _count_batch(self) -> None:
        self.batches += 1

    def _run(self, work: Callable[[], object]) -> None:
        loop = self.loop
        assert loop is not None
        self._turning = True
        try:
            work()
            loop.empty_inbox()
        except Crash as crash:
            self.crash(str(crash))
        finally:
            self._turning = False
        if self._environment.bugs.bugs:
            bug = self._environment.bugs.bugs[0]
            raise Violation("loop", f"the run loop survived a bug: {bug!r}") from bug
        if self.loop is loop and self._lost:
            self.end(self._lost)
        if self.loop is loop:
            self._plan_to_wake(loop)

    def _plan_to_wake(self, loop: SteppedLoop) -> None:
        sleep_ns = loop.sleep_ns()
        if sleep_ns is None:
            return
        sleep_ms = -(-sleep_ns // (NS_PER_MS + self._rate_ppm))  # a millionth of a ms is one ns
        at_ms = self._queue.now_ms + max(sleep_ms, WAKE_MS_MIN)
        if at_ms < self._wake_at_ms or self._wake_at_ms <= self._queue.now_ms:
            self._wake_at_ms = at_ms
            self._queue.at(at_ms, lambda: self._wake(loop))

    def _wake(self, loop: SteppedLoop) -> None:
        if self.loop is loop and not self.paused and self._busy is not loop:
            self._run(loop.pass_time)

    def _new_clock(self) -> SystemClock:
        boot = self.boot
        return SystemClock(
            self._wall_ns, self._own_ns, boottime_ns=self._own_ns, boot_id=lambda: boot
        )

    def _own_ns(self) -> int:
        """Time by the machine's monotonic clock, which nobody steps, and that since its boot."""
        passed_ms = self._queue.now_ms - self._since_ms
        return self._since_ns + passed_ms * (NS_PER_MS + self._rate_ppm)

    def _wall_ns(self) -> int:
        return self._own_ns() + self.wall_offset_ms * NS_PER_MS
