"""Owner's rest: an owner is not disturbed twice within a time. Source: F-3."""

from __future__ import annotations

from dataclasses import field

from forewarn.rules.blockers import EVERYWHERE, Code, Meaning, describe
from forewarn.rules.members import SecondsKind, member, members

describe(
    Code.OWNER_REST,
    Meaning(
        "{who} has VMs of owner {subject}, who is disturbed or was disturbed recently",
        "An owner with VMs on the host is disturbed, or was within the last `owner_rest`.",
        "The owner's rest period is over.",
        EVERYWHERE,
        clears_early=True,
    ),
)


@members
class OwnerRestMembers:
    """The rest that a policy gives to owners."""

    __slots__ = ()

    #: Least time between two disturbances of one owner; 0: none.
    owner_rest_s: int = field(
        default=0,
        metadata=member(
            "owner_rest", SecondsKind(), "Minimum time between two disturbances of an owner."
        ),
    )
