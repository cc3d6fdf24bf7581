"""Checks and makes changes of the fleet's layout during live work, and updates documents.

Source: S-1 to S-6, B-1 to B-4. No VM enters announced or running work, or leaves running work, so
no VM is disturbed without notice. Every function costs the changed records and their old and new
groups and hosts.
"""

from __future__ import annotations

from collections.abc import Mapping

from forewarn_base.values import replace
from forewarn_core.fleet.approvals import note_departures
from forewarn_core.fleet.availability_records import event_record, tenure_records
from forewarn_core.fleet.document import ahead_of
from forewarn_core.fleet.draft import Draft, image_of
from forewarn_core.fleet.impact import TRAITS
from forewarn_core.fleet.lifecycle import EventState, Operation, OperationState
from forewarn_core.fleet.records import subject_of
from forewarn_core.fleet.refusals import AlreadyExists, FleetBusy, InUse, Unknown, noun_of
from forewarn_core.fleet.state import TABLES, Entry
from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import FleetChange, Group, Health, Host, Topology, Vm

_FIXED = frozenset({OperationState.ANNOUNCED, OperationState.RUNNING})


def change(draft: Draft, request: ChangeTopology) -> None:
    """Put and remove hosts, groups and VMs, all or nothing.

    Raises:
        AlreadyExists: a record to create exists already.
        FleetContradiction: the new layout is inconsistent.
        FleetBusy: announced or running work involves a changed record.
        InUse: a host or group to be removed still has VMs, a host still has work.
        Unknown: a name to remove does not exist.
    """
    before = draft.topology
    tables = _tables(before)
    for kind, name in request.absent:
        if name in tables[kind]:
            raise AlreadyExists(kind=kind, name=name)
    change = FleetChange(
        {host.name: _in_its_health(before, host) for host in request.hosts},
        {group.name: _with_switched_off(before, group) for group in request.groups},
        {vm.name: vm for vm in request.vms},
    )
    wanted = _tables(change)
    for kind, name in request.removed:
        if wanted[kind].get(name, tables[kind].get(name)) is None:
            raise Unknown(kind=kind, name=name)
        wanted[kind][name] = None
    _check_removals(before, request, change)
    for kind, records in wanted.items():
        for name in [name for name in records if records[name] == tables[kind].get(name)]:
            del records[name]
    vms = {name: before.vms.get(name) for name in change.vms}
    hosts = {name: before.hosts.get(name) for name in change.hosts}
    change_layout(draft, change)
    for name in _at_work(draft, change.vms):
        _check_vm_busy(draft, vms[name], change.vms[name])
    for name, host in hosts.items():
        if host is not None:
            _check_host_busy(draft, host, change.hosts[name])


def _at_work(draft: Draft, vms: Mapping[str, Vm | None]) -> list[str]:
    """Return the VMs that live work may involve, or that arrive on a host with work."""
    named = draft.state.places.at([("vm", name) for name in vms])
    hosts = draft.state.places.at({("host", vm.host) for vm in vms.values() if vm is not None})
    if not (named or hosts):
        return []
    return [
        name
        for name, vm in vms.items()
        if ("vm", name) in named or (vm is not None and ("host", vm.host) in hosts)
    ]


def _tables(layout: Topology | FleetChange) -> dict[str, dict[str, Host | Group | Vm | None]]:
    return {kind: getattr(layout, TABLES[kind]) for kind in ("host", "group", "vm")}


def _in_its_health(before: Topology, host: Host) -> Host:
    """Return a host with the health that the service keeps; a request does not change it."""
    present = before.hosts.get(host.name)
    return replace(host, health=present.health) if present else host


def _with_switched_off(before: Topology, group: Group) -> Group:
    """Return a group with the known values of settings that are off, which only Azure's tools give.

    Source: Z-6.
    """
    present = before.groups.get(group.name)
    if present is None or group.switched_off:
        return group
    return replace(group, switched_off=present.switched_off)


def _check_removals(before: Topology, request: ChangeTopology, change: FleetChange) -> None:
    vms = change.vms
    for kind, name in request.removed:
        if kind == "vm":
            continue
        there = before.vms_on(name) if kind == "host" else before.vms_in(name)
        users = [each for each in there if each not in vms]
        users += [vm.name for vm in vms.values() if vm is not None and getattr(vm, kind) == name]
        if users:
            text = ", ".join(users[:3]) + (" and others" if len(users) > 3 else "")
            text += " is" if len(users) == 1 else " are"
            raise InUse(kind=kind, name=name, users=f"VM {text}")


def _check_vm_busy(draft: Draft, before: Vm | None, after: Vm | None) -> None:
    """Refuse to move a VM of live work, or to place a VM on a host under work.

    A VM may leave a host whose work is only announced. See L-9.
    """
    changed = after or before
    assert changed is not None
    if (before and (before.host, before.group)) == (after and (after.host, after.group)):
        return
    # A deleted VM's name stays reserved while live work still targets that VM.
    for operation in draft.operations(("vm", changed.name)):
        leaves = after is None or after.host != operation.host
        stays = operation.state is OperationState.RUNNING or not leaves
        if operation.of_vm or stays:
            raise _busy("vm", changed.name, operation)
    if after is None or (before is not None and before.host == after.host):
        return
    for operation in draft.operations(("host", after.host)):
        if operation.state in _FIXED:
            raise _busy("host", after.host, operation, act=f"take VM {after.name}")


def _check_host_busy(draft: Draft, before: Host, after: Host | None) -> None:
    """Refuse to move a host with work, or to remove a host that VMs are moving to."""
    name = before.name
    places = (("host", name),) if after else (("host", name), ("destination", name))
    if after is None or _location(before) != _location(after):
        for operation in draft.operations(*places):
            raise _busy("host", name, operation)


def _busy(
    kind: str, name: str, operation: Operation, act: str = "be moved or removed"
) -> FleetBusy:
    """Return the refusal of a change, with what ends the work. See L-3: running work goes on."""
    remedy = f"Wait until {operation.id} has ended."
    if TRAITS[operation.cause].fault:
        remedy = f"Repair host {operation.host} first: `forewarn host repair {operation.host}`."
    elif operation.state is not OperationState.RUNNING:
        cancel = f"`forewarn operation cancel {operation.id}`"
        remedy = f"Wait until {operation.id} has ended, or cancel it: {cancel}."
    return FleetBusy(kind=kind, name=name, act=act, operation=operation.id, remedy=remedy)


def _location(host: Host) -> tuple[str, int, int]:
    return (host.zone, host.fault_domain, host.update_domain)


def change_layout(draft: Draft, change: FleetChange, verb: str = "changed") -> None:
    """Change the layout; write the changed records and documents.

    `verb` describes the change of known records in history.
    """
    before = draft.topology
    tables, kinds = _tables(before), _tables(change)
    old = {
        kind: {name: tables[kind][name] for name in records if name in tables[kind]}
        for kind, records in kinds.items()
    }
    touched = set(change.groups)
    for vm in (*old["vm"].values(), *change.vms.values()):
        if isinstance(vm, Vm):
            touched.add(vm.group)
    views = {name: _views_of(before, name) for name in touched}
    left = [
        (vm, present.host)
        for name, vm in change.vms.items()
        if vm is not None
        and (present := before.vms.get(name)) is not None
        and (present.host != vm.host and present.group == vm.group)
    ]
    draft.rearrange(change)
    note_departures(draft, left)
    _record_tenures(draft, change, old)
    for kind, records in kinds.items():
        _write_down(draft, kind, records, before=old[kind], verb=verb)
    for kind, records in reversed(kinds.items()):
        for name, record in records.items():
            if record is None:
                enrolment = draft.enrolment(name) if kind == "group" else None
                gone = (old[kind][name], enrolment) if enrolment else (old[kind][name],)
                draft.remove(f"{kind}.removed", f"{noun_of(kind)} {name} is removed", *gone)
    _refresh_views(draft, views)


def _record_tenures(
    draft: Draft, change: FleetChange, old: Mapping[str, Mapping[str, Host | Group | Vm | None]]
) -> None:
    """Record the VMs that arrive at an owner or leave one; O(the changed VMs and groups).

    A Started event of a group that changes its owner is recorded for the old owner now, and for the
    new one at its end.
    """
    topology = draft.topology
    vms: dict[str, tuple[Vm | None, Vm | None]] = {}
    for name, vm in change.vms.items():
        old_vm = old["vm"].get(name)
        assert old_vm is None or isinstance(old_vm, Vm), old_vm
        vms[name] = old_vm, vm
    changed: dict[str, Group] = {}
    for name, group in change.groups.items():
        before = old["group"].get(name)
        if isinstance(before, Group) and group is not None and before.owner != group.owner:
            changed[name] = before
            for each in topology.vms_in(name):
                vms.setdefault(each, (topology.vms[each], topology.vms[each]))
    names = {vm.group for pair in vms.values() for vm in pair if vm is not None}
    owners = {}
    for name in names:
        after, before = topology.groups.get(name), old["group"].get(name)
        owner = after.owner if after else ""
        owners[name] = (before.owner if isinstance(before, Group) else owner, owner)
    for record in tenure_records(vms, owners, draft.now_ms):
        draft.record(record)
    for name, group in changed.items():
        for event in draft.live_events_in(name):
            if event.state is EventState.STARTED:
                operation = draft.state.operations[event.operation]
                draft.record(event_record(event, operation, group.owner, at_ms=draft.now_ms))


def _write_down(
    draft: Draft,
    kind: str,
    records: Mapping[str, Host | Group | Vm | None],
    *,
    before: Mapping[str, Host | Group | Vm | None],
    verb: str,
) -> None:
    """Write records of one kind, each with its entry of history; skip None."""
    written, entries = getattr(draft.changes, TABLES[kind]), draft.changes.entries
    at_ms, actor = draft.now_ms, draft.actor
    for name, record in records.items():
        if record is None:
            continue
        written[name] = record
        present = before.get(name)
        what = verb if present else "added"
        images = (image_of(present, record),)
        text, about = f"{noun_of(kind)} {name} is {what}", subject_of(record)
        entries.append(Entry(at_ms, actor, f"{kind}.{what}", text, *about, images))


def _views_of(topology: Topology, group: str) -> set[str]:
    return set(topology.views_of(group)) if group in topology.groups else set()


def _refresh_views(draft: Draft, before: Mapping[str, set[str]]) -> None:
    """Open and close documents after VMs were added, removed or moved. Source: S-3, D-1."""
    after = draft.topology
    for name, old in sorted(before.items()):
        new = _views_of(after, name)
        dropped = [view for key in sorted(old - new) if (view := draft.view(key)) is not None]
        for view in dropped:
            draft.remove("document.dropped", f"document {view.key} is read by nobody", view)
        shared = draft.view(name)
        if shared is None:
            continue
        # A VM that switches documents must never see one incarnation with two contents. So its own
        # document continues the shared incarnation, and the shared document continues the dropped
        # documents' incarnations.
        shared = ahead_of(shared, [view for view in dropped if view.vm in after.vms_in(name)])
        if shared is not draft.view(name):
            text = f"document {name} continues at incarnation {shared.document.incarnation}"
            draft.put("document.updated", text, shared)
        for key in sorted(new - old):
            draft.put("document.opened", f"document {key} is opened", replace(shared, key=key))
        draft.show(name)


def set_health(draft: Draft, name: str, health: Health) -> None:
    """Set the health of a host's hardware."""
    host = draft.topology.hosts[name]
    if host.health is not health:
        change = FleetChange(hosts={name: replace(host, health=health)})
        change_layout(draft, change, health.value)
