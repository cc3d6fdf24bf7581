"""Sites of planned waves, for the rules: from the columns of the fleet. See `rules/site.py`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from forewarn_core.planning.eligible import Calendar, PlanningTerms
from forewarn_core.planning.fleet import Index
from forewarn_core.planning.plan import VmMove
from forewarn_core.rules.blockers import Blocker, Code
from forewarn_core.rules.site import OwnerDisturbance, Site


@dataclass(slots=True)
class Batch:
    """Hosts that share a wave, before the wave has a time."""

    hosts: list[int]
    calendar: Calendar
    canary: bool = False
    #: Host -> groups on the host at the time of the batch, with their numbers of VMs.
    groups: dict[int, dict[int, int]] | None = None
    #: Host -> destinations of its VMs.
    moves: dict[int, tuple[VmMove, ...]] | None = None
    #: Cached because every earlier wave asks again: the owners of the batch's VMs, when live work
    #: leaves the hosts, groups and limits of the batch, and how long its longest work takes.
    owners: frozenset[str] | None = None
    live_after: list[tuple[int, Code, str]] | None = None
    lasts_ms: int = 0
    #: Its time after the last wave, with that wave's number.
    timed: tuple[int, tuple[int, int, Blocker]] | None = None

    def groups_on(self, index: Index, host: int) -> dict[int, int]:
        """Return the VMs on a host of the batch at the batch's time, by group."""
        return self.groups[host] if self.groups is not None else index.groups_on[host]

    def owners_of(self, index: Index) -> frozenset[str]:
        """Return the owners of the VMs that the batch disturbs; cached."""
        if self.owners is None:
            groups = index.fleet.groups
            on = {group for host in self.hosts for group in self.groups_on(index, host)}
            self.owners = frozenset(groups[group].owner for group in on) - {""}
        return self.owners

    def length_ms(self, index: Index, terms: PlanningTerms) -> int:
        """Return how long the longest work on a host of the batch takes, in ms; cached."""
        if not self.lasts_ms:
            hosts = index.fleet.hosts
            several = self.hosts if terms.learned else self.hosts[:1]
            self.lasts_ms = max(terms.host_ms(hosts[host]) for host in several)
        return self.lasts_ms


class WaveSite(Site):
    """The hosts of a batch, after the waves that have a time already."""

    __slots__ = (
        *("_batch", "_disturbed", "_index", "earliest_ms", "hand_back", "hand_back_ms"),
        *("last_wave", "last_wave_ends_ms"),
        *("now_ms", "paused_until_ms", "postponed_by", "postponed_until_ms", "_tested"),
    )

    def __init__(
        self,
        batch: Batch,
        index: Index,
        terms: PlanningTerms,
        *,
        disturbed: dict[str, OwnerDisturbance],
        tested: list[int],
        last_wave: int,
        ends_ms: int,
    ) -> None:
        """Store the facts.

        Args:
            batch: the hosts.
            index: the fleet.
            terms: the inputs of the plan.
            disturbed: owner -> last disturbance, past or planned.
            tested: for each order of an owner's hosts, when its test is over and observed.
            last_wave: number of the last wave before the batch; 0: none.
            ends_ms: end of that wave, if it belongs to this plan; 0: it does not.
        """
        self._batch, self._index, self._disturbed = batch, index, disturbed
        self._tested = tested
        self.now_ms = terms.now_ms
        self.last_wave = f"wave {last_wave}" if last_wave else "the host that has failed"
        self.last_wave_ends_ms = ends_ms
        self.paused_until_ms = terms.state.paused_until_ms
        self.earliest_ms = terms.request.earliest_ms
        self.postponed_until_ms = batch.calendar.not_before_ms
        self.postponed_by = batch.calendar.postponed_by
        self.hand_back_ms = batch.calendar.hand_back_ms
        self.hand_back = batch.calendar.hand_back

    def tests(self) -> Iterable[int]:
        """Return when the tests that the batch comes after are over and observed."""
        return [self._tested[number] for number in self._batch.calendar.after]

    def owners(self) -> Iterable[OwnerDisturbance]:
        """Return the owners of the batch's VMs who were disturbed, or will be."""
        owners = self._batch.owners_of(self._index) & self._disturbed.keys()
        return [self._disturbed[owner] for owner in sorted(owners)]
