"""Computes which hosts, fault domains and limits live work and failures occupy.

Source: F-3: failures and manual work count like planned work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from forewarn_core.planning.fleet import Index
from forewarn_core.planning.limits import BudgetLimits
from forewarn_core.planning.plan import FleetState, Live
from forewarn_core.planning.policy import Subject
from forewarn_core.rules import OCCUPIED_UNTIL, MaintenancePolicy
from forewarn_core.rules.site import Earliest, OccupiedPlace, Site, SiteWork


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
        #: Work that disturbs each group, with the fault domain of the work's host.
        self._groups: dict[int, list[tuple[int, SiteWork]]] = {}
        #: Results of `_disturbed` and `taken_after`, by time.
        self._disturbed_after: dict[int, _Disturbed] = {}
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
            disturbed, groups_on = self._disturbed(at_ms), self._index.groups_on
            amounts = [self._limits.amounts(host, groups_on[host]) for host in disturbed.hosts]
            amounts.append(self._limits.of_vms(disturbed.vms))
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
        disturbed = self._disturbed(at_ms).vms
        if not disturbed:
            return amounts
        host_of = self._index.fleet.vm_hosts
        there = (vm for vm in disturbed if host_of[vm] == host) if vms is None else vms
        counted = dict(self._limits.of_vms(disturbed.intersection(there)))
        return [(subject, amount - counted.get(subject, 0)) for subject, amount in amounts]

    def _disturbed(self, at_ms: int) -> _Disturbed:
        """Return what work that ends after a time disturbs; cached."""
        disturbed = self._disturbed_after.get(at_ms)
        if disturbed is None:
            disturbed = _Disturbed(set(), set())
            number = self._index.number
            lasting = [work for work in self.live if _lasts(work, at_ms)]
            disturbed.hosts.update(number[work.host] for work in lasting if work.vm is None)
            for work in lasting:
                if work.vm is not None and number[work.host] not in disturbed.hosts:
                    disturbed.vms.add(work.vm)
            self._disturbed_after[at_ms] = disturbed
        return disturbed

    def ends(self) -> list[int]:
        """Return the known ends of live work, ascending, without duplicates."""
        return sorted({work.ends_ms for work in self.live if work.ends_ms})


class _Disturbed(NamedTuple):
    """What live work disturbs, by number in the fleet."""

    #: Hosts with work on all of their VMs.
    hosts: set[int]
    #: VMs with work of their own on other hosts.
    vms: set[int]


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
