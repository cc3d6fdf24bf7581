"""A lower bound on the number of waves of any plan, with its reason."""

from __future__ import annotations

from forewarn_core.planning import colouring
from forewarn_core.planning.packing import Problem
from forewarn_core.planning.plan import WaveBound
from forewarn_core.planning.policy import Scope, subject_text

#: Maximum hosts of a clique that the reason names; other hosts are only counted.
_NAMED_MAX = 4


def bound_of(problem: Problem) -> WaveBound:
    """Return the largest lower bound for hosts that share a calendar.

    Cost: grows with the groups on the hosts, and for small components with the square of their
    hosts.
    """
    if not problem.hosts:
        return WaveBound(0, "no host needs work")
    candidates = [
        WaveBound(1, "there are hosts that need work"),
        _of_limits(problem),
        _of_groups(problem),
    ]
    candidates.append(_of_cliques(problem))
    return max(candidates, key=lambda bound: bound.waves)


def together(bounds: list[WaveBound]) -> WaveBound:
    """Return the sum of bounds for sets of hosts that never share a wave."""
    useful = [bound for bound in bounds if bound.waves]
    argument = "; for other hosts, ".join(bound.argument for bound in useful)
    return WaveBound(sum(bound.waves for bound in useful), argument or "no host needs work")


def _of_limits(problem: Problem) -> WaveBound:
    """Return the bound of one limit: the total demand divided by the limit."""
    wanted = [0] * len(problem.room)
    for amounts in problem.amounts:
        for limit, amount in amounts:
            wanted[limit] += amount
    best = WaveBound(0, "")
    for limit, total in enumerate(wanted):
        waves = -(-total // problem.room[limit])
        if waves > best.waves:
            subject = problem.subjects[limit]
            what = "VMs" if subject[0] in {Scope.OWNER, Scope.GROUP} else "hosts"
            place = "the fleet" if subject[0] is Scope.FLEET else subject_text(subject)
            text = f"{total} {what} of {place} are to be done, {problem.room[limit]} at a time"
            best = WaveBound(waves, text)
    return best


def _of_groups(problem: Problem) -> WaveBound:
    """Return the bound of one group, whose fault domains must be done one after another."""
    zones = [0] * len(problem.groups)
    for group in problem.group_of_slot:
        zones[group] += 1
    if not zones:
        return WaveBound(0, "")
    most = max(range(len(zones)), key=lambda group: (zones[group], -group))
    name = problem.index.fleet.groups[problem.groups[most]].name
    return WaveBound(zones[most], f"group {name} lies in {zones[most]} fault domains")


def _of_cliques(problem: Problem) -> WaveBound:
    """Return the bound of hosts of which any two share a group in different fault domains."""
    clique = _largest_clique(problem)
    hosts = problem.index.fleet.hosts
    names = [hosts[problem.hosts[place]].name for place in clique]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    text = f"every two of {', '.join(names[:_NAMED_MAX])}{more}"
    return WaveBound(len(clique), f"{text} share a group in different fault domains")


def _largest_clique(problem: Problem) -> list[int]:
    """Return the largest clique found in components that are small enough, as positions."""
    largest: list[int] = []
    for part in problem.components():
        if len(largest) < len(part) <= colouring.VERTICES_MAX:
            clique = [part[vertex] for vertex in colouring.clique(problem.graph(part))]
            largest = max(largest, clique, key=len)
    return largest
