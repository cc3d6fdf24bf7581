"""Who may approve an event, when an event counts as approved, and which work waits for approval.

Deletions of one request (coupled deletions) also wait for each other's approvals. `lifecycle.py`
assigns events to documents, `transitions.py` approves events automatically by a group's policy, and
`step.py` starts work. Source: A-1 to A-10, L-2, B-3.

The node of a VM's old host may forward an approval until the new host's node takes over. So each
group records the hosts that its VMs left recently. Source: M-3, M-5.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from forewarn_base.protocol.approvals import UnknownEvent
from forewarn_base.protocol.identity import CallerIdentity
from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.document import Departure
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import SECOND_MS, Impact
from forewarn_core.fleet.indexes import Place, deletion_key
from forewarn_core.fleet.lifecycle import (
    Event,
    EventState,
    Move,
    Operation,
    OperationState,
    move_event,
)
from forewarn_core.fleet.refusals import UnknownOperation
from forewarn_core.fleet.topology import Group, Vm
from forewarn_core.requests import ApprovalRequest

#: Maximum departures stored per group, the latest ones; each recorded poll of the group writes all
#: of them.
DEPARTURES_MAX = 100

#: Seconds after a VM has left a host in which the old host's node may show the VM new events.
#:
#: The old node serves the VM until the new host's node takes over, even if that node is cut off.
OLD_NODE_SERVES_S_MAX = 3600


def approve(draft: Draft, approval: ApprovalRequest) -> tuple[int, ...]:
    """Approve all of the given events, or none if one id is invalid. Source: A-1."""
    vm = draft.topology.vms.get(approval.vm)
    if vm is not None and not _is_known_by(vm, approval.identity):
        vm = None
    own = vm.name if vm is not None and draft.topology.reads_alone(vm.name) else ""
    hosts = approval.node_hosts

    def known_event(event_id: str) -> Event:
        """Refuse the whole request if an event is unknown, finished or of another group.

        Source: A-3.
        """
        event = draft.event(event_id)
        if vm is None or event is None or not event.belongs_in(vm.group, own):
            raise UnknownEvent(event_id=event_id)
        if hosts and not was_shown(draft, event, vm=vm, hosts=hosts):
            raise UnknownEvent(event_id=event_id)
        return event

    events = [known_event(each) for each in _distinct(approval.event_ids)]
    for event in events:
        if event.state is EventState.SCHEDULED:
            if draft.topology.groups[event.group].strict_approval:
                _approve_strictly(draft, event, approval.vm)
            else:
                approve_event(draft, event, by=(approval.vm,))
    return tuple(event.operation for event in events)


def _is_known_by(vm: Vm, identity: CallerIdentity) -> bool:
    """Whether the VM's record still has the address or id that sent the approval.

    Source: S-4, S-6.
    """
    if identity.instance_id:
        return vm.instance_id == identity.instance_id
    if identity.address:
        return identity.address in vm.addresses and vm.interface == identity.interface
    return True


def acknowledge(draft: Draft, acknowledgement: stimuli.Acknowledge) -> tuple[int, ...]:
    """Approve events as an operator on behalf of their VMs, all or none. Source: A-9."""
    events = []
    for event_id in _distinct(acknowledgement.event_ids):
        event = draft.event(event_id)
        if event is None:
            raise UnknownOperation(name=event_id)
        events.append(event)
    for event in events:
        if event.state is EventState.SCHEDULED:
            approve_event(draft, event, by=())
    return tuple(dict.fromkeys(event.operation for event in events))


def _distinct(event_ids: tuple[str, ...]) -> Iterable[str]:
    return dict.fromkeys(each.upper() for each in event_ids)


def approve_event(draft: Draft, event: Event, *, by: tuple[str, ...], reason: str = "") -> None:
    """Approve an event for all of its resources. Source: A-4."""
    approved = replace(
        move_event(event, Move.APPROVE),
        approved_by=event.approved_by + by,
        approved_ms=draft.now_ms,
    )
    because = f": {reason}" if reason else ""
    text = f"event {event.id} is approved for {event.group}{because}"
    draft.put("event.approved", text, approved, vm=by[-1] if by else "")
    draft.look_at(event.operation)
    operation = draft.operation(event.operation)
    assert operation is not None, event
    if operation.impact is Impact.TERMINATE:
        wake_coupled(draft, operation, deletion_key(operation))


def _approve_strictly(draft: Draft, event: Event, vm: str) -> None:
    """Record one VM's approval; a strict group's last approval approves the event. Source: A-7."""
    if vm not in event.resources or vm in event.approved_by:
        return
    if set(unapproving(event)) <= {vm}:
        approve_event(draft, event, by=(vm,))
        return
    counted = replace(event, approved_by=(*event.approved_by, vm))
    text = f"event {event.id} is approved by {vm}, not yet by all"
    draft.put("event.counted", text, counted, vm=vm)


def recount(draft: Draft, groups: tuple[Group, ...]) -> None:
    """Approve events of a group that is no longer strict and that one VM has approved.

    See A-4, A-7.
    """
    for group in groups:
        for event in draft.live_events_in(group.name):
            counts = event.approved_by and not group.strict_approval
            if counts and event.state is EventState.SCHEDULED:
                approve_event(draft, event, by=(), reason="the group is not strict any more")


def events_to_approve(draft: Draft, operation: Operation) -> list[Event]:
    """Return the events of an operation that are still to be approved. Source: L-2.

    Work waits for the groups of all owners on its host, but not for disabled groups (B-3).
    """
    return [
        event
        for event in draft.events_of(operation)
        if event.state is EventState.SCHEDULED and draft.enabled(event.group)
    ]


def is_unasked(draft: Draft, operation: Operation) -> bool:
    """Whether all groups of an operation are disabled and no operator has approved."""
    events = draft.events_of(operation)
    approved = events and all(event.state is EventState.APPROVED for event in events)
    return not approved and not any(draft.enabled(event.group) for event in events)


def unasked_start_ms(operation: Operation) -> int:
    """Return when an operation that asks nobody starts; 0: at once. See B-3.

    At the time that somebody requested, and in a maintenance at the earliest start of its wave; ms
    since the epoch UTC.
    """
    if operation.maintenance:
        return operation.earliest_start_ms or 0
    return operation.requested_start_ms or 0


def why_unasked(operation: Operation) -> str:
    """Return why nobody is asked to approve an operation, as a clause. See B-3, N-1, O-2."""
    if operation.silent:
        kind = "deletions" if operation.impact is Impact.TERMINATE else "image upgrades"
        return f"its group wants no notice of {kind}"
    return "no VM on it polls for events, so nobody is asked"


def unapproving(event: Event) -> tuple[str, ...]:
    """Return the VMs of an event that have not approved it. See A-7."""
    return tuple(vm for vm in event.resources if vm not in event.approved_by)


def is_coupled(draft: Draft, operation: Operation) -> bool:
    """Whether an approved deletion waits for an unapproved deletion of its request. Source: A-8."""
    if operation.impact is not Impact.TERMINATE:
        return False
    return not _all_decided(draft, ("deletion", deletion_key(operation)))


def wake_coupled(draft: Draft, operation: Operation, key: tuple[int, int | None]) -> None:
    """Wake the deletions of a request once all of them are approved.

    While one deletion is undecided, no other can start. So a step checks each deletion once,
    however many start. See A-8.
    """
    place: Place = ("deletion", key)
    if operation.impact is not Impact.TERMINATE or place in draft.uncoupled:
        return
    if _all_decided(draft, place):
        draft.uncoupled.add(place)
        for sibling in draft.operations(place):
            draft.look_at(sibling.number)


def undecided_siblings(draft: Draft, operation: Operation) -> list[Operation]:
    """Return the deletions of the same request that must be approved first. See A-8."""
    if operation.impact is not Impact.TERMINATE:
        return []
    place: Place = ("deletion", deletion_key(operation))
    return [
        sibling
        for sibling in draft.operations(place)
        if sibling.number != operation.number and _is_undecided(draft, sibling, place)
    ]


def _all_decided(draft: Draft, place: Place) -> bool:
    """Whether every deletion of a request is approved; checks each undecided one once.

    Deletions seen as decided stay so in later steps.
    """
    left = draft.state.places.undecided_at(place)
    while left:
        sibling = draft.operation(left[-1])
        if sibling is not None and _is_undecided(draft, sibling, place):
            return False
        left.pop()
    return True


def _is_undecided(draft: Draft, sibling: Operation, place: Place) -> bool:
    return (
        sibling.state is OperationState.ANNOUNCED
        and ("deletion", deletion_key(sibling)) == place
        and bool(events_to_approve(draft, sibling))
    )


def note_departures(draft: Draft, left: Iterable[tuple[Vm, str]]) -> None:
    """Record the hosts that VMs have just left, if a live event may depend on them.

    Costs the departures and live events of each enabled group.
    """
    by_group: defaultdict[str, list[Departure]] = defaultdict(list)
    for vm, host in left:
        by_group[vm.group].append(Departure(vm.name, host, draft.now_ms))
    for group, new in by_group.items():
        enrolment = draft.enrolment(group)
        if enrolment is None:
            continue
        operations = draft.state.operations
        live = [operations[event.operation] for event in draft.live_events_in(group)]
        since_ms = min([_since_ms(operation) for operation in live], default=draft.now_ms)
        kept = [each for each in enrolment.departures if each.left_ms >= since_ms]
        draft.mark(replace(enrolment, departures=tuple((*kept, *new)[-DEPARTURES_MAX:])))


def note_end(draft: Draft, ended: Operation) -> None:
    """Record the destinations that an ended move's VMs did not reach."""
    assert not ended.live, ended
    if ended.destinations:
        vms = draft.topology.vms
        there = [vms[name] for name in ended.vms if name in vms]
        note_departures(
            draft,
            [
                (vm, to)
                for vm in there
                if (to := ended.destination_of(vm.name)) not in {"", vm.host}
            ],
        )


def was_shown(draft: Draft, event: Event, *, vm: Vm, hosts: Collection[str]) -> bool:
    """Whether a node of these hosts serves a VM, or did while an event could be approved."""
    if vm.host in hosts:
        return True
    enrolment, operation = draft.enrolment(event.group), draft.operation(event.operation)
    assert operation is not None, event
    if enrolment is None:
        return False
    since_ms = _since_ms(operation)
    return any(
        each.vm == vm.name and each.host in hosts and each.left_ms >= since_ms
        for each in enrolment.departures
    )


def _since_ms(operation: Operation) -> int:
    """Return the earliest departure that matters to an operation; 0 for faults (no notice)."""
    return (operation.notice.announced_ms or 0) - OLD_NODE_SERVES_S_MAX * SECOND_MS
