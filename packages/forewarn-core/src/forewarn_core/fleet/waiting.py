"""Why an operation waits: for other work, for room, or until its VMs can see its notice.

Reads the draft, never writes it. `approvals.py` has the approvals that work waits for,
`host_admission.py` the constraints of a maintenance. Source: F-3, G-1, H-7.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.indexes import Place, disturbed_groups, is_disturbing
from forewarn_core.fleet.lifecycle import EventState, Operation, OperationState
from forewarn_core.fleet.maintenance import Maintenance, TargetState
from forewarn_core.fleet.refusals import noun_of
from forewarn_core.fleet.topology import Health
from forewarn_core.rules import OCCUPIED, blockers_of
from forewarn_core.rules.blockers import Blocker
from forewarn_core.rules.capacity import CAPACITY, UNSIZED
from forewarn_core.rules.host_busy import HOST_BUSY
from forewarn_core.rules.other_waits import HOST_FAILED, UNKNOWN_HOST, UNSEEN
from forewarn_core.rules.site import OccupiedPlace, Site, SiteWork

#: Maximum VMs that one sentence of history names.
NAMED_MAX = 20


def work_before(draft: Draft, operation: Operation) -> Blocker | None:
    """Return the other work that an operation must wait for, as a blocker; None: no wait. See G-1.

    Costs the work on the same VM, host, destination and groups.
    """
    blocker = return_blocker(draft, operation) if operation.is_return else None
    site = WorkSite(draft, operation)
    return blocker or next(blockers_of(OCCUPIED, draft.maintenance_policy, site), None)


def obstacle(draft: Draft, operation: Operation) -> Blocker | None:
    """Return the other work that an operation must wait for, or why its VMs cannot move. F-3.

    None: neither. Costs `work_before`, and the VMs on the destinations and on their way there.
    """
    before = work_before(draft, operation)
    if before is not None:
        return Blocker(before.code, before.subject, draft.now_ms)
    return lack_of_room(draft, operation)


class WorkSite(Site):
    """The host or VM of an operation, beside other work."""

    def __init__(self, draft: Draft, operation: Operation) -> None:
        """Store the operation; other work is looked up when a rule asks for it."""
        self._draft, self._operation = draft, operation
        self.since_ms = waits_since_ms(operation)
        maintenance = draft.maintenances.get(operation.maintenance)
        if maintenance is not None:
            self.exemption = maintenance.exemption

    def work_there(self) -> Iterator[SiteWork]:
        """Yield the work that occupies the operation's VM or host. See G-1.

        Work on a VM waits for other work on the VM. Work on a host waits for other work there and
        for VMs on their way to the host. A move waits for work on its destination, so that no VM
        arrives during a disturbance. Announced work on a host and on its VMs starts one after the
        other, since a VM has one running operation at a time. See L-10.
        """
        draft, operation = self._draft, self._operation
        places: list[Place] = []
        if operation.of_vm:
            places.append(("vm", operation.target))
        else:
            places += [("host", operation.host), ("destination", operation.host)]
        places += [("host", host) for host in operation.destinations]
        for place in places:
            for other in _under_way(draft, operation, place):
                yield _work(other, _busy(other, place), OccupiedPlace(place[0]))
        yield from self._work_on_its_vms()

    def _work_on_its_vms(self) -> Iterator[SiteWork]:
        """Yield running work that disturbs a VM of announced work. Source: L-10."""
        draft, operation = self._draft, self._operation
        if operation.state is not OperationState.ANNOUNCED:
            return
        places: list[Place] = [("vm", name) for name in operation.vms]
        for other in draft.operations(*draft.state.places.at(places)):
            if other.state is OperationState.RUNNING:
                at: Place = ("host", other.host) if operation.of_vm else ("vm", other.target)
                yield _work(other, _busy(other, at), OccupiedPlace(at[0]))

    def work_elsewhere(self) -> Iterator[SiteWork]:
        """Yield the work that disturbs a group of routine work in another fault domain.

        Routine work is announced only if no other domain of its groups has announced or running
        work. Once announced, it waits for running work in other domains.
        """
        draft, operation = self._draft, self._operation
        domain = fault_domain_of(draft, operation)
        for group in disturbed_groups(draft.topology, operation) if operation.routine else ():
            for other in _under_way(draft, operation, ("group", group)):
                elsewhere = fault_domain_of(draft, other)
                if elsewhere != domain:
                    zone, number = elsewhere
                    where = f"fault domain {number}" + (f" of zone {zone}" if zone else "")
                    yield _work(other, f"group {group} is disturbed in {where} by {other.id}")


def _work(other: Operation, text: str, place: OccupiedPlace = OccupiedPlace.HOST) -> SiteWork:
    return SiteWork(other.id, place, text=text, wakes=other.number)


def waits_since_ms(operation: Operation) -> int:
    """Return when an operation began to wait for its next move, ms since the epoch UTC."""
    return operation.execution.started_ms or operation.notice.announced_ms or operation.created_ms


def _busy(other: Operation, place: Place) -> str:
    """Return a clause that names the work at a place and its effect there."""
    kind, name = place
    if kind == "destination":
        return f"{other.id} is moving VMs to host {name}"
    state = "running" if other.state is OperationState.RUNNING else "announced"
    return f"{other.id} is already {state} on {noun_of(kind)} {name}"


def _under_way(draft: Draft, operation: Operation, place: Place) -> Iterator[Operation]:
    """Yield the operations at a place that may block an operation.

    Work on the VM's host is also listed under the VM; only the place of the host yields it.
    """
    planned = operation.state is OperationState.PLANNED
    for other in draft.operations(place):
        if place[0] == "vm" and not other.of_vm:
            continue
        running = other.state is OperationState.RUNNING
        if (running or (planned and is_disturbing(other))) and other.number != operation.number:
            yield other


def fault_domain_of(draft: Draft, operation: Operation) -> tuple[str, int]:
    """Return the fault domain that an operation disturbs."""
    host = draft.host_of(operation)
    return host.fault_zone if host is not None else ("", 0)


def return_blocker(draft: Draft, operation: Operation) -> Blocker | None:
    """Return why a VM cannot return yet; None if it can.

    The VM waits until its maintenance has finished the host or has ended, and until the host has
    room.
    """
    maintenance = draft.maintenances.get(operation.maintenance)
    since_ms = operation.created_ms
    if maintenance is not None:
        target = draft.target(maintenance.number, operation.destination)
        under_way = draft.work_on(maintenance.number, operation.destination)
        at_work = under_way is not None and not under_way.is_return
        if target is None or target.state is TargetState.FAILED or at_work:
            text = f"{maintenance.id} is not done with host {operation.destination}"
            return Blocker(HOST_BUSY, maintenance.id, since_ms, text=text)
    vm = draft.topology.vms.get(operation.target)
    host = draft.topology.hosts.get(vm.host) if vm else None
    if host is not None and host.health is Health.FAILED:
        text = f"host {host.name}, where VM {operation.target} is, has failed"
        return Blocker(HOST_FAILED, host.name, since_ms, text=text)
    return lack_of_room(draft, operation)


def lack_of_room(draft: Draft, operation: Operation) -> Blocker | None:
    """Return why VMs cannot move to their destinations; None if they can.

    Costs the VMs on the destinations and on their way there.
    """
    topology, now_ms = draft.topology, draft.now_ms
    arriving: defaultdict[str, dict[str, int]] = defaultdict(dict)
    own = [(vm, operation.destination) for vm in operation.vms if operation.is_return]
    for vm, to in operation.execution.placements or own:
        record = topology.vms.get(vm)
        if record is None or record.host == to:
            continue
        arriving[to][vm] = record.memory_mib
    for to, sizes_mib in sorted(arriving.items()):
        host = topology.hosts.get(to)
        if host is None or host.health is Health.FAILED:
            code = HOST_FAILED if host else UNKNOWN_HOST
            text = f"host {to}, where VMs are to go, {'has failed' if host else 'is gone'}"
            return Blocker(code, to, now_ms, text=text)
        if host.driver in draft.policy.scheduling_drivers:
            continue  # the platform's scheduler checks its own room
        unsized = min((vm for vm, mib in sizes_mib.items() if not mib), default="")
        if unsized:
            text = f"the memory of VM {unsized} is not known"
            return Blocker(CAPACITY, UNSIZED, now_ms, text=text)
        used_mib = memory_used(draft, to, {*sizes_mib}, but=operation.number)
        if used_mib is None or used_mib > host.memory_mib:
            text = f"host {to} has no room left for the VMs of {operation.host}"
            return Blocker(CAPACITY, to, now_ms, text=text)
    return None


def crowded(draft: Draft, maintenance: Maintenance, operation: Operation) -> str:
    """Return why announced work must be withdrawn: VMs still on its host, or without room.

    Empty: neither.
    """
    if not maintenance.move_s:
        return ""
    if operation.cause is not Cause.LIVE_MIGRATION:
        vms = draft.topology.vms_on(operation.host)
        return f"VM {vms[0]} is still on {operation.host}, which must be empty" if vms else ""
    lack = lack_of_room(draft, operation)
    return lack.text if lack else ""


def memory_used(draft: Draft, host: str, arriving: set[str], *, but: int) -> int | None:
    """Return the memory of VMs on or moving to a host; None if a VM's memory is unknown.

    `arriving` are the VMs of the work `but`. Room stays reserved for VMs that are yet to return.
    """
    vms = draft.topology.vms
    names = arriving.union(draft.topology.vms_on(host))
    for other in draft.operations(("destination", host)):
        if other.number != but and (other.is_return or other.state is not OperationState.PLANNED):
            names.update(vm for vm in other.vms if other.destination_of(vm) == host)
    sizes = [vms[name].memory_mib for name in names if name in vms]
    return sum(sizes) if all(sizes) else None


def waits_until_shown(draft: Draft, operation: Operation, vms: tuple[str, ...]) -> bool:
    """Whether live work waits because these VMs could not be shown its notice. Source: H-7.

    The policy lists the impacts that wait. The notice period starts once the VMs can read the
    notice. The work starts earlier if every group, or an operator for the group, approves it. Work
    whose notice was shown does not wait again before it begins: its VMs know its NotBefore.
    """
    waiting_impacts = draft.maintenance_policy.wait_until_shown
    return bool(vms) and operation.unnoticed and operation.impact.value in waiting_impacts


def unseen_vms(draft: Draft, operation: Operation, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return an operation's VMs of enabled groups on these hosts; an empty list: all hosts."""
    vms = draft.topology.vms
    return tuple(
        name
        for name in operation.vms
        if name in vms and (not hosts or vms[name].host in hosts) and draft.enabled(vms[name].group)
    )


def unread_vms(draft: Draft, operation: Operation) -> tuple[str, ...]:
    """Return the VMs whose groups have neither approved nor polled since the notice was shown.

    Their control plane or their network may be cut off. Source: H-7.
    """
    shown_ms = operation.notice.shown_ms or 0
    silent = (
        event
        for event in draft.events_of(operation)
        for enrolment in (draft.enrolment(event.group),)
        if event.state is EventState.SCHEDULED and enrolment and enrolment.polled_ms < shown_ms
    )
    return tuple(vm for event in silent for vm in event.resources)


def unseen_blocker(draft: Draft, operation: Operation) -> Blocker | None:
    """Return a blocker that names the VMs not shown the work; None if it does not wait."""
    if not waits_until_shown(draft, operation, operation.unseen_vms):
        return None
    text = (
        f"VM {some_names(operation.unseen_vms)} cannot see {operation.id}, because a metadata node"
        f" is disconnected: {operation.id} waits for the node, or for an approval"
    )
    return _unseen(operation, text)


def unseen_note(operation: Operation) -> Blocker | None:
    """Return a note on VMs that may not know of work that continues; None: all VMs know."""
    if not operation.unseen_vms:
        return None
    vms = some_names(operation.unseen_vms)
    text = f"VM {vms} may not know of {operation.id}: its notice was not shown, or not read"
    return _unseen(operation, text)


def _unseen(operation: Operation, text: str) -> Blocker:
    since_ms = operation.notice.announced_ms or operation.created_ms
    return Blocker(UNSEEN, ", ".join(operation.unseen_vms), since_ms, text=text)


def some_names(names: tuple[str, ...]) -> str:
    """Return the first names, with the number of the others."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
