"""The part of Resource Graph's query language that scheduled events are asked for in. Pure.

`where`, `project`, `sort by` or `order by`, `take` or `limit`, and `count`; all else is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from forewarn.errors import CallerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.azure.json_values import JsonObject

#: The only table there is.
TABLE = "maintenanceresources"
#: Longest query and most steps of one.
CHARACTERS_MAX, STEPS_MAX = 10_000, 50

# No two runs of spaces may meet in a pattern: the regex engine would try every way to divide one.
_COLUMN = r"(?:tostring\(\s*)?([A-Za-z_]\w*(?:\.\w+)*)(?:\s*\))?"
_CONDITION = re.compile(_COLUMN + r"\s*(==|=~|!=|!~)\s*(?:'([^']*)'|\"([^\"]*)\")")
_PROJECTED = re.compile(r"(?:([A-Za-z_]\w*)\s*=\s*)?" + _COLUMN)
_SORTED = re.compile(_COLUMN + r"(?:\s+(asc|desc))?")
_AND = re.compile(r"(?<!\s)\s+and\s+", re.IGNORECASE)


class GraphQueryInvalid(CallerError):
    """A query of Resource Graph that is not understood here."""

    code = "arm-graph-query-invalid"
    message = "The query cannot be answered: {reason}."
    advice = (
        "See 'Azure Resource Manager' in the documentation for the part of the language that is"
        " served."
    )


def answered(query: str, rows: list[JsonObject]) -> list[JsonObject]:
    """Return what a query finds among the rows of the table.

    Raises:
        GraphQueryInvalid: it asks for another table, or in words that are not known.
    """
    if len(query) > CHARACTERS_MAX:
        raise GraphQueryInvalid(reason=f"it is longer than {CHARACTERS_MAX} characters")
    table, *steps = [step.strip() for step in query.split("|")]
    if table.lower() != TABLE:
        raise GraphQueryInvalid(reason=f"there is no table but {TABLE}, not {table[:64]!r}")
    if len(steps) > STEPS_MAX:
        raise GraphQueryInvalid(reason=f"it has more than {STEPS_MAX} steps")
    for step in steps:
        word, _, rest = step.partition(" ")
        act = _STEPS.get(word.lower())
        if act is None:
            raise GraphQueryInvalid(reason=f"{step[:64]!r} is not understood")
        rows = act(rest.strip(), rows)
    return rows


def _where(rest: str, rows: list[JsonObject]) -> list[JsonObject]:
    for part in _AND.split(rest):
        column, sign, single, double = _matched(_CONDITION, part)
        wanted = single or double or ""
        fold = str.lower if "~" in sign else str
        rows = [
            row
            for row in rows
            if (fold(_text(_value(row, column))) == fold(wanted)) is (sign[0] == "=")
        ]
    return rows


def _project(rest: str, rows: list[JsonObject]) -> list[JsonObject]:
    asked = [_matched(_PROJECTED, part.strip()) for part in rest.split(",")]
    names = [(name or column.replace(".", "_"), column) for name, column in asked]
    return [{name: _value(row, column) for name, column in names} for row in rows]


def _sort(rest: str, rows: list[JsonObject]) -> list[JsonObject]:
    by, _, rest = rest.partition(" ")
    if by.lower() != "by":
        raise GraphQueryInvalid(reason="'sort' and 'order' go with 'by'")
    for part in reversed(rest.split(",")):
        column, way = _matched(_SORTED, part.strip())
        rows = sorted(rows, key=lambda row: _text(_value(row, column)), reverse=way != "asc")
    return rows


def _take(rest: str, rows: list[JsonObject]) -> list[JsonObject]:
    (count,) = _matched(re.compile(r"(\d{1,9})"), rest)
    return rows[: int(count)]


def _count(_rest: str, rows: list[JsonObject]) -> list[JsonObject]:
    return [{"Count": len(rows)}]


_STEPS: dict[str, Callable[[str, list[JsonObject]], list[JsonObject]]] = {
    "where": _where,
    "project": _project,
    "sort": _sort,
    "order": _sort,
    "take": _take,
    "limit": _take,
    "count": _count,
}


def _matched(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    found = pattern.fullmatch(text)
    if found is None:
        raise GraphQueryInvalid(reason=f"{text[:64]!r} is not understood")
    return found.groups()


def _value(row: JsonObject, column: str) -> object:
    """Return what a row has in a column; nothing where it has none."""
    found: object = row
    for name in column.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _text(value: object) -> str:
    return "" if value is None else str(value)
