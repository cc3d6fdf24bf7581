"""Checks budgets, fault domains and windows at every moment, from the records of finished work.

The module is independent of the planner and of the simulator's checkers, and prefers simple code to
speed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from forewarn_core.fleet.lifecycle import Operation


@dataclass(frozen=True)
class Limits:
    """Limits of a fleet's maintenance."""

    #: Maximum number of hosts at once, in the fleet and in a rack.
    fleet: int
    racks: int
    #: Hours of each day, UTC, in which work runs.
    from_hour: int
    to_hour: int
    rack_of: Mapping[str, str]
    domain_of: Mapping[str, int]
    groups_of: Mapping[str, tuple[str, ...]]


def judge(work: Sequence[Operation], limits: Limits) -> list[str]:
    """Return a sentence for each broken limit."""
    ran = [each for each in work if each.execution.started_ms]
    done = Counter(each.host for each in ran if each.state.value == "succeeded")
    found = [f"{host} was worked on {count} times" for host, count in done.items() if count > 1]
    found += [f"{host} was never done" for host in limits.rack_of if host not in done]
    found += [each for operation in ran for each in _outside(operation, limits)]
    return found + list(_together(ran, limits))


def _outside(operation: Operation, limits: Limits) -> Iterable[str]:
    assert operation.execution.started_ms is not None
    assert operation.ended_ms is not None
    for name, at_ms in (("started", operation.execution.started_ms), ("ended", operation.ended_ms)):
        hour = datetime.fromtimestamp(at_ms / 1000, UTC).hour
        if not limits.from_hour <= hour < limits.to_hour:
            yield f"{operation.id} {name} at {datetime.fromtimestamp(at_ms / 1000, UTC)}"


def _together(ran: Sequence[Operation], limits: Limits) -> Iterable[str]:
    """Process all starts and ends in order; at equal times, ends come first."""
    moments = [(each.execution.started_ms, True, each.host) for each in ran]
    moments += [(each.ended_ms, False, each.host) for each in ran]
    fleet, racks = 0, Counter[str]()
    domains: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for at_ms, begins, host in sorted(moments):
        change = 1 if begins else -1
        fleet += change
        racks[limits.rack_of[host]] += change
        for group in limits.groups_of[host]:
            domains[group][limits.domain_of[host]] += change
            disturbed = [domain for domain, count in domains[group].items() if count]
            if len(disturbed) > 1:
                yield f"group {group} is disturbed in fault domains {disturbed} at {at_ms}"
        if fleet > limits.fleet:
            yield f"{fleet} hosts at once at {at_ms}"
        if racks[limits.rack_of[host]] > limits.racks:
            yield f"{racks[limits.rack_of[host]]} hosts of {limits.rack_of[host]} at {at_ms}"
