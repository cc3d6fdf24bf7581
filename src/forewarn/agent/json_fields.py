"""Forms: members of a JSON object or of settings, read as what they must be; pure.

What the journal of another release or a person's configuration holds is not known to be of the
right type, so it is looked at before it is used.
"""

from __future__ import annotations

from forewarn.errors import CallerError

TYPE_CHECKING = False  # `typing` is too heavy for the agent
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    Form = Mapping[str, object]
    T = TypeVar("T")


class FieldInvalid(CallerError):
    """A journal or a configuration holds something of another kind than this release knows."""

    code = "agent-field-invalid"
    message = "{name} cannot be {found!r}."
    advice = "Correct the setting; for a journal, see which release of the agent has written it."


def member(form: Form, name: str, default: T) -> T:
    """Return what a form holds under a name, of the type of the default for a missing one.

    Raises:
        FieldInvalid: it is of another type.
    """
    value = form.get(name, default)
    if isinstance(value, type(default)):
        return value
    raise FieldInvalid(name=name, found=value)


def flag(form: Form, name: str, *, default: bool) -> bool:
    """Return whether a form says that something is so.

    Raises:
        FieldInvalid: it says something else.
    """
    return member(form, name, default)


def number(form: Form, name: str, default: float) -> float:
    """Return the number a form holds under a name, whole or not.

    Raises:
        FieldInvalid: it is not a number.
    """
    value = form.get(name, default)
    if isinstance(value, (int, float)):
        return float(value)
    raise FieldInvalid(name=name, found=value)


def inner(form: Form, name: str) -> Form:
    """Return the object that a form holds under a name.

    Raises:
        FieldInvalid: it is none.
    """
    value = form.get(name)
    if isinstance(value, dict):
        return value
    raise FieldInvalid(name=name, found=value)


def several(form: Form, name: str) -> list[Form]:
    """Return the list of objects that a form holds under a name; none where there is none.

    Raises:
        FieldInvalid: it is something else.
    """
    items = form.get(name, [])
    if isinstance(items, list) and all(isinstance(one, dict) for one in items):
        return items
    raise FieldInvalid(name=name, found=items)


def words(form: Form, name: str) -> list[str]:
    """Return the words that a form holds under a name: a list of them, a single one, or none.

    Raises:
        FieldInvalid: it is something else.
    """
    items = form.get(name) or []
    if isinstance(items, str):
        return [items]
    if isinstance(items, (list, tuple)) and all(isinstance(one, str) for one in items):
        return list(items)
    raise FieldInvalid(name=name, found=items)


def texts(form: Form, name: str) -> dict[str, str]:
    """Return the object of words that a form holds under a name.

    Raises:
        FieldInvalid: it is none.
    """
    return {key: member(inner(form, name), key, "") for key in inner(form, name)}
