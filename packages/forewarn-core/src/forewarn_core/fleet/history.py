"""Completes the records in history entries, which store only changed columns.

A replay may begin at any entry.
"""

from __future__ import annotations

from collections.abc import Iterator

from forewarn_base.values import replace
from forewarn_core.fleet.lifecycle import LIVE_EVENT, LIVE_OPERATION, EventState, OperationState
from forewarn_core.fleet.maintenance import ENDED_MAINTENANCE
from forewarn_core.fleet.records import Columns
from forewarn_core.fleet.state import Entry, Image

#: Action of the first entries after old history was deleted.
#:
#: Each contains records as of the deletion, in any state.
CHECKPOINT = "history.checkpoint"


class Rows:
    """The current row of each live record, from the entries read so far; completes partial rows.

    Memory: O(live records). An ended record is never written again.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str | int], Columns] = {}

    def whole(self, entry: Entry) -> Entry:
        """Return the next entry with all columns of each record."""
        images = tuple([Image(i.kind, i.key, self.merged(i)) for i in entry.images])
        return replace(entry, images=images) if images else entry

    def merged(self, image: Image) -> Columns | None:
        """Apply the next change; return the record's whole row, None if it was removed."""
        place = image.kind, image.key
        earlier = self._rows.pop(place, None)
        if image.row is None:
            return None
        row = {**earlier, **image.row} if earlier else image.row
        if not _has_ended(image.kind, row):
            self._rows[place] = row
        return row

    def live(self) -> Iterator[Image]:
        """Yield every live record as a whole row, ordered by last write.

        A replay can begin with these.
        """
        for (kind, key), row in self._rows.items():
            yield Image(kind, key, row)


def _has_ended(kind: str, row: Columns) -> bool:
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
