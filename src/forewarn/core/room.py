"""Whether VMs that a maintenance moves fit where they go, by its plan and as things are now. F-3.

The plan kept to the room that was left when it was made; VMs have come and grown since.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from forewarn.core.lifecycle import Operation, OperationState
from forewarn.core.topology import Health
from forewarn.planning.blockers import UNSIZED, Blocker, Code
from forewarn.values import value

if TYPE_CHECKING:
    from forewarn.core.draft import Draft
    from forewarn.core.maintenance import Maintenance, MaintenancePlan
    from forewarn.core.topology import Topology


@value
class HostRoom:
    """The memory that VMs take of one host in one wave, in MiB."""

    wave: int
    host: str
    #: 0: unknown.
    memory_mib: int
    before_mib: int
    #: With all the VMs that arrive, and those that are to leave.
    during_mib: int
    after_mib: int


def room_of(plan: MaintenancePlan, topology: Topology) -> list[HostRoom]:
    """Return how full the hosts of each wave and their VMs' destinations are, by wave and name.

    VMs that have left already are where they went. Costs the VMs on those hosts.
    """
    used: dict[str, int] = {}
    room = []
    for wave in plan.waves:
        arriving, leaving = Counter[str](), Counter[str]()
        for host in wave.hosts:
            leaving[host] = 0
            for name, to in plan.body.moves.get(host, ()):
                vm = topology.vms.get(name)
                if vm is not None and vm.host != to:
                    leaving[host] += vm.memory_mib
                    arriving[to] += vm.memory_mib
        for host in sorted({*arriving, *leaving} & topology.hosts.keys()):
            if host not in used:
                vms = map(topology.vms.__getitem__, topology.vms_on(host))
                used[host] = sum(vm.memory_mib for vm in vms)
            during_mib = used[host] + arriving[host]
            after_mib = during_mib - leaving[host]
            memory_mib = topology.hosts[host].memory_mib
            room.append(HostRoom(wave.number, host, memory_mib, used[host], during_mib, after_mib))
            used[host] = after_mib
    return room


def planned_placements(
    draft: Draft, maintenance: Maintenance, host: str
) -> tuple[tuple[str, str], ...]:
    """Return where the VMs on a host go by the plan in force; those that have left are omitted."""
    plan = draft.plans.get(maintenance.plan)
    moves = plan.body.moves.get(host, ()) if plan else ()
    there = set(draft.topology.vms_on(host))
    return tuple((vm, to) for vm, to in moves if to and vm in there)


def is_outdated(draft: Draft, maintenance: Maintenance, host: str) -> bool:
    """Whether a VM is on a host that the plan in force does not move away."""
    plan = draft.plans.get(maintenance.plan)
    planned = {vm for vm, _ in plan.body.moves.get(host, ())} if plan else set()
    return bool(maintenance.move_s) and not planned.issuperset(draft.topology.vms_on(host))


def lack_of_room(draft: Draft, operation: Operation) -> Blocker | None:
    """Return that VMs cannot go where they are to go, None if they can.

    Costs the VMs on their destinations and on their way there.
    """
    topology, now_ms = draft.topology, draft.now_ms
    arriving: Counter[str] = Counter()
    own = [(vm, operation.destination) for vm in operation.vms if operation.is_return]
    for vm, to in operation.execution.placements or own:
        known = topology.vms.get(vm)
        if known is None or known.host == to:
            continue
        if not known.memory_mib:
            return Blocker(
                Code.CAPACITY, UNSIZED, now_ms, text=f"the memory of vm {vm} is not known"
            )
        arriving[to] += known.memory_mib
    for to, memory_mib in sorted(arriving.items()):
        host = topology.hosts.get(to)
        if host is None or host.health is Health.FAILED:
            code = Code.HOST_FAILED if host else Code.UNKNOWN_HOST
            text = f"host {to}, where VMs are to go, {'has failed' if host else 'is gone'}"
            return Blocker(code, to, now_ms, text=text)
        used_mib = _memory_used(draft, to, but=operation.number)
        if used_mib is None or used_mib + memory_mib > host.memory_mib:
            text = f"host {to} has no room left for the VMs of {operation.host}"
            return Blocker(Code.CAPACITY, to, now_ms, text=text)
    return None


def _memory_used(draft: Draft, host: str, *, but: int) -> int | None:
    """Return the memory of VMs on a host and on their way there; None: one is unknown.

    Room is kept for VMs that are yet to return.
    """
    vms = draft.topology.vms
    names = set(draft.topology.vms_on(host))
    for other in draft.operations_at(("destination", host)):
        if other.number != but and (other.is_return or other.state is not OperationState.PLANNED):
            names.update(vm for vm in other.vms if other.destination_of(vm) == host)
    sizes = [vms[name].memory_mib for name in names if name in vms]
    return sum(sizes) if all(sizes) else None
