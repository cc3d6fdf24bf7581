"""`Value`: the base class of the agent's and the SDK's values.

`dataclasses` would cost the running agent 1.7 MiB. The annotations of a class are its fields, and
the type checker treats the class as a frozen dataclass: only the type checker checks arguments and
refuses changes, because a check at run time would cost a call per field.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from typing import ClassVar, dataclass_transform
else:

    def dataclass_transform(**_: object) -> object:
        """Return a decorator without effect."""
        return lambda kind: kind


@dataclass_transform(frozen_default=True)
class Value:
    """A value with final fields; values with equal fields are equal."""

    fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Collect the fields, inherited fields first."""
        cls.fields = (*cls.fields, *cls.__annotations__)

    def __init__(self, *values: object, **named: object) -> None:
        """Set the fields; a field without an argument has the default of the class."""
        self.__dict__.update(zip(self.fields, values, strict=False), **named)

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
