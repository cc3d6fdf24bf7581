"""The changes between two successive plans.

Source: F-2.
"""

from __future__ import annotations

from forewarn_base.values import value
from forewarn_core.planning.plan import Plan
from forewarn_core.planning.plan_text import PlanBody


@value
class Changed:
    """A host whose wave or latest start changes in the next plan."""

    host: str
    from_wave: int
    to_wave: int
    from_ms: int
    to_ms: int


@value
class PlanDifference:
    """The changes from one plan to the next; every list is sorted by host name."""

    #: Hosts that have a wave only in the second plan.
    added: tuple[str, ...]
    #: Hosts that have a wave only in the first plan: done since, blocked, or removed.
    removed: tuple[str, ...]
    changed: tuple[Changed, ...]
    #: Hosts that only the second plan lists as blocked, and hosts that only the first plan lists.
    blocked: tuple[str, ...]
    unblocked: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether the plans are the same."""
        return self == PlanDifference((), (), (), (), ())


def difference(before: Plan | PlanBody, after: Plan | PlanBody) -> PlanDifference:
    """Return the changes from the previous plan to a plan."""
    old = {host: wave for wave in before.waves for host in wave.hosts}
    new = {host: wave for wave in after.waves for host in wave.hosts}
    changed = [
        Changed(
            host,
            old[host].number,
            new[host].number,
            old[host].latest_start_ms,
            new[host].latest_start_ms,
        )
        for host in sorted(old.keys() & new.keys())
        if (old[host].number, old[host].latest_start_ms)
        != (new[host].number, new[host].latest_start_ms)
    ]
    stuck_before, stuck_after = dict(before.blocked).keys(), dict(after.blocked).keys()
    return PlanDifference(
        tuple(sorted(new.keys() - old.keys())),
        tuple(sorted(old.keys() - new.keys())),
        tuple(changed),
        tuple(sorted(stuck_after - stuck_before)),
        tuple(sorted(stuck_before - stuck_after)),
    )
