"""Fault domain: routine work disturbs one fault domain of a group at a time. Source: G-1."""

from __future__ import annotations

from collections.abc import Iterator

from forewarn_core.rules.blockers import EVERYWHERE, Blocker, Code, Meaning
from forewarn_core.rules.site import Earliest, Phase, Site

FAULT_DOMAIN = Code(
    "fault-domain",
    Meaning(
        "{subject} disturbs a group of {who} in another fault domain",
        "A group on the host is disturbed in another fault domain.",
        "The work there ends.",
        EVERYWHERE,
        clears_early=True,
        ends_with_wave=True,
        waiver="fault-domain",
    ),
)


def blockers(_: object, site: Site) -> Iterator[Blocker]:
    """Keep routine work to one fault domain of a group at a time. Source: G-1."""
    if site.exemption.waives(FAULT_DOMAIN):
        return
    for each in site.work_elsewhere():
        yield Blocker(FAULT_DOMAIN, each.operation, site.since_ms, text=each.text, wakes=each.wakes)


def choosing(_: object, site: Site) -> Iterator[Blocker]:
    """Yield a blocker if hosts in another fault domain have the start that an owner chooses."""
    if any(True for _ in site.work_elsewhere()):
        text = "another fault domain is disturbed then; choose another time for this host"
        yield Blocker(FAULT_DOMAIN, "", site.since_ms, text=text)


def earliest(_: object, site: Site) -> Iterator[Earliest]:
    """Yield the latest end of each piece of work; 0: unknown."""
    for each in site.work_elsewhere():
        yield Phase.ANNOUNCE, each.ends_ms, FAULT_DOMAIN, each.operation
