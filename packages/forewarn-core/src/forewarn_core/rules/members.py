"""How a rule declares its members of the policy, once.

A member is a field of the rule's class, such as `PauseMembers`, and `MaintenancePolicy` inherits
the fields of all these classes. The metadata of a field is its name in policy files, the kind of
its values and its meaning. From them follow the reader and the writer of policy files, their
schema, the reference page and the stored text. The kinds below only describe values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeAlias, TypeVar, dataclass_transform

from forewarn_base.errors import CallerError
from forewarn_base.values import value
from forewarn_core.rules.blockers import Code

_C = TypeVar("_C")
#: The members of a table in a policy file, or of a stored policy, by name.
GivenMembers: TypeAlias = Mapping[str, Any]
StoredForm: TypeAlias = Mapping[str, Any]
#: A list in a stored policy.
StoredRow: TypeAlias = Sequence[Any]
#: Maximum number of hosts or VMs in a budget, canary wave or failure limit.
COUNT_MAX = 1_000_000


class PolicyInvalid(CallerError):
    """The policy contradicts itself."""

    code = "policy-invalid"
    message = "The maintenance policy is invalid: {problem}."
    advice = "Correct the policy file and apply it again."


@value
class SecondsKind:
    """A duration, in whole seconds."""


@value
class FlagKind:
    """Whether something holds."""


@value
class CountKind:
    """A whole number from 0."""

    most: int = COUNT_MAX


@value
class ShareKind:
    """A number or a percentage, as the number and whether it is a percentage."""

    most: int = COUNT_MAX


@value
class TimeOfDayKind:
    """A local time of day, in minutes after midnight."""


@value
class MomentKind:
    """A fixed time with its offset, in ms since the epoch UTC."""


@value
class TextKind:
    """One line of text."""

    length_max: int = 256
    pattern: str = ""
    #: What the pattern means, for errors.
    wanted: str = ""


@value
class NameKind:
    """The name of a host, group or VM."""


@value
class SelectorKind:
    """Labels of hosts such as `zone=2,rack=r7`, as a tuple of `key=value`."""


@value
class ChoiceKind:
    """One of some words, each with its value."""

    words: Mapping[str, object]


@value
class ListKind:
    """A list of values."""

    kind: Kind
    most: int
    least: int = 0
    #: Whether a repeated value counts once.
    distinct: bool = False


@value
class ByNameKind:
    """Values by name; a table is given its name."""

    kind: Kind
    most: int


@value
class TableKind:
    """A value with members of its own."""

    #: Name and meaning of its schema.
    name: str
    meaning: str
    members: tuple[PolicyMember, ...]
    #: Makes the value of its name and members; an error has a fact `problem`.
    read: Callable[[str, GivenMembers], object]
    #: Returns the members of a value, without those that a file can omit.
    write: Callable[[Any], Mapping[str, object]]


Kind: TypeAlias = (
    SecondsKind
    | FlagKind
    | CountKind
    | ShareKind
    | TimeOfDayKind
    | MomentKind
    | TextKind
    | NameKind
    | SelectorKind
    | ChoiceKind
    | ListKind
    | ByNameKind
    | TableKind
)


@value
class Stored:
    """The form of a member in the store, where it is not the value itself."""

    #: Returns the members of the stored form, by name.
    write: Callable[[Any], Mapping[str, object]]
    #: Returns the value from the stored form; raises KeyError if it has none.
    read: Callable[[StoredForm], object]


@value
class Overridden:
    """How an emergency overrides a member of the policy. Source: T-6."""

    #: The value that binds the emergency.
    value: object
    #: The code of a rule that the emergency keeps unless its request waives the rule.
    waived: Code | None = None


@value
class PolicyMember:
    """A member of a policy file, or of a table in it."""

    name: str
    kind: Kind
    meaning: str
    required: bool = False
    stored: Stored | None = None
    #: None: the member binds emergencies, too.
    emergency: Overridden | None = None


def member(
    name: str,
    kind: Kind,
    meaning: str,
    *,
    stored: Stored | None = None,
    emergency: Overridden | None = None,
) -> dict[str, PolicyMember]:
    """Return the metadata of a field that is a member of the policy file."""
    return {"member": PolicyMember(name, kind, meaning, stored=stored, emergency=emergency)}


def members_of(policy: type[object] | object) -> list[tuple[str, PolicyMember]]:
    """Return the attributes of a policy that are members of its file, in order."""
    every: tuple[Field[Any], ...] = fields(policy)  # type: ignore[arg-type]
    return [(each.name, each.metadata["member"]) for each in every]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def members(kind: type[_C]) -> type[_C]:
    """Make a class the members of one rule, for the class of the whole policy to inherit."""
    return dataclass(init=False, repr=False, eq=False, match_args=False)(kind)
