"""A driver and the hardware behind it: machines go down and come back; drivers fail.

What the driver is called for is decided by the product. It outlives the control plane's process.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from forewarn_core.fleet.impact import Impact
from forewarn_core.fleet.lifecycle import Operation
from forewarn_drivers import Progress, Task
from forewarn_drivers.simulated import duration_s
from tests.simulator.world.crash_points import CrashPoint, NeverReturns, Violation
from tests.simulator.world.dice import Dice
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.machine import Machine

#: Each fault mode and how often in a thousand it comes; good is what is left.
MODES: tuple[tuple[str, int], ...] = (
    ("good", 0),
    ("slow", 60),
    ("fails at the start", 40),
    ("fails in the middle", 40),
    ("hangs", 30),
    ("never returns", 20),
    ("says nothing", 20),
    ("lies", 40),
    ("raises", 30),
)

AGAIN_MS = 10 * 60 * 1000
NOT_HEARD = "does not hear"
#: How often in a thousand a faulty driver does not hear that an operation has ended.
NOT_HEARD_PERMILLE = 250
#: Impacts that switch machines off.
DOWN = frozenset({Impact.REBOOT, Impact.REDEPLOY, Impact.PREEMPT, Impact.TERMINATE})
#: How long before its announced end the machines are back.
BACK_BEFORE_MS = 2000


class DriverBroken(RuntimeError):
    """The driver's other side did not do what it was called for."""


@dataclass(slots=True)
class SimulatedTask:
    """The result of one attempt of one operation."""

    mode: str
    ends_ms: int
    #: Whether it was stopped, or has ended for good.
    over: bool = False


class SimDriver:
    """Carries operations out on simulated machines."""

    name = "simulated"

    def __init__(self, dice: Dice) -> None:
        """Begin without faults, connected to nothing."""
        self.faulty = False
        self.tasks: dict[tuple[int, int], SimulatedTask] = {}
        #: Called at each beginning, before it has any effect.
        self.begins: Callable[[Operation], None] = lambda _: None
        #: Called when an operation is aborted, and whether that was heard.
        self.aborts: Callable[[Operation, bool], None] = lambda _, __: None
        #: (operation, attempt) whose end, or failure, this driver has reported -> when, in true ms.
        self.reported: dict[tuple[int, int], int] = {}
        #: Mood, or what else it did -> how often.
        self.fault_counts: Counter[str] = Counter()
        self._dice = dice
        self.connect(EventQueue(), CrashPoint(), {})

    def connect(
        self, queue: EventQueue, crash_point: CrashPoint, machines: dict[str, Machine]
    ) -> None:
        """Name the time, where a process can end, and the machines."""
        self._queue = queue
        self._crash_point = crash_point
        self._machines = machines

    def begin(self, task: Task) -> None:
        """Begin an attempt, once to effect."""
        operation = task.operation
        self._crash_point.passes("before begin")
        self.begins(operation)
        key = (operation.number, operation.execution.attempt)
        if key not in self.tasks:
            self._begin(operation, key)
        self._crash_point.passes("after begin")

    def _begin(self, operation: Operation, key: tuple[int, int]) -> None:
        mode = self._draw_mode()
        self.fault_counts[mode] += 1
        task = self.tasks[key] = SimulatedTask(
            mode, self._queue.now_ms + self._lasts_ms(operation, mode)
        )
        if mode == "never returns":
            task.over = True
            raise NeverReturns
        if mode == "fails at the start":
            task.over = True
            raise DriverBroken("the management board does not answer")
        if operation.impact in DOWN:
            self._switch_off(operation)
            back_ms = max(task.ends_ms - BACK_BEFORE_MS, self._queue.now_ms + 1)
            self._queue.at(back_ms, lambda: self._switch_on(operation))

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Say how far the attempt is, in the driver's fault mode."""
        operation = task.operation
        try:
            progress = self._progress(operation, now_ms)
        except DriverBroken:
            self.reported[operation.number, operation.execution.attempt] = self._queue.now_ms
            raise
        if progress.done or progress.failed:
            self.reported[operation.number, operation.execution.attempt] = self._queue.now_ms
        return progress

    def _progress(self, operation: Operation, now_ms: int) -> Progress:
        task = self.tasks.get((operation.number, operation.execution.attempt))
        if task is None:
            raise Violation("9", f"the driver is asked after {operation.id}, which it never began")
        left_ms = max(task.ends_ms - self._queue.now_ms, 0)
        match task.mode:
            case "hangs":
                return Progress(again_ms=now_ms + AGAIN_MS)
            case "says nothing":
                return Progress()
            case "lies":
                return Progress(done=True)
            case "raises" if not left_ms:
                raise DriverBroken("its answer makes no sense")
            case "fails in the middle" if not left_ms:
                return Progress(failed="the update was rolled back")
            case _:
                return Progress(again_ms=now_ms + left_ms) if left_ms else Progress(done=True)

    def abort(self, task: Task) -> None:
        """Stop caring; the machines come back."""
        operation = task.operation
        self._crash_point.passes("before abort")
        heard = not (self.faulty and self._dice.chance(NOT_HEARD_PERMILLE))
        self.aborts(operation, heard)
        if not heard:
            self.fault_counts[NOT_HEARD] += 1
            raise DriverBroken("the management board does not answer")
        self._abort(operation)
        self._crash_point.passes("after abort")

    def _abort(self, operation: Operation) -> None:
        task = self.tasks.get((operation.number, operation.execution.attempt))
        if task is not None:
            task.over = True
        if operation.impact in DOWN:
            self._queue.after(5000, lambda: self._switch_on(operation))

    def _draw_mode(self) -> str:
        if self.faulty:
            drawn = self._dice.below(1000)
            for mode, permille in MODES:
                if drawn < permille:
                    return mode
                drawn -= permille
        return "good"

    def _lasts_ms(self, operation: Operation, mode: str) -> int:
        lasts_ms = duration_s(operation) * 1000
        return lasts_ms * 10 if mode == "slow" else lasts_ms

    def _switch_off(self, operation: Operation) -> None:
        for name in operation.vms:
            machine = self._machines.get(name)
            if machine is not None:
                machine.halt()

    def _switch_on(self, operation: Operation) -> None:
        for name in operation.vms:
            machine = self._machines.get(name)
            if machine is not None:
                machine.boot()
