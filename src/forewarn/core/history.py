"""History's images made whole: each has only what changed, and a replay may begin anywhere.

Reads entries, writes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.lifecycle import LIVE_EVENT, LIVE_OPERATION, EventState, OperationState
from forewarn.core.maintenance import ENDED_MAINTENANCE
from forewarn.core.state import Image
from forewarn.values import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forewarn.core.records import Row
    from forewarn.core.state import Entry

CHECKPOINT = "history.checkpoint"
"""Action of the entries that a replay begins with where older history was removed: each brings
records as they were then, in whatever state."""


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
