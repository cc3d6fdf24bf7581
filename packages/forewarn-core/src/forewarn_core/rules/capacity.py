"""Capacity and moves: VMs leave a host only for hosts that have room for them. Source: F-3."""

from __future__ import annotations

from forewarn_core.rules.blockers import EVERYWHERE, Blocker, Code, Judge, Meaning, with_article
from forewarn_core.rules.budget import BUDGET

#: Subjects of the blocker `capacity` that are not hosts.
UNSIZED, NO_OTHER_HOST = "a VM with an unknown memory size", "no other host"
CAPACITY = Code(
    "capacity",
    Meaning(
        "the VMs of {who} fit nowhere; most room is left on {subject}",
        "No host has room for the VMs that must leave, or their memory is unknown.",
        "Room becomes free on other hosts, or `memory_mib` is set.",
        EVERYWHERE,
        {
            UNSIZED: "{who} has a VM with an unknown memory size, which cannot be moved",
            NO_OTHER_HOST: "no other host with a known memory size has room for the VMs of {who}",
        },
    ),
)
OWN_MOVES = Code(
    "own-moves",
    Meaning(
        "other moves of the plan keep {who} from being done: {subject}",
        "The host could be done first, but not after the plan's other moves, in any order tried.",
        "Room becomes free, a new policy is applied, or a maintenance of fewer hosts is created.",
        frozenset({Judge.PLANNER}),
        prevents_start=True,
    ),
)


def own_moves(blocker: Blocker) -> Blocker:
    """Return the blocker of a host that only moves of its own plan keep from being done."""
    subject = blocker.subject
    if blocker.code is BUDGET:
        subject = f"the budget of {with_article(subject)}"
    elif blocker.code is CAPACITY:
        room = f"most room is left on {subject}"
        subject = f"{subject} has room" if subject == NO_OTHER_HOST else room
    return Blocker(OWN_MOVES, subject, blocker.since_ms)
