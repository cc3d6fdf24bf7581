"""Following: derives the changes of another process's commits from the images in history.

Every commit has an image of each record that it writes, except enrolments (invariant 10), so
following costs O(changes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.records import from_row, to_row
from forewarn.core.state import TABLES, Changes, Entry, Image
from forewarn.store.images import read_images

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.core.records import Record, Row
    from forewarn.core.state import State


def changes_since(state: State, images: Iterable[str], last_number: int) -> Changes:
    """Return the changes of commits, from their images in order; `state` is the state before.

    Raises:
        ValueError: an image is malformed.
    """
    changes = Changes(last_number=last_number)
    written: list[Image] = []
    rows: dict[tuple[str, str | int], Row | None] = {}
    for text in images:
        for kind, key, changed in read_images(text):
            place = kind, key
            before = rows[place] if place in rows else _row(state.record(kind, key))
            # An entry about an unchanged record has no columns.
            row = changed if before is None or changed is None else {**before, **changed}
            rows[place] = row
            written.append(Image(kind, key, row, changed if before else None))
    for (kind, key), row in rows.items():
        getattr(changes, TABLES[kind])[key] = None if row is None else from_row(kind, row)
    changes.entries.append(Entry(0, "", "", "", images=tuple(written)))
    return changes


def _row(record: Record | None) -> Row | None:
    return None if record is None else to_row(record)
