"""JSON values of Azure's tools, and functions that read members. Pure."""

from __future__ import annotations

from typing import Any, TypeAlias

from forewarn_base.validation.fields import ValidationFailed

#: A JSON object from or for Azure's tools.
JsonObject: TypeAlias = dict[str, Any]


def member(value: JsonObject, *names: str) -> Any:  # noqa: ANN401 - what JSON holds
    """Return the value at a path of nested names; None if missing.

    Raises:
        ValidationFailed: a value on the path is not an object.
    """
    inner: Any = value
    for place, name in enumerate(names):
        if inner is None:
            return None
        if not isinstance(inner, dict):
            raise ValidationFailed(
                where=".".join(names[:place]), problem="the value must be an object"
            )
        inner = inner.get(name)
    return inner


def text_of(body: JsonObject, *names: str) -> str:
    """Return a text in a body; empty if missing.

    Raises:
        ValidationFailed: the value is not a text.
    """
    value = member(body, *names)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValidationFailed(where=".".join(names), problem="must be a string")
    return value
