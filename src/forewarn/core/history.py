"""Replaying history: the entries alone give back the state, and illegal entries are refused.

Reads entries, writes none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forewarn.core.lifecycle import (
    ALERT_MOVES,
    EVENT_MOVES,
    LIVE_EVENT,
    LIVE_OPERATION,
    OPERATION_MOVES,
    Alert,
    Event,
    EventState,
    Operation,
    OperationState,
)
from forewarn.core.maintenance import (
    ENDED_MAINTENANCE,
    MAINTENANCE_MOVES,
    PHASE_MOVES,
    Maintenance,
    MaintenanceState,
)
from forewarn.core.records import KINDS, Record, from_row
from forewarn.core.state import Image
from forewarn.errors import OurError
from forewarn.values import Word, replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forewarn.core.records import Row
    from forewarn.core.state import Entry

CHECKPOINT = "history.checkpoint"
"""Action of the entries that a replay begins with where older history was removed: each brings
records as they were then, in whatever state."""


def _steps(moves: Iterable[tuple[tuple[Word, Word], Word]]) -> frozenset[tuple[Word, Word]]:
    return frozenset((before, after) for (before, _), after in moves)


#: The machines of each kind of record: the field, its first state, the steps that its table has.
_MACHINES: dict[type[Record], tuple[tuple[str, Word, frozenset[tuple[Word, Word]]], ...]] = {
    Operation: (
        ("state", OperationState.PLANNED, _steps(OPERATION_MOVES.items())),
        ("alert", Alert.NONE, _steps(ALERT_MOVES.items())),
    ),
    Event: (("state", EventState.SCHEDULED, _steps(EVENT_MOVES.items())),),
    Maintenance: (("state", MaintenanceState.DRAFT, _steps(MAINTENANCE_MOVES.items())),),
}


class HistoryIllegal(OurError):
    """History has a move that no table allows: the store was altered or the code is wrong."""

    code = "history-illegal"
    message = "Entry {action} at {at_ms} moves {kind} {key} from {before} to {after}."
    advice = "Compare the store with a backup; report a bug if it was not altered."


class Rows:
    """The rows of live records as history so far left them: makes images whole.

    Memory: O(live records); an ended record is never written again.
    """

    def __init__(self) -> None:
        """Begin before the first entry."""
        self._rows: dict[tuple[str, str | int], Row] = {}

    def whole(self, entry: Entry) -> Entry:
        """Return the next entry with all columns in each of its images."""
        images = tuple([Image(i.kind, i.key, self.merged(i)) for i in entry.images])
        return replace(entry, images=images) if images else entry

    def merged(self, image: Image) -> Row | None:
        """Take the next image in; return the whole row of the record, None if it is no more."""
        place = image.kind, image.key
        known = self._rows.pop(place, None)
        if image.row is None:
            return None
        row = {**known, **image.row} if known else image.row
        if not _has_ended(image.kind, row):
            self._rows[place] = row
        return row

    def live(self) -> Iterator[Image]:
        """Yield every live record as a whole image, in the order in which they were last written.

        From these a replay can begin.
        """
        for (kind, key), row in self._rows.items():
            yield Image(kind, key, row)


def _has_ended(kind: str, row: Row) -> bool:
    if kind == "operation":
        return row["state"] in _ENDED and not row.get("abort_owed")
    if kind == "maintenance":
        return row["state"] in _ENDED_MAINTENANCE
    return kind == "event" and row["state"] in _ENDED


_ENDED = frozenset(
    word.value
    for words, live in ((OperationState, LIVE_OPERATION), (EventState, LIVE_EVENT))
    for word in words
    if word not in live
)

_ENDED_MAINTENANCE = frozenset(state.value for state in ENDED_MAINTENANCE)


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
                action=entry.action,
                at_ms=entry.at_ms,
                kind=image.kind,
                key=image.key,
                before=step[0],
                after=step[1],
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
