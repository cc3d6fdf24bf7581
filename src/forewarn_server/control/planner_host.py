"""Runs planning and gate checks of maintenances, so that the writer never waits for them.

`planning.py` collects the inputs of a plan; the core decides whether the plan comes into force. A
large plan takes seconds of pure Python. A thread would delay polls, so a separate process makes the
plan. `planner_worker.py` defines the process's input and answer.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from forewarn_base.clock import Clock
from forewarn_base.errors import ForewarnError, OurError
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.maintenance import Checking, Maintenance, MaintenancePlan
from forewarn_core.fleet.stimulus import (
    CreateMaintenance,
    GateFailed,
    GatePassed,
    HostRejected,
    HostValidated,
    PlaneStimulus,
    PlanFailed,
    PlanMade,
    PlannerReport,
)
from forewarn_core.planning.plan_text import plan_text, read_plan
from forewarn_server.control.driver_calls import DriverSetup
from forewarn_server.control.inbox import Inbox, Stopping
from forewarn_server.control.plane import ControlPlane, StateView
from forewarn_server.control.planning import PlannerTask
from forewarn_server.control.readable import StateReplica

log = logging.getLogger("forewarn.control")

#: Time reserved for planning, in hundredths of the previous plan's time, and its maximum in ms. The
#: first wave starts later by this time, because its hosts need full notice after planning.
ALLOWED_PERCENT, ALLOWED_MS_MAX = 150, 4 * 3600 * 1000
#: Planning up to this time needs no reserved time, in ms.
SHORT_MS = 20_000
#: Number of hosts and VMs from which a plan runs in a process. Starting a process takes a tenth of
#: a second, about as long as a plan for a thousand hosts and VMs.
APART_MIN = 1_000
#: Time limit of one plan, in seconds of the machine's own time. The largest plan measured, 100,000
#: hosts with a million VMs, takes less than one minute.
PLAN_S_MAX = 900.0
#: Maximum length of an answer, in bytes: a blocker for each of 100,000 hosts is a tenth of it.
ANSWER_BYTES_MAX = 256 * 1024 * 1024
#: Form of a plan's id; see `planning.plan.content_id`.
PLAN_ID = re.compile(r"[0-9a-f]{16}")


class PlannerHost:
    """Makes the plans that commits need, and returns results through the inbox."""

    def __init__(
        self,
        plane: ControlPlane,
        clock: Clock,
        setup: DriverSetup,
        *,
        inbox: Inbox,
        replica: StateReplica,
        report: Callable[[PlaneStimulus, str], None],
    ) -> None:
        """Plan for a plane; results arrive through `inbox`, and `report` commits them.

        A large fleet is read on the thread of the `replica`, because copying a million VMs would
        block the writer and all polls for a fifth of a second.
        """
        self._plane, self._clock = plane, clock
        self._inbox, self._replica, self._report = inbox, replica, report
        self._executor, self._gates = setup.executor, setup.gates
        self._planner = setup.planner
        #: Maintenances whose gate is being checked.
        self._checking: set[int] = set()
        #: Operations and attempts whose hosts are being validated.
        self._validating: set[tuple[int, int]] = set()
        #: Maintenance being planned (0: none), and maintenances that wait for planning.
        self._making = 0
        self._waiting: deque[int] = deque()
        #: Start of the current planning, ms since the epoch UTC, and duration of the last one, in
        #: ms.
        self._begun_ms = self._took_ms = 0

    def request(self, numbers: Iterable[int]) -> None:
        """Plan the given maintenances, one at a time; runs on the loop's thread."""
        for number in numbers:
            maintenance = self._plane.state.maintenances.get(number)
            if maintenance is not None and isinstance(maintenance.phase, Checking):
                if number not in self._checking:
                    self._checking.add(number)
                    self._executor.submit(partial(self._check_gate, number, maintenance.gate))
            elif number not in self._waiting:
                self._waiting.append(number)
        while self._waiting and not self._making:
            self._begin(self._waiting.popleft())

    def validate(self, numbers: Iterable[int]) -> None:
        """Validate the hosts of operations on other threads; runs on the loop's thread. See T-7."""
        for number in numbers:
            operation = self._plane.state.operations.get(number)
            if operation is None or not operation.validating:
                continue
            key = number, operation.execution.attempt
            if key not in self._validating:
                self._validating.add(key)
                self._executor.submit(partial(self._validate, operation))

    def check(self, stimulus: CreateMaintenance) -> None:
        """Refuse a maintenance that names an unknown gate.

        Raises:
            GateUnknown: the gate is unknown.
        """
        if stimulus.gate and stimulus.gate not in self._gates:
            from forewarn_server.control.gate_checks import GateUnknown  # noqa: PLC0415 - seldom

            raise GateUnknown(name=stimulus.gate, known=", ".join(self._gates) or "none")
        if stimulus.gate and (absent := self._gates[stimulus.gate].absent):
            raise absent

    def make(self, task: PlannerTask) -> MaintenancePlan:
        """Make a plan and return it; on any thread that may be busy for seconds.

        Raises:
            ForewarnError: planning failed, or the plan breaks a rule.
        """
        from forewarn_server.control.planning import made  # noqa: PLC0415 - loaded by now

        return (self._planner or made)(task)

    def take(self, report: PlannerReport) -> None:
        """Commit a plan or the result of a gate."""
        if isinstance(report, GatePassed | GateFailed):
            self._checking.discard(report.maintenance)
            self._report(report, "gate")
        elif isinstance(report, HostValidated | HostRejected):
            self._validating.discard((report.operation, report.attempt))
            self._report(report, "gate")
        else:
            self._making = 0
            self._took_ms = self._clock.now_ms() - self._begun_ms
            self._report(report, "planner")
        self.request(())

    def decided(self, stimulus: PlaneStimulus) -> None:
        """Start the next plan or check after a plan or gate result was committed.

        An earlier start could accumulate reports, because a refused report is stored.
        """
        if isinstance(stimulus, PlanMade | PlanFailed | GatePassed | GateFailed):
            self.request((stimulus.maintenance,))

    def _begin(self, number: int) -> None:
        maintenance = self._plane.state.maintenances.get(number)
        if maintenance is None or not maintenance.plan_wanted:
            return
        self._making, self._begun_ms = number, self._clock.now_ms()
        allowed_ms = min(self._took_ms * ALLOWED_PERCENT // 100, ALLOWED_MS_MAX)
        planning_ms = allowed_ms if allowed_ms > SHORT_MS else 0
        now_ms = self._begun_ms

        def take(view: StateView) -> PlannerTask:
            # The planner is imported with the first plan, because many services never make one.
            from forewarn_server.control.planning import planner_task  # noqa: PLC0415

            return planner_task(
                view.state, maintenance, policy=view.policy, now_ms=now_ms, planning_ms=planning_ms
            )

        topology = self._plane.state.topology
        if len(topology.hosts) + len(topology.vms) < APART_MIN:
            task = take(self._plane)
            self._executor.submit(partial(self._make, maintenance, lambda: task))
        else:
            self._executor.submit(partial(self._make, maintenance, self._replica.read(take).result))

    def _check_gate(self, number: int, name: str) -> None:
        """Check the gate of a maintenance on another thread."""
        problem = self._problem(name, f"m-{number}", partial(self._silent, number))
        if problem is not None:
            self._inbox.put(GateFailed(number, problem) if problem else GatePassed(number))

    def _validate(self, operation: Operation) -> None:
        """Check the gate that validates a host, on another thread."""
        execution = operation.execution
        subject = f"m-{operation.maintenance}" if operation.maintenance else ""
        gate = execution.validation
        problem = self._problem(gate, subject, host=operation.host, operation=operation.id)
        if problem is not None:
            which = operation.number, execution.attempt
            self._inbox.put(HostRejected(*which, problem) if problem else HostValidated(*which))

    def _problem(
        self,
        name: str,
        subject: str,
        silent: Callable[[], Sequence[str]] = lambda: (),
        **about: str,
    ) -> str | None:
        """Return why a gate fails, empty if it passes; None: the service stops.

        A gate that is no longer in the settings fails. The next start checks again what a stop
        has ended.
        """
        from forewarn_server.control.gate_checks import run_gate  # noqa: PLC0415 - seldom

        gate = self._gates.get(name)
        if gate is None:
            return f"there is no gate {name}"
        try:
            return run_gate(gate, subject, silent, **about)
        except Stopping:
            return None
        except Exception:
            log.exception("gate %s of %s failed because of a bug", name, subject or about)
            return f"gate {name} has a bug; see the log of the service"

    def _silent(self, number: int) -> tuple[str, ...]:
        now_ms = self._clock.now_ms()
        return self._inbox.read(lambda plane: plane.silent_groups(number, now_ms)).result()

    def _make(self, maintenance: Maintenance, task: Callable[[], PlannerTask]) -> None:
        from forewarn_server.control.planning import plan_made  # noqa: PLC0415 - loaded by now

        number = maintenance.number
        try:
            report: PlanMade | PlanFailed = plan_made(task(), self.make)
        except Stopping:
            return  # the next start plans again
        except ForewarnError as error:
            log.error("%s %s", error, error.advice_text(), extra={"action": error.code})  # noqa: TRY400
            report = PlanFailed(number, str(error))
        except Exception:
            log.exception("planning of m-%s failed because of a bug", number)
            report = PlanFailed(number, "the planner has a bug; see the log of the service")
        self._inbox.put(report)


class PlannerProcessFailed(OurError):
    """The planning process failed."""

    code = "planner-process-failed"
    message = "The process that plans {maintenance} {problem}."
    advice = (
        "Planning is tried again in a minute. If the kernel ended the process, the machine needs "
        "more memory; otherwise report this with the topology and the policy."
    )


class PlannerProcess:
    """Makes plans for one service; callable on any thread, each with a process of its own."""

    def __init__(
        self,
        command: Sequence[str] = (sys.executable, "-m", "forewarn_server.control.planner_worker"),
        *,
        apart_min: int = APART_MIN,
        limit_s: float = PLAN_S_MAX,
    ) -> None:
        """Start without a process, because many services never make a large plan."""
        self._command = list(command)
        self._apart_min, self._limit_s = apart_min, limit_s
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def __call__(self, task: PlannerTask) -> MaintenancePlan:
        """Make a plan: a small one on this thread, a large one in its own process.

        If no process can be started, the plan is made on this thread.

        Raises:
            PlanRefused: the plan breaks a rule.
            PlannerProcessFailed: the process hung, died or sent an invalid answer.
            Stopping: the service ends.
        """
        from forewarn_server.control.planning import made  # noqa: PLC0415 - loaded by now

        if task.size < self._apart_min:
            return made(task)
        try:
            process = self._started()
        except OSError as error:
            text = "no process for a plan can be started (%s); the service's own process makes it"
            log.warning(text, error, extra={"action": "planner.no-process"})
            return made(task)
        try:
            limit_s = min(task.patience_s or self._limit_s, self._limit_s)
            return self._answer(process, task, limit_s)
        finally:
            _end(process)
            with self._lock:
                self._running.discard(process)

    def stop(self) -> None:
        """End every process, and start no more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise Stopping
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own program
            self._running.add(process)
        return process

    def _answer(
        self, process: subprocess.Popen[bytes], task: PlannerTask, limit_s: float
    ) -> MaintenancePlan:
        """Return the result of a task in a process, within `limit_s`."""
        import pickle  # noqa: PLC0415 - seldom, and takes some ms

        assert process.stdin is not None
        assert process.stdout is not None
        overdue = threading.Event()

        def give_up() -> None:
            overdue.set()
            process.kill()

        watch = threading.Timer(limit_s, give_up)
        watch.daemon = True
        watch.start()
        try:
            with contextlib.suppress(
                BrokenPipeError
            ):  # the process has ended: its status shows how
                # In frames of 64 KiB, between which other threads can run.
                pickle.dump(task, process.stdin, pickle.HIGHEST_PROTOCOL)
                process.stdin.flush()
            text = process.stdout.read(ANSWER_BYTES_MAX)
            status = process.wait()
        finally:
            watch.cancel()
        if self._stopped:
            raise Stopping
        name = f"m-{task.maintenance}"
        if overdue.is_set():
            problem = f"did not answer within {limit_s:g} s and was killed"
        elif status:
            problem = f"ended with status {status} before it answered"
        else:
            try:
                return plan_of_answer(text, task)
            except ValueError as error:
                problem = f"gave an invalid answer ({error})"
        raise PlannerProcessFailed(maintenance=name, problem=problem)


def answer_text(task: PlannerTask) -> bytes:
    """Make a plan, and return it in the form of `plan_of_answer`; costs the fleet."""
    from forewarn_server.control.planning import PlanRefused, made  # noqa: PLC0415 - seldom

    try:
        plan = made(task)
    except PlanRefused as refused:
        return json.dumps({"refused": refused.facts["finding"]}).encode()
    return json.dumps({"id": plan.id, "body": plan_text(plan.body)}).encode()


def plan_of_answer(text: bytes, task: PlannerTask) -> MaintenancePlan:
    """Return the plan in the answer to a task.

    Raises:
        ValueError: the answer is invalid.
        PlanRefused: the plan breaks a rule.
    """
    from forewarn_server.control.planning import PlanRefused  # noqa: PLC0415 - seldom

    answer = json.loads(text)
    match answer:
        case {"refused": str(finding)}:
            raise PlanRefused(maintenance=f"m-{task.maintenance}", finding=finding)
        case {"id": str(plan_id), "body": str(body_text)} if PLAN_ID.fullmatch(plan_id):
            pass
        case _:
            raise ValueError("the answer has no plan")
    try:
        body = read_plan(body_text)
    except (TypeError, KeyError) as error:
        raise ValueError("the plan cannot be read") from error
    named = [host for wave in body.waves for host in wave.hosts]
    named += [host for host, _ in body.blocked]
    if not set(task.request.hosts).issuperset(named):
        raise ValueError("the plan has hosts that were not requested")
    parent = task.in_force.id if task.in_force else ""
    return MaintenancePlan(plan_id, task.maintenance, parent, task.now_ms, body)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, close its pipes and wait for its end."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(OSError):
            pipe.close()
    process.wait()
