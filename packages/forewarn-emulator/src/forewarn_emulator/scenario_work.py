"""The work of a scenario's run: its operations and maintenances, its policy, and their cleanup.

Used only on the event loop, except methods with a `plane`, which the control loop's thread calls.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping

from forewarn_base.errors import CallerError
from forewarn_core.fleet.lifecycle import LIVE_OPERATION, Operation, OperationState
from forewarn_core.fleet.maintenance import MaintenanceState
from forewarn_core.fleet.state import State
from forewarn_core.fleet.stimulus import (
    ApplyPolicy,
    CancelMaintenance,
    ChangeTopology,
    CreateMaintenance,
    Repair,
    ResumeMaintenance,
    StartMaintenance,
)
from forewarn_core.fleet.topology import Health, Topology
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_emulator.acting_control import ActingControl, copied_topology
from forewarn_emulator.default_fleet import ACTOR, SCENARIO, is_empty
from forewarn_emulator.scenario import Maintain, Scenario, Until
from forewarn_emulator.scenario_files import policy_at
from forewarn_emulator.scenario_machines import ScenarioFleet, Touched, taken_back
from forewarn_server.control.plane import ControlPlane

OVER = "the scenario has ended"


class ScenarioOperations:
    """The operations of a run, by label of a step or a maintenance."""

    def __init__(self, maintenances: Mapping[str, int]) -> None:
        """The caller adds later maintenances to `maintenances`."""
        self._maintenances = maintenances
        #: Requested operations by label; the empty text for operations without a label.
        self.by_label: dict[str, list[int]] = {}

    def add(self, label: str, number: int) -> None:
        """Add an operation."""
        self.by_label.setdefault(label, []).append(number)

    def numbers(self, plane: ControlPlane, label: str) -> list[int]:
        """Return the operations of a label."""
        maintenance = self._maintenances.get(label)
        if maintenance is None:
            return self.by_label.get(label, [])
        operations = plane.state.operations.values()
        return [each.number for each in operations if each.maintenance == maintenance]

    def have_reached(self, plane: ControlPlane, label: str, until: Until) -> bool:
        """Return whether all operations that steps with a label requested have reached a state.

        An ended operation has reached every state. Maintenances: `ScenarioMaintenances`.
        """
        numbers = self.by_label.get(label, [])
        stored = (plane.state.operations.get(n) or plane.store.operation(n) for n in numbers)
        operations = [operation for operation in stored if operation is not None]
        return bool(operations) and all(_has_reached(each, until) for each in operations)

    def live(self, plane: ControlPlane) -> list[Operation]:
        """Return all operations that have not ended."""
        return [
            plane.state.operations[number]
            for label in (*self.by_label, *self._maintenances)
            for number in self.numbers(plane, label)
            if number in plane.state.operations
        ]

    def shown(
        self, plane: ControlPlane, label: str, *, to: Collection[str], only: Collection[str]
    ) -> list[tuple[str, str]]:
        """Return the visible events of a label, as pairs of VM and event.

        Only the documents of the VMs `to`, and events of the VMs `only` (empty: all) count.
        """
        vms = plane.state.topology.vms
        groups = {name: vms[name].group for name in to if name in vms}
        numbers = self.numbers(plane, label)
        return [
            (name, event.id)
            for event in plane.state.events.values()
            for name, group in groups.items()
            if event.operation in numbers
            and event.group == group
            and not (only and set(event.resources) - set(only))
        ]


def _has_reached(operation: Operation, until: Until) -> bool:
    if operation.state not in LIVE_OPERATION:
        return True
    match until:
        case Until.SCHEDULED:
            return operation.state is not OperationState.PLANNED
        case Until.STARTED:
            return operation.state is OperationState.RUNNING
        case Until.STOPPED | Until.ENDED:
            return False


def _maintenance_has_reached(state: State, number: int, until: Until) -> bool:
    maintenance = state.maintenances.get(number)
    if maintenance is None:  # it is done or cancelled, and a gate did not stop it
        return until is not Until.STOPPED
    targets = state.progress(number).targets.values()
    match until:
        case Until.SCHEDULED:
            return bool(targets)
        case Until.STARTED:
            operations = [state.operations.get(target.operation) for target in targets]
            return any(each is None or each.state is OperationState.RUNNING for each in operations)
        case Until.STOPPED:
            return maintenance.state is MaintenanceState.STOPPED
        case Until.ENDED:
            return False  # an ended maintenance leaves the state


class PolicyBusy(CallerError):
    """The policy of another running scenario is active."""

    code = "scenario-policy-busy"
    status = 409
    message = "Scenario {name} cannot apply its policy, because the policy of {actor} is active."
    advice = "Wait for the end of the other scenario, or run `forewarn emulator scenario stop`."


class ScenarioMaintenances:
    """The maintenances of one run, by label, and its policy."""

    def __init__(self, control: ActingControl) -> None:
        self._control = control
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
        applied = await self._control.read(lambda plane: plane.state.applied_policy)
        if applied is not None and applied.actor.startswith(SCENARIO):
            raise PolicyBusy(name=scenario.name, actor=applied.actor)
        self._before = await self._control.read(lambda plane: plane.maintenance_policy)
        self._brought = policy_at(scenario.policy, begun_ms)
        await self._control.submit(ApplyPolicy(self._brought))

    async def begin(self, work: Maintain, fleet: ScenarioFleet) -> Touched:
        """Create and start a maintenance; return its machines."""
        hosts = fleet.names(work.hosts)
        created = await self._control.submit(
            CreateMaintenance(
                cause=work.cause,
                hosts=hosts,
                duration_s=work.duration_s,
                reason=work.reason,
                budgets=(Budget(Scope.FLEET, work.max_at_once),) if work.max_at_once else (),
                canary_hosts=fleet.names(work.canary),
                max_failures=work.max_failures,
            )
        )
        maintenance = created.maintenance
        assert maintenance is not None, "a created maintenance is returned"
        self.numbers[work.label or maintenance.id] = maintenance.number
        await self._control.submit(StartMaintenance(maintenance.number))

        def vms(plane: ControlPlane) -> frozenset[str]:
            topology = plane.state.topology
            return frozenset(vm for host in hosts for vm in topology.vms_on(host))

        return Touched(hosts=frozenset(hosts), vms=await self._control.read(vms))

    async def has_reached(self, label: str, until: Until) -> bool:
        """Return whether a maintenance has reached a state: one host is enough for its work."""
        number = self.numbers[label]
        return await self._control.read(
            lambda plane: _maintenance_has_reached(plane.state, number, until)
        )

    async def resume(self, label: str) -> None:
        """Resume a stopped maintenance."""
        await self._control.attempt(ResumeMaintenance(self.numbers[label]))

    async def cancel(self, label: str, reason: str = "") -> None:
        """Cancel a maintenance, unless it has ended."""
        await self._control.attempt(CancelMaintenance(self.numbers[label], reason))

    async def take_back(self) -> None:
        """Cancel remaining maintenances, and restore the previous policy.

        A policy applied by an operator meanwhile remains.
        """
        for label in self.numbers:
            await self.cancel(label, OVER)
        if (
            self._before is not None
            and await self._control.read(lambda plane: plane.maintenance_policy) == self._brought
        ):
            await self._control.submit(ApplyPolicy(self._before), ACTOR)


class TidyUp:
    """The changes of one run, with the actions that undo them, if necessary one at a time.

    Work requested by others continues, and can delay the cleanup.
    """

    def __init__(self, control: ActingControl, before: Topology) -> None:
        self._control = control
        self._before = before
        self.touched = Touched()
        #: Remaining changes, such as `vm upgrade-2`, each with the reason.
        self.left: dict[str, str] = {}

    async def attempt(self) -> None:
        """Undo as many changes as possible; O(machines of the scenario)."""
        left: dict[str, str] = {}
        before, now = self._before, await self._control.read(copied_topology)
        # A host that the emulator has added for a VM goes, too.
        there = {now.vms[name].host for name in self.touched.vms & now.vms.keys()}
        self.touched |= Touched(hosts=frozenset(there - before.hosts.keys()))
        for name in sorted(self.touched.hosts & now.hosts.keys()):
            was_healthy = name not in before.hosts or before.hosts[name].health is Health.HEALTHY
            if was_healthy and now.hosts[name].health is not Health.HEALTHY:
                refusal = await self._control.attempt(Repair(name))
                if refusal:
                    left[f"host {name}"] = refusal
        change = taken_back(before, await self._control.read(copied_topology), self.touched)
        # The generator yields each attempt, receives its refusal, and returns the failed parts.
        attempts = in_parts(change)
        try:
            part = next(attempts)
            while True:
                part = attempts.send(await self._control.attempt(part))
        except StopIteration as end:
            self.left = left | end.value


def in_parts(change: ChangeTopology) -> Generator[ChangeTopology, str, dict[str, str]]:
    """Yield a change; after a refusal, yield its parts as long as some succeed.

    The caller sends the reason of each refusal, or an empty text. The generator returns the
    remaining parts with reasons.
    """
    if is_empty(change) or not (yield change):
        return {}
    parts = _parts(change)
    while True:
        left: dict[str, str] = {}
        for subject, part in parts.items():
            refusal = yield part
            if refusal:
                left[subject] = refusal
        if not left or len(left) == len(parts):
            return left
        parts = {subject: parts[subject] for subject in left}


def _parts(change: ChangeTopology) -> dict[str, ChangeTopology]:
    """Return the parts of a change by kind and name, in the order most likely to succeed."""
    parts = {f"host {each.name}": ChangeTopology(hosts=(each,)) for each in change.hosts}
    parts |= {f"group {each.name}": ChangeTopology(groups=(each,)) for each in change.groups}
    parts |= {f"vm {each.name}": ChangeTopology(vms=(each,)) for each in change.vms}
    for kind, name in change.removed:
        parts[f"{kind} {name}"] = ChangeTopology(removed=((kind, name),))
    return parts
