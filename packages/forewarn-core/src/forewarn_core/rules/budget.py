"""Budgets: how many hosts or VMs may be disturbed at once. Source: F-3."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import field

from forewarn_base.values import value
from forewarn_core.rules.blockers import EVERYWHERE, Blocker, Code, Meaning
from forewarn_core.rules.members import (
    ChoiceKind,
    GivenMembers,
    ListKind,
    Overridden,
    PolicyInvalid,
    PolicyMember,
    ShareKind,
    Stored,
    StoredRow,
    TableKind,
    TextKind,
    member,
    members,
)
from forewarn_core.rules.site import Site
from forewarn_core.rules.subjects import Scope

#: Maximum number of budgets of a policy.
BUDGETS_MAX = 1000

BUDGET = Code(
    "budget",
    Meaning(
        "the budget of {subject} has no room for {who}",
        "A budget, or `[lifecycle] max_operations`, leaves no room.",
        "Other work ends, a failed host is repaired, or a new policy is applied.",
        EVERYWHERE,
        clears_early=True,
        ends_with_wave=True,
        waiver="budgets",
    ),
)


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


def budgets_text(budgets: tuple[Budget, ...]) -> str:
    """Encode budgets."""
    return json.dumps(_rows(budgets))


def read_budgets(text: str) -> tuple[Budget, ...]:
    """Decode budgets."""
    return _budgets(json.loads(text))


def _rows(budgets: tuple[Budget, ...]) -> list[list[object]]:
    return [[b.scope.value, b.limit, int(b.percent), b.name] for b in budgets]


def _budgets(rows: Iterable[StoredRow]) -> tuple[Budget, ...]:
    return tuple(
        Budget(Scope(scope), limit, bool(percent), name) for scope, limit, percent, name in rows
    )


def _read_budget(_name: str, members: GivenMembers) -> Budget:
    limit, percent = members["limit"]  # the number, and whether it is a percentage
    return Budget(members["for"], limit, percent, members.get("name", ""))


def _written(budget: Budget) -> dict[str, object]:
    form: dict[str, object] = {"for": budget.scope, "limit": (budget.limit, budget.percent)}
    return {**form, "name": budget.name} if budget.name else form


#: A budget in the policy file, and of one maintenance.
BUDGET_TABLE = TableKind(
    "BudgetForm",
    "A budget: the maximum number of hosts or VMs disturbed at once. The strictest budget applies.",
    (
        PolicyMember(
            "for",
            ChoiceKind({scope.value: scope for scope in Scope}),
            "Counted objects: hosts of the fleet or of each zone, rack or label; VMs of each "
            "owner or group.",
            required=True,
        ),
        PolicyMember(
            "limit",
            ShareKind(),
            "A number, or a percentage such as `10%`, which allows at least one.",
            required=True,
        ),
        PolicyMember(
            "name",
            TextKind(),
            "Restricts the budget to one zone, rack, owner, group or label such as `tier=db`.",
        ),
    ),
    _read_budget,
    _written,
)


@members
class BudgetMembers:
    """The budgets of a policy."""

    __slots__ = ()

    budgets: tuple[Budget, ...] = field(
        default=(),
        metadata=member(
            "budgets",
            ListKind(BUDGET_TABLE, BUDGETS_MAX),
            "Budgets: maximum numbers of hosts or VMs disturbed at once.",
            stored=Stored(
                lambda budgets: {"budgets": _rows(budgets)},
                lambda form: _budgets(form["budgets"]),
            ),
            emergency=Overridden((), BUDGET),
        ),
    )


def choosing(_: object, site: Site) -> Iterator[Blocker]:
    """Yield a blocker if the start that an owner chooses leaves no room in a budget."""
    if site.room == 0:
        yield Blocker(BUDGET, "", site.since_ms, text="its budget is full then")
