"""Whether the budgets of a maintenance have room for a host: to be announced, and to start.

Source: F-3. How much is taken is counted in `core/usage.py`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from forewarn.core.usage import subjects_of_host

if TYPE_CHECKING:
    from forewarn.core.draft import Draft
    from forewarn.core.lifecycle import Operation
    from forewarn.core.maintenance.records import Maintenance
    from forewarn.planning.policy import Subject


def announce_shortage(draft: Draft, maintenance: Maintenance, host: str) -> Subject | None:
    """Return the first limit that all announced work leaves no room in; costs the host's VMs."""
    for subject, amount, limit in _wanted(draft, maintenance, host):
        if draft.usage.taken(subject) + amount > limit:
            return subject
    return None


def start_shortage(draft: Draft, operation: Operation) -> Subject | None:
    """Return the first limit that running work and failures leave no room in; costs the VMs.

    Failures and work by hand may have come since the host was announced. Work that no maintenance
    has planned keeps to no budget.
    """
    maintenance = draft.maintenances.get(operation.maintenance) if operation.maintenance else None
    if maintenance is None:
        return None
    for subject, amount, limit in _wanted(draft, maintenance, operation.host):
        if draft.usage.running(subject) + amount > limit:
            return subject
    return None


def _wanted(draft: Draft, maintenance: Maintenance, host: str) -> list[tuple[Subject, int, int]]:
    """Return the limits that could bind, with what a host takes of each."""
    plan = draft.maintenances.plan(maintenance.plan)
    limits = plan.body.limits if plan else {}
    if not limits:
        return []
    wanted = Counter(subjects_of_host(draft.topology, host))
    return [(each, count, limits[each]) for each, count in wanted.items() if each in limits]
