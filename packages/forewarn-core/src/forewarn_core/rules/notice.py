"""Notice: the VMs of a host learn of its work some time before it starts. Source: F-3, N-1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from forewarn_core.rules.blockers import UNTIL_START, Blocker, Code, Meaning
from forewarn_core.rules.exempt import Exemption
from forewarn_core.rules.members import Overridden, SecondsKind, member, members
from forewarn_core.rules.site import Earliest, Phase, Site

NOTICE = Code(
    "notice",
    Meaning(
        "the VMs of {who} must get their notice first",
        "The VMs' notice period is not over.",
        "The notice is over.",
        UNTIL_START,
        ends_with_wave=True,
        waiver="notice",
        renewed=True,
    ),
)


@members
class NoticeMembers:
    """The notice that a policy asks for."""

    __slots__ = ()

    #: Least notice, from the announcement to the latest start.
    notice_s: int = field(
        default=900,
        metadata=member(
            "notice",
            SecondsKind(),
            "Minimum notice of all impacts; an impact may require more.",
            emergency=Overridden(0, NOTICE),
        ),
    )


def notice_of_impact_s(policy: NoticeMembers, exemption: Exemption, impact_s: int) -> int:
    """Return the notice of work whose impact requires a notice, in seconds. See N-1, T-6."""
    return 0 if exemption.waives(NOTICE) else max(impact_s, policy.notice_s)


def blockers(policy: NoticeMembers, site: Site) -> Iterator[Blocker]:
    """Yield a blocker if an announcement now would give less notice than required."""
    owed_ms = (
        notice_of_impact_s(policy, site.exemption, site.impact_notice_s) * 1000
        + site.notice_margin_ms
    )
    if site.now_ms + owed_ms > site.latest_start_ms:
        yield Blocker(NOTICE, f"wave {site.wave}", site.since_ms)


def choosing(_: object, site: Site) -> Iterator[Blocker]:
    """Yield a blocker if an owner chooses a start too early for its notice. Source: T-2."""
    if site.start_ms < site.now_ms:
        yield Blocker(NOTICE, "", site.since_ms, text="this time is past")
    elif site.start_ms < site.soonest_ms:
        text = "its notice, or work at hand, would not be over"
        yield Blocker(NOTICE, "", site.since_ms, text=text)


def earliest(_: NoticeMembers, site: Site) -> Iterator[Earliest]:
    """Yield the present: the notice begins with the announcement."""
    yield Phase.ANNOUNCE, site.now_ms, NOTICE, ""
