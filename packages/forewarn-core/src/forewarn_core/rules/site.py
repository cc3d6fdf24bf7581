"""A site: what the rules know about a host, or about the hosts of a wave, where work is to be done.

The core makes sites from the state (`fleet/sites.py`), the planner from its columns
(`planning/sites.py`). A site finds a fact when a rule asks for it, so that a rule which is not in
force costs nothing. A fact that a site leaves out does not exist there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from forewarn_base.values import Word, value
from forewarn_core.rules.blockers import Code
from forewarn_core.rules.exempt import NONE, Exemption
from forewarn_core.rules.subjects import Subject


class Phase(Word):
    """The step of work that a rule delays."""

    ANNOUNCE = "announce"
    START = "start"


#: An earliest time of a step, ms since the epoch UTC, its reason, and what the step waits for.
Earliest: TypeAlias = tuple[Phase, int, Code, str]


@value
class OwnerDisturbance:
    """The last disturbance of an owner with VMs at a site."""

    owner: str
    #: Its end, past or expected, ms since the epoch UTC; 0: the owner was not disturbed before.
    ended_ms: int
    #: Whether work or a failure disturbs the owner now.
    disturbed: bool = False
    #: What wakes work that waits for the end, as in `Blocker`.
    wakes: int | Subject | None = None


class OccupiedPlace(Word):
    """What other work occupies at a site."""

    HOST = "host"
    VM = "vm"
    #: The host is a destination of VMs.
    DESTINATION = "destination"


@value
class SiteWork:
    """Other work at a site, or on the groups of its VMs."""

    operation: str
    place: OccupiedPlace = OccupiedPlace.HOST
    #: Its latest end, ms since the epoch UTC; 0: unknown.
    ends_ms: int = 0
    #: A sentence about it; empty: that of the blocker's code.
    text: str = ""
    #: Number of the operation.
    wakes: int | None = None


class Site:
    """Facts about one host or the hosts of one wave; times are ms since the epoch UTC, 0: none."""

    __slots__ = ()

    #: When a rule is asked.
    now_ms: int
    #: When the work began to wait.
    since_ms: int
    #: Earliest start that the plan gives, or now if that is later.
    start_ms: int

    #: Number and latest start of the wave.
    wave: int
    latest_start_ms: int
    #: The notice that the impact of the work requires, and the time to show it.
    impact_notice_s: int
    notice_margin_ms: int

    #: The last wave of the plan and its end, or what the pause follows.
    last_wave: str
    last_wave_ends_ms: int
    #: End of a pause that has begun.
    paused_until_ms: int
    #: Earliest start that the maintenance asks for.
    earliest_ms: int
    #: Earliest start of a postponed host, and who asked for it.
    postponed_until_ms: int
    postponed_by: str
    #: Hand-back deadline of declared work or the time that its owners chose, and what that is.
    hand_back_ms: int
    hand_back: str
    #: The rules that the work need not keep.
    exemption: Exemption = NONE

    #: Only where an owner chooses a start, which is `start_ms`: the earliest start after the notice
    #: and the work at hand, and the end of work that starts then.
    soonest_ms: int
    end_ms: int
    #: When the tests on other hosts are over and observed; None: they have no time yet.
    tested_ms: int | None
    #: `key=value` pairs of the host, by which windows apply to it.
    words: frozenset[str]
    #: Whether a wave at another time is too near.
    meets_other_wave: bool
    #: Whether hosts of another failure domain have that start, where work is on one at a time.
    meets_other_domain: bool
    #: Number of hosts like this one for which budgets have room at that start; None: any.
    room: int | None

    def work_there(self) -> Iterable[SiteWork]:
        """Return the other work on the host and its VMs, and work that moves VMs to the host."""
        return ()

    def work_elsewhere(self) -> Iterable[SiteWork]:
        """Return the work that disturbs groups of the site in other fault domains."""
        return ()

    def tests(self) -> Iterable[int]:
        """Return when each test that the site waits for is over and observed; 0: unknown."""
        return ()

    def owners(self) -> Iterable[OwnerDisturbance]:
        """Return the owners of VMs at the site that are or were disturbed, by name."""
        return ()

    def owners_of_wave(self) -> frozenset[str]:
        """Return the owners that other hosts of the wave disturb already."""
        return frozenset()
