"""The checkers of the simulator: what is due, and the pause after a wave, by which clock."""

from __future__ import annotations

from contextlib import closing, nullcontext

import pytest

from forewarn.core.impact import Cause, Impact, Source
from forewarn.core.lifecycle import Execution, Operation, OperationState
from forewarn.core.maintenance import Maintenance, MaintenanceState, Target, TargetState
from forewarn.core.policy import NoticePolicy
from forewarn.core.state import Changes
from forewarn.core.step import PORTION_MAX
from forewarn.core.topology import Group, Host, Vm
from forewarn.planning.policy import MaintenancePolicy
from forewarn.values import replace
from tests.simulator.checkers.invariants import LATE_MS, InvariantChecker
from tests.simulator.checkers.maintenance_checker import CLOCK_OFF_MS
from tests.simulator.transcripts.commands import CommandRunner
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.event_queue import HOUR_MS, START_MS, EventQueue

HALF_HOUR_MS = HOUR_MS // 2
WORK = Operation(
    number=7,
    request=7,
    cause=Cause.HOST_REBOOT,
    impact=Impact.REBOOT,
    source=Source.PLATFORM,
    routine=True,
    host="h1",
    vms=(),
    of_vm=False,
    description="",
)


def test_service_that_comes_back_starts_in_portions() -> None:
    """It is not late with what became due meanwhile, until it has run for a while. Source: L-8."""
    runner = CommandRunner()
    deployment = runner.deployment
    with closing(deployment.disk):
        for number in range(PORTION_MAX + 1):
            runner.do(f"host h{number}")
            runner.do(f"vm web_{number} on=h{number} group=g{number}")
            runner.do(f"operator reboot h{number}")
        runner.do("crash")
        runner.do("wait 30m")
        service, checker = deployment.service, deployment.checker
        assert service.start()
        state = [each.state for each in checker.state.operations.values()]
        assert state.count(OperationState.ANNOUNCED) == 1
        checker.check_progress(service)
        checker.recovered_ms -= LATE_MS + 1
        with pytest.raises(Violation, match="due and has not started"):
            checker.check_progress(service)


@pytest.mark.parametrize(
    "policy",
    [
        MaintenancePolicy(pause_s=HALF_HOUR_MS // 1000),
        MaintenancePolicy(owner_rest_s=HALF_HOUR_MS // 1000),
    ],
    ids=["pause", "owner-rest"],
)
@pytest.mark.parametrize(
    ("ended_ahead_ms", "passed_ms", "too_soon"),
    [
        (0, HALF_HOUR_MS, False),
        (0, HALF_HOUR_MS - 1, True),
        (CLOCK_OFF_MS, HALF_HOUR_MS + CLOCK_OFF_MS - 1, True),
        (6 * HOUR_MS, HALF_HOUR_MS, False),
        (6 * HOUR_MS, 6 * HOUR_MS + 400, False),
        (6 * HOUR_MS, HALF_HOUR_MS - 1, True),
    ],
    ids=["over", "too-soon", "imprecise", "put-back", "caught-up", "put-back-too-soon"],
)
def test_pause_is_over_by_true_time_after_the_clock_was_put_back(
    policy: MaintenancePolicy, ended_ahead_ms: int, passed_ms: int, *, too_soon: bool
) -> None:
    """Its end by the old clock, which may come again hours later, is none. Source: F-3."""
    checker = InvariantChecker(EventQueue(), NoticePolicy(maintenance=policy))
    changes = Changes(0, hosts={"h1": Host("h1"), "h2": Host("h2")})
    changes.groups["g"] = Group("g", owner="alice")
    changes.vms.update({f"v{number}": Vm(f"v{number}", f"h{number}", "g") for number in (1, 2)})
    cause, impact = Cause.HOST_REBOOT, Impact.REBOOT
    asked = Maintenance(1, cause, impact, ("h1", "h2"), START_MS, "operator", duration_s=60)
    checker.take(replace(changes, maintenances={1: asked}), START_MS)
    maintenance = checker.maintenance

    def takes(number: int, state: OperationState, at_ms: int, ahead_ms: int) -> None:
        operation = replace(
            WORK,
            number=number,
            host=f"h{number}",
            state=state,
            execution=Execution(at_ms),
            maintenance=1,
        )
        done = state is not OperationState.RUNNING
        what = TargetState.DONE if done else TargetState.WORKING
        target = Target(f"1/h{number}", 1, operation.host, number, number, what, at_ms * done)
        made = Changes(0, operations={number: operation}, targets={target.key: target})
        maintenance.durable(made, at_ms, ahead_ms)

    running = replace(asked, state=MaintenanceState.RUNNING)
    maintenance.durable(Changes(0, maintenances={1: running}), START_MS, 0)
    takes(1, OperationState.RUNNING, START_MS + ended_ahead_ms, ended_ahead_ms)
    takes(1, OperationState.SUCCEEDED, START_MS + ended_ahead_ms, ended_ahead_ms)
    with pytest.raises(Violation, match="15: op-2") if too_soon else nullcontext():
        takes(2, OperationState.RUNNING, START_MS + passed_ms, 0)
