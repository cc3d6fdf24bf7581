"""Notice: the VMs of a host learn of its work some time before it starts. Source: F-3, N-1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from forewarn.rules.blockers import UNTIL_START, Blocker, Code, Meaning
from forewarn.rules.members import Overridden, SecondsKind, member, members
from forewarn.rules.site import Earliest, Phase, Site

NOTICE = Code(
    "notice",
    Meaning(
        "the VMs of {who} must get their notice first",
        "The VMs' notice period is not over.",
        "The notice is over.",
        UNTIL_START,
        ends_with_wave=True,
        waiver="notice",
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

    def notice_owed_s(self, impact_s: int) -> int:
        """Return the notice of work whose impact requires a notice."""
        return max(impact_s, self.notice_s)


def blockers(policy: NoticeMembers, site: Site) -> Iterator[Blocker]:
    """Yield a blocker if an announcement now would give less notice than required."""
    owed_ms = policy.notice_owed_s(site.impact_notice_s) * 1000 + site.notice_margin_ms
    if site.now_ms + owed_ms > site.latest_start_ms:
        yield Blocker(NOTICE, f"wave {site.wave}", site.since_ms)


def earliest(_: NoticeMembers, site: Site) -> Iterator[Earliest]:
    """Yield the present: the notice begins with the announcement."""
    yield Phase.ANNOUNCE, site.now_ms, NOTICE, ""
