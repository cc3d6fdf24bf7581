"""When owners were last disturbed, by whatever work; derived from what ends, never durable.

Source: F-3. How long they rest is said by the policy, and looked at where it is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.impact import Source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.core.lifecycle import Operation
    from forewarn.core.topology import Topology


def owners_of(topology: Topology, vms: Iterable[str]) -> frozenset[str]:
    """Return who owns these VMs, as far as they are there and somebody does."""
    known = topology.vms
    return frozenset(
        owner
        for name in vms
        if name in known and (owner := topology.groups[known[name].group].owner)
    )


def note_end(rested_ms: dict[str, int], operation: Operation, topology: Topology) -> None:
    """Note that work has ended and whom it has disturbed; a user's own disturbs nobody else.

    Costs its VMs.
    """
    assert not operation.live, operation
    if not operation.started_ms or operation.source is Source.USER:
        return
    there = () if operation.of_vm else topology.vms_on(operation.host)
    for owner in owners_of(topology, (*operation.vms, *there)):
        rested_ms[owner] = max(operation.ended_ms, rested_ms.get(owner, 0))
