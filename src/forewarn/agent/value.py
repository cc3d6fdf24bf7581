"""`Value`: the base of the agent's and the SDK's values; nothing that knows what one means.

`dataclasses` costs the resident agent 1.7 MiB, so values are written by hand: slotted, compared
field by field, and frozen by the type checker alone, since a refusal at run time costs a call
for each field that is set.
"""

from __future__ import annotations


class Value:
    """A value: its fields are final, and it equals another of equal fields."""

    __slots__: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        """Collect the fields, those of a parent first."""
        cls.fields = tuple(dict.fromkeys((*cls.fields, *cls.__slots__)))

    def __eq__(self, other: object) -> bool:
        """Compare class and fields."""
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.fields)

    def __hash__(self) -> int:
        """Hash class and fields."""
        return hash((type(self), *(getattr(self, name) for name in self.fields)))

    def __repr__(self) -> str:
        """Show all fields."""
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.fields)
        return f"{type(self).__name__}({shown})"
