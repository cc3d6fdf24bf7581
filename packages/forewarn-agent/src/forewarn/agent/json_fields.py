"""Typed access to members of a JSON object or of settings; pure.

A journal of another release, or a configuration, may contain members of the wrong type. These
functions check each member, and raise `FieldInvalid` for a wrong type.
"""

from __future__ import annotations

from forewarn_base.errors import CallerError

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    Form = Mapping[str, object]
    T = TypeVar("T")


class FieldInvalid(CallerError):
    """A member of a journal or a configuration has the wrong type."""

    code = "agent-field-invalid"
    message = "{name} cannot be {found!r}."
    advice = (
        "Correct the setting. For a journal, use the release of the agent that wrote the journal."
    )


def member(form: Form, name: str, default: T) -> T:
    """Return a member with the type of the default, or the default if the member is missing."""
    value = form.get(name, default)
    if isinstance(value, type(default)):
        return value
    raise FieldInvalid(name=name, found=value)


def flag(form: Form, name: str, *, default: bool) -> bool:
    """Return a boolean member of a form."""
    return member(form, name, default)


def number(form: Form, name: str, default: float) -> float:
    """Return a numeric member of a form."""
    value = form.get(name, default)
    if isinstance(value, (int, float)):
        return float(value)
    raise FieldInvalid(name=name, found=value)


def inner(form: Form, name: str) -> Form:
    """Return an object member of a form."""
    value = form.get(name)
    if isinstance(value, dict):
        return value
    raise FieldInvalid(name=name, found=value)


def several(form: Form, name: str) -> list[Form]:
    """Return a member with a list of objects; empty if the member is missing."""
    items = form.get(name, [])
    if isinstance(items, list) and all(isinstance(one, dict) for one in items):
        return items
    raise FieldInvalid(name=name, found=items)


def words(form: Form, name: str) -> list[str]:
    """Return a member with a word or a list of words; empty if the member is missing."""
    items = form.get(name) or []
    if isinstance(items, str):
        return [items]
    if isinstance(items, (list, tuple)) and all(isinstance(one, str) for one in items):
        return list(items)
    raise FieldInvalid(name=name, found=items)


def texts(form: Form, name: str) -> dict[str, str]:
    """Return a member with an object of texts."""
    return {key: member(inner(form, name), key, "") for key in inner(form, name)}
