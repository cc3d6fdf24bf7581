"""When owners were last disturbed, by whatever work. Source: F-3.

The policy sets how long they rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.impact import Source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.core.lifecycle import Operation
    from forewarn.core.topology import Topology


def owners_of(topology: Topology, vms: Iterable[str]) -> frozenset[str]:
    """Return the owners of those of these VMs that exist and have one."""
    known = topology.vms
    return frozenset(
        owner
        for name in vms
        if name in known and (owner := topology.groups[known[name].group].owner)
    )


def disturbed_owners(operation: Operation, topology: Topology) -> tuple[str, ...]:
    """Return the owners that running work disturbs, sorted: of its VMs, or of those on its host.

    A user's own work disturbs nobody else. Costs its VMs.
    """
    if operation.source is Source.USER:
        return ()
    there = () if operation.of_vm else topology.vms_on(operation.host)
    return tuple(sorted(owners_of(topology, (*operation.vms, *there))))


def note_end(last_disturbed_ms: dict[str, int], operation: Operation) -> None:
    """Note that work has ended, for the owners it has disturbed."""
    assert operation.ended_ms is not None, operation
    for owner in operation.disturbed_owners:
        last_disturbed_ms[owner] = max(operation.ended_ms, last_disturbed_ms.get(owner, 0))
