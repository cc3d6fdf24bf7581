"""Replaying history: the entries alone give back the state, and illegal entries are refused.

Reads entries, writes none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forewarn.core.lifecycle import (
    EVENT_MOVES,
    OPERATION_MOVES,
    Event,
    EventState,
    Operation,
    OperationState,
)
from forewarn.core.records import KINDS, Record, from_row
from forewarn.errors import OurError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.core.state import Entry, Image

_OPERATION_STEPS = {(before, after) for (before, _), after in OPERATION_MOVES.items()}
_EVENT_STEPS = {(before, after) for (before, _), after in EVENT_MOVES.items()}


class HistoryIllegal(OurError):
    """History tells of a move that no table allows: the store was altered or the code is wrong."""

    code = "history-illegal"
    message = "Entry {action} at {at_ms} moves {kind} {key} from {before} to {after}."
    advice = "Compare the store with a backup; report it if nobody altered it."


@dataclass(slots=True)
class Replay:
    """Every record that ever was, as the entries so far left it."""

    #: Kind -> key -> last value; a removed record is absent.
    records: dict[str, dict[str | int, Record]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )

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
        if image.row is None:
            known.pop(image.key, None)
            return
        after = from_row(image.kind, image.row)
        before = known.get(image.key)
        step = _step(before, after)
        if step is not None:
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
    """Return the states of an illegal step, None if the step is legal or no step at all."""
    if isinstance(after, Operation):
        first = before.state if isinstance(before, Operation) else OperationState.PLANNED
        if first is not after.state and (first, after.state) not in _OPERATION_STEPS:
            return first.value, after.state.value
    if isinstance(after, Event):
        begun = before.state if isinstance(before, Event) else EventState.SCHEDULED
        if begun is not after.state and (begun, after.state) not in _EVENT_STEPS:
            return begun.value, after.state.value
    return None
