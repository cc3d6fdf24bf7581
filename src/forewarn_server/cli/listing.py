"""Read lists from the operator API page by page, with `--state`, `--since` and `--limit`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forewarn_base.errors import CallerError, nearest
from forewarn_base.protocol import timestamps
from forewarn_base.validation.durations import read_duration_s, read_time_ms
from forewarn_server.cli.api_client import Answer, ApiClient
from forewarn_server.cli.parameters import OutputOptions

#: Most records in one request of a list.
PAGE_MAX = 500
#: Members whose value 0 means that the value is unknown.
ZERO_UNKNOWN = frozenset({"memory_mib"})
#: Values of members that are unknown.
_UNKNOWN = (None, "")
#: Path -> member of its answer, where they differ.
_PLURALS = {"history": "entries"}
_DIGITS = re.compile(r"([0-9]+)")


class SinceInvalid(CallerError):
    """The time of `--since` is malformed."""

    code = "since-invalid"
    message = "{text!r} is not a time for --since."
    advice = "Use an age, such as 90s, 2h or 7d, or a time such as 2026-11-21T18:30:00Z."


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The records of a list that are shown."""

    limit: int
    since: str | None = None
    states: Sequence[str] = ()


def records(
    client: ApiClient,
    path: str,
    name: str,
    *,
    cursor: str = "after",
    start: object = None,
    **query: object,
) -> Iterator[Answer]:
    """Yield the records of a list after `start`; request each page when needed."""
    place: object = start
    while True:
        page = client.get(path, **query, **{cursor: place})
        yield from page[name]
        place = page["next"]
        if not place:
            return


def newest(
    client: ApiClient,
    path: str,
    *,
    time: str,
    chosen: Chosen,
    **query: object,
) -> list[Answer]:
    """Return the newest records that match the options of a list, oldest first.

    Raises:
        SinceInvalid: `--since` is not a time.
    """
    name = path.rpartition("/")[2]
    name = _PLURALS.get(name, name)
    page = min(chosen.limit, PAGE_MAX)
    newest_records: list[Answer] = []
    for each in records(client, path, name, cursor="before", limit=page, **query):
        if chosen.since and _is_before(each[time], chosen.since, client.now_ms):
            break
        if not chosen.states or each["state"] in chosen.states:
            newest_records.append(each)
        if len(newest_records) == chosen.limit:
            break
    newest_records.reverse()
    return newest_records


class SortUnknown(CallerError):
    """Records of a list have no such member."""

    code = "sort-unknown"
    message = "The list cannot be sorted by {name}."
    advice = "Sort by one of {known}."


def in_order(common: OutputOptions, records: list[Answer]) -> list[Answer]:
    """Return records in the order of `--sort`, or unchanged; unknown values come last.

    Raises:
        SortUnknown: records have no such member.
    """
    typed = getattr(common, "sort", "")
    name = typed.lstrip("-").replace("-", "_").replace(" ", "_").lower()
    if not (typed and records):
        return records
    if name not in records[0]:
        known = ", ".join(records[0])
        raise SortUnknown(name=name, known=known, near=nearest(name, records[0]))
    present = [each for each in records if each[name] not in _UNKNOWN]
    others = [each for each in records if each[name] in _UNKNOWN]
    present.sort(key=lambda each: _sort_key(each[name]), reverse=typed.startswith("-"))
    return present + others


def _sort_key(value: object) -> tuple[float, list[tuple[int, str]]]:
    if isinstance(value, int | float):
        return float(value), []
    return 0.0, natural(str(value))


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that orders node-2 before node-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name)]


def _is_before(at: str | None, since: str, now_ms: int) -> bool:
    try:
        since_ms = now_ms - read_duration_s(since) * 1000 if since[-1:] in "dhms" else 0
        since_ms = since_ms or read_time_ms(since, now_ms)
    except ValueError as error:
        raise SinceInvalid(text=since) from error
    return at is not None and timestamps.parse(at) < since_ms
