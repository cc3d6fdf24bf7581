"""The operations of a scenario's run, by the labels of its steps.

The control loop's thread calls the methods with a `plane`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.lifecycle import LIVE_OPERATION, Operation, OperationState
from forewarn.emulator.scenario import Until

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from forewarn.control.plane import ControlPlane


class ScenarioOperations:
    """The operations of a run, by label of a step or a maintenance."""

    def __init__(self, maintenances: Mapping[str, int]) -> None:
        """Start without operations.

        Args:
            maintenances: numbers of the run's maintenances by label; the caller adds later
                maintenances.
        """
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

    def reached(self, plane: ControlPlane, label: str, until: Until) -> bool:
        """Return whether all operations of a label, without a maintenance, have reached a state."""
        numbers = self.by_label.get(label, [])
        operations = [plane.state.operations.get(n) or plane.store.operation(n) for n in numbers]
        there = [operation for operation in operations if operation is not None]
        return bool(there) and all(_reached(each, until) for each in there)

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

        Args:
            plane: the control plane.
            label: the label of the operations.
            to: the VMs whose documents are read.
            only: VMs to which the events are limited; empty: all events.
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


def _reached(operation: Operation, until: Until) -> bool:
    if operation.state not in LIVE_OPERATION:
        return True
    if until is Until.STARTED:
        return operation.state is OperationState.RUNNING
    return until is Until.SCHEDULED and operation.state is not OperationState.PLANNED
