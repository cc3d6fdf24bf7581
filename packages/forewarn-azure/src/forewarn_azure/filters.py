"""`$filter` and `$top` of lists; filters are equalities joined by `and`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from forewarn_azure.json_values import JsonObject, member
from forewarn_base.validation.fields import ValidationFailed

#: Maximum number of conditions of one filter.
CONDITIONS_MAX = 10

_EQUAL = re.compile(r"'?([A-Za-z/]{1,64})'? eq '([^']{0,256})'")


def filtered(
    query: Mapping[str, str], rows: list[JsonObject], columns: Mapping[str, str]
) -> list[JsonObject]:
    """Return the rows that match a list's query.

    Args:
        query: the query of the request.
        rows: all rows.
        columns: name in a filter, in lower case -> dotted name of a row's member.

    Raises:
        ValidationFailed: the query is not supported.
    """
    text = query.get("$filter", "")
    parts = text.split(" and ") if text else []
    for part in parts:
        match = _EQUAL.fullmatch(part.strip())
        column = columns.get(match[1].lower()) if match else None
        if match is None or column is None or len(parts) > CONDITIONS_MAX:
            known = " or ".join(columns)
            problem = (
                f"must be {known} eq 'VALUE', with at most {CONDITIONS_MAX} conditions joined by "
                f"`and`"
            )
            raise ValidationFailed(where="$filter", problem=problem)
        wanted = match[2].lower()
        rows = [row for row in rows if str(member(row, *column.split("."))).lower() == wanted]
    top = query.get("$top", "")
    if not top:
        return rows
    if not (top.isascii() and top.isdecimal() and len(top) <= 9):
        raise ValidationFailed(where="$top", problem="must be a whole number")
    return rows[: int(top)]
