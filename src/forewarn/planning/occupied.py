"""Computes which hosts, fault domains and limits live work and failures occupy.

Source: F-3: failures and manual work count like planned work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from forewarn.planning.fleet import Index
from forewarn.planning.limits import BudgetLimits
from forewarn.planning.plan import FleetState, Live
from forewarn.planning.policy import Subject
from forewarn.rules import OCCUPIED_UNTIL, MaintenancePolicy
from forewarn.rules.site import Earliest, OccupiedPlace, Site, SiteWork


def live_work(state: FleetState) -> list[Live]:
    """Return all work that occupies hosts now, including failures."""
    return [*(Live(f"the failure of host {name}", name) for name in state.failed), *state.live]


class Occupied:
    """Live work by host, group and limit. Cost: grows with the work and its groups."""

    def __init__(self, index: Index, limits: BudgetLimits, live: Iterable[Live]) -> None:
        """Index the hosts, groups and limits that live work occupies within the fleet."""
        self._index, self._limits = index, limits
        self.live = [work for work in live if work.host in index.number]
        self._hosts: dict[int, list[SiteWork]] = {}
        #: Group -> work on it, with the number of its fault domain.
        self._groups: dict[int, list[tuple[int, SiteWork]]] = {}
        #: Time -> hosts with work that ends later, and VMs on other hosts with such work.
        self._after: dict[int, tuple[set[int], set[int]]] = {}
        self._taken_after: dict[int, dict[Subject, int]] = {}
        for work in self.live:
            self._occupy(work)
        #: Use of each limit by work without a known end.
        self.taken = self.taken_after(0)
        #: Hosts with live work or arriving VMs.
        self.hosts = frozenset([*self._hosts, *(index.number[work.host] for work in self.live)])

    def _occupy(self, work: Live) -> None:
        """Enter work at its host, at its destinations, and at the groups that it disturbs."""
        number, host = self._index.number, self._index.number[work.host]
        if work.vm is None:
            self._enter(host, OccupiedPlace.HOST, work)
        for name in work.destinations:
            if name in number:
                self._enter(number[name], OccupiedPlace.DESTINATION, work)
        if not work.disturbs_groups:
            return
        on_group = SiteWork(work.operation, ends_ms=work.ends_ms)
        on_host = self._index.groups_on[host]
        for group in on_host if work.vm is None else [self._index.fleet.vm_groups[work.vm]]:
            self._groups.setdefault(group, []).append((self._index.guarded_zone[host], on_group))

    def _enter(self, host: int, place: OccupiedPlace, work: Live) -> None:
        self._hosts.setdefault(host, []).append(SiteWork(work.operation, place, work.ends_ms))

    def until(self, host: int, groups: Iterable[int]) -> list[Earliest]:
        """Return when the work that blocks a host ends, given the groups on the host."""
        if not self.live:
            return []
        elsewhere = self._elsewhere(host, groups) if self._groups else ()
        site = _OccupiedSite(self._hosts.get(host, ()), elsewhere)
        return [each for ends in OCCUPIED_UNTIL for each in ends(_NO_POLICY, site)]

    def _elsewhere(self, host: int, groups: Iterable[int]) -> list[SiteWork]:
        zone = self._index.guarded_zone[host]
        return [
            work for group in groups for other, work in self._groups.get(group, ()) if other != zone
        ]

    def taken_after(self, at_ms: int) -> dict[Subject, int]:
        """Return the share of each limit that work ending after a time uses; cached.

        Work without a known end always counts; at time 0 only such work counts. Each disturbed host
        and VM counts once, wherever the VM moves.
        """
        usage = self._taken_after.get(at_ms)
        if usage is None:
            usage = self._taken_after[at_ms] = {}
            hosts, vms = self._disturbed_after(at_ms)
            amounts = [self._limits.amounts(host, self._index.groups_on[host]) for host in hosts]
            amounts.append(self._limits.of_vms(vms))
            for subject, amount in chain(*amounts):
                usage[subject] = usage.get(subject, 0) + amount
        return usage

    def amounts(
        self, host: int, groups: dict[int, int], at_ms: int = 0, *, vms: Iterable[int] | None = None
    ) -> list[tuple[Subject, int]]:
        """Return what work on a host adds to `taken_after`, given its VMs by group.

        VMs with work of their own count already: `vms` has those on the host, if VMs have moved.
        """
        amounts = self._limits.amounts(host, groups)
        _, disturbed = self._disturbed_after(at_ms)
        if not disturbed:
            return amounts
        at = self._index.fleet.vm_hosts
        there = (vm for vm in disturbed if at[vm] == host) if vms is None else vms
        counted = dict(self._limits.of_vms(disturbed.intersection(there)))
        return [(subject, amount - counted.get(subject, 0)) for subject, amount in amounts]

    def _disturbed_after(self, at_ms: int) -> tuple[set[int], set[int]]:
        """Return the hosts that work disturbs after a time, and the VMs on other hosts; cached."""
        if at_ms not in self._after:
            number = self._index.number
            lasting = [work for work in self.live if _lasts(work, at_ms)]
            hosts = {number[work.host] for work in lasting if work.vm is None}
            alone = (work for work in lasting if number[work.host] not in hosts)
            self._after[at_ms] = hosts, {work.vm for work in alone if work.vm is not None}
        return self._after[at_ms]

    def ends(self) -> list[int]:
        """Return the known ends of live work, ascending, without duplicates."""
        return sorted({work.ends_ms for work in self.live if work.ends_ms})


def _lasts(work: Live, at_ms: int) -> bool:
    """Whether work ends after a time, or has no known end; at time 0 only the latter."""
    return not work.ends_ms or 0 < at_ms < work.ends_ms


#: The rules about other work have no members of the policy.
_NO_POLICY = MaintenancePolicy()


class _OccupiedSite(Site):
    """A host beside live work."""

    __slots__ = ("_elsewhere", "_there")

    def __init__(self, there: Sequence[SiteWork], elsewhere: Sequence[SiteWork]) -> None:
        self._there, self._elsewhere = there, elsewhere

    def work_there(self) -> Sequence[SiteWork]:
        """Return the work on the host."""
        return self._there

    def work_elsewhere(self) -> Sequence[SiteWork]:
        """Return the work on its groups in other fault domains."""
        return self._elsewhere
