"""Answers for programs, in the form of `--output`: JSON, YAML, CSV or names.

A list has one shape in every form: its records are `items`. Unknown values are null. `--json`
prints the answer of the server instead, as in 0.1.0.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from forewarn_base.errors import CallerError
from forewarn_server.cli.listing import ZERO_UNKNOWN

#: Members that name a record, in order of preference.
_NAMES = ("name", "id", "sequence", "principal", "code")
#: Values by which the server says that something is unknown.
_UNKNOWN = ("", -1)
#: Beginnings of text that spreadsheets evaluate as a formula.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


class Nameless(CallerError):
    """An answer has no name to print."""

    code = "output-nameless"
    message = "This answer has no name, which `-o name` would print."
    advice = "Use -o json, yaml or csv."


def written(answer: object, form: str) -> str:
    """Return an answer as text in the form `json`, `yaml`, `csv` or `name`.

    Raises:
        Nameless: the form is `name`, and a record has none.
    """
    shaped = _unwrapped(_explicit(answer))
    if form == "yaml":
        import yaml  # noqa: PLC0415 - only then

        text: str = yaml.safe_dump(shaped, sort_keys=False, allow_unicode=True)
        return text
    if form == "json":
        return json.dumps(shaped, indent=2) + "\n"
    records = shaped["items"] if isinstance(shaped, dict) and "items" in shaped else [shaped]
    if form == "name":
        return "".join(f"{_name(each)}\n" for each in records)
    return _csv(records)


def _unwrapped(answer: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a list as its items, and a single record without the member around it."""
    if isinstance(answer, list):
        return {"items": answer, "next": None}
    if not isinstance(answer, dict):
        return answer
    others = {name: each for name, each in answer.items() if name != "next"}
    if len(others) != 1:
        return answer
    [only] = others.values()
    if isinstance(only, list):
        return {"items": only, "next": answer.get("next")}
    return only if isinstance(only, dict) else answer


def _explicit(answer: object) -> Any:  # noqa: ANN401 - JSON
    """Return an answer with null for unknown values."""
    return json.loads(json.dumps(answer), object_hook=_explicit_members)


def _explicit_members(record: dict[str, Any]) -> dict[str, Any]:
    shown = {
        name: [*map(_null_if_unknown, each)] if isinstance(each, list) else _null_if_unknown(each)
        for name, each in record.items()
    }
    return shown | {name: shown[name] or None for name in ZERO_UNKNOWN & shown.keys()}


def _null_if_unknown(value: object) -> object:
    return None if value in _UNKNOWN and not isinstance(value, bool) else value


def _name(record: Any) -> str:  # noqa: ANN401 - JSON
    """Return the name of a record, or that of the first record in it, such as a maintenance."""
    if not isinstance(record, dict):
        return str(record)
    inner = (each for each in record.values() if isinstance(each, dict))
    for each in (record, *inner):
        for name in _NAMES:
            if each.get(name) is not None:
                return str(each[name])
    raise Nameless


def _csv(records: list[Any]) -> str:
    rows = [each if isinstance(each, dict) else {"value": each} for each in records]
    heads = list(dict.fromkeys(name for each in rows for name in each))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_cell(each.get(name)) for name in heads] for each in rows)
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    return no_formula(value) if isinstance(value, str) else json.dumps(value)


def no_formula(text: str) -> str:
    """Return text that no spreadsheet evaluates; names and reasons come from other people."""
    return f"'{text}" if text.startswith(_FORMULAS) else text
