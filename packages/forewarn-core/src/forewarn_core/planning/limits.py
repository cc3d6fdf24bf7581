"""The limits of a fleet: budgets as numbers, for each of their subjects. Source: F-3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from forewarn_core.planning.fleet import FleetGroup, Index
from forewarn_core.planning.policy import Budget, Scope, Subject


class BudgetLimits:
    """The limits of a fleet: for each subject the strictest budget.

    Cost: grows with hosts, and with VMs if budgets name owners or groups.
    """

    def __init__(self, index: Index, budgets: tuple[Budget, ...]) -> None:
        """Count the totals and resolve each budget to numbers, without budgets above the total.

        Args:
            index: the fleet.
            budgets: budgets of the policy and of the maintenance.
        """
        self._fleet = index.fleet
        self._scopes = {budget.scope for budget in budgets}
        self._labels = {budget.name for budget in budgets if budget.scope is Scope.LABEL}
        self._of_place: dict[object, list[Subject]] = {}
        self._of_group = [self._subjects_of(group) for group in index.fleet.groups]
        self.limit: dict[Subject, int] = {}
        totals: dict[Subject, int] = {}
        for host in range(len(index.fleet.hosts) if budgets else 0):
            for subject in self._place(host):
                totals[subject] = totals.get(subject, 0) + 1
        for group, size in enumerate(index.group_sizes):
            for subject in self._of_group[group]:
                totals[subject] = totals.get(subject, 0) + size
        for budget in budgets:
            for subject, total in totals.items():
                if budget.scope is subject[0] and budget.name in {"", subject[1]}:
                    most = budget.most(total)
                    if most < total:
                        self.limit[subject] = min(most, self.limit.get(subject, most))
        for subjects in (*self._of_place.values(), *self._of_group):
            subjects[:] = [subject for subject in subjects if subject in self.limit]

    def amounts(self, host: int, groups: dict[int, int]) -> list[tuple[Subject, int]]:
        """Return the share of each limit that work on a host uses, given its VMs by group."""
        amounts = dict.fromkeys(self._place(host), 1)
        of_group = self._of_group
        for group, count in groups.items():
            for subject in of_group[group]:
                amounts[subject] = amounts.get(subject, 0) + count
        return list(amounts.items())

    def of_group(self, group: int) -> list[Subject]:
        """Return the limits that count the VMs of a group: the group's and its owner's."""
        return self._of_group[group]

    def of_vms(self, vms: Iterable[int]) -> list[tuple[Subject, int]]:
        """Return the share of each limit that work on single VMs uses, not counting hosts."""
        group_of = self._fleet.vm_groups
        return list(Counter(s for vm in vms for s in self._of_group[group_of[vm]]).items())

    def _subjects_of(self, group: FleetGroup) -> list[Subject]:
        subjects: list[Subject] = []
        if Scope.GROUP in self._scopes:
            subjects.append((Scope.GROUP, group.name))
        if Scope.OWNER in self._scopes and group.owner:
            subjects.append((Scope.OWNER, group.owner))
        return subjects

    def _place(self, host: int) -> list[Subject]:
        """Return the limits that count a host by its place: fleet, zone, rack or label."""
        place = self._fleet.hosts[host]
        key = (place.zone, place.rack, place.labels)
        subjects_here = self._of_place.get(key)
        if subjects_here is None:
            names = {*place.labels, f"zone={place.zone}", f"rack={place.rack}"}
            subjects = [(Scope.FLEET, ""), (Scope.ZONE, place.zone), (Scope.RACK, place.rack)]
            subjects_here = [subject for subject in subjects if subject[0] in self._scopes]
            subjects_here += [(Scope.LABEL, name) for name in sorted(names & self._labels)]
            self._of_place[key] = subjects_here
        return subjects_here
