"""A run loop with clocks, nodes and drivers in the test's own hands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from forewarn_base.clock import SystemClock
from forewarn_base.errors import ForewarnError
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import Changes, Entry
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import (
    ChangeTopology,
    Complete,
    Enable,
    PlaneStimulus,
    RequestMaintenance,
)
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_core.fleet.why import why_maintenance
from forewarn_core.requests import ApprovalRequest
from forewarn_drivers import Driver, Progress, Task
from forewarn_drivers.manual import ManualDriver
from forewarn_metadata.replication import messages as feed
from forewarn_metadata.replication.messages import PublishResult
from forewarn_server.control.driver_calls import CallLimits, DriverSetup, Executor
from forewarn_server.control.gate_checks import Gate
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.planning import Planner
from forewarn_server.control.run_loop import ControlLoop
from forewarn_store import HistoryPage, Store, open_store
from forewarn_store.errors import StoreUncertain
from tests.simulator.world.side_work import InlineExecutor
from tests.waiting import LIMIT_S

NS_PER_MS = 1_000_000


class Noting(ManualDriver):
    """A driver that notes what it is told and asked; some times it does not hear of an end."""

    def __init__(self) -> None:
        """Hear at once."""
        self.deaf = 0
        self.told: list[str] = []
        self.begun: list[int] = []
        self.asked: list[int] = []
        self.again_after_ms = 0

    def begin(self, task: Task) -> None:
        """Note which attempt is begun."""
        self.begun.append(task.attempt)

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Note which attempt is asked after."""
        self.asked.append(task.attempt)
        return Progress(again_ms=now_ms + self.again_after_ms if self.again_after_ms else 0)

    def abort(self, task: Task) -> None:
        """Hear it, or not."""
        self.told.append(task.operation.id)
        if self.deaf:
            self.deaf -= 1
            raise OSError("its board is dark")


class Shown:
    """Publishes to nobody, at once or when it is told to."""

    def __init__(self) -> None:
        """Publish at once."""
        self.late = False
        #: What nodes do with what is published, and whether they can be told at all.
        self.result = PublishResult()
        self.fails = False
        self.raises = False
        self.changes: list[feed.DocumentChange] = []
        self._waiting: list[Future[PublishResult]] = []

    def publish(self, change: feed.DocumentChange) -> Future[PublishResult]:
        """Say that everybody shows it."""
        self.changes.append(change)
        if self.raises:
            raise OSError("the feed is broken")
        done: Future[PublishResult] = Future()
        if self.fails:
            done.set_exception(OSError("the feed is broken"))
        elif self.late:
            self._waiting.append(done)
        else:
            done.set_result(self.result)
        return done

    def catch_up(self) -> None:
        """Say that everybody shows what was published meanwhile."""
        self.late = False
        while self._waiting:
            self.show_last()

    def show_last(self) -> None:
        """Say that everybody shows the last thing that was published and is not yet shown."""
        self._waiting.pop().set_result(self.result)

    def show_first(self) -> None:
        """Say that everybody shows what has waited longest."""
        self._waiting.pop(0).set_result(self.result)


class Running:
    """A run loop whose machine's clocks are set by hand."""

    def __init__(
        self,
        *drivers: Driver,
        executor: Executor | None = None,
        limits: CallLimits | None = None,
        store: Store | None = None,
        planner: Planner | None = None,
        gates: Mapping[str, Gate] | None = None,
    ) -> None:
        """Start with one VM on one host; it has asked once.

        Args:
            drivers: further ones, beside the manual one that notes.
            executor: makes the calls of drivers; they are made at once where there is none.
            limits: of those calls.
            store: an empty one, in memory where there is none.
            planner: makes plans; they are made on the executor's thread where there is none.
            gates: those of the settings.
        """
        self.executor = executor or InlineExecutor()
        self.limits = limits or CallLimits()
        self.planner = planner
        self.gates = gates or {}
        self.wall_ms = 1_800_000_000_000
        self.elapsed_ms = 0
        #: How long the machine was suspended since the loop was started, in ms.
        self.suspended_ms = 0
        self.boot = "a boot"
        self.driver = Noting()
        self.publisher = Shown()
        self.lost: list[ForewarnError] = []
        self.drivers: dict[str, Driver] = {each.name: each for each in (self.driver, *drivers)}
        self.store = store or open_store("sqlite::memory:")
        self._numbers = itertools.count(1)
        self.start()
        self.ask(ChangeTopology(hosts=(Host("h"),), groups=(Group("g"),), vms=(Vm("v", "h", "g"),)))
        self.ask(Enable("g"))

    def start(self, *, runs: bool = True) -> None:
        """Start the loop on the store as it is; the monotonic clock starts over.

        `runs`: whether it goes on after it has taken up what was left.
        """
        started_ms, self.suspended_ms = self.elapsed_ms, 0
        self.clock = SystemClock(
            lambda: self.wall_ms * NS_PER_MS,
            lambda: (self.elapsed_ms - started_ms - self.suspended_ms) * NS_PER_MS,
            boottime_ns=lambda: self.elapsed_ms * NS_PER_MS,
            boot_id=lambda: self.boot,
        )
        self.plane = ControlPlane(
            self.store, NoticePolicy(), lambda: f"EVENT-{next(self._numbers)}"
        )
        self.loop = ControlLoop(
            self.plane,
            self.clock,
            drivers=DriverSetup(
                self.drivers,
                "manual",
                self.limits,
                self.executor,
                self.gates,
                planner=self.planner,
            ),
            publisher=self.publisher,
            on_lost=self.lost.append,
        )
        self.loop.recover()
        self.recovered_ms = self.clock.now_ms()
        if runs:
            self.loop.start()

    def restart(self, by_ms: int, *, step_ms: int = 0, boot: str = "a boot") -> int:
        """Start the loop again, and return what its clock is ahead of the first one, in ms.

        Args:
            by_ms: how long it was down.
            step_ms: how the system's clock was stepped meanwhile.
            boot: the machine's boot it starts in.
        """
        self.loop.stop()
        before_ms, elapsed_ms = self.clock.now_ms(), self.elapsed_ms
        self.elapsed_ms += by_ms
        self.wall_ms += by_ms + step_ms
        self.boot = boot
        self.start()
        return self.recovered_ms - before_ms - (self.elapsed_ms - elapsed_ms)

    def ask(self, stimulus: PlaneStimulus) -> StepResult:
        """Ask for something."""
        return self.loop.submit(stimulus, "test").result(LIMIT_S)

    def pass_time(self, by_ms: int = 61_000, *, step_ms: int = 0) -> int:
        """Let time pass, step the system's clock, and return what the service's shows then."""
        self.elapsed_ms += by_ms
        self.wall_ms += by_ms + step_ms
        self.loop.wake()
        self.settle()
        return self.loop.read(lambda _: self.clock.now_ms()).result(LIMIT_S)

    def settle(self) -> None:
        """Let the loop do all that follows from what has happened, but for calls on threads."""
        quiet = 0
        while quiet < 2:  # behind each look it passes its time, of which more may come
            waiting = self.loop.read(lambda _: len(self.loop._inbox)).result(LIMIT_S)
            quiet = 0 if waiting else quiet + 1

    def announce(self) -> Operation:
        """Announce work on the host, and let the loop take in what follows.

        A notice that it does not know to be shown is given again after a restart.
        """
        work = RequestMaintenance(cause=Cause.HOST_REBOOT, targets=("h",))
        operation = self.ask(work).operations[0]
        self.settle()
        return operation

    def end(self, operation: Operation) -> None:
        """Let an operation start, and end it without its driver."""
        self.ask(ApprovalRequest("v", operation.events, ""))
        self.pass_time()
        self.ask(Complete(operation.number))
        self.pass_time()

    def why_maintenance(self, number: int) -> str:
        """Return the sentence of what a maintenance waits for first."""

        def why(plane: ControlPlane) -> str:
            draft = plane.draft(self.clock.now_ms())
            found = why_maintenance(draft, plane.state.maintenances[number])
            return found.sentence(f"m-{number}") if found else ""

        return self.loop.read(why).result(LIMIT_S)

    def entries(self, operation: Operation) -> list[Entry]:
        """Return what happened to an operation, oldest first."""
        page = HistoryPage(operation=operation.number)
        return [recorded.entry for recorded in self.store.history(page)]

    def history(self, operation: Operation) -> list[str]:
        """Return the actions of what happened to an operation, oldest first."""
        return [entry.action for entry in self.entries(operation)]

    def state_of(self, operation: Operation) -> OperationState:
        """Return how far an operation is."""
        return self.loop.read(lambda plane: plane.state.operations[operation.number].state).result(
            LIMIT_S
        )


def refuses(error: ForewarnError) -> Callable[..., int]:
    """A commit, or a look, that fails with an error."""

    def commit(*_: object) -> int:
        raise error

    return commit


def cut_once(running: Running) -> Callable[[Changes], int]:
    """A commit that is cut off and has changed nothing; the next one is the store's own again."""
    commit = running.store.commit

    def cut(changes: Changes) -> int:
        running.store.commit = commit  # type: ignore[method-assign]
        raise StoreUncertain(place="here", reason="cut")

    return cut
