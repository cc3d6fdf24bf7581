"""A driver and the hardware behind it: machines go down and come back, and drivers have moods.

What the driver is told is decided by the product. It outlives the control plane's process.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forewarn.core.impact import Impact
from forewarn.drivers import Progress
from forewarn.drivers.simulated import duration_s
from forewarn.simulator.world.crash_points import CrashPoint, NeverReturns, Violation
from forewarn.simulator.world.event_queue import EventQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.core.lifecycle import Operation
    from forewarn.drivers import Task
    from forewarn.simulator.world.dice import Dice
    from forewarn.simulator.world.machine import Machine

MOODS: tuple[tuple[str, int], ...] = (
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
"""Each mood and how often in a thousand it comes; good is what is left."""

AGAIN_MS = 10 * 60 * 1000
DEAF = "does not hear"
DEAF_PERMILLE = 250
"""How often in a thousand a moody driver does not hear that an operation has ended."""
DOWN = frozenset({Impact.REBOOT, Impact.REDEPLOY, Impact.PREEMPT, Impact.TERMINATE})
"""Impacts that switch machines off."""
BACK_BEFORE_MS = 2000
"""How long before its announced end the machines are back."""


class DriverBroken(RuntimeError):
    """The driver's other side did not do as it was told."""


@dataclass(slots=True)
class Work:
    """What one attempt of one operation comes to."""

    mood: str
    ends_ms: int
    #: Whether it was stopped, or has ended for good.
    over: bool = False


class SimDriver:
    """Carries operations out on simulated machines."""

    name = "simulated"

    def __init__(self, dice: Dice) -> None:
        """Begin in a good mood, connected to nothing."""
        self.moody = False
        self.tasks: dict[tuple[int, int], Work] = {}
        #: Told of each beginning, before it has any effect.
        self.begins: Callable[[Operation], None] = lambda _: None
        #: Told when an operation is aborted, and whether that was heard.
        self.aborts: Callable[[Operation, bool], None] = lambda _, __: None
        #: (operation, attempt) whose end, or failure, this driver has told -> when, in true ms.
        self.reported: dict[tuple[int, int], int] = {}
        #: Mood, or what else it did -> how often.
        self.met: Counter[str] = Counter()
        self._dice = dice
        self.connect(EventQueue(), CrashPoint(), {})

    def connect(self, agenda: EventQueue, fuse: CrashPoint, machines: dict[str, Machine]) -> None:
        """Name the time, where a process can end, and the machines."""
        self._agenda = agenda
        self._fuse = fuse
        self._machines = machines

    def begin(self, task: Task) -> None:
        """Begin an attempt, once to effect."""
        operation = task.operation
        self._fuse.passes("before begin")
        self.begins(operation)
        key = (operation.number, operation.attempt)
        if key not in self.tasks:
            self._begin(operation, key)
        self._fuse.passes("after begin")

    def _begin(self, operation: Operation, key: tuple[int, int]) -> None:
        mood = self._mood()
        self.met[mood] += 1
        task = self.tasks[key] = Work(mood, self._agenda.now_ms + self._lasts_ms(operation, mood))
        if mood == "never returns":
            task.over = True
            raise NeverReturns
        if mood == "fails at the start":
            task.over = True
            raise DriverBroken("the management board does not answer")
        if operation.impact in DOWN:
            self._switch_off(operation)
            back_ms = max(task.ends_ms - BACK_BEFORE_MS, self._agenda.now_ms + 1)
            self._agenda.at(back_ms, lambda: self._switch_on(operation))

    def progress(self, task: Task, now_ms: int) -> Progress:
        """Say how far the attempt is, in the driver's mood."""
        operation = task.operation
        try:
            progress = self._progress(operation, now_ms)
        except DriverBroken:
            self.reported[operation.number, operation.attempt] = self._agenda.now_ms
            raise
        if progress.done or progress.failed:
            self.reported[operation.number, operation.attempt] = self._agenda.now_ms
        return progress

    def _progress(self, operation: Operation, now_ms: int) -> Progress:
        task = self.tasks.get((operation.number, operation.attempt))
        if task is None:
            raise Violation("9", f"the driver is asked after {operation.id}, which it never began")
        left_ms = max(task.ends_ms - self._agenda.now_ms, 0)
        match task.mood:
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
        self._fuse.passes("before abort")
        heard = not (self.moody and self._dice.chance(DEAF_PERMILLE))
        self.aborts(operation, heard)
        if not heard:
            self.met[DEAF] += 1
            raise DriverBroken("the management board does not answer")
        self._abort(operation)
        self._fuse.passes("after abort")

    def _abort(self, operation: Operation) -> None:
        task = self.tasks.get((operation.number, operation.attempt))
        if task is not None:
            task.over = True
        if operation.impact in DOWN:
            self._agenda.after(5000, lambda: self._switch_on(operation))

    def _mood(self) -> str:
        if self.moody:
            drawn = self._dice.below(1000)
            for mood, permille in MOODS:
                if drawn < permille:
                    return mood
                drawn -= permille
        return "good"

    def _lasts_ms(self, operation: Operation, mood: str) -> int:
        lasts_ms = duration_s(operation) * 1000
        return lasts_ms * 10 if mood == "slow" else lasts_ms

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
