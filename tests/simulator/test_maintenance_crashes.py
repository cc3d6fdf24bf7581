"""A maintenance whose process dies between any two effects goes on, and repeats nothing."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise

import pytest

from forewarn.core.lifecycle import OperationState
from forewarn.core.maintenance import MaintenanceState
from tests.simulator.transcripts.commands import CommandRunner
from tests.simulator.world.crash_points import POINTS

FLEET = (
    "host h1 fd=0",
    "host h2 fd=1",
    "host h3 fd=0",
    "vm web_1 on=h1 group=web",
    "vm web_2 on=h2 group=web",
    "vm web_3 on=h3 group=web",
    "operator maintenance h1 h2 h3 at-once=1",
)
#: What is done after the maintenance has begun, again and again until it is done.
ROUND = ("wait 5m", "wait 15m", "driver finishes")
ROUNDS_MAX = 40


def run(actor: CommandRunner, point: str, nth: int) -> None:
    """Carry a maintenance out, with a crash at a point in its nth round."""
    for command in (*FLEET, "operator start m-1"):
        actor.do(command)
        actor.changes()
    for number in range(ROUNDS_MAX):
        if not actor.deployment.checker.state.maintenances:
            break
        if number == nth:
            actor.do(f"crash {point}")
        for command in ROUND:
            for each in _meant(actor, command):
                actor.do(each)
                actor.changes()
            if not actor.deployment.service.up:
                actor.do("restart")
                actor.changes()


def _meant(actor: CommandRunner, command: str) -> list[str]:
    """The commands that one of a round stands for: a driver finishes all that runs."""
    if command != "driver finishes":
        return [command]
    operations = actor.deployment.checker.operations.values()
    running = [each.id for each in operations if each.state is OperationState.RUNNING]
    return [f"driver finishes {each}" for each in running]


@pytest.mark.parametrize("nth", [0, 1, 2], ids=["first-wave", "second-wave", "third-wave"])
@pytest.mark.parametrize("point", POINTS)
def test_maintenance_goes_on_after_a_crash_at(point: str, nth: int) -> None:
    """Each host is done once, one at a time, wherever the process died. Source: L-7, F-3."""
    actor = CommandRunner()
    with closing(actor.deployment.disk), actor.deployment.captured_logs():
        run(actor, point, nth)
        done = [
            each
            for each in actor.deployment.checker.operations.values()
            if each.state is OperationState.SUCCEEDED
        ]
        assert sorted(each.host for each in done) == ["h1", "h2", "h3"]
        done.sort(key=lambda each: each.execution.started_ms or 0)
        assert all((one.ended_ms or 0) <= next_.announced_ms for one, next_ in pairwise(done))
        assert not actor.deployment.checker.state.maintenances
        store = actor.deployment.service.store
        assert store is not None
        [ended] = store.maintenances.page()
        assert ended.state is MaintenanceState.DONE


def test_restart_keeps_the_plan_in_force() -> None:
    """A restart in the middle of a wave takes no plan's force away. Source: F-2, L-7."""
    actor = CommandRunner()
    with closing(actor.deployment.disk), actor.deployment.captured_logs():
        for command in (*FLEET, "operator start m-1", "wait 5m"):
            actor.do(command)
            actor.changes()
        before = dict(actor.deployment.checker.state.plans)
        actor.do("crash")
        actor.do("restart")
        actor.changes()
        assert actor.deployment.checker.state.plans == before
