"""Declared maintenances as their owners see them: the VMs in scope, and until when they decide.

Source: T-1. A caller who may see only some owners passes their part of the fleet.
"""

from __future__ import annotations

from collections.abc import Iterator

from forewarn.core.hand_back import hand_back_of
from forewarn.core.lifecycle import OperationState
from forewarn.core.maintenance import Declaration, Maintenance, TargetState, target_key
from forewarn.core.state import State
from forewarn.core.topology import Topology
from forewarn.values import Word, value


class ResourceState(Word):
    """What stands between an owner's VMs on a host and declared work."""

    #: The owner has not chosen.
    OPEN = "open"
    #: The hand-back deadline has passed, and no work is announced.
    DUE = "due"
    ANNOUNCED = "announced"
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"


@value
class DeclaredResource:
    """One owner's VMs on a host of a declared maintenance. Times are ms since the epoch UTC."""

    host: str
    owner: str
    vms: tuple[str, ...]
    state: ResourceState
    deadline_ms: int
    #: When the work starts if nobody does anything: announced, planned, or 0 if unknown.
    start_ms: int


@value
class DeclaredMaintenance:
    """A declared maintenance with the part of its resources that a caller may see."""

    maintenance: Maintenance
    declaration: Declaration
    resources: tuple[DeclaredResource, ...]


def declared(
    state: State, fleet: Topology, now_ms: int, *, only: int | None = None
) -> tuple[DeclaredMaintenance, ...]:
    """Return live declared maintenances with VMs of a part of the fleet, newest first.

    `only`: the number of the only one. Costs the hosts of these maintenances and their VMs.
    """
    every = sorted(state.maintenances.items(), reverse=True)
    known = [
        DeclaredMaintenance(each, each.declaration, tuple(_resources(state, each, fleet, now_ms)))
        for number, each in every
        if each.declaration is not None and only in {None, number}
    ]
    return tuple([each for each in known if each.resources])


def _resources(
    state: State, maintenance: Maintenance, fleet: Topology, now_ms: int
) -> Iterator[DeclaredResource]:
    assert maintenance.declaration is not None
    plan = state.plans.get(maintenance.plan)
    starts_ms = {
        host: wave.latest_start_ms for wave in (plan.waves if plan else ()) for host in wave.hosts
    }
    for host in maintenance.hosts:
        owners: dict[str, list[str]] = {}
        for vm in fleet.vms_on(host):
            owners.setdefault(fleet.groups[fleet.vms[vm].group].owner, []).append(vm)
        if not owners:
            continue
        stands, start_ms = _stands(state, maintenance, host, now_ms)
        deadline_ms = maintenance.declaration.deadline_ms
        for owner, vms in sorted(owners.items()):
            start_ms = start_ms or starts_ms.get(host, 0)
            yield DeclaredResource(host, owner, tuple(vms), stands, deadline_ms, start_ms)


def _stands(
    state: State, maintenance: Maintenance, host: str, now_ms: int
) -> tuple[ResourceState, int]:
    """Return the state of a host, and the start of its announced or started work; 0: unknown."""
    target = state.targets.get(target_key(maintenance.number, host))
    if target is None:
        until_ms, _ = hand_back_of(state, maintenance, host)
        return (ResourceState.OPEN if now_ms < until_ms else ResourceState.DUE), 0
    if target.state is not TargetState.WORKING:
        failed = target.state is TargetState.FAILED
        return (ResourceState.FAILED if failed else ResourceState.DONE), 0
    operation = state.operations.get(target.operation)
    if operation is None:
        return ResourceState.DONE, 0
    if operation.state is OperationState.RUNNING:
        return ResourceState.STARTED, operation.execution.started_ms or 0
    return ResourceState.ANNOUNCED, operation.not_before_ms
