"""Computes which hosts, fault domains and limits live work and failures occupy.

Source: F-3: failures and manual work count like planned work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.planning.blockers import Code
from forewarn.planning.plan import Live

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.planning.fleet import Index
    from forewarn.planning.plan import FleetState
    from forewarn.planning.policy import BudgetLimits, Subject

#: Blocker of a host: the code, the end (0: unknown) and the live work.
Obstacle = tuple[Code, int, str]


def live_work(state: FleetState) -> list[Live]:
    """Return all work that occupies hosts now, including failures."""
    return [*(Live(f"the failure of host {name}", name) for name in state.failed), *state.live]


class Occupied:
    """Live work by host, group and limit. Cost: grows with the work and its groups."""

    def __init__(self, index: Index, limits: BudgetLimits, live: Iterable[Live]) -> None:
        """Index the hosts, groups and limits that live work occupies within the fleet."""
        self._index, self._limits = index, limits
        self.live = [work for work in live if work.host in index.number]
        group_of = {group.name: number for number, group in enumerate(index.fleet.groups)}
        self._hosts: dict[int, list[Obstacle]] = {}
        #: Group -> (number of the fault domain, until when, operation).
        self._groups: dict[int, list[tuple[int, int, str]]] = {}
        self._counted: list[tuple[Live, int, dict[int, int]]] = []
        for work in self.live:
            host = index.number[work.host]
            if work.whole_host:
                self._occupy(host, Code.HOST_BUSY, work)
            for name in work.destinations:
                if name in index.number:
                    self._occupy(index.number[name], Code.ARRIVALS, work)
            groups = self._groups_of(work, host, group_of)
            for group in groups if work.disturbs_groups else ():
                disturbed = (index.fault_zone[host], work.ends_ms, work.operation)
                self._groups.setdefault(group, []).append(disturbed)
            self._counted.append((work, host, groups))
        #: Time -> work that ends later, by host: VMs by group, and whether the host is disturbed.
        self._after: dict[int, dict[int, tuple[dict[int, int], bool]]] = {}
        self._taken_after: dict[int, dict[Subject, int]] = {}
        #: Use of each limit by work without a known end.
        self.taken = self.taken_after(0)
        #: Hosts with live work or arriving VMs.
        self.hosts = frozenset([*self._hosts, *(host for _, host, _ in self._counted)])

    def _occupy(self, host: int, code: Code, work: Live) -> None:
        self._hosts.setdefault(host, []).append((code, work.ends_ms, work.operation))

    def _groups_of(self, work: Live, host: int, group_of: dict[str, int]) -> dict[int, int]:
        on = self._index.groups_on[host]
        if work.whole_host:
            return on
        return {group: 1 for name in work.groups if (group := group_of.get(name, -1)) in on}

    def obstacles(self, host: int, groups: Iterable[int]) -> list[Obstacle]:
        """Return the work that blocks a host, given the groups on the host."""
        waits = list(self._hosts.get(host, ()))
        if self._groups:
            zone = self._index.fault_zone[host]
            waits += [
                (Code.FAULT_DOMAIN, ends_ms, operation)
                for group in groups
                for other, ends_ms, operation in self._groups.get(group, ())
                if other != zone
            ]
        return waits

    def taken_after(self, at_ms: int) -> dict[Subject, int]:
        """Return the share of each limit that work ending after a time uses; cached.

        Work without a known end always counts; at time 0 only such work counts. Two pieces of work
        on one host disturb the host, and each of its groups, once.
        """
        usage = self._taken_after.get(at_ms)
        if usage is None:
            usage = self._taken_after[at_ms] = {}
            for host, (groups, whole_host) in self._disturbed_after(at_ms).items():
                for subject, amount in self._limits.amounts(host, groups, whole_host=whole_host):
                    usage[subject] = usage.get(subject, 0) + amount
        return usage

    def amounts(
        self, host: int, groups: dict[int, int], at_ms: int = 0
    ) -> list[tuple[Subject, int]]:
        """Return what work on a host adds to `taken_after`, given its VMs by group.

        VMs with work of their own count already.
        """
        amounts = self._limits.amounts(host, groups)
        own, _ = self._disturbed_after(at_ms).get(host, ({}, False))
        both = {group: min(count, own.get(group, 0)) for group, count in groups.items()}
        counted = dict(self._limits.amounts(host, both, whole_host=False) if own else ())
        return [(subject, amount - counted.get(subject, 0)) for subject, amount in amounts]

    def _disturbed_after(self, at_ms: int) -> dict[int, tuple[dict[int, int], bool]]:
        by_host = self._after.get(at_ms)
        if by_host is not None:
            return by_host
        by_host = self._after[at_ms] = {}
        for work, host, groups in self._counted:
            if work.ends_ms and (not at_ms or work.ends_ms <= at_ms):
                continue
            on, whole_host = by_host.get(host, ({}, False))
            on = {group: max(on.get(group, 0), groups.get(group, 0)) for group in {**on, **groups}}
            by_host[host] = on, whole_host or work.whole_host
        return by_host

    def ends(self) -> list[int]:
        """Return the known ends of live work, ascending, without duplicates."""
        return sorted({work.ends_ms for work, *_ in self._counted if work.ends_ms})
