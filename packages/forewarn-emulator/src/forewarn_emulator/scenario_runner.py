"""Runs scenarios on the emulator's clock through the control loop.

A scenario has only the permissions of operators, VMs and hosts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum

from forewarn_base.clock import Clock
from forewarn_base.errors import CallerError, ForewarnError
from forewarn_base.ids import Ids
from forewarn_base.values import value
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.stimulus import Cancel, Complete, PlaneStimulus, Repair, RequestMaintenance
from forewarn_core.requests import ApprovalRequest
from forewarn_drivers.simulated import WorkCourse
from forewarn_emulator import scenario_machines
from forewarn_emulator.acting_control import ActingControl, copied_topology
from forewarn_emulator.default_fleet import SCENARIO, is_empty
from forewarn_emulator.scenario import (
    Act,
    Approval,
    Cancellation,
    Completion,
    Maintain,
    Pause,
    Recommendation,
    Remark,
    Repairing,
    RequestedWork,
    Resumption,
    Scenario,
    ScenarioStep,
    Wait,
)
from forewarn_emulator.scenario_machines import ScenarioFleet, Touched
from forewarn_emulator.scenario_work import (
    OVER,
    ScenarioMaintenances,
    ScenarioOperations,
    TidyUp,
)
from forewarn_server.control.run_loop import ControlLoop

log = logging.getLogger("forewarn.emulator")


class ScenarioFailed(CallerError):
    """A scenario failed."""

    code = "scenario-failed"
    status = 409
    message = "Scenario {name} failed in step {step}: {problem}"
    advice = "Run `forewarn emulator scenario show {name}`; the changes of the scenario are undone."


class RunState(Enum):
    """The state of a scenario's run."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


@value
class ScenarioControl:
    """The services that a run uses."""

    control: ControlLoop
    clock: Clock
    ids: Ids
    #: Callback for the remarks of a scenario.
    say: Callable[[str], None]
    #: Operation -> the course of its work, read by the simulated driver.
    courses: dict[int, WorkCourse]
    #: Shows a VM a recommendation, and returns the function that ends it.
    recommend: Callable[[str], Callable[[], None]]


class Run:
    """One run of a scenario; used only on the event loop."""

    def __init__(self, scenario: Scenario, stage: ScenarioFleet, service: ScenarioControl) -> None:
        self.scenario = scenario
        self.stage = stage
        self.state = RunState.RUNNING
        #: Number of finished steps, of `len(scenario.steps)`.
        self.done = 0
        self.started_ms = service.clock.now_ms()
        self.problem = ""
        #: Time of the next action, ms since the epoch UTC; None: no action is scheduled.
        self.waits_until_ms: int | None = None
        self._service = service
        self._control = ActingControl(service.control, f"{SCENARIO}{scenario.name}")
        self.maintenances = ScenarioMaintenances(self._control)
        self.operations = ScenarioOperations(self.maintenances.numbers)
        self._moved = asyncio.Event()
        self._resting = False
        self._tidy: TidyUp | None = None
        self._task: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task of the run."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Check the clock and the work again; after the end of the run, retry the cleanup."""
        self._moved.set()
        if self.left and self.over and (self._tidying is None or self._tidying.done()):
            self._tidying = asyncio.get_running_loop().create_task(self._tidy_again())

    @property
    def quiet(self) -> bool:
        """Whether the run is waiting for a condition that is still false."""
        if self.state is not RunState.RUNNING:
            return all(task is None or task.done() for task in (self._task, self._tidying))
        if not self._resting or self._moved.is_set():
            return False
        return self.waits_until_ms is None or self.waits_until_ms > self._service.clock.now_ms()

    @property
    def over(self) -> bool:
        """Whether the run has ended and its changes are undone as far as possible."""
        return self._task is not None and self._task.done()

    @property
    def left(self) -> dict[str, str]:
        """Changes that the cleanup cannot undo yet, such as `vm upgrade-2`, with the reasons."""
        return self._tidy.left if self._tidy is not None else {}

    async def stop(self) -> None:
        """End the run now, and undo its changes."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.wait([self._tidying])

    # --- the steps ------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._bring()
            before_ms = self.started_ms
            for step in self.scenario.steps:
                before_ms = await self._take(step, before_ms)
                self.done += 1
            self.state = RunState.FINISHED
        except asyncio.CancelledError:
            self.state = RunState.STOPPED
        except ForewarnError as error:
            self.state = RunState.FAILED
            self.problem = str(error)
        except Exception:
            log.exception("scenario %s failed because of a bug", self.scenario.name)
            self.state = RunState.FAILED
            self.problem = "the scenario failed because of a bug; see the log"
        finally:
            self.waits_until_ms = None
            self._resting = False
        await self._take_back()
        self._service.say(self._ending())

    def _ending(self) -> str:
        ended = f"scenario {self.scenario.name} has {self.state.value}"
        if self.state is RunState.FINISHED:
            return f"scenario {self.scenario.name} is over and can run again"
        if self.state is RunState.STOPPED:
            return f"scenario {self.scenario.name} is stopped"
        return f"{ended}: {self.problem}"

    async def _bring(self) -> None:
        """Add and change the scenario's machines."""
        topology = await self._control.read(copied_topology)
        self._tidy = TidyUp(self._control, topology)
        change = scenario_machines.brought(topology, self.scenario.machines, self.stage)
        self._tidy.touched = scenario_machines.touched_by(change)
        if not is_empty(change):
            await self._control.submit(change)
        await self.maintenances.bring_policy(self.scenario, self.started_ms)

    async def _take(self, step: ScenarioStep, before_ms: int) -> int:
        """Run a step at its time; return the time of its end."""
        due_ms = before_ms + step.after_ms
        if step.at_ms is not None:
            due_ms = max(due_ms, self.started_ms + step.at_ms)
        await self._until(_never, due_ms)
        await self._do(step.act)
        return max(due_ms, self._service.clock.now_ms()) if _takes_time(step.act) else due_ms

    async def _do(self, act: Act) -> None:  # noqa: C901 - a flat table
        match act:
            case RequestedWork():
                await self._work(act)
            case Maintain() | Resumption():
                await self._maintain(act)
            case Wait():
                await self._wait(act)
            case Approval():
                await self._approve(act)
            case Cancellation():
                await self._cancel(act)
            case Completion(label, failed, reason):
                await self._each(label, lambda number: Complete(number, failed, reason))
            case Repairing(hosts):
                for host in self.stage.names(hosts):
                    await self._control.submit(Repair(host))
            case Remark(text):
                self._service.say(text)
            case Recommendation(vm, lasts_ms):
                await self._recommend(self.stage.name(vm), lasts_ms)
            case Pause():
                pass

    async def _recommend(self, vm: str, lasts_ms: int) -> None:
        end = self._service.recommend(vm)
        try:
            await self._until(_never, self._service.clock.now_ms() + lasts_ms)
        finally:
            end()

    async def _maintain(self, act: Maintain | Resumption) -> None:
        if isinstance(act, Maintain):
            self._touch(await self.maintenances.begin(act, self.stage))
        else:
            await self.maintenances.resume(act.of)

    async def _cancel(self, act: Cancellation) -> None:
        if act.of in self.maintenances.numbers:
            await self.maintenances.cancel(act.of, act.reason)
        else:
            await self._each(act.of, lambda number: Cancel(number, act.reason))

    async def _work(self, work: RequestedWork) -> None:
        targets = self.stage.names(work.on)
        if work.times == 1:
            await self._ask(work, targets)
            return
        due_ms = self._service.clock.now_ms()
        for turn in range(work.times):
            await self._until(_never, due_ms)
            try:
                await self._ask(work, (targets[turn % len(targets)],))
            except (
                CallerError
            ) as refusal:  # ignore refusals, because a storm requests some work too early or twice
                log.info("scenario %s: %s", self.scenario.name, refusal)
            jitter = self._service.ids.fraction("scenario") if work.jitter_ms else 0.0
            due_ms += work.every_ms + int(jitter * work.jitter_ms)

    async def _ask(self, work: RequestedWork, targets: tuple[str, ...]) -> None:
        ask = RequestMaintenance(
            cause=work.cause,
            targets=targets,
            impact=work.impact,
            source=work.source,
            description=work.description,
            duration_s=work.duration_s,
            not_before_ms=self._service.clock.now_ms() + work.notice_ms if work.notice_ms else None,
            destination=self.stage.name(work.destination) if work.destination else "",
        )
        committed = await self._control.submit(ask)
        for operation in committed.operations:
            if work.started_for_s or work.further:
                course = WorkCourse(work.started_for_s, work.further)
                self._service.courses[operation.number] = course
            self.operations.add(work.label, operation.number)
            self._touch(Touched(frozenset({operation.host}), vms=frozenset(operation.vms)))

    def _touch(self, touched: Touched) -> None:
        assert self._tidy is not None, "machines are added before work is requested"
        self._tidy.touched |= touched

    async def _wait(self, wait: Wait) -> None:
        until_ms = self._service.clock.now_ms() + wait.within_ms

        async def ready() -> bool:
            if wait.of in self.maintenances.numbers:
                return await self.maintenances.has_reached(wait.of, wait.until)
            return await self._control.read(
                lambda plane: self.operations.have_reached(plane, wait.of, wait.until)
            )

        if not await self._until(ready, until_ms):
            raise ScenarioFailed(
                name=self.scenario.name,
                step=self.done + 1,
                problem=f"{wait.of} was not {wait.until.value} in time.",
            )

    async def _approve(self, approval: Approval) -> None:
        names, only = self.stage.names(approval.by), self.stage.names(approval.only)
        for vm, event_id in await self._control.read(
            lambda plane: self.operations.shown(plane, approval.of, to=names, only=only)
        ):
            await self._control.attempt(
                ApprovalRequest(vm, (event_id,), ""), actor=f"vm {vm} in {self._control.actor}"
            )

    async def _each(self, label: str, act: Callable[[int], PlaneStimulus]) -> None:
        """Apply an action to all work of a label; ignore work that has started or ended."""
        for number in await self._control.read(lambda plane: self.operations.numbers(plane, label)):
            await self._control.attempt(act(number))

    # --- cleanup -----------------------------------------------------------------------

    async def _take_back(self) -> None:
        """Restore the fleet: end the scenario's work, repair hosts, restore machines."""
        if self._tidy is None:
            return
        for number in (n for numbers in self.operations.by_label.values() for n in numbers):
            self._service.courses.pop(number, None)
        try:
            await self.maintenances.take_back()
            for operation in await self._control.read(self.operations.live):
                await self._end(operation)
            await self._tidy.attempt()
        except ForewarnError as error:
            self._service.say(f"scenario {self.scenario.name} could not undo its changes: {error}")
        if self.left:
            what, why = ", ".join(self.left), next(iter(self.left.values()))
            self._service.say(f"scenario {self.scenario.name} cannot undo {what} yet: {why}")

    async def _tidy_again(self) -> None:
        """Retry to undo the remaining changes, and again after a commit in the meantime."""
        assert self._tidy is not None
        while self._moved.is_set() and self.left:
            self._moved.clear()
            try:
                await self._tidy.attempt()
            except ForewarnError as error:
                log.info("scenario %s: %s", self.scenario.name, error)
        if not self.left:
            self._service.say(f"scenario {self.scenario.name} has undone its remaining changes")

    async def _end(self, operation: Operation) -> None:
        running = operation.state is OperationState.RUNNING
        number = operation.number
        await self._control.attempt(
            Complete(number, reason=OVER) if running else Cancel(number, OVER)
        )

    # --- waits and queries ---------------------------------------------------------------

    async def _until(self, ready: Callable[[], Awaitable[bool]], until_ms: int) -> bool:
        """Wait for a condition, up to a time of the clock; return whether the condition is true."""
        while True:
            self._moved.clear()
            if await ready():
                return True
            if self._service.clock.now_ms() >= until_ms:
                return False
            self.waits_until_ms = until_ms
            self._resting = True
            try:
                async with asyncio.timeout(self._service.clock.wait_s(until_ms)):
                    await self._moved.wait()
            except TimeoutError:
                pass
            finally:
                self._resting = False


async def _never() -> bool:
    return False


def _takes_time(act: object) -> bool:
    return isinstance(act, Wait | Recommendation) or (
        isinstance(act, RequestedWork) and act.times > 1
    )
