"""The fewest waves there can be of a small fleet, found by OR-tools' exact solver.

For the benchmark only: `bench/planner/ortools` installs it beside, and nothing else imports it.
Nothing of the planner is used in here, so that the two agree on the rules by themselves.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from forewarn.planning.fleet import Fleet

#: Longest search in one fleet, in seconds; one that takes longer is not counted.
SEARCH_S_MAX = 20.0


def solver() -> ModuleType | None:
    """Return OR-tools' constraint solver; None where it is not installed."""
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError:
        return None


def fewest_waves(solver: ModuleType, fleet: Fleet, at_most: int) -> int:
    """Return the fewest waves in which no group is disturbed in two fault domains; 0: not known.

    Args:
        solver: what `solver` returned.
        fleet: every host of which is in one wave.
        at_most: waves that are known to be enough.
    """
    model = solver.CpModel()
    waves = [model.new_int_var(0, at_most - 1, host.name) for host in fleet.hosts]
    for one, other in conflicts(fleet):
        model.add(waves[one] != waves[other])
    last = model.new_int_var(0, at_most - 1, "last")
    model.add_max_equality(last, waves)
    model.minimize(last)
    search = solver.CpSolver()
    search.parameters.max_time_in_seconds = SEARCH_S_MAX
    search.parameters.num_workers = 1
    if search.solve(model) != solver.OPTIMAL:
        return 0
    return int(search.value(last)) + 1


def conflicts(fleet: Fleet) -> set[tuple[int, int]]:
    """Return pairs of hosts in different fault domains that share a group."""
    on: dict[int, set[int]] = defaultdict(set)
    for host, group in zip(fleet.vm_hosts, fleet.vm_groups, strict=True):
        on[group].add(host)
    zone = [(host.zone, host.fault_domain) for host in fleet.hosts]
    return {
        (one, other)
        for hosts in on.values()
        for one, other in combinations(sorted(hosts), 2)
        if zone[one] != zone[other]
    }
