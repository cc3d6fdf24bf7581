"""Finds the minimum number of waves of a small fleet with OR-tools' exact solver.

`bench/planner/ortools` installs OR-tools only for this benchmark. The module does not use the
planner, so that the comparison checks the rules independently.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from forewarn_core.planning.fleet import Fleet

#: Time limit of the search in one fleet, in seconds; fleets beyond the limit are not counted.
SEARCH_S_MAX = 20.0


def solver() -> ModuleType | None:
    """Return OR-tools' constraint solver; None without an installed OR-tools."""
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError:
        return None


def fewest_waves(solver: ModuleType, fleet: Fleet, at_most: int) -> int:
    """Return the minimum number of waves that disturb no group in two fault domains; 0: unknown.

    Args:
        solver: what `solver` returned.
        fleet: the fleet; each of its hosts is in one wave.
        at_most: a known sufficient number of waves.
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
