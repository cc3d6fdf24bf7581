"""Hand-back: no declared work disturbs VMs before a deadline, unless their owners chose. T-3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from forewarn_base.values import Word
from forewarn_core.rules.blockers import UNTIL_START, Blocker, Code, Meaning
from forewarn_core.rules.members import FlagKind, SecondsKind, member, members
from forewarn_core.rules.site import Earliest, Phase, Site

#: What declared work waits for while an owner on the host has not chosen.
DEADLINE = "the hand-back deadline"
#: The same, if a deferral was granted.
DEFERRED = "the deferred hand-back deadline"
#: What it waits for once all have chosen the same start.
CHOSEN = "the time that its owners have chosen"

HAND_BACK = Code(
    "hand-back",
    Meaning(
        "{who} waits for {subject}",
        "The work was declared: until the hand-back deadline, owners choose its time.",
        "The deadline is reached, or the time that every owner on the host has chosen.",
        UNTIL_START,
    ),
)


class Severity(Word):
    """How urgent declared work is. Source: T-1."""

    ROUTINE = "routine"
    URGENT = "urgent"
    #: It overrides what owners and the policy asked for. Source: T-6.
    EMERGENCY = "emergency"


@members
class HandBackMembers:
    """How long a policy lets owners choose the time of declared work. Source: T-1."""

    __slots__ = ()

    #: Least time from a declaration to its hand-back deadline, by severity.
    hand_back_s: int = field(
        default=14 * 86_400,
        metadata=member(
            "hand_back",
            SecondsKind(),
            "Least hand-back window of declared routine work (default: 14 days).",
        ),
    )
    urgent_hand_back_s: int = field(
        default=86_400,
        metadata=member(
            "urgent_hand_back",
            SecondsKind(),
            "Least hand-back window of declared urgent work (default: 24 h).",
        ),
    )
    hand_back_max_s: int = field(
        default=90 * 86_400,
        metadata=member(
            "longest_hand_back",
            SecondsKind(),
            "Longest hand-back window of declared work, with deferrals (default: 90 days).",
        ),
    )
    #: How far the policy lets owners move a hand-back deadline at once. Source: T-4.
    deferral_limit_s: int = field(
        default=0,
        metadata=member(
            "deferral_limit",
            SecondsKind(),
            "Grants deferrals that move a hand-back deadline by at most this time (default: none).",
        ),
    )
    #: How long operators may decide about longer deferrals; 0: they are refused at once.
    deferral_decision_s: int = field(
        default=3 * 86_400,
        metadata=member(
            "deferral_decision",
            SecondsKind(),
            "Time in which an operator decides a longer deferral; then it is refused (default: 3 "
            "days; 0 refuses it at once).",
        ),
    )
    #: Whether a maintenance must be declared before it starts.
    require_declaration: bool = field(
        default=False,
        metadata=member(
            "require_declaration",
            FlagKind(),
            "Whether maintenances must be declared (default: false).",
        ),
    )

    def least_hand_back_s(self, severity: Severity) -> int:
        """Return the policy's least hand-back window of a severity, in seconds."""
        least_s = {
            Severity.ROUTINE: self.hand_back_s,
            Severity.URGENT: self.urgent_hand_back_s,
            Severity.EMERGENCY: 0,
        }
        return least_s[severity]


def blockers(_: HandBackMembers, site: Site) -> Iterator[Blocker]:
    """Yield a blocker if the host may not be worked on at its planned start."""
    if site.hand_back_ms > site.start_ms:
        yield Blocker(HAND_BACK, site.hand_back, site.since_ms, site.hand_back_ms)


def choosing(_: object, site: Site) -> Iterator[Blocker]:
    """Yield a blocker if an owner chooses a start after the hand-back deadline. Source: T-2."""
    if site.start_ms > site.hand_back_ms:
        text = "it is after the hand-back deadline"
        yield Blocker(HAND_BACK, "", site.since_ms, text=text)


def earliest(_: HandBackMembers, site: Site) -> Iterator[Earliest]:
    """Yield the hand-back deadline, or the time that every owner has chosen."""
    yield Phase.START, site.hand_back_ms, HAND_BACK, site.hand_back
