"""Replaying history: the entries alone give back the state, and illegal entries are refused."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from forewarn_base.values import Word
from forewarn_core.fleet.history import CHECKPOINT, Rows
from forewarn_core.fleet.lifecycle import (
    ALERT_MOVES,
    EVENT_MOVES,
    OPERATION_MOVES,
    Alert,
    Event,
    EventState,
    Operation,
    OperationState,
)
from forewarn_core.fleet.maintenance import (
    MAINTENANCE_MOVES,
    PHASE_MOVES,
    Maintenance,
    MaintenanceState,
)
from forewarn_core.fleet.records import KINDS, Record, from_row
from forewarn_core.fleet.state import Entry, Image
from forewarn_core.fleet.ticket import TICKET_MOVES, Ticket, TicketState


def _steps(moves: Iterable[tuple[tuple[Word, Word], Word]]) -> frozenset[tuple[Word, Word]]:
    return frozenset((before, after) for (before, _), after in moves)


#: The machines of each kind of record: the field, its first state, the steps that its table has.
_MACHINES: dict[type[Record], tuple[tuple[str, Word, frozenset[tuple[Word, Word]]], ...]] = {
    Operation: (
        ("state", OperationState.PLANNED, _steps(OPERATION_MOVES.items())),
        ("alert", Alert.NONE, _steps(ALERT_MOVES.items())),
    ),
    Event: (("state", EventState.SCHEDULED, _steps(EVENT_MOVES.items())),),
    Ticket: (("state", TicketState.OPEN, _steps(TICKET_MOVES.items())),),
    Maintenance: (("state", MaintenanceState.DRAFT, _steps(MAINTENANCE_MOVES.items())),),
}


class HistoryIllegal(Exception):
    """History has a move that no table allows."""


@dataclass(slots=True)
class Replay:
    """Every record that ever was, as the entries so far left it."""

    #: Kind -> key -> last value; a removed record is absent.
    records: dict[str, dict[str | int, Record]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    _rows: Rows = field(default_factory=Rows, compare=False)

    def extend(self, entries: Iterable[Entry]) -> None:
        """Apply entries in their order.

        Raises:
            HistoryIllegal: an entry makes a move that the tables do not have.
        """
        for entry in entries:
            for image in entry.images:
                self._apply(entry, image)

    def _apply(self, entry: Entry, image: Image) -> None:
        known = self.records[image.kind]
        row = self._rows.merged(image)
        if row is None:
            known.pop(image.key, None)
            return
        after = from_row(image.kind, row)
        before = known.get(image.key)
        step = _step(before, after)
        if step is not None and entry.action != CHECKPOINT:
            raise HistoryIllegal(
                f"{entry.action}: {image.kind} {image.key} moves from {step[0]} to {step[1]}"
            )
        known[image.key] = after


def _step(before: Record | None, after: Record) -> tuple[str, str] | None:
    """Return the states of an illegal step; None if the step is legal or the state is the same."""
    for name, first, steps in _MACHINES.get(type(after), ()):
        was: Word = first if before is None else getattr(before, name)
        now: Word = getattr(after, name)
        if was is not now and (was, now) not in steps:
            return was.value, now.value
    if isinstance(after, Maintenance) and isinstance(before, Maintenance):
        phases = type(before.phase), type(after.phase)
        if before.phase != after.phase and phases not in PHASE_MOVES:
            return phases[0].__name__, phases[1].__name__
    return None
