"""Postponement: an owner lets a host be worked on later. Source: F-8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from forewarn_core.rules.blockers import EVERYWHERE, Blocker, Code, Meaning
from forewarn_core.rules.members import Overridden, SecondsKind, member, members
from forewarn_core.rules.site import Earliest, Phase, Site

POSTPONED = Code(
    "postponed",
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
            emergency=Overridden(0),
        ),
    )


def blockers(_: PostponementMembers, site: Site) -> Iterator[Blocker]:
    """Yield a blocker if the host is postponed beyond its planned start."""
    until_ms = site.postponed_until_ms
    if until_ms > site.start_ms:
        yield Blocker(POSTPONED, site.postponed_by, site.since_ms, until_ms)


def earliest(_: PostponementMembers, site: Site) -> Iterator[Earliest]:
    """Yield the start that was granted."""
    yield Phase.START, site.postponed_until_ms, POSTPONED, site.postponed_by
