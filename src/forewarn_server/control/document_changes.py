"""Converts the state to the feed of metadata nodes: the VMs and their documents.

Pure. The daemon sends changes; `core` decides on documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from forewarn_base.protocol.documents import Document
from forewarn_core.fleet.lifecycle import Operation, OperationState
from forewarn_core.fleet.state import Changes, State
from forewarn_core.fleet.topology import GroupKind, Topology, Vm
from forewarn_metadata.replication.messages import (
    PAAS_FACT,
    Caller,
    DocumentChange,
    Fact,
    Publication,
)

#: Maximum cached sets of facts that several VMs share.
COMMON_MAX = 4096
_NOTHING = Document(incarnation=0, events=())
#: Columns that affect a VM's documents and metadata, by kind of record.
_SHOWN = {
    "host": frozenset({"zone", "fault_domain", "update_domain"}),
    "group": frozenset({"kind", "fault_domain_count"}),
    "operation": frozenset({"state", "placements"}),
}
_NONE = frozenset[str]()


def whole(
    state: State, sequence: int, *, hidden: frozenset[str] = _NONE, nodes_wait: bool = False
) -> DocumentChange:
    """Return the complete content for metadata nodes, without documents of hidden groups."""
    running = state.places.of(("state", OperationState.RUNNING.value))
    moving = {vm for number in running for vm in state.operations[number].vms}
    return DocumentChange(
        sequence=sequence,
        whole=True,
        callers=tuple(
            [
                _caller(state.topology, vm, _destinations(state, vm) if name in moving else ())
                for name, vm in state.topology.vms.items()
            ]
        ),
        publications=tuple(
            Publication(view.key, enabled=True, document=view.document)
            for view in state.views.values()
            if view.group not in hidden
        ),
        withheld=hidden if nodes_wait else _NONE,
    )


def loaded(state: State, sequence: int, *, nodes_wait: bool = False) -> DocumentChange:
    """Return the content that nodes may show before recovery.

    Recovery restarts each notice that was never shown. So the documents with such a notice are left
    out, and their VMs wait. With `nodes_wait`, nodes away from the control plane that have these
    VMs continue to show what they have. Source: L-7, M-2, N-1.
    """
    return whole(state, sequence, hidden=hidden_groups(state), nodes_wait=nodes_wait)


def hidden_groups(state: State) -> frozenset[str]:
    """Return the groups with a notice that was never shown."""
    return frozenset(
        event.group
        for event in state.events.values()
        for operation in (state.operations.get(event.operation),)
        if operation and operation.unnoticed
    )


def documents_of(state: State, operations: Iterable[Operation], sequence: int) -> DocumentChange:
    """Return the current documents of the groups that operations disturb."""
    ids = (event_id for each in operations for event_id in each.events)
    groups = dict.fromkeys(event.group for each in ids if (event := state.events.get(each)))
    views = (state.views.get(key) for group in groups for key in state.topology.views_of(group))
    return DocumentChange(
        sequence,
        publications=tuple(
            Publication(view.key, enabled=True, document=view.document) for view in views if view
        ),
    )


def difference(state: State, changes: Changes, sequence: int) -> DocumentChange | None:
    """Return the feed's change for changes of the state; None if VMs see no difference.

    Costs the changed views and VMs, the VMs of a host or group whose place or kind changed (its
    health and policy are not shown), and the VMs that start or stop moving.
    """
    publications = tuple(
        Publication(key, enabled=view is not None, document=view.document if view else _NOTHING)
        for key, view in changes.views.items()
    )
    names = _vms_to_tell(state.topology, changes)
    vms = [state.topology.vms[name] for name in names]
    callers = tuple([_caller(state.topology, vm, _destinations(state, vm)) for vm in vms])
    gone = tuple(name for name, vm in changes.vms.items() if vm is None)
    if not (publications or callers or gone):
        return None
    return DocumentChange(sequence=sequence, callers=callers, gone=gone, publications=publications)


def _vms_to_tell(topology: Topology, changes: Changes) -> Iterable[str]:
    names = {name for name, vm in changes.vms.items() if vm is not None}
    for image in (image for entry in changes.entries for image in entry.images):
        changed = _SHOWN.get(image.kind, _NONE).intersection(image.changed or ())
        if image.row is None or not changed:
            continue
        if image.kind == "host":
            names.update(topology.vms_on(str(image.key)))
        elif image.kind == "group":
            names.update(topology.vms_in(str(image.key)))
        elif image.row["started_ms"]:
            operation = changes.operations[int(image.key)]
            if operation.destinations:
                names.update(vm for vm in operation.vms if vm in topology.vms)
    return sorted(names)


def _destinations(state: State, vm: Vm) -> tuple[str, ...]:
    """Return the hosts to which live operations may have moved a VM; costs its live operations."""
    numbers = state.places.of(("vm", vm.name))
    if not numbers:
        return ()
    operations = (state.operations[number] for number in numbers)
    running = (each for each in operations if each.state is OperationState.RUNNING)
    hosts = {operation.destination_of(vm.name) for operation in running}
    return tuple(sorted(hosts - {vm.host, ""}))


def _caller(topology: Topology, vm: Vm, destinations: tuple[str, ...]) -> Caller:
    return Caller(
        vm=vm.name,
        group=vm.group,
        view=topology.view_of(vm.name),
        addresses=vm.addresses,
        interface=vm.interface,
        instance_id=vm.instance_id,
        instance=instance_facts(topology, vm),
        host=vm.host,
        destinations=destinations,
    )


def instance_facts(topology: Topology, vm: Vm) -> Mapping[str, Fact]:
    """Return a VM's instance metadata by the names of `compute`. Source: I-1.

    Empty values are left out; so is the name, which the feed has for every VM.
    """
    host, group = topology.hosts[vm.host], topology.groups[vm.group]
    common = _common_facts(
        (vm.location, host.zone, vm.resource_group, vm.subscription),
        (group.kind, group.name if group.kind is GroupKind.SCALE_SET else ""),
        (host.fault_domain, host.update_domain),
        (vm.size, vm.os_type),
        spot=vm.spot,
    )
    if not (vm.vm_id or vm.tags or vm.instance):
        return common
    facts_of_vm: dict[str, Fact] = {"vmId": vm.vm_id, **common} if vm.vm_id else {**common}
    if vm.tags:
        facts_of_vm["tags"] = ";".join(f"{name}:{text}" for name, text in vm.tags)
        facts_of_vm["tagsList"] = [{"name": name, "value": text} for name, text in vm.tags]
    facts_of_vm.update(vm.instance)
    return facts_of_vm


@lru_cache(COMMON_MAX)
def _common_facts(
    place: tuple[str, str, str, str],
    set_of: tuple[GroupKind, str],
    domains: tuple[int, int],
    machine: tuple[str, str],
    *,
    spot: bool,
) -> Mapping[str, Fact]:
    """Return facts that several VMs share as one object: a fleet has a million VMs."""
    location, zone, resource_group, subscription = place
    kind, scale_set = set_of
    facts = {
        "location": location,
        "zone": zone,
        "resourceGroupName": resource_group,
        "subscriptionId": subscription,
        "vmScaleSetName": scale_set,
        "placementGroupId": scale_set,
        "platformFaultDomain": str(domains[0]),
        "platformUpdateDomain": str(domains[1]),
        "vmSize": machine[0],
        "osType": machine[1],
        "priority": "Spot" if spot else "Regular",
        "evictionPolicy": "Deallocate" if spot else "",
    }
    present: dict[str, Fact] = {name: fact for name, fact in facts.items() if fact}
    return present | {PAAS_FACT: True} if kind is GroupKind.CLOUD_SERVICE else present
