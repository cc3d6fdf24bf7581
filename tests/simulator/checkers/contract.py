"""The contract, written a second time for the checkers: who gets notice, when, and what may run.

Plain functions over the product's records, which they read and never ask to checker themselves: no
rule of the core is called in here, only where VMs are is looked up.
"""

import json
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache

from forewarn_base.protocol.documents import ScheduledEvent
from forewarn_core.fleet.lifecycle import Event, Operation
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.topology import Group, Topology, Vm

#: Least notice of each impact in seconds; a group may set more for Terminate. Source: N-1.
OWED_S = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, "Preempt": 30, "Terminate": 300}
#: How long a group is silent before it is disabled, in ms. Source: B-2.
DAY_MS = 24 * 3600 * 1000
#: How far ahead a predicted failure is announced where no time was given, in s. Source: N-2.
PREDICTION_S = 7 * 24 * 3600
FAULTS = {"hardware-failure", "host-lost"}
ROUTINE = {
    *("live-migration", "host-update", "host-reboot", "network-update"),
    *("reboot", "redeploy", "reimage"),
}
SHOWN = {"scheduled": "Scheduled", "approved": "Scheduled", "started": "Started"}
TYPES_SINCE = {
    "Freeze": "2017-03-01",
    "Reboot": "2017-03-01",
    "Redeploy": "2017-03-01",
    "Preempt": "2017-11-01",
    "Terminate": "2019-01-01",
}
UNDERSCORE = "2017-03-01"
DESCRIPTION_SINCE, SOURCE_SINCE, DURATION_SINCE = "2019-04-01", "2019-08-01", "2020-07-01"
#: What the names of sizes with GPUs begin with. Source: S-3.
GPU_SIZES = "Standard_N"
#: Sizes whose reimage has no notice. Source: O-2.
SIZES_NEVER_ANNOUNCED = tuple(f"Standard_{family}" for family in "GMNH")
#: Dates of documents that are written once: each is looked at in several, by many VMs.
DATES_REMEMBERED = 1024

Row = tuple[object, ...]
_compact = json.JSONEncoder(separators=(",", ":")).encode


def is_fault(operation: Operation) -> bool:
    """Whether it strikes without notice. Source: L-4."""
    return operation.cause.value in FAULTS


def is_owed_notice(operation: Operation, topology: Topology) -> bool:
    """Whether those it hits must get notice, as all do by default. Source: N-1."""
    vm = topology.vms.get(operation.vms[0]) if operation.of_vm else None
    if vm is None:
        return True
    group = topology.groups[vm.group]
    if operation.cause.value == "reimage":
        return group.reimage_notice and not vm.size.startswith(SIZES_NEVER_ANNOUNCED)
    return operation.impact.value != "Terminate" or group.terminate_notice_s > 0


def owed_s(operation: Operation, topology: Topology, prediction_s: int = PREDICTION_S) -> int:
    """The notice an operation must give when it is asked for, in seconds. Source: N-1."""
    vm = topology.vms.get(operation.vms[0]) if operation.of_vm else None
    if operation.impact.value == "Terminate" and vm is not None:
        return max(topology.groups[vm.group].terminate_notice_s, OWED_S["Terminate"])
    if is_prediction(operation):
        return prediction_s
    return OWED_S[operation.impact.value]


def is_prediction(operation: Operation) -> bool:
    """Whether a failure is predicted, and no time was given for it. Source: N-2."""
    return operation.cause.value == "hardware-degraded" and not operation.requested_start_ms


def view_owed(vm: Vm, group: Group) -> str:
    """The document a VM reads: its group's, or its own. Source: S-1, S-3."""
    has_gpu = vm.gpu or vm.size.startswith(GPU_SIZES)
    return f"{group.name}/{vm.name}" if has_gpu and _splits(group) else group.name


def views_owed(group: str, topology: Topology) -> set[str]:
    """The documents a group has, its own among them."""
    known = topology.groups[group]
    if not _splits(known):
        return {group}
    return {group, *(view_owed(topology.vms[name], known) for name in topology.vms_in(group))}


def _splits(group: Group) -> bool:
    """Whether VMs with GPUs read documents of their own."""
    return group.fault_domain_count == 1 and group.kind.value == "scale-set"


def is_a_users_wish(operation: Operation) -> bool:
    """Whether a user asks for it at once, so that a group's policy may approve. Source: A-10."""
    users = operation.cause.value in {"reboot", "redeploy"} and operation.source.value == "User"
    return users and not operation.requested_start_ms


def is_routine(operation: Operation) -> bool:
    """Whether the platform does planned work: a user's own act, on a host too, is none."""
    return operation.cause.value in ROUTINE and operation.source.value == "Platform"


def waived(operation: Operation, maintenances: Mapping[int, Maintenance]) -> frozenset[str]:
    """The rules that the emergency of an operation need not keep. Source: T-6."""
    maintenance = maintenances.get(operation.maintenance)
    declaration = maintenance.declaration if maintenance else None
    if declaration is None or declaration.severity.value != "emergency":
        return frozenset()
    return frozenset(declaration.waived)


def obstacle(
    operation: Operation,
    other: Operation,
    topology: Topology,
    *,
    waives: frozenset[str] = frozenset(),
) -> str:
    """Why an operation may not start while another one runs; empty if it may.

    Source: G-1, L-5, L-10, T-6.
    """
    if operation.state.value != "planned" and (both := shared_vms(operation, other)):
        return f"{operation.id} and {other.id} both disturb {both}"
    if operation.of_vm:
        if other.of_vm and other.vms == operation.vms:
            return f"{operation.id} and {other.id} work on the same VM"
    else:
        if other.host == operation.host and not other.of_vm:
            return f"{operation.id} and {other.id} work on the same host"
        if operation.host in _destinations(other):
            return f"{operation.id} works where the VMs of {other.id} will arrive"
    if other.host in _destinations(operation) and not other.of_vm:
        return f"{operation.id} moves VMs to where {other.id} works"
    if "fault-domain" in waives:
        return ""
    if not is_routine(operation) or (other.of_vm and not is_routine(other)):
        return ""
    place, groups = _place_and_groups(operation, topology)
    elsewhere, theirs = _place_and_groups(other, topology)
    if groups & theirs and elsewhere != place:
        shared = ", ".join(sorted(groups & theirs))
        return f"{operation.id} and {other.id} disturb two fault domains of {shared}"
    return ""


def shared_vms(operation: Operation, other: Operation) -> str:
    """The VMs that two operations disturb; empty if they share none. Source: L-10."""
    return ", ".join(sorted(set(operation.vms).intersection(other.vms)))


def _destinations(operation: Operation) -> set[str]:
    """Where VMs go: the one VM of the work, or each VM that leaves its host."""
    return {operation.destination, *(to for _, to in operation.execution.placements)} - {""}


def _place_and_groups(
    operation: Operation, topology: Topology
) -> tuple[tuple[str, int] | None, set[str]]:
    """Where an operation disturbs, as zone and fault domain, and which groups."""
    names = operation.vms if operation.of_vm else topology.vms_on(operation.host)
    machines = [topology.vms[name] for name in names if name in topology.vms]
    places = {topology.hosts[vm.host] for vm in machines}
    place = places.pop() if places else None
    return (place.zone, place.fault_domain) if place else None, {vm.group for vm in machines}


def row_owed(operation: Operation, event: Event) -> Row:
    """What VMs must be shown of an event as it durably is. Source: D-3 to D-9."""
    started = event.state.value == "started"
    return (
        event.id,
        SHOWN[event.state.value],
        operation.impact.value,
        "VirtualMachine",
        event.resources,
        None if started else operation.not_before_ms,
        operation.description,
        operation.source.value,
        operation.duration_s,
    )


def row_shown(event: ScheduledEvent) -> Row:
    """What VMs are shown of an event, in the same order."""
    return (
        event.event_id,
        event.status,
        event.event_type,
        event.resource_type,
        event.resources,
        event.not_before_ms,
        event.description,
        event.source,
        event.duration_s,
    )


@lru_cache(DATES_REMEMBERED)
def _date(at_ms: int) -> str:
    return formatdate(at_ms / 1000, usegmt=True)


def is_iaas(group: Group | None) -> bool:
    """Whether the oldest version marks the names of a group's VMs; it does not for PaaS. V-1."""
    return group is None or group.kind.value != "cloud-service"


def body_owed(
    incarnation: int, events: tuple[ScheduledEvent, ...], version: str, *, iaas: bool
) -> bytes:
    """The bytes a VM must read in an api-version. Source: V-1, V-2, D-7, D-10."""
    mark = "_" if version == UNDERSCORE and iaas else ""
    known = [
        _fields(each, version, mark) for each in events if TYPES_SINCE[each.event_type] <= version
    ]
    form = {"DocumentIncarnation": incarnation, "Events": known}
    return _compact(form).encode()


def _fields(event: ScheduledEvent, version: str, mark: str) -> dict[str, object]:
    at_ms = event.not_before_ms
    fields: dict[str, object] = {
        "EventId": event.event_id,
        "EventStatus": event.status,
        "EventType": event.event_type,
        "ResourceType": event.resource_type,
        "Resources": [mark + name for name in event.resources],
        "NotBefore": "" if at_ms is None else _date(at_ms),
    }
    if version >= DESCRIPTION_SINCE:
        fields["Description"] = event.description
    if version >= SOURCE_SINCE:
        fields["EventSource"] = event.source
    if version >= DURATION_SINCE:
        fields["DurationInSeconds"] = event.duration_s
    return fields
