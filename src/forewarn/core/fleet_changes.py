"""Changing the fleet's layout under live work: what may change, and what follows for documents.

Source: DESIGN 5 and SPEC S, B. Work that is announced or running keeps the machines it names
where they are: a VM is never moved into, or out of, a disturbance without being told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.document import ahead_of
from forewarn.core.lifecycle import OperationState
from forewarn.core.refusals import AlreadyExists, FleetBusy, InUse, Unknown
from forewarn.core.topology import Group, Health, Topology, Vm
from forewarn.values import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forewarn.core.lifecycle import Operation
    from forewarn.core.state import Draft
    from forewarn.core.stimulus import ChangeTopology
    from forewarn.core.topology import Host

_FIXED = frozenset({OperationState.ANNOUNCED, OperationState.RUNNING})


def change(draft: Draft, asked: ChangeTopology) -> None:
    """Put and remove hosts, groups and VMs, all or nothing.

    Raises:
        AlreadyExists: what must be absent is there.
        FleetContradiction: the fleet would contradict itself.
        FleetBusy: announced or running work names what would change.
        InUse: a host or group to be removed still has VMs, a host still has work.
        Unknown: a name to be removed is not there.
    """
    before = draft.topology
    hosts, groups, vms = dict(before.hosts), dict(before.groups), dict(before.vms)
    tables: dict[str, dict[str, Host] | dict[str, Group] | dict[str, Vm]] = {
        "host": hosts,
        "group": groups,
        "vm": vms,
    }
    for kind, name in asked.absent:
        if name in tables[kind]:
            raise AlreadyExists(kind=kind, name=name)
    for host in asked.hosts:
        known = hosts.get(host.name)
        hosts[host.name] = replace(host, health=known.health) if known else host
    groups.update((group.name, group) for group in asked.groups)
    vms.update((vm.name, vm) for vm in asked.vms)
    for kind, name in asked.removed:
        if name not in tables[kind]:
            raise Unknown(kind=kind, name=name)
        del tables[kind][name]
    _check_removals(asked, vms)
    after = Topology(hosts=hosts, groups=groups, vms=vms)
    _check_busy(draft, before, after)
    lay_out(draft, after)


def lay_out(draft: Draft, after: Topology) -> None:
    """Write a new layout down: every record that differs, and the documents that follow."""
    before = draft.topology
    touched = _record(draft, before, after)
    draft.set_topology(after)
    _refresh_views(draft, before, after, touched)


def _check_removals(asked: ChangeTopology, vms: dict[str, Vm]) -> None:
    for kind, name in asked.removed:
        if kind != "vm":
            users = [vm.name for vm in vms.values() if name == getattr(vm, kind)]
            if users:
                text = ", ".join(users[:3]) + (" and others" if len(users) > 3 else "")
                text += " is" if len(users) == 1 else " are"
                raise InUse(kind=kind, name=name, users=f"vm {text}")


def _check_busy(draft: Draft, before: Topology, after: Topology) -> None:
    """Refuse to change what live work names."""
    for operation in draft.operations():
        if operation.state in _FIXED or operation.of_vm:
            for name in operation.vms:
                # A deleted VM's name is not free while something is still to be done to that VM.
                if _seat(before.vms.get(name)) != _seat(after.vms.get(name)):
                    raise FleetBusy(kind="vm", name=name, operation=operation.id)
        if operation.destination and operation.destination not in after.hosts:
            raise FleetBusy(kind="host", name=operation.destination, operation=operation.id)
        if not operation.of_vm:
            _check_host_busy(operation, before, after)


def _check_host_busy(operation: Operation, before: Topology, after: Topology) -> None:
    """Refuse to move a host with work, or to put VMs on it that its work does not name."""
    name = operation.host
    assert name in before.hosts, operation
    place = _place(after.hosts[name]) if name in after.hosts else None
    come = set(after.vms_on(name)) - set(before.vms_on(name))
    if place != _place(before.hosts[name]) or (come and operation.state in _FIXED):
        raise FleetBusy(kind="host", name=name, operation=operation.id)


def _seat(vm: Vm | None) -> tuple[str, str] | None:
    return (vm.host, vm.group) if vm else None


def _place(host: Host) -> tuple[str, int, int]:
    return (host.zone, host.fault_domain, host.update_domain)


def _record(draft: Draft, before: Topology, after: Topology) -> set[str]:
    """Write each record that changed; hosts and groups before the VMs that stand on them.

    Returns:
        the groups that changed, or have or had a VM that did.
    """
    touched: set[str] = set()
    tables = (
        ("host", before.hosts, after.hosts),
        ("group", before.groups, after.groups),
        ("vm", before.vms, after.vms),
    )
    for kind, old, new in tables:
        for name, record in new.items():
            known = old.get(name)
            if known is not record and known != record:
                verb = "added" if known is None else "changed"
                draft.put(f"{kind}.{verb}", f"{kind} {name} is {verb}", record)
                touched.update(_groups_of(known, record))
    for kind, old, new in reversed(tables):
        for name, record in old.items():
            if name not in new:
                enrolment = draft.enrolment(name) if kind == "group" else None
                records = (record, enrolment) if enrolment else (record,)
                draft.remove(f"{kind}.removed", f"{kind} {name} is removed", *records)
                touched.update(_groups_of(record))
    return touched


def _groups_of(*records: Host | Group | Vm | None) -> Iterator[str]:
    for record in records:
        if isinstance(record, Vm):
            yield record.group
        elif isinstance(record, Group):
            yield record.name


def _refresh_views(draft: Draft, before: Topology, after: Topology, touched: set[str]) -> None:
    """Add and drop documents where VMs came, went, or got one of their own. Source: S-3, D-1."""
    for name in sorted(touched):
        old = set(before.views_of(name)) if name in before.groups else set()
        new = set(after.views_of(name)) if name in after.groups else set()
        dropped = [view for key in sorted(old - new) if (view := draft.view(key)) is not None]
        for view in dropped:
            draft.remove("document.dropped", f"document {view.key} is read by nobody", view)
        shared = draft.view(name)
        if not draft.enabled(name) or shared is None:
            continue
        # A VM that reads another document from now on never sees one incarnation of two contents:
        # its own goes on from the shared one, and the shared one is ahead of those dropped.
        shared = ahead_of(shared, [view for view in dropped if view.vm in after.vms_in(name)])
        if shared is not draft.view(name):
            text = f"document {name} goes on at {shared.document.incarnation}"
            draft.put("document.updated", text, shared)
        for key in sorted(new - old):
            draft.put("document.opened", f"document {key} is opened", replace(shared, key=key))
        draft.touched_groups.add(name)


def set_health(draft: Draft, name: str, health: Health) -> None:
    """Write down what is known of a host's hardware."""
    if draft.topology.hosts[name].health is health:
        return
    after = draft.topology.with_health(name, health)
    draft.put(f"host.{health.value}", f"host {name} is {health.value}", after.hosts[name])
    draft.set_topology(after)
