"""Strict JSON parser: refuses duplicate names and numbers such as NaN.

Other modules check the values.
"""

from __future__ import annotations

import json
import json.scanner
from collections.abc import Iterable
from typing import Any

from forewarn_base.errors import CallerError
from forewarn_base.validation.complexity import MEMBERS_MAX, check_json, checkpoint

#: Media type of JSON.
JSON = "application/json"
#: Largest text that is read without a pause, in bytes. Python's parser in C reads a list without
#: letting any other thread run; that in Python takes three times as long, but can be interrupted.
WHOLE_BYTES_MAX = 64 * 1024
#: Longest name in a message, in characters.
_NAME_SHOWN = 60


class BodyUnreadable(CallerError):
    """A body is not valid JSON."""

    code = "body-unreadable"
    message = "The body cannot be read: {reason}."
    advice = "Correct the body and send the request again; nothing was changed."


def read_json(
    body: bytes, members_max: int = MEMBERS_MAX, whole_bytes_max: int = WHOLE_BYTES_MAX
) -> object:
    """Parse a JSON body; other threads run meanwhile if it is longer than `whole_bytes_max`.

    Raises:
        BodyUnreadable: the body is not JSON, or contains a name twice.
        FileTooComplex: the body has too many members.
    """
    if not body.strip():
        raise BodyUnreadable(reason="it is empty")
    check_json(body, members_max)
    decoder = _WHOLE if len(body) <= whole_bytes_max else _INTERRUPTIBLE
    try:
        return decoder.decode(body.decode(json.detect_encoding(body)))
    except UnicodeDecodeError as error:
        raise BodyUnreadable(reason=not_text(error)) from error
    except RecursionError as error:
        raise BodyUnreadable(reason="the text is nested too deeply") from error
    except ValueError as error:
        raise BodyUnreadable(reason=f"the text is not JSON: {_short(error)}") from error


def not_text(error: UnicodeDecodeError) -> str:
    """Return the problem of bytes that are not UTF-8, as a clause."""
    return f"the text is not UTF-8 from byte {error.start} on"


def without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object's members, but refuse duplicate names; a hook for `json.loads`.

    Raises:
        ValueError: a name occurs twice.
    """
    members = dict(pairs)
    if len(members) != len(pairs):
        double = double_of(name for name, _ in pairs)
        raise ValueError(f"the name {double[:_NAME_SHOWN]!r} is given twice")
    checkpoint()
    return members


def double_of(names: Iterable[str]) -> str:
    """Return the first duplicate name; O(names)."""
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number")


class _Interruptible(json.JSONDecoder):
    """A decoder that is written in Python except for its strings."""

    def __init__(self, **hooks: Any) -> None:  # noqa: ANN401 - those of `json`
        super().__init__(**hooks)
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


_WHOLE, _INTERRUPTIBLE = (
    kind(object_pairs_hook=without_doubles, parse_constant=_refuse_constant)
    for kind in (json.JSONDecoder, _Interruptible)
)


def _short(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"
