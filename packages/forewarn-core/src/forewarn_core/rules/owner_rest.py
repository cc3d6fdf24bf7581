"""Owner's rest: an owner is not disturbed twice within a time. Source: F-3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from operator import attrgetter

from forewarn_core.rules.blockers import EVERYWHERE, Blocker, Code, Meaning
from forewarn_core.rules.members import Overridden, SecondsKind, member, members
from forewarn_core.rules.site import Earliest, Phase, Site

_END_MS = attrgetter("ended_ms")
OWNER_REST = Code(
    "owner-rest",
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
            "owner_rest",
            SecondsKind(),
            "Minimum time between two disturbances of an owner.",
            emergency=Overridden(0),
        ),
    )


def blockers(policy: OwnerRestMembers, site: Site) -> Iterator[Blocker]:
    """Yield the owners who must rest before the next step of work.

    The end of other work is uncertain, so nothing is announced before that end. The hosts of one
    wave disturb an owner once, so they do not wait for one another.
    """
    rest_ms = policy.owner_rest_s * 1000
    for each in site.owners() if rest_ms else ():
        until_ms = each.ended_ms + rest_ms if each.ended_ms else 0
        rests = each.disturbed or site.start_ms < until_ms
        if rests and each.owner not in site.owners_of_wave():
            clears_ms = 0 if each.disturbed else until_ms
            yield Blocker(OWNER_REST, each.owner, site.since_ms, clears_ms, wakes=each.wakes)


def earliest(policy: OwnerRestMembers, site: Site) -> Iterator[Earliest]:
    """Yield when the last owner has rested; work is announced after the last disturbance."""
    rest_ms = policy.owner_rest_s * 1000
    last = max(site.owners(), key=_END_MS, default=None) if rest_ms else None
    if last is not None:
        yield Phase.ANNOUNCE, last.ended_ms, OWNER_REST, last.owner
        yield Phase.START, last.ended_ms + rest_ms, OWNER_REST, last.owner


def depends_on_waves(policy: OwnerRestMembers) -> bool:
    """Whether the times of a wave depend on which VMs earlier waves disturb."""
    return bool(policy.owner_rest_s)
