"""Plans made in a process of their own: what comes back, and whatever becomes of the process."""

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.maintenance import MaintenancePlan, Postponement
from forewarn_core.fleet.stimulus import CreateMaintenance, StartMaintenance
from forewarn_core.fleet.waves import PLAN_AGAIN_S
from forewarn_server.control.inbox import Stopping
from forewarn_server.control.planner_host import PlannerProcess, PlannerProcessFailed
from forewarn_server.control.planning import (
    FleetColumns,
    PlannerTask,
    PlanRefused,
    made,
    planner_task,
)
from tests.control.rig import Running
from tests.core.maintenance import MaintenanceRig, fleet
from tests.waiting import LIMIT_S

WORKER = (sys.executable, "-m", "forewarn_server.control.planner_worker")
#: A limit that nothing reaches that works at all, and one that is reached at once; in seconds.
LONG_S, AT_ONCE_S = 600.0, 0.05


def asked_for(rig: MaintenanceRig, by: str = "") -> PlannerTask:
    """What is asked of the planner for six hosts, one of which is worked on."""
    number = rig.start(*(f"h{n}" for n in range(6)))
    maintenance = replace(rig.state.maintenances[number], postponed=(Postponement("h0", 0, 0, by),))
    return planner_task(
        rig.state,
        maintenance if by else rig.state.maintenances[number],
        policy=rig.policy,
        now_ms=rig.now_ms,
    )


def python(program: str, *, limit_s: float = LONG_S) -> PlannerProcess:
    """Make plans by a program of the test's own."""
    return PlannerProcess((sys.executable, "-c", program), apart_min=0, limit_s=limit_s)


def answering(text: str) -> PlannerProcess:
    """Make plans by a program that reads its task and answers this."""
    return python(f"import pickle, sys; pickle.load(sys.stdin.buffer); print({text!r}, end='')")


def test_process_makes_the_plan_that_a_thread_makes() -> None:
    """A plan that follows another one is the same, to its id. Source: F-2."""
    asked = asked_for(fleet())
    assert asked.in_force is not None
    assert PlannerProcess(apart_min=0, limit_s=LONG_S)(asked) == made(asked)


def test_small_fleet_needs_no_process() -> None:
    """Below the limit a plan is made on the thread, whatever becomes of processes."""
    asked = asked_for(fleet())
    assert PlannerProcess(("false",), apart_min=asked.size + 1)(asked) == made(asked)
    with pytest.raises(PlannerProcessFailed):
        PlannerProcess(("false",), apart_min=asked.size)(asked)


def test_plan_is_made_on_the_thread_where_no_process_can_be_started(tmp_path: Path) -> None:
    """A machine that allows no further process still has its plans."""
    asked = asked_for(fleet())
    assert PlannerProcess((str(tmp_path),), apart_min=0)(asked) == made(asked)


@pytest.mark.parametrize("text", ["", "x" * 200_000], ids=["small", "larger than a pipe"])
@pytest.mark.parametrize("patience_s", [0, AT_ONCE_S], ids=["limit", "patience"])
def test_process_that_hangs_is_killed(text: str, patience_s: float) -> None:
    """Whether it takes its task or not, it gets no longer than its limit, or somebody waits."""
    asked = replace(asked_for(fleet(), text), patience_s=patience_s)
    planner = python("while True: pass", limit_s=LONG_S if patience_s else AT_ONCE_S)
    with pytest.raises(PlannerProcessFailed, match="was killed"):
        planner(asked)


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), 9)", "sys.exit(3)", "raise MemoryError"])
def test_process_that_dies_makes_no_plan(how: str) -> None:
    """By the kernel's hand, for want of memory, or by its own: the error says how it ended."""
    with pytest.raises(PlannerProcessFailed, match="ended with status"):
        python(f"import os, sys; sys.stderr = None; {how}")(asked_for(fleet()))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        "[1]",
        "{}",
        '{"id": 5, "body": "{}"}',
        '{"id": "not one", "body": "{}"}',
        f'{{"id": "{"0" * 16}", "body": "{{"}}',
        f'{{"id": "{"0" * 16}", "body": "[]"}}',
        json.dumps(
            {"id": "0" * 16, "body": '{"waves":[],"moves":{},"blocked":[],"bound":[1],"limits":[]}'}
        ),
        json.dumps(
            {
                "id": "0" * 16,
                "body": '{"waves":[[1,1,1,1,1,0,["window","",0,0],["elsewhere"]]],"moves":{},'
                '"blocked":[],'
                '"bound":[1,""],"limits":[]}',
            }
        ),
    ],
)
def test_answer_that_is_none_is_no_plan(text: str) -> None:
    """What a process says is taken for a plan only if it is one, for hosts that were asked for."""
    with pytest.raises(PlannerProcessFailed, match="gave an invalid answer"):
        answering(text)(asked_for(fleet()))


def test_plan_that_breaks_a_rule_is_refused_as_on_the_thread() -> None:
    """The checker's finding comes back with the answer."""
    with pytest.raises(PlanRefused, match="two at once"):
        answering('{"refused": "two at once"}')(asked_for(fleet()))


def test_stop_ends_a_plan_and_those_that_follow(tmp_path: Path) -> None:
    """A service that ends waits for no plan, and reports none as failed."""
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    planner = python(f"open({str(begun)!r}, 'w').close()\nwhile True: pass")
    with ThreadPoolExecutor(1) as pool:
        plan = pool.submit(planner, asked_for(fleet()))
        begun.read_bytes()  # the process works by now
        planner.stop()
        with pytest.raises(Stopping):
            plan.result(LIMIT_S)
    with pytest.raises(Stopping):
        planner(asked_for(fleet()))


class Endless(PlannerTask):
    """A task that is never done: its process says so, and goes on for ever."""

    @property
    def fleet(self) -> FleetColumns:
        """Say on standard error that it has begun."""
        os.write(2, b"begun\n")
        while True:
            pass

    def __reduce__(self) -> tuple[object, ...]:
        """Be made without fields."""
        return Endless.__new__, (Endless,)


def begun(task: type[PlannerTask]) -> subprocess.Popen[bytes]:
    """Start the process of a plan, and give it a task."""
    process = subprocess.Popen(
        WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin
    process.stdin.write(pickle.dumps(task.__new__(task)))
    process.stdin.flush()
    return process


def test_process_ends_with_whoever_started_it() -> None:
    """In the middle of a plan, as soon as the pipe closes, as it does when a service is killed."""
    process = begun(Endless)
    assert process.stderr
    assert process.stderr.readline() == b"begun\n"
    process.terminate()  # as a service manager does; it is the service's to end
    answer, _ = process.communicate(timeout=LIMIT_S)  # this closes the pipe first
    assert (process.returncode, answer) == (1, b"")


class Curious(Endless):
    """A task that prints what it sees of its process, and cannot be planned."""

    @property
    def fleet(self) -> FleetColumns:
        """Print it where answers are written."""
        score = Path("/proc/self/oom_score_adj").read_text(encoding="ascii").strip()
        print(os.nice(0), score, flush=True)
        raise MemoryError

    def __reduce__(self) -> tuple[object, ...]:
        """Be made without fields."""
        return Curious.__new__, (Curious,)


def test_process_steps_back_behind_the_service() -> None:
    """In time and in memory; and what it prints does not spoil its answer. Source: F-2."""
    process = begun(Curious)
    assert process.stderr
    assert process.stderr.readline() == b"%d 1000\n" % min(os.nice(0) + 10, 19)
    answer, _ = process.communicate(timeout=LIMIT_S)
    assert answer == b""


def test_plan_that_cannot_be_made_is_made_again() -> None:
    """A maintenance says why it has no plan, and has one as soon as it can be made. F-2, F-4."""
    failing = [True]

    def make(asked: PlannerTask) -> MaintenancePlan:
        if failing:
            raise PlannerProcessFailed(maintenance="m-1", problem="died")
        return made(asked)

    running = Running(planner=make)
    running.ask(CreateMaintenance(Cause.HOST_REBOOT, ("h",), 600))
    running.ask(StartMaintenance(1))
    running.settle()
    why = running.why_maintenance(1)
    failing.clear()
    running.pass_time(2 * PLAN_AGAIN_S * 1000)
    maintenance, why_now = running.plane.state.maintenances[1], running.why_maintenance(1)
    running.loop.stop()
    running.store.close()
    assert why == "no plan of m-1 could be made: The process that plans m-1 died."
    assert maintenance.plan
    assert not maintenance.halt_reason
    assert "no plan" not in why_now
