"""How far apart the VMs of each group stand, while a plan moves them.

Source: F-3. A destination is better if fewer VMs of the group share its fault domain and its host,
and if it keeps the labels of hosts by which the group is kept apart or together.
"""

from __future__ import annotations

from typing import TypeAlias

from forewarn_core.planning.fleet import FleetGroup, FleetHost, Index
from forewarn_core.planning.limits import BudgetLimits
from forewarn_core.planning.policy import Scope

#: Values of a host for the labels that groups name, in the order of `Spread.keys`.
LabelValues: TypeAlias = tuple[str, ...]
#: How near a place is to the group's other VMs, less is better: VMs on the wrong side of a kept
#: label, and VMs in the fault domain.
Nearness: TypeAlias = tuple[int, int]
#: A fault domain, and values of labels in it.
Place: TypeAlias = tuple[int, LabelValues]


class Spread:
    """Counts the VMs of groups by host, fault domain and kept label; VMs can be moved.

    Cost: one pass over the groups on all hosts, then a few counters for each moved VM.
    """

    def __init__(self, index: Index, limits: BudgetLimits) -> None:
        """Count the current fleet."""
        fleet = index.fleet
        self._index, self._limits = index, limits
        #: Host -> group -> number of VMs of that group on the host.
        self.on_host: list[dict[int, int]] = [dict(each) for each in index.groups_on]
        #: Group -> fault domain -> number of VMs.
        self._in_domain: list[dict[int, int]] = [{} for _ in fleet.groups]
        for host, on in enumerate(index.groups_on):
            zone = index.fault_zone[host]
            for group, count in on.items():
                counts = self._in_domain[group]
                counts[zone] = counts.get(zone, 0) + count
        kept = {key for group in fleet.groups for key in _kept(group)}
        #: The labels that any group names.
        self.keys: tuple[str, ...] = tuple(sorted(kept))
        #: Host -> its values of these labels.
        self.values: list[LabelValues] = [_values(host, self.keys) for host in fleet.hosts]
        #: Group with kept labels -> for each label its place in the values, whether the group is
        #: kept together by it, and the VMs by value.
        self._labelled: dict[int, list[tuple[int, bool, dict[str, int]]]] = {
            number: [
                *((self.keys.index(key), False, {}) for key in group.keep_apart),
                *((self.keys.index(key), True, {}) for key in group.keep_together),
            ]
            for number, group in enumerate(fleet.groups)
            if _kept(group)
        }
        for host, on in enumerate(index.groups_on) if self.keys else ():
            for group in on.keys() & self._labelled.keys():
                self._count_labels(group, host, on[group])

    def move(self, group: int, host: int, there: int) -> None:
        """Count a VM on another host."""
        _count(self.on_host[host], group, -1)
        _count(self.on_host[there], group, 1)
        zone, other = self._index.fault_zone[host], self._index.fault_zone[there]
        if zone != other:
            _count(self._in_domain[group], zone, -1)
            _count(self._in_domain[group], other, 1)
        if group in self._labelled:
            self._count_labels(group, host, -1)
            self._count_labels(group, there, 1)

    def _count_labels(self, group: int, host: int, by: int) -> None:
        values = self.values[host]
        for place, _, counts in self._labelled[group]:
            counts[values[place]] = counts.get(values[place], 0) + by

    def is_limited(self, group: int) -> bool:
        """Whether a limit of owner or group counts the VMs of a group."""
        return bool(self._limits.of_group(group))

    def nearness(self, group: int, place: Place, *, leaving: int) -> Nearness:
        """Return how near a place is to the other VMs of a group.

        `leaving`: the host of the VM, which does not count.
        """
        zone, values = place
        near = self._in_domain[group].get(zone, 0) - (zone == self._index.fault_zone[leaving])
        if group in self._labelled:
            return self._misplaced(group, values, leaving), near
        return 0, near

    def _misplaced(self, group: int, values: LabelValues, leaving: int) -> int:
        """Return how many of the other VMs of a group a place is wrongly apart from, or near to."""
        left, wrong = self.values[leaving], 0
        for place, together, counts in self._labelled[group]:
            same = counts.get(values[place], 0) - (values[place] == left[place])
            wrong += sum(counts.values()) - 1 - same if together else same
        return wrong

    def exceeds(self, group: int, host: int) -> bool:
        """Whether one more VM of a group takes a host's VMs beyond a limit of owner or group.

        Such a host could never be worked on, unless its VMs leave in another way.
        """
        of_group, on_host = self._limits.of_group, self.on_host[host]
        for subject in of_group(group):
            if subject[0] is Scope.GROUP:
                share = on_host.get(group, 0)
            else:
                share = sum(count for on, count in on_host.items() if subject in of_group(on))
            if share >= self._limits.limit[subject]:
                return True
        return False

    def order(self, group: int) -> tuple[int, int]:
        """Return the fault domains of a group, and the pairs of VMs that its labels misplace.

        The pairs have a constant offset, and count twice.
        """
        pairs = 0
        for _, together, counts in self._labelled.get(group, ()):
            same = sum(count * count for count in counts.values())
            pairs += -same if together else same
        return len(self._in_domain[group]), pairs

    def is_worse(self, group: int, domains: int, pairs: int) -> bool:
        """Whether a group has lost a fault domain or order by its labels since an earlier time."""
        domains_now, pairs_now = self.order(group)
        return domains_now < domains or pairs_now > pairs


def _count(counts: dict[int, int], key: int, by: int) -> None:
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        del counts[key]


def _kept(group: FleetGroup) -> tuple[str, ...]:
    return (*group.keep_apart, *group.keep_together)


def _values(host: FleetHost, keys: tuple[str, ...]) -> LabelValues:
    if not keys:
        return ()
    labels = {"zone": host.zone, "rack": host.rack}
    for word in host.labels:
        key, _, labels[key] = word.partition("=")
    return tuple(labels.get(key, "") for key in keys)
