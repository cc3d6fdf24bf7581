"""Plans and budgets as JSON text, for the store and for history; and back.

What a plan says of a host is said by its wave; the groups that get notice are known from the fleet.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from forewarn.planning.blockers import Blocker, Code
from forewarn.planning.plan import Bound, Wave
from forewarn.planning.policy import Budget, Scope

if TYPE_CHECKING:
    from typing import TypeAlias

    from forewarn.planning.plan import Plan
    from forewarn.planning.policy import Subject

    _Body: TypeAlias = tuple[
        tuple[Wave, ...], tuple[tuple[str, Blocker], ...], Bound, dict[Subject, int]
    ]

#: Plans whose text is not read again: a few maintenances run at a time.
PLANS_REMEMBERED = 16


def plan_body(plan: Plan) -> str:
    """Return waves, blockers, bound and limits of a plan; grows with its hosts."""
    waves = [
        [
            wave.number,
            wave.shown_ms,
            wave.earliest_start_ms,
            wave.latest_start_ms,
            wave.latest_end_ms,
            int(wave.canary),
            _blocker_list(wave.waits),
            list(wave.hosts),
        ]
        for wave in plan.waves
    ]
    blocked = [[host, *_blocker_list(blocker)] for host, blocker in plan.blocked]
    bound = [plan.bound.waves, plan.bound.argument]
    limits = [[scope.value, name, limit] for (scope, name), limit in plan.limits]
    form = {"waves": waves, "blocked": blocked, "bound": bound, "limits": limits}
    return json.dumps(form, separators=(",", ":"))


def read_waves(body: str) -> tuple[Wave, ...]:
    """Return the waves of a plan's body."""
    return _read(body)[0]


def read_blocked(body: str) -> tuple[tuple[str, Blocker], ...]:
    """Return hosts that could not be done, by name, each with its blocker."""
    return _read(body)[1]


def read_bound(body: str) -> Bound:
    """Return the number of waves that no plan could go below, and why."""
    return _read(body)[2]


def read_limits(body: str) -> dict[Subject, int]:
    """Return the budgets that could bind, resolved to numbers when the plan was made."""
    return _read(body)[3]


@lru_cache(PLANS_REMEMBERED)
def _read(body: str) -> _Body:
    form = json.loads(body)
    waves = tuple(
        Wave(number, shown_ms, early, late, end, tuple(hosts), _blocker(*waits), bool(canary))
        for number, shown_ms, early, late, end, canary, waits, hosts in form["waves"]
    )
    blocked = tuple((host, _blocker(*rest)) for host, *rest in form["blocked"])
    limits = {(Scope(scope), name): limit for scope, name, limit in form["limits"]}
    return waves, blocked, Bound(*form["bound"]), limits


def _blocker_list(blocker: Blocker) -> list[object]:
    return [blocker.code.value, blocker.subject, blocker.since_ms, blocker.clears_ms]


def _blocker(code: str, subject: str, since_ms: int, clears_ms: int) -> Blocker:
    return Blocker(Code(code), subject, since_ms, clears_ms)


def budgets_text(budgets: tuple[Budget, ...]) -> str:
    """Return budgets as text."""
    return json.dumps([[b.scope.value, b.limit, int(b.percent), b.name] for b in budgets])


def read_budgets(text: str) -> tuple[Budget, ...]:
    """Return budgets from their text."""
    return tuple(
        Budget(Scope(scope), limit, bool(percent), name)
        for scope, limit, percent, name in json.loads(text)
    )
