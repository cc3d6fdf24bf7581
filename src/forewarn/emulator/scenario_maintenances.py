"""The maintenances of a scenario's run, and its policy.

Used only on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from forewarn.core.lifecycle import OperationState
from forewarn.core.maintenance import MaintenanceState
from forewarn.core.stimulus import (
    ApplyPolicy,
    CancelMaintenance,
    CreateMaintenance,
    ResumeMaintenance,
    StartMaintenance,
)
from forewarn.emulator.default_fleet import ACTOR, SCENARIO
from forewarn.emulator.scenario import Until
from forewarn.emulator.scenario_machines import Touched
from forewarn.emulator.scenario_policy import policy_at
from forewarn.errors import CallerError
from forewarn.planning.policy import Budget, Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.control.engine import ControlEngine
    from forewarn.control.plane import Committed, ControlPlane
    from forewarn.core.stimulus import Stimulus
    from forewarn.emulator.scenario import Maintain, Scenario
    from forewarn.emulator.scenario_machines import ScenarioFleet
    from forewarn.planning.policy import MaintenancePolicy

log = logging.getLogger("forewarn.emulator")

T = TypeVar("T")

OVER = "the scenario has ended"


class PolicyBusy(CallerError):
    """The policy of another running scenario is active."""

    code = "scenario-policy-busy"
    status = 409
    message = "Scenario {name} cannot apply its policy, because the policy of {actor} is active."
    advice = "Wait for the end of the other scenario, or run `forewarn emulator scenario stop`."


class ScenarioMaintenances:
    """The maintenances of one run, by label, and its policy."""

    def __init__(self, control: ControlEngine, actor: str) -> None:
        """Start without maintenances."""
        self._control, self._actor = control, actor
        #: Numbers of maintenances by label, or else by number.
        self.numbers: dict[str, int] = {}
        self._brought: MaintenancePolicy | None = None
        self._before: MaintenancePolicy | None = None

    async def bring_policy(self, scenario: Scenario, begun_ms: int) -> None:
        """Apply the policy of a scenario with a policy.

        Raises:
            PolicyBusy: the policy of another scenario is active.
        """
        if not scenario.policy:
            return
        applied = await self._read(lambda plane: plane.state.applied_policy)
        if applied is not None and applied.actor.startswith(SCENARIO):
            raise PolicyBusy(name=scenario.name, actor=applied.actor)
        self._before = await self._read(lambda plane: plane.maintenance_policy)
        self._brought = policy_at(scenario.policy, begun_ms)
        await self._submit(ApplyPolicy(self._brought))

    async def begin(self, asked: Maintain, stage: ScenarioFleet) -> Touched:
        """Create and start a maintenance; return its machines."""
        hosts = stage.names(asked.hosts)
        created = await self._submit(
            CreateMaintenance(
                cause=asked.cause,
                hosts=hosts,
                duration_s=asked.duration_s,
                reason=asked.reason,
                budgets=(Budget(Scope.FLEET, asked.max_at_once),) if asked.max_at_once else (),
                canary_hosts=stage.names(asked.canary),
                max_failures=asked.max_failures,
            )
        )
        maintenance = created.maintenance
        assert maintenance is not None, "a created maintenance is returned"
        self.numbers[asked.label or maintenance.id] = maintenance.number
        await self._submit(StartMaintenance(maintenance.number))

        def vms(plane: ControlPlane) -> frozenset[str]:
            topology = plane.state.topology
            return frozenset(vm for host in hosts for vm in topology.vms_on(host))

        return Touched(hosts=frozenset(hosts), vms=await self._read(vms))

    async def reached(self, label: str, until: Until) -> bool:
        """Return whether a maintenance, or work on one of its hosts, has reached a state."""
        number = self.numbers[label]

        def look(plane: ControlPlane) -> bool:
            maintenance = plane.state.maintenances.get(number)
            if maintenance is None:  # the maintenance has ended
                return until is not Until.STOPPED
            if until in {Until.ENDED, Until.STOPPED}:
                return until is Until.STOPPED and maintenance.state is MaintenanceState.STOPPED
            targets = plane.state.progress(number).targets.values()
            if until is Until.SCHEDULED:
                return bool(targets)
            states = {plane.state.operations.get(each.operation) for each in targets}
            return any(each is None or each.state is OperationState.RUNNING for each in states)

        return await self._read(look)

    async def resume(self, label: str) -> None:
        """Resume a stopped maintenance."""
        await self._try(ResumeMaintenance(self.numbers[label]))

    async def cancel(self, label: str, reason: str = "") -> None:
        """Cancel a maintenance, unless it has ended."""
        await self._try(CancelMaintenance(self.numbers[label], reason))

    async def take_back(self) -> None:
        """Cancel remaining maintenances, and restore the previous policy.

        A policy applied by an operator meanwhile remains.
        """
        for label in self.numbers:
            await self.cancel(label, OVER)
        if (
            self._before is not None
            and await self._read(lambda plane: plane.maintenance_policy) == self._brought
        ):
            await self._submit(ApplyPolicy(self._before), ACTOR)

    async def _try(self, stimulus: Stimulus) -> None:
        try:
            await self._submit(stimulus)
        except CallerError as late:
            log.info("%s: %s", self._actor, late)

    async def _submit(self, stimulus: Stimulus, actor: str = "") -> Committed:
        return await asyncio.wrap_future(self._control.submit(stimulus, actor or self._actor))

    async def _read(self, query: Callable[[ControlPlane], T]) -> T:
        return await asyncio.wrap_future(self._control.read(query))
