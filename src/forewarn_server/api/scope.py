"""Views restricted to owners: the state and the store with only their VMs.

All callers use the same routes. A caller with bindings for some owners reads a state without other
owners' VMs. If an operation concerns several owners, each owner sees only its own VMs and events.
General texts replace texts that could name other owners' records. Source: P-3.
"""

from __future__ import annotations

from collections.abc import Iterable

from forewarn_base.values import replace
from forewarn_core.access.roles import Permission, actor_for_owner
from forewarn_core.fleet.actions import ACTIONS
from forewarn_core.fleet.impact import TRAITS, Source, TargetKind
from forewarn_core.fleet.lifecycle import Event, Operation
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.refusals import Unknown
from forewarn_core.fleet.state import Changes, State
from forewarn_core.fleet.stimulus import (
    Acknowledge,
    AskDeferral,
    ChangeTopology,
    ChooseStarts,
    HoldHosts,
    MoveTicket,
    NameFirstGroup,
    OpenTicket,
    PlaneStimulus,
    PostponeHosts,
    ReopenTicket,
    RequestMaintenance,
    WithdrawDeferral,
)
from forewarn_core.fleet.ticket import Ticket, TicketMove, TicketType
from forewarn_core.fleet.topology import Topology
from forewarn_core.rules.blockers import Blocker
from forewarn_core.rules.other_waits import TIME, UNSEEN
from forewarn_server.api.auth import NotPermitted
from forewarn_server.control.plane import StateView
from forewarn_store import (
    AvailabilityPage,
    HistoryPage,
    OperationPage,
    Recorded,
    RecordedAvailability,
    Store,
    TicketPage,
)
from forewarn_store.maintenances import HostWork
from forewarn_store.reading import StoreReader, owners_text

#: Maximum number of owners' views cached until the next commit, and of layouts cached until the
#: fleet changes.
SCOPES_MAX = 64


def scoped_view(view: StateView, owners: frozenset[str]) -> StateView:
    """Return the part of a state that belongs to some owners; O(groups + size of the part)."""
    scoped = view.scoped.get(owners)
    if scoped is None:
        if len(view.scoped) >= SCOPES_MAX:
            view.scoped.clear()
        scoped = view.scoped[owners] = _view(view, owners)
    return scoped


def _view(view: StateView, owners: frozenset[str]) -> StateView:
    layout = view.scoped_layouts.get(owners)
    if layout is None:
        if len(view.scoped_layouts) >= SCOPES_MAX:
            view.scoped_layouts.clear()
        layout = view.scoped_layouts[owners] = _layout(view.state.topology, owners)
    state = view.state
    events = {
        each: state.events[each] for group in layout.groups for each in state.event_ids_of(group)
    }
    numbers = {event.operation for event in events.values()}
    for name in layout.vms:
        numbers.update(state.places.of(("vm", name)))
    numbers &= state.operations.keys()
    scoped_state = State()
    scoped_state.adopt(
        Changes(
            last_number=state.last_number,
            topology=layout,
            operations={
                n: narrowed_operation(state.operations[n], layout, events) for n in numbers
            },
            events=events,
            enrolments={n: state.enrolments[n] for n in layout.groups if n in state.enrolments},
            views={
                key: state.views[key]
                for group in layout.groups
                for key in layout.views_of(group)
                if key in state.views
            },
        )
    )
    scoped = view.beside(scoped_state)
    scoped.unscoped = view
    return scoped


def _layout(topology: Topology, owners: frozenset[str]) -> Topology:
    groups = {name: group for name, group in topology.groups.items() if group.owner in owners}
    vms = {name: topology.vms[name] for group in groups for name in topology.vms_in(group)}
    hosts = {vm.host: topology.hosts[vm.host] for vm in vms.values()}
    return Topology(hosts, groups, vms)


def narrowed_operation(
    operation: Operation, layout: Topology, events: dict[str, Event] | None = None
) -> Operation:
    """Return an operation with only the VMs of a layout."""
    own = tuple([name for name in operation.vms if name in layout.vms])
    shown = (
        operation.events if events is None else tuple([e for e in operation.events if e in events])
    )
    if len(own) == len(operation.vms):
        return replace(operation, events=shown, actor=actor_for_owner(operation.actor, layout.vms))
    placements = [pair for pair in operation.execution.placements if pair[0] in layout.vms]
    return replace(
        operation,
        vms=own,
        events=shown,
        actor=actor_for_owner(operation.actor, layout.vms),
        reason="",
        execution=replace(
            operation.execution, progress="", progress_percent=-1, placements=tuple(placements)
        ),
        disturbed_owners=(),
        unseen_vms=tuple([name for name in operation.unseen_vms if name in layout.vms]),
    )


def neutral_waiting(waiting: tuple[Blocker, ...], layout: Topology) -> tuple[Blocker, ...]:
    """Return an operation's blockers; general texts replace names outside a layout."""
    names = layout.groups.keys() | layout.vms.keys()
    blockers = []
    for each in waiting:
        subjects = each.subject.split(", ")
        own = ", ".join([name for name in subjects if name in layout.vms])
        if names.issuperset(subjects):
            blockers.append(each)
        elif each.code is not UNSEEN:
            blockers.append(_neutral(each.clears_ms))
        elif own:  # an operation may concern VMs of several owners
            blockers.append(replace(each, subject=own, text=f"VM {own} may not know of it"))
        elif each is waiting[0]:
            blockers.append(_neutral(0))
    return tuple(dict.fromkeys(blockers))


def _neutral(clears_ms: int) -> Blocker:
    text = "it waits for other work, or for its start time"
    return Blocker(TIME, "", 0, clears_ms, text)


def check_stimulus(stimulus: PlaneStimulus, layout: Topology) -> None:
    """Refuse a stimulus for records outside a layout.

    Raises:
        Unknown: the stimulus names a record outside the layout.
        NotPermitted: only operators may send the stimulus.
    """
    match stimulus:
        case RequestMaintenance():
            _check_work(stimulus, layout)
        case OpenTicket() | MoveTicket():
            _check_ticket(stimulus)
        case ChooseStarts():
            _check_places(((each.host, each.owner) for each in stimulus.choices), layout)
        case AskDeferral() | WithdrawDeferral():
            _check_places(stimulus.places, layout)
        case NameFirstGroup() | HoldHosts():
            _check_owner(stimulus.owner, layout)
        case ReopenTicket():
            pass  # the route has found a report of the caller
        case Acknowledge() | PostponeHosts() | ChangeTopology():
            pass  # the caller's own state contains only permitted records
        case _:
            raise AssertionError(stimulus)


def _check_work(stimulus: RequestMaintenance, layout: Topology) -> None:
    """Owners ask for work on VMs of a layout."""
    traits = TRAITS[stimulus.cause]
    if traits.target is not TargetKind.VM or stimulus.source is Source.PLATFORM:
        raise NotPermitted(principal="An owner", permission=Permission.OPERATE.value)
    for name in stimulus.targets:
        if name not in layout.vms:
            raise Unknown(kind="vm", name=name)
    if stimulus.destination and stimulus.destination not in layout.hosts:
        raise Unknown(kind="host", name=stimulus.destination)


def _check_ticket(stimulus: OpenTicket | MoveTicket) -> None:
    """Owners open reports, answer and close; the route has found the ticket in their view."""
    if isinstance(stimulus, OpenTicket):
        permitted = stimulus.type is TicketType.REPORT and stimulus.owners is not None
    else:
        permitted = stimulus.move in {TicketMove.ANSWER, TicketMove.CLOSE}
    if not permitted:
        raise NotPermitted(principal="An owner", permission=Permission.OPERATE.value)


def _check_owner(owner: str, layout: Topology) -> None:
    """Refuse an owner without groups in the layout."""
    if owner not in {each.owner for each in layout.groups.values()}:
        raise NotPermitted(principal="An owner", permission=Permission.OPERATE.value)


def _check_places(places: Iterable[tuple[str, str]], layout: Topology) -> None:
    """Refuse hosts on which the layout has no VM of the owner."""
    for host, owner in places:
        vms = [layout.vms[name] for name in layout.vms_on(host)]
        if owner not in {layout.groups[vm.group].owner for vm in vms}:
            raise Unknown(kind="host", name=host)


class _DeclaredMaintenances:
    """Declared maintenances of hosts with VMs of a layout; nothing else of maintenances."""

    def __init__(self, store: Store, layout: Topology) -> None:
        self._store, self._layout = store, layout

    def get(self, number: int) -> Maintenance | None:
        """Return a declared maintenance that concerns the layout."""
        maintenance = self._store.maintenances.get(number)
        if maintenance is None or maintenance.declaration is None:
            return None
        return None if self._layout.hosts.keys().isdisjoint(maintenance.hosts) else maintenance

    def work(self, number: int) -> list[HostWork]:
        """Return the work of a declared maintenance on hosts of the layout."""
        if self.get(number) is None:
            return []
        work = self._store.maintenances.work(number)
        return [each for each in work if each.host in self._layout.hosts]


class ScopedReader(StoreReader):
    """The store restricted to some owners, with only the queries that owners may use."""

    def __init__(self, store: Store, owners: frozenset[str], layout: Topology) -> None:
        """Read a store for the owners of the records in `layout`."""
        self._store = store
        self._owners = owners_text(owners)
        self._named_owners = owners
        self._layout = layout
        self.maintenances = _DeclaredMaintenances(store, layout)

    def history(self, page: HistoryPage) -> list[Recorded]:
        """Return one page of these owners' history, without images."""
        records = self._store.history(replace(page, owners=self._owners, images=False))
        return [self._for_owner(each) for each in records]

    def history_bounds(self) -> tuple[int, int]:
        """Return the numbers of the last deleted and of the newest entry; 0 without an entry."""
        return self._store.history_bounds()

    def operation(self, number: int) -> Operation | None:
        """Return an operation that concerns these owners."""
        operation = self._store.operation(number)
        return self._own_part(operation) if operation else None

    def operations(self, page: OperationPage) -> list[Operation]:
        """Return one page of operations that concern these owners."""
        operations = self._store.operations(replace(page, owners=self._owners))
        return [own for each in operations if (own := self._own_part(each)) is not None]

    def event(self, event_id: str) -> Event | None:
        """Return an event of a group of these owners."""
        event = self._store.event(event_id)
        return event if event and event.group in self._layout.groups else None

    def events_of(self, operation: int) -> list[Event]:
        """Return the events of an operation for groups of these owners."""
        events = self._store.events_of(operation)
        return [each for each in events if each.group in self._layout.groups]

    def availability(self, page: AvailabilityPage) -> list[RecordedAvailability]:
        """Return one page of these owners' records of availability."""
        return self._store.availability(replace(page, owners=self._owners))

    def availability_since_ms(self) -> int:
        """Return since when records of availability are complete."""
        return self._store.availability_since_ms()

    def ticket(self, number: int) -> Ticket | None:
        """Return a ticket that concerns these owners."""
        ticket = self._store.ticket(number)
        return self._own_ticket(ticket) if ticket and self._concerns(ticket) else None

    def tickets(self, page: TicketPage) -> list[Ticket]:
        """Return one page of tickets that concern these owners."""
        tickets = self._store.tickets(replace(page, owners=self._owners))
        return [self._own_ticket(each) for each in tickets]

    def _concerns(self, ticket: Ticket) -> bool:
        return not self._named_owners.isdisjoint(ticket.owners)

    def _own_ticket(self, ticket: Ticket) -> Ticket:
        """Return a ticket without other owners and without names of operators."""
        vms = self._layout.vms
        return replace(
            ticket,
            owners=tuple([each for each in ticket.owners if each in self._named_owners]),
            actor=actor_for_owner(ticket.actor, vms),
            maintenance=0,
            texts=tuple([replace(each, by=actor_for_owner(each.by, vms)) for each in ticket.texts]),
        )

    def _own_part(self, operation: Operation) -> Operation | None:
        events = {each.id: each for each in self.events_of(operation.number)}
        own = narrowed_operation(operation, self._layout, events)
        return own if own.vms or own.events else None

    def _for_owner(self, recorded: Recorded) -> Recorded:
        entry = recorded.entry
        subject = f"op-{entry.operation}: " if entry.operation else ""
        text = entry.text if entry.group else f"{subject}{ACTIONS[entry.action]}"
        vm = entry.vm if entry.vm in self._layout.vms else ""
        host = entry.host if entry.host in self._layout.hosts else ""
        actor = actor_for_owner(entry.actor, self._layout.vms)
        return replace(recorded, entry=replace(entry, text=text, vm=vm, host=host, actor=actor))
