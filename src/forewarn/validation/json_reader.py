"""JSON as it comes in: strict about what it says twice, and never a number that is none.

What a body means is not decided in here.
"""

from __future__ import annotations

import json

from forewarn.errors import CallerError

#: The media type.
JSON = "application/json"


class BodyUnreadable(CallerError):
    """A body that cannot be read at all."""

    code = "body-unreadable"
    message = "The body cannot be read: {reason}."
    advice = "Correct it and send it again; nothing was changed."


def read_json(body: bytes) -> object:
    """Return what a JSON body says.

    Raises:
        BodyUnreadable: it is no JSON, or says something twice.
    """
    try:
        return json.loads(body, object_pairs_hook=_without_doubles, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BodyUnreadable(reason=f"it is no JSON: {_short(error)}") from error


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object names a member twice")
    return found


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _short(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"
