"""`Value`: the base class of the agent's and the SDK's values.

`dataclasses` would cost the running agent 1.7 MiB. This class compares values by field. Only the
type checker enforces that fields are final, because a check at run time would cost a call per
field.
"""

from __future__ import annotations


class Value:
    """A value with final fields; values with equal fields are equal."""

    __slots__: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        """Collect the fields, inherited fields first."""
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
