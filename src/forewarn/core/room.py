"""Whether moving VMs have room on their destinations. Source: F-3."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from forewarn.core.lifecycle import Operation, OperationState
from forewarn.core.topology import Health
from forewarn.planning.blockers import UNSIZED, Blocker, Code

if TYPE_CHECKING:
    from forewarn.core.draft import Draft


def lack_of_room(draft: Draft, operation: Operation) -> Blocker | None:
    """Return why VMs cannot move to their destinations; None if they can.

    Costs the VMs on the destinations and on their way there.
    """
    topology, now_ms = draft.topology, draft.now_ms
    arriving: defaultdict[str, dict[str, int]] = defaultdict(dict)
    own = [(vm, operation.destination) for vm in operation.vms if operation.is_return]
    for vm, to in operation.execution.placements or own:
        known = topology.vms.get(vm)
        if known is None or known.host == to:
            continue
        arriving[to][vm] = known.memory_mib
    for to, sizes_mib in sorted(arriving.items()):
        host = topology.hosts.get(to)
        if host is None or host.health is Health.FAILED:
            code = Code.HOST_FAILED if host else Code.UNKNOWN_HOST
            text = f"host {to}, where VMs are to go, {'has failed' if host else 'is gone'}"
            return Blocker(code, to, now_ms, text=text)
        if host.driver in draft.policy.scheduling_drivers:
            continue  # the platform's scheduler checks its own room
        unsized = min((vm for vm, mib in sizes_mib.items() if not mib), default="")
        if unsized:
            text = f"the memory of vm {unsized} is not known"
            return Blocker(Code.CAPACITY, UNSIZED, now_ms, text=text)
        used_mib = _memory_used(draft, to, but=operation.number)
        if used_mib is None or used_mib + sum(sizes_mib.values()) > host.memory_mib:
            text = f"host {to} has no room left for the VMs of {operation.host}"
            return Blocker(Code.CAPACITY, to, now_ms, text=text)
    return None


def _memory_used(draft: Draft, host: str, *, but: int) -> int | None:
    """Return the memory of VMs on or moving to a host; None if a VM's memory is unknown.

    Room stays reserved for VMs that are yet to return.
    """
    vms = draft.topology.vms
    names = set(draft.topology.vms_on(host))
    for other in draft.operations_at(("destination", host)):
        if other.number != but and (other.is_return or other.state is not OperationState.PLANNED):
            names.update(vm for vm in other.vms if other.destination_of(vm) == host)
    sizes = [vms[name].memory_mib for name in names if name in vms]
    return sum(sizes) if all(sizes) else None
