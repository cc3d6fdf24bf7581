"""Moves of an operation together with its events: planned, announced, started, ended, cancelled.

Each function makes one such move in a draft and writes its entry of history. `step.py` decides
when a move is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forewarn_base.protocol.timestamps import duration_text
from forewarn_base.values import replace
from forewarn_core.fleet import fleet_changes, targets
from forewarn_core.fleet.approvals import approve_event, note_end, unapproving, wake_coupled
from forewarn_core.fleet.availability_records import event_record
from forewarn_core.fleet.destinations import Destinations
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.hand_back import approved_by_choice
from forewarn_core.fleet.impact import REMOVES_VM, SECOND_MS, TRAITS, Cause, Source
from forewarn_core.fleet.indexes import Place, deletion_key
from forewarn_core.fleet.lifecycle import (
    Alert,
    AlertMove,
    Event,
    EventState,
    MaintenanceWindow,
    Move,
    Notice,
    Operation,
    OperationState,
    move_alert,
    move_event,
    move_operation,
    progress_text,
    with_execution,
)
from forewarn_core.fleet.stimulus import DriverProgressed
from forewarn_core.fleet.topology import FleetChange, Health, Vm
from forewarn_core.fleet.usage import disturbed_owners
from forewarn_core.fleet.waiting import some_names, unread_vms
from forewarn_core.fleet.windows import (
    close_incidents,
    opened,
    window_left,
    with_overrun,
    with_window,
)


def plan(draft: Draft, operations: Sequence[Operation]) -> tuple[int, ...]:
    """Write planned operations; start faults at once."""
    for operation in operations:
        assert operation.state is OperationState.PLANNED, operation
        kind = "VM" if operation.of_vm else "host"
        work = f"{operation.cause.value} of {kind} {operation.target} ({operation.impact.value})"
        text = f"{operation.id}: {work} is requested"
        draft.put("operation.planned", text, operation)
        draft.look_at(operation.number)
        if TRAITS[operation.cause].fault:
            _fail_hardware(draft, operation)
        elif operation.cause is Cause.HARDWARE_DEGRADED:
            fleet_changes.set_health(draft, operation.host, Health.DEGRADED)
    return tuple([operation.number for operation in operations])


def announce(draft: Draft, operation: Operation) -> None:
    """Announce a planned operation: its events appear as Scheduled. See L-1, N-1, S-5."""
    assert operation.state is OperationState.PLANNED, operation
    operation, events = _create_events(draft, operation)
    operation = replace(
        move_operation(operation, Move.ANNOUNCE),
        notice=Notice(draft.now_ms, least_not_before_ms(draft, operation)),
    )
    operation = with_window(draft, operation)
    assert operation.not_before_ms - draft.now_ms >= operation.notice_s * SECOND_MS
    approved = [
        each
        for each in events
        if approved_by_policy(draft, operation, each.group)
        or (operation.maintenance and approved_by_choice(draft.state, operation, each.group))
    ]
    heard = any(draft.enabled(event.group) for event in events if event not in approved)
    text = f"{operation.id} is announced{'' if heard else ' to nobody'}"
    draft.put("operation.announced", text, operation, *events)
    draft.announced.append(operation.number)
    _touch(draft, operation, events)
    draft.wake_arrivals(operation.destinations)
    for event in approved:
        approve_event(draft, event, by=())


def approved_by_policy(draft: Draft, operation: Operation, group: str) -> bool:
    """Return whether a group's policy approves the operation beforehand. Source: A-10.

    Never for a later requested start, which an early approval would override (L-6).
    """
    return (
        operation.source is Source.USER
        and operation.cause in {Cause.REBOOT, Cause.REDEPLOY}
        and operation.impact in draft.topology.groups[group].automatic_approval
        and (operation.requested_start_ms or 0) <= draft.now_ms
    )


def least_not_before_ms(draft: Draft, operation: Operation) -> int:
    """Return a NotBefore that leaves the required notice from now, in whole seconds.

    Source: N-1.
    """
    owed_ms = operation.notice_s * SECOND_MS + draft.policy.notice_margin_ms
    lead_ms = max(owed_ms, _prediction_ms(draft, operation))
    earliest = max(draft.now_ms + lead_ms, operation.requested_start_ms or 0)
    return -(-earliest // SECOND_MS) * SECOND_MS


def _prediction_ms(draft: Draft, operation: Operation) -> int:
    """Return when a predicted failure is due: days ahead, or at its chosen time. Source: N-2."""
    predicted = operation.cause is Cause.HARDWARE_DEGRADED and not operation.requested_start_ms
    return draft.policy.prediction_s * SECOND_MS if predicted else 0


def renew(draft: Draft, operation: Operation, *, delay_ms: int = 0) -> None:
    """Restart the required notice because it was published late or never. See N-1, L-7.

    Twice the delay of the late publication is added, so that the next try succeeds.
    """
    assert operation.state is OperationState.ANNOUNCED, operation
    key = deletion_key(operation)
    earliest = least_not_before_ms(draft, operation) + -(-2 * delay_ms // SECOND_MS) * SECOND_MS
    renewed = replace(
        operation,
        notice=Notice(draft.now_ms, max(operation.not_before_ms, earliest)),
        alert=Alert.NONE,
    )
    renewed = with_window(draft, renewed)
    draft.put("operation.renewed", f"{operation.id} is given its notice again", renewed)
    draft.announced.append(renewed.number)
    _touch(draft, renewed, draft.events_of(renewed))
    wake_coupled(draft, renewed, key)


def put_off(draft: Draft, operation: Operation, by_ms: int) -> None:
    """Move NotBefore later after a step of the system clock: notice never shrinks. Source: N-4."""
    assert operation.state is OperationState.ANNOUNCED, operation
    by_s = -(-by_ms // SECOND_MS)
    shown_ms = operation.notice.shown_ms
    notice = Notice(
        operation.announced_ms + by_ms,
        operation.not_before_ms + by_s * SECOND_MS,
        None if shown_ms is None else shown_ms + by_ms,
    )
    put_off = with_window(draft, replace(operation, notice=notice))
    text = f"{operation.id} is put off by {duration_text(by_s)}: the service's clock is set forward"
    draft.put("operation.put-off", text, put_off)
    draft.announced.append(put_off.number)
    _touch(draft, put_off, draft.events_of(put_off))


def start_unannounced(draft: Draft, operation: Operation) -> None:
    """Start a hardware failure, without notice: VMs first see its events as Started.

    Source: L-4.
    """
    operation, events = _create_events(draft, operation)
    running = _running(draft, move_operation(operation, Move.FAULT))
    started = [_start_event(draft, event) for event in events]
    draft.put("operation.unannounced", f"{running.id} started without notice", running, *events)
    draft.put("operation.started", f"{running.id} is running", running, *started)
    _touch(draft, running, started)
    draft.begin.append(running.number)


def start(draft: Draft, operation: Operation, why: str) -> None:
    """Start an announced operation: its events become Started. See L-1, D-7, H-7."""
    running = _running(draft, move_operation(operation, Move.DUE))
    unread = unread_vms(draft, operation)
    if unread:
        unseen = tuple(dict.fromkeys((*running.unseen_vms, *unread)))
        running = replace(running, unseen_vms=unseen)
        why += f"; VM {some_names(unread)} has not read the notice"
    events = draft.events_of(operation)
    started = [_start_event(draft, event) for event in events]
    draft.put("operation.started", f"{running.id} is running: {why}", running, *started)
    _touch(draft, running, started)
    if any(event.state is EventState.SCHEDULED for event in events):  # woken by an approval
        wake_coupled(draft, running, deletion_key(running))
    draft.begin.append(running.number)


def note_blocked(draft: Draft, operation: Operation, why: str) -> None:
    """Raise an alert, once, that announced work cannot start although NotBefore is reached."""
    assert operation.state is OperationState.ANNOUNCED, operation
    blocked = move_alert(operation, AlertMove.BLOCK)
    draft.put("operation.blocked", f"{blocked.id} is due and cannot start: {why}", blocked)


def progress(draft: Draft, operation: Operation, report: DriverProgressed) -> None:
    """Record a driver's progress and destinations; invalid destinations are dropped.

    Source: R-1.
    """
    hosts = draft.topology.hosts
    placements = {
        vm: host for vm, host in report.placements if vm in operation.vms and host in hosts
    }
    further = with_execution(
        operation,
        progress=report.text,
        progress_percent=report.percent,
        placements=tuple(sorted((dict(operation.execution.placements) | placements).items())),
    )
    if further == operation:
        return
    new = sorted(placements.items() - dict(operation.execution.placements).items())
    text = progress_text(further)
    if new:
        vm, host = new[0]
        others = f" and {len(new) - 1} others elsewhere" if len(new) > 1 else ""
        text = f"{text}: {vm} goes to {host}{others}".removeprefix(": ")
    draft.put("operation.progressed", f"{further.id}: {text}", further)
    draft.wake_arrivals(placements.values())


def end(
    draft: Draft, operation: Operation, *, failed: bool, reason: str = "", abort: bool = False
) -> None:
    """End an operation and remove its started events from documents. Source: L-5.

    With `abort`, the driver must be notified of the end later (L-7).
    """
    operation = with_overrun(draft, operation)
    move = Move.FAIL if failed else Move.DONE
    ended = replace(
        move_operation(operation, move),
        ended_ms=draft.now_ms,
        reason=reason,
        alert=Alert.NONE,
        abort_owed=abort,
        disturbed_owners=_with_disturbed_owners(draft, operation).disturbed_owners,
    )
    gone = [move_event(event, move) for event in draft.events_of(operation)]
    text = f"{ended.id} has {'failed' if failed else 'succeeded'}"
    draft.put(f"operation.{ended.state.value}", with_reason(text, reason), ended, *gone)
    for event in gone:
        owner = draft.topology.groups[event.group].owner
        draft.record(event_record(event, ended, owner, at_ms=draft.now_ms))
    _touch(draft, ended, gone)
    draft.wake(ended)
    if abort:
        draft.abort.append(ended.number)
    if not failed:
        _settle_fleet(draft, ended)
    targets.operation_ended(draft, ended)
    window_left(draft, ended)
    if ended.execution.validation or ended.execution.attempt > 1:
        close_incidents(draft, ended)
    note_end(draft, ended)


def cancel(draft: Draft, operation: Operation, reason: str) -> None:
    """Cancel work that has not started, without impact. Source: L-3."""
    cancelled = replace(
        move_operation(operation, Move.CANCEL),
        ended_ms=draft.now_ms,
        reason=reason,
        alert=Alert.NONE,
    )
    gone = [move_event(event, Move.CANCEL) for event in draft.events_of(operation)]
    text = with_reason(f"{cancelled.id} is cancelled", reason)
    draft.put("operation.cancelled", text, cancelled, *gone)
    _touch(draft, cancelled, gone)
    targets.operation_ended(draft, cancelled)
    window_left(draft, cancelled)
    draft.wake(cancelled)
    wake_coupled(draft, cancelled, deletion_key(cancelled))


def _fail_hardware(draft: Draft, operation: Operation) -> None:
    """Fail a host: its predicted and announced work ends, and running work on its VMs.

    See L-4, L-10, N-2.
    """
    lost = operation.cause is Cause.HOST_LOST
    reason = f"host {operation.host} {'is lost' if lost else 'failed'}"
    places: list[Place] = [("vm", name) for name in draft.topology.vms_on(operation.host)]
    for other in draft.operations(("host", operation.host), *places):
        if other.number == operation.number:
            continue
        replaced = replace(other, replaced_by=operation.number)
        if other.state is OperationState.RUNNING:
            end(draft, replaced, failed=True, reason=reason, abort=True)
        elif not other.of_vm:
            cancel(draft, replaced, reason)
    fleet_changes.set_health(draft, operation.host, Health.FAILED)
    targets.host_failed(draft, operation.host)
    start_unannounced(draft, operation)


def _create_events(draft: Draft, operation: Operation) -> tuple[Operation, list[Event]]:
    """Create one event per group on a host, so that no event spans domains.

    Source: G-2, S-5, D-5.
    """
    vms = operation.vms if operation.of_vm else draft.topology.vms_on(operation.host)
    shares = {} if operation.silent else draft.topology.grouped(vms)
    events = [
        Event(id=draft.new_guid(), operation=operation.number, group=group, resources=share)
        for group, share in shares.items()
    ]
    ids = tuple(event.id for event in events)
    return replace(operation, vms=vms, events=ids), events


def _start_event(draft: Draft, event: Event) -> Event:
    return replace(move_event(event, Move.DUE), started_ms=draft.now_ms)


def _running(draft: Draft, operation: Operation) -> Operation:
    assert operation.state is OperationState.RUNNING, operation
    host = draft.host_of(operation)
    driver = (host.driver if host else "") or draft.default_driver
    started = with_execution(operation, started_ms=draft.now_ms, attempt=1, driver=driver)
    if driver in draft.policy.unscheduled_drivers:
        started = _with_destinations(draft, started)
    return replace(opened(draft, _with_disturbed_owners(draft, started)), alert=Alert.NONE)


def _with_destinations(draft: Draft, operation: Operation) -> Operation:
    """Return starting work with the destinations of VMs that leave their host. Source: L-11."""
    if operation.destinations or not TRAITS[operation.cause].moves:
        return operation
    destinations = Destinations(draft, operation)
    left = destinations.choose()
    if destinations.new_hosts:
        fleet_changes.change_layout(draft, FleetChange(hosts={**destinations.new_hosts}))
    placements = tuple(sorted(destinations.placements.items()))
    text = f"VM {some_names(left)} stays, because no other host has room" if left else ""
    return with_execution(operation, placements=placements, progress=text)


def _with_disturbed_owners(draft: Draft, operation: Operation) -> Operation:
    """Return running work that records its disturbed owners, also of VMs removed since. See F-3."""
    owners = {*operation.disturbed_owners, *disturbed_owners(operation, draft.topology)}
    return replace(operation, disturbed_owners=tuple(sorted(owners)))


def _touch(draft: Draft, operation: Operation, events: list[Event]) -> None:
    draft.look_at(operation.number)
    for event in events:
        draft.show(event.group)


def _settle_fleet(draft: Draft, ended: Operation) -> None:
    """Apply a successful operation to the fleet: remove or move VMs, mark hosts as repaired."""
    before = draft.topology
    machines = [before.vms[name] for name in ended.vms if name in before.vms]
    changed: dict[str, Vm | None] = {}
    if ended.cause in REMOVES_VM:
        changed = dict.fromkeys(vm.name for vm in machines)
    elif ended.destinations:
        to = {vm.name: ended.destination for vm in machines} | dict(ended.execution.placements)
        changed = {
            vm.name: replace(vm, host=to[vm.name])
            for vm in machines
            if (ended.of_vm or vm.host == ended.host) and to[vm.name] not in {"", vm.host}
        }
    if changed:
        old_vms = {name: before.vms.get(name) for name in changed}
        fleet_changes.change_layout(draft, FleetChange(vms=changed))
        follow_vms(draft, old_vms)
    host = before.hosts.get(ended.host)
    if ended.cause is Cause.HARDWARE_FAILURE and host and host.health is Health.FAILED:
        fleet_changes.set_health(draft, host.name, Health.HEALTHY)


def follow_vms(draft: Draft, before: Mapping[str, Vm | None]) -> None:
    """Adapt live work to VMs that have left a host, arrived on one or gone.

    A VM leaves the planned and announced work of the host that it has left, for any cause.
    `before` has the changed VMs as they were; None: the VM is new. Costs the work on these VMs and
    their hosts. Source: L-9. See L-5, N-1.
    """
    vms = draft.topology.vms
    moved = {
        name: (old.host if old else "", vms[name].host if name in vms else "")
        for name, old in before.items()
    }
    moved = {name: hosts for name, hosts in moved.items() if hosts[0] != hosts[1]}
    arrivals = {host for _, host in moved.values()} - {""}
    hosts = arrivals | {host for host, _ in moved.values()}
    places: list[Place] = [("vm", name) for name in moved]
    places += [("host", host) for host in hosts]
    for other in draft.operations(*draft.state.places.at(places)):
        if other.of_vm:
            _follow_vm(draft, other)
        elif other.state is OperationState.PLANNED:
            _rename(draft, other)
        elif other.state is OperationState.RUNNING:
            _join(draft, other)
        elif other.host in arrivals:
            _announce_anew(draft, other)
        else:
            drop_absent_vms(draft, other)


def _follow_vm(draft: Draft, operation: Operation) -> None:
    """Cancel work on a VM that is gone, and the return of a VM that is back."""
    name = operation.vms[0]
    vm = draft.topology.vms.get(name)
    if operation.state is OperationState.RUNNING:
        return
    if vm is None:
        cancel(draft, operation, f"VM {name} is gone")
    elif operation.is_return and vm.host == operation.destination:
        cancel(draft, operation, f"VM {name} is on {vm.host} already")


def _rename(draft: Draft, operation: Operation) -> None:
    """Name the VMs that planned work would disturb now."""
    vms = draft.topology.vms_on(operation.host)
    if vms != operation.vms:
        text = f"{operation.id} is to disturb {len(vms)} VMs: VMs of {operation.host} have moved"
        draft.put("operation.replanned", text, replace(operation, vms=vms))


def drop_absent_vms(draft: Draft, operation: Operation) -> None:
    """Withdraw VMs that have left a host from its announced work; ignore other work. See L-9.

    An event without VMs is withdrawn. Without any VM, a move has nothing left to do.
    """
    if operation.of_vm or operation.state is not OperationState.ANNOUNCED:
        return
    there = set(draft.topology.vms_on(operation.host))
    left = tuple([name for name in operation.vms if name not in there])
    if not left:
        return
    if not there and TRAITS[operation.cause].moves and not operation.maintenance:
        cancel(draft, operation, f"no VM is left on host {operation.host}")
        return
    before = {
        event.id: event
        for event in draft.events_of(operation)
        if not there.issuperset(event.resources)
    }
    changed = []
    for event in before.values():
        staying = tuple([name for name in event.resources if name in there])
        smaller_event = replace(event, resources=staying)
        changed.append(smaller_event if staying else move_event(event, Move.CANCEL))
    withdrawn = {event.id for event in changed if not event.live}
    placements = operation.execution.placements
    smaller = replace(
        with_execution(operation, placements=tuple([p for p in placements if p[0] in there])),
        vms=tuple([name for name in operation.vms if name in there]),
        events=tuple([each for each in operation.events if each not in withdrawn]),
        unseen_vms=tuple([name for name in operation.unseen_vms if name in there]),
    )
    text = f"VM {some_names(left)} has left {smaller.host}, and {smaller.id} does not disturb it"
    draft.put("operation.left", text, smaller, *changed)
    _touch(draft, smaller, changed)
    for event in changed:
        strict = event.live and draft.topology.groups[event.group].strict_approval
        if strict and event.state is EventState.SCHEDULED and not unapproving(event):
            gone = tuple([name for name in before[event.id].resources if name not in there])
            approve_event(draft, event, by=(), reason=f"VM {some_names(gone)} has left")


def _join(draft: Draft, operation: Operation) -> None:
    """Show a failure to VMs that have arrived on the host since. See L-4, L-5."""
    present = draft.topology.vms_on(operation.host)
    come = tuple(name for name in present if name not in operation.vms)
    if not come:
        return
    events = [
        _start_event(draft, Event(draft.new_guid(), operation.number, group, share))
        for group, share in draft.topology.grouped(come).items()
    ]
    joined = replace(
        operation,
        vms=tuple(sorted((*operation.vms, *come))),
        events=(*operation.events, *(event.id for event in events)),
    )
    text = f"VM {', '.join(come)} has arrived on {joined.host} and is hit by {joined.id}, too"
    draft.put("operation.joined", text, _with_disturbed_owners(draft, joined), *events)


def _announce_anew(draft: Draft, operation: Operation) -> None:
    """Withdraw announced work whose host received VMs without notice, and plan it again."""
    if operation.maintenance:  # its maintenance plans the host again
        cancel(draft, operation, f"VMs have arrived on {operation.host}")
        return
    again = replace(
        operation,
        number=draft.next_number(),
        state=OperationState.PLANNED,
        vms=draft.topology.vms_on(operation.host),
        created_ms=draft.now_ms,
        notice=Notice(),
        window=MaintenanceWindow(),
        alert=Alert.NONE,
        events=(),
        unseen_vms=(),
    )
    reason = f"VMs have arrived on {operation.host}; {again.id} replaces {operation.id}"
    cancel(draft, replace(operation, replaced_by=again.number), reason)
    draft.put("operation.planned", f"{again.id} takes the place of {operation.id}", again)
    draft.look_at(again.number)


def with_reason(text: str, reason: str) -> str:
    """Return a sentence with its reason, if there is one."""
    return f"{text}: {reason}" if reason else text
