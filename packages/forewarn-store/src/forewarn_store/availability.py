"""Records of availability: written with each commit, read page by page, deleted after 400 days.

Their table is apart from history, so that no limit of history shortens it. Source: T-13.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from forewarn_base.values import Word, value
from forewarn_core.fleet.availability_records import AvailabilityKind, AvailabilityRecord
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.outcomes import EventResult
from forewarn_store.engine import Engine, Row, Value

#: How long records are kept, in ms: 400 days.
KEPT_MS = 400 * 86_400_000
#: Maximum number of records on one page, and of records that one deletion removes.
PAGE_MAX = 1000

_WORDS: dict[str, type[Word]] = {
    "kind": AvailabilityKind,
    "cause": Cause,
    "impact": Impact,
    "source": Source,
    "result": EventResult,
}
_NAMES = AvailabilityRecord.__match_args__
_fields: Callable[[AvailabilityRecord], tuple[object, ...]] = attrgetter(*_NAMES)
# An owner's filter has the form of `reading.owners_text`.
_FILTERS = {
    "since_ms": "at_ms >= :since_ms",
    "after": "(generation, place) > (:after, :after_place)",
    "group": "group_name = :group",
    "owner": "owner = :owner",
    "vm": "replace(vms, '\"' || :vm || '\"', '') <> vms",
    "owners": "replace(:owners, '\n' || owner || '\n', '') <> :owners",
}


@value
class AvailabilityPage:
    """Filters for records of availability, oldest first; a record must match all set filters."""

    #: Only records of this time or later, ms since the epoch UTC; 0: no limit.
    since_ms: int = 0
    group: str = ""
    owner: str | None = None
    vm: str = ""
    #: The place of the last record of the previous page.
    after: tuple[int, int] = (0, 0)
    limit: int = PAGE_MAX
    #: Owners whose records are read, in the form of `owners_text`; empty: all owners.
    owners: str = ""


@value
class RecordedAvailability:
    """A record and its place: the number of its commit, and its position there."""

    place: tuple[int, int]
    record: AvailabilityRecord


def availability_rows(records: Sequence[AvailabilityRecord], generation: int) -> list[Row]:
    """Return the rows of the records of one commit."""
    return [(generation, at, *_row(record)) for at, record in enumerate(records)]


def read_page(engine: Engine, page: AvailabilityPage) -> list[RecordedAvailability]:
    """Return one page of records, oldest first."""
    values: dict[str, Value] = {
        name: each
        for name in ("since_ms", "group", "vm", "owners")
        if (each := getattr(page, name))
    }
    if page.owner is not None:
        values["owner"] = page.owner
    filters = [_FILTERS[name] for name in values]
    if page.after > (0, 0):
        filters.append(_FILTERS["after"])
        values["after"], values["after_place"] = page.after
    fills = {"filters": " AND ".join(filters) or "1 = 1"}
    limit = min(page.limit, PAGE_MAX)
    with engine.reading() as transaction:
        rows = transaction.rows_filled("availability", fills, limit=limit, **values)
    return [
        RecordedAvailability((int(generation), int(place)), _record(row))
        for generation, place, *row in rows
    ]


def since_ms(engine: Engine) -> int:
    """Return since when records are complete, ms since the epoch UTC; 0: since the beginning."""
    [(at_ms,)] = engine.rows("availability_since")
    return int(at_ms)


def trim_records(engine: Engine, confirm: Callable[[], None], now_ms: int) -> int:
    """Delete records older than `KEPT_MS`, in pages; return their number.

    `confirm` checks before each page that this process is still the writer.
    """
    before_ms, count = now_ms - KEPT_MS, 0
    while engine.rows("availability_old", before_ms=before_ms):
        confirm()
        with engine.writing() as transaction:
            gone = transaction.rows("availability_trim", before_ms=before_ms, count=PAGE_MAX)
        count += len(gone)
    return count


def _row(record: AvailabilityRecord) -> Iterable[Value]:
    for each in _fields(record):
        match each:
            case None:
                yield ""
            case Word():
                yield each.value
            case tuple():
                yield json.dumps(each, ensure_ascii=False, separators=(",", ":"))
            case int() | str():
                yield each


def _record(row: Sequence[Value]) -> AvailabilityRecord:
    values: list[object] = []
    for name, each in zip(_NAMES, row, strict=True):
        if name in _WORDS:
            values.append(_WORDS[name](each) if each else None)
        elif name == "vms":
            values.append(tuple(json.loads(str(each))))
        else:
            values.append(each)
    # the columns are the fields, which the type checker cannot derive from a row
    return AvailabilityRecord(*values)  # type: ignore[arg-type]
