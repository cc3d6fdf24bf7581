"""What an operator allows: budgets, windows, pauses, rests. No file is read in here.

Source: F-3, F-7, G-4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.errors import CallerError
from forewarn.planning.fleet import owners_of
from forewarn.planning.windows import Span, Window
from forewarn.values import Word, value

if TYPE_CHECKING:
    from forewarn.planning.fleet import Index


class PolicyInvalid(CallerError):
    """A policy contradicts itself."""

    code = "policy-invalid"
    message = "The maintenance policy is invalid: {problem}."
    advice = "Correct the policy file and apply it again."


class Scope(Word):
    """What a budget counts: hosts in the first four, VMs of the owner or group in the others."""

    FLEET = "fleet"
    ZONE = "zone"
    RACK = "rack"
    LABEL = "label"
    OWNER = "owner"
    GROUP = "group"


@value
class Budget:
    """How many hosts or VMs may be disturbed at once.

    A percentage is of all hosts or VMs in the scope, rounded down, but at least one.

    Raises:
        PolicyInvalid: its number is out of range, or it names nothing where it must.
    """

    scope: Scope
    #: 0 or more; as a percentage 1 to 100.
    limit: int
    percent: bool = False
    #: One zone, rack, owner, group, or label as `key=value`; empty: each one for itself.
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be a budget."""
        if self.limit < 0 or (self.percent and not 1 <= self.limit <= 100):
            raise PolicyInvalid(problem=f"a budget of {self.limit} for each {self.scope.value}")
        if self.scope is Scope.LABEL and "=" not in self.name:
            raise PolicyInvalid(problem="a budget for a label names it as key=value")

    def most(self, total: int) -> int:
        """How many of a total may be disturbed at once."""
        return max(1, total * self.limit // 100) if self.percent else self.limit


@value
class Policy:
    """Everything a plan must respect beside the guarantees that always hold."""

    budgets: tuple[Budget, ...] = ()
    #: When work may run; where a host has any, all other time is closed to it.
    windows: tuple[Window, ...] = ()
    #: Spans in which nothing runs, ms since the epoch UTC.
    freezes: tuple[Span, ...] = ()
    #: Least time between the end of a wave and the start of the next one.
    pause_s: int = 0
    #: Least time between two disturbances of one owner; 0: none.
    owner_rest_s: int = 0
    #: Hosts in the first wave, to try the work on; 0: no such wave.
    canary_count: int = 0
    #: Least notice, from telling the VMs to the latest start.
    notice_s: int = 900


#: Scope and name of what one limit is for, as in `("rack", "r7")`.
Subject = tuple[Scope, str]


class Limits:
    """The limits that hold in a fleet: for each subject of a budget the strictest one.

    Cost: grows with hosts, and with VMs where budgets are for owners or groups.
    """

    def __init__(self, index: Index, budgets: tuple[Budget, ...]) -> None:
        """Count the totals and resolve each budget into limits."""
        self._fleet = index.fleet
        self._scopes = {budget.scope for budget in budgets}
        self._labels = {budget.name for budget in budgets if budget.scope is Scope.LABEL}
        self.limit: dict[Subject, int] = {}
        totals: dict[Subject, int] = {}
        for host in range(len(index.fleet.hosts)):
            for subject, amount in self._amounts(host, index.groups_on[host]):
                totals[subject] = totals.get(subject, 0) + amount
        for budget in budgets:
            for subject, total in totals.items():
                if budget.scope is subject[0] and budget.name in {"", subject[1]}:
                    most = budget.most(total)
                    self.limit[subject] = min(most, self.limit.get(subject, most))

    def amounts(self, host: int, groups: dict[int, int]) -> list[tuple[Subject, int]]:
        """Return what work on a host takes of each limit, given the VMs by group on it then."""
        return [each for each in self._amounts(host, groups) if each[0] in self.limit]

    def _amounts(self, host: int, groups: dict[int, int]) -> list[tuple[Subject, int]]:
        place = self._fleet.hosts[host]
        scopes = self._scopes
        found: list[tuple[Subject, int]] = []
        if Scope.FLEET in scopes:
            found.append(((Scope.FLEET, ""), 1))
        if Scope.ZONE in scopes:
            found.append(((Scope.ZONE, place.zone), 1))
        if Scope.RACK in scopes:
            found.append(((Scope.RACK, place.rack), 1))
        if self._labels:
            names = (*place.labels, f"zone={place.zone}", f"rack={place.rack}")
            found += [((Scope.LABEL, name), 1) for name in names if name in self._labels]
        if Scope.GROUP in scopes:
            names_of = self._fleet.groups
            found += [((Scope.GROUP, names_of[g].name), n) for g, n in groups.items()]
        if Scope.OWNER in scopes:
            found += [
                ((Scope.OWNER, o), n) for o, n in owners_of(self._fleet.groups, groups).items()
            ]
        return found
