"""Postponement: an owner lets a host be worked on later. Source: F-8."""

from __future__ import annotations

from dataclasses import field

from forewarn.rules.blockers import EVERYWHERE, Code, Meaning, describe
from forewarn.rules.members import SecondsKind, member, members

describe(
    Code.POSTPONED,
    Meaning(
        "{who} is postponed at the request of {subject}",
        "The host was postponed on request.",
        "The postponed start is reached.",
        EVERYWHERE,
    ),
)


@members
class PostponementMembers:
    """How long a policy lets owners postpone a host."""

    __slots__ = ()

    #: Longest postponement of a host by its owner, from the first planned start; 0: not possible.
    #: Source: F-8.
    postpone_max_s: int = field(
        default=0,
        metadata=member(
            "postponing",
            SecondsKind(),
            "Maximum delay of a host after its first planned start (default: none).",
        ),
    )
