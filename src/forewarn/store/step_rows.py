"""What a step writes, as rows: each record that it changes, and what is written of one only once.

No statement is run in here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.records import to_row
from forewarn.core.state import OF_TOPOLOGY
from forewarn.store.statements import APART

if TYPE_CHECKING:
    from forewarn.core.state import Changes, State
    from forewarn.store.engine import Row


class StepRows:
    """Knows what is written of the live records beside their rows; follows what is durable."""

    def __init__(self, state: State | None = None) -> None:
        """Begin with a state as it was loaded, or with nothing."""
        #: VMs of live operations as `operation_vm` has them.
        self._placed: dict[int, tuple[str, ...]] = {}
        #: Live maintenances whose hosts are written.
        self._described: set[int] = set()
        if state is not None:
            self._placed = {each.number: each.vms for each in state.operations.values()}
            self._described = set(state.maintenances)

    def advance(self, changes: Changes) -> None:
        """Go on after changes that are durable."""
        for number, operation in changes.operations.items():
            if operation.live:
                self._placed[number] = operation.vms
            else:
                self._placed.pop(number, None)
        for number, maintenance in changes.maintenances.items():
            if maintenance.live:
                self._described.add(number)
            else:
                self._described.discard(number)

    def records(self, changes: Changes) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Return rows written and keys removed, by kind, in the order of foreign keys."""
        written: dict[str, list[Row]] = {}
        gone: dict[str, list[Row]] = {}
        # Of the fleet each record that is written has its image, and the last one has its row.
        known = {
            (image.kind, image.key): image.row
            for entry in changes.entries
            for image in entry.images
            if image.kind in OF_TOPOLOGY
        }
        for kind, key, record in changes.images():
            if record is None:
                gone.setdefault(kind, []).append((key,))
                continue
            row = known.get((kind, key)) or to_row(record)
            if kind in APART:
                row = {name: each for name, each in row.items() if name != APART[kind][0]}
            written.setdefault(kind, []).append(tuple(row.values()))
        return written, gone

    def once(self, changes: Changes) -> dict[str, list[Row]]:
        """Return what comes and goes beside the records, by the statements that write it."""
        come: list[Row] = []
        went: list[Row] = []
        for number, operation in changes.operations.items():
            known = self._placed.get(number, ())
            if known != operation.vms:
                come += [(vm, number) for vm in operation.vms if vm not in known]
                went += [(vm, number) for vm in known if vm not in operation.vms]
        described: list[Row] = [
            (number, to_row(maintenance)["hosts"])
            for number, maintenance in changes.maintenances.items()
            if number not in self._described
        ]
        return {"put_maintenance_hosts": described, "displace_vm": went, "place_vm": come}
