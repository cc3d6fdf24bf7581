"""Makes large plans in a process of their own, so that polls and approvals go on meanwhile.

A plan is seconds of plain Python, and on a thread each poll waits for it again and again. One
process makes one plan: `planner_worker.py` says what it reads and answers. Nothing about what a
plan is may go in here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from forewarn.control.inbox import Stopping
from forewarn.core.maintenance.records import MaintenancePlan
from forewarn.errors import OurError
from forewarn.planning.plan_text import read_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forewarn.control.planning import PlannerTask

log = logging.getLogger("forewarn.control")

#: Hosts and VMs together from which on a plan is made in a process. To start one takes a tenth of a
#: second of a processor; a plan for a thousand takes about as long, on a dense fleet more.
APART_MIN = 1_000
#: How long one plan may take, in seconds of the machine's own time. The largest that was measured,
#: 100,000 hosts with a million VMs, takes less than one minute.
PLAN_S_MAX = 900.0
#: Longest answer that is read, in bytes: a blocker for each of 100,000 hosts is a tenth of it.
ANSWER_BYTES_MAX = 256 * 1024 * 1024
#: What a plan is called; see `planning.plan.content_id`.
PLAN_ID = re.compile(r"[0-9a-f]{16}")


class PlannerProcessFailed(OurError):
    """The process that was to make a plan has not made it."""

    code = "planner-process-failed"
    message = "The process that plans {maintenance} {problem}."
    advice = (
        "A plan is made again in a minute. If the machine's kernel ends the process, it needs more"
        " memory; else report it with the topology and the policy."
    )


class PlannerProcess:
    """Makes plans for one service; may be called on any threads, each with a process of its own."""

    def __init__(
        self,
        command: Sequence[str] = (sys.executable, "-m", "forewarn.control.planner_worker"),
        *,
        apart_min: int = APART_MIN,
        limit_s: float = PLAN_S_MAX,
    ) -> None:
        """Start nothing: many a service never makes a large plan."""
        self._command = list(command)
        self._apart_min, self._limit_s = apart_min, limit_s
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def __call__(self, task: PlannerTask) -> MaintenancePlan:
        """Make a plan: a small one on this thread, a large one in a process that ends with it.

        Where no process can be started it is made on this thread, too.

        Raises:
            PlanRefused: the plan breaks a rule.
            PlannerProcessFailed: the process hung, died or answered nonsense.
            Stopping: the service ends.
        """
        from forewarn.control.planning import made  # noqa: PLC0415 - seldom

        if task.size < self._apart_min:
            return made(task)
        try:
            process = self._started()
        except OSError as error:
            text = "no process for a plan can be started (%s); it is made in the service's own"
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
            process = subprocess.Popen(  # noqa: S603 - our own program
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self._running.add(process)
        return process

    def _answer(
        self, process: subprocess.Popen[bytes], task: PlannerTask, limit_s: float
    ) -> MaintenancePlan:
        """Return what a process makes of a task; whatever it does, in `limit_s` at most."""
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
            with contextlib.suppress(BrokenPipeError):  # it has ended: its status says how
                # In frames of 64 KiB: between two of them other threads go on.
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
                problem = f"gave an answer that is none ({error})"
        raise PlannerProcessFailed(maintenance=name, problem=problem)


def answer_text(task: PlannerTask) -> bytes:
    """Make a plan, and return it as `plan_of_answer` reads it; costs the fleet."""
    from forewarn.control.planning import PlanRefused, made  # noqa: PLC0415 - seldom

    try:
        plan = made(task)
    except PlanRefused as refused:
        return json.dumps({"refused": refused.facts["finding"]}).encode()
    return json.dumps({"id": plan.id, "body": plan.body.text}).encode()


def plan_of_answer(text: bytes, task: PlannerTask) -> MaintenancePlan:
    """Return the plan that was made of a task.

    Raises:
        ValueError: the answer is none.
        PlanRefused: the plan breaks a rule.
    """
    from forewarn.control.planning import PlanRefused  # noqa: PLC0415 - seldom

    answer = json.loads(text)
    match answer:
        case {"refused": str(finding)}:
            raise PlanRefused(maintenance=f"m-{task.maintenance}", finding=finding)
        case {"id": str(plan_id), "body": str(body_text)} if PLAN_ID.fullmatch(plan_id):
            pass
        case _:
            raise ValueError("it has no plan")
    try:
        body = read_plan(body_text)
    except (TypeError, KeyError) as error:
        raise ValueError("its plan cannot be read") from error
    named = [host for wave in body.waves for host in wave.hosts]
    named += [host for host, _ in body.blocked]
    if not set(task.asked.hosts).issuperset(named):
        raise ValueError("its plan has hosts that nobody asked for")
    parent = task.in_force.id if task.in_force else ""
    return MaintenancePlan(plan_id, task.maintenance, parent, task.now_ms, body)


def _end(process: subprocess.Popen[bytes]) -> None:
    """See that a process is no more, however it was left."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(OSError):
            pipe.close()
    process.wait()
