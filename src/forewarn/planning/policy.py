"""An operator's maintenance policy: budgets, windows, pauses, owners' rests.

Source: F-3, F-7, G-4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from forewarn.errors import CallerError
from forewarn.planning.fleet import FleetGroup, Index
from forewarn.planning.windows import Span, Window, open_spans, without
from forewarn.values import Word, value


class PolicyInvalid(CallerError):
    """The policy contradicts itself."""

    code = "policy-invalid"
    message = "The maintenance policy is invalid: {problem}."
    advice = "Correct the policy file and apply it again."


class Scope(Word):
    """The scope of a budget, which counts hosts in the first four, VMs in the others."""

    FLEET = "fleet"
    ZONE = "zone"
    RACK = "rack"
    LABEL = "label"
    OWNER = "owner"
    GROUP = "group"


class ConfirmedAct(Word):
    """Acts that may need a second principal's confirmation, by their effect. Source: P-8."""

    #: Approval on behalf of an owner, or an option by which a group is asked less.
    ANSWER = "answer"
    FAIL_HOST = "fail-host"
    #: Work by which a principal affects many hosts within a time.
    START_MAINTENANCE = "start-maintenance"
    APPLY_POLICY = "apply-policy"
    #: A new token or role, or a token that is accepted again.
    CREATE_PRINCIPAL = "create-principal"
    #: A change of the machines that answer for a group.
    MOVE_ADDRESS = "move-address"


@value
class Budget:
    """How many hosts or VMs may be disturbed at once.

    A percentage refers to all hosts or VMs in the scope, rounded down, at least 1.

    Raises:
        PolicyInvalid: the number is out of range, or a required name is missing.
    """

    scope: Scope
    #: The number: 0 or more; as a percentage 1 to 100.
    limit: int
    percent: bool = False
    #: One zone, rack, owner, group, or label as `key=value`; empty: a budget for each.
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse an invalid budget."""
        if self.limit < 0 or (self.percent and not 1 <= self.limit <= 100):
            raise PolicyInvalid(problem=f"a budget of {self.limit} for each {self.scope.value}")
        if self.scope is Scope.LABEL and "=" not in self.name:
            raise PolicyInvalid(problem="a budget for a label must name the label as key=value")

    def most(self, total: int) -> int:
        """Return how many of a total may be disturbed at once."""
        return max(1, total * self.limit // 100) if self.percent else self.limit


@value
class MaintenancePolicy:
    """The operator's rules for plans, in addition to the guarantees that always apply."""

    budgets: tuple[Budget, ...] = ()
    #: Windows in which work may run; a host with windows is closed at all other times.
    windows: tuple[Window, ...] = ()
    #: Spans without any work, ms since the epoch UTC.
    freezes: tuple[Span, ...] = ()
    #: Least time between the end of a wave and the start of the next one.
    pause_s: int = 0
    #: Least time between two disturbances of one owner; 0: none.
    owner_rest_s: int = 0
    #: Number of hosts in the canary wave; 0: no canary wave.
    canary_count: int = 0
    #: Least notice, from the announcement to the latest start.
    notice_s: int = 900
    #: Hosts that may fail before a maintenance stops, unless the maintenance sets its own number.
    max_failures: int = 0
    #: Longest postponement of a host by its owner, from the first planned start; 0: not possible.
    #: Source: F-8.
    postpone_max_s: int = 0
    #: Acts that a second principal must confirm, and the time limit of a confirmation. Source: P-8.
    confirm: tuple[ConfirmedAct, ...] = ()
    confirm_within_s: int = 3600
    #: Number of hosts that one principal's work may affect without confirmation, within a time.
    confirm_above: int = 0
    confirm_period_s: int = 86_400
    #: Impacts, in Azure's words, whose work waits until its VMs can read its notice. Source: H-7.
    wait_until_shown: tuple[str, ...] = ("Reboot", "Redeploy")

    def windows_of(self, words: frozenset[str]) -> tuple[Window, ...]:
        """Return the windows that apply to a host with these `key=value` pairs."""
        return tuple(each for each in self.windows if each.is_for(words))

    def open_spans_of(self, words: frozenset[str], span: Span) -> tuple[Span, ...]:
        """Return the time within a span that windows and freezes leave open for a host."""
        return without(open_spans(self.windows_of(words), *span), self.freezes)

    def is_open(self, words: frozenset[str], span: Span) -> bool:
        """Whether the whole span is open for a host; otherwise work does not fit. Source: F-7."""
        closed = self.windows_of(words) or self.freezes
        return not closed or self.open_spans_of(words, span) == (span,)


#: Scope and name of the subject of a limit, such as `("rack", "r7")`.
Subject = tuple[Scope, str]


def subject_text(subject: Subject) -> str:
    """Return the subject of a limit as text: `fleet`, `rack r7`."""
    return f"{subject[0].value} {subject[1]}".strip()


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
