"""The whole state of the control plane, and a draft of its next one.

A draft reads through to the state and keeps every write to itself, with the history entry that
explains it. Nothing is changed until the draft's changes are durable and `adopt`ed.
Which change is right is decided in `step.py` and `admission.py`, never here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from forewarn.core.document import Enrolment, View
from forewarn.core.lifecycle import Event, Operation
from forewarn.core.records import KIND_OF, Record, Row, key_of, to_row
from forewarn.core.topology import Group, Host, Topology, Vm
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from forewarn.core.policy import Policy


_R = TypeVar("_R", Enrolment, View)

#: Which field of `Changes` holds the records of each kind; topology first, for foreign keys.
_TABLES: dict[str, str] = {
    "host": "hosts",
    "group": "groups",
    "vm": "vms",
    "operation": "operations",
    "event": "events",
    "enrolment": "enrolments",
    "document": "views",
}


@value
class Image:
    """What one record became: its row, or None where it is no more."""

    kind: str
    key: str | int
    row: Row | None


@value
class Entry:
    """One line of history: what happened, to what, by whom, and what became of the records."""

    #: Milliseconds since the epoch, UTC.
    at_ms: int
    #: Who did it: `vm web_0 at 10.0.0.4`, `operator`, `clock`, `driver`.
    actor: str
    #: Stable name of the kind of transition: `operation.announced`.
    action: str
    #: One sentence for people.
    text: str
    #: The operation it belongs to; 0 for none.
    operation: int = 0
    event: str = ""
    group: str = ""
    vm: str = ""
    host: str = ""
    images: tuple[Image, ...] = ()


@dataclass(slots=True)
class State:
    """Everything that is true now: the fleet, live work, who is asked, what is shown.

    Only `adopt` may change it. Ended operations and events are not here but in the store, except
    for those that a driver must still hear of.
    """

    topology: Topology = field(default_factory=Topology)
    operations: dict[int, Operation] = field(default_factory=dict)
    #: Operations that have ended without their drivers, who are still to be told. Source: L-7.
    aborts: dict[int, Operation] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    enrolments: dict[str, Enrolment] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    #: Highest operation number ever given out.
    last_number: int = 0
    #: Mark of the service's clock: boot and ms ahead of the time since it. Source: N-4.
    mark: tuple[str, int] = ("", 0)
    _by_group: dict[str, dict[str, None]] = field(default_factory=dict, repr=False, compare=False)
    _oldest_poll_ms: int | None = field(default=None, repr=False, compare=False)

    def adopt(self, changes: Changes) -> None:
        """Make durable changes the truth."""
        if changes.topology is not None:
            self.topology = changes.topology
        for number, operation in changes.operations.items():
            if operation.live:
                self.operations[number] = operation
                continue
            self.operations.pop(number, None)
            self.aborts.pop(number, None)
            if operation.abort_owed:
                self.aborts[number] = operation
        for event in changes.events.values():
            self._adopt_event(event)
        if changes.enrolments:
            _merge(self.enrolments, changes.enrolments)
            self._oldest_poll_ms = None
        _merge(self.views, changes.views)
        assert changes.last_number >= self.last_number, changes
        self.last_number = changes.last_number
        self.mark = changes.mark or self.mark

    def _adopt_event(self, event: Event) -> None:
        known = self._by_group.setdefault(event.group, {})
        if event.live:
            self.events[event.id] = event
            known[event.id] = None
        else:
            self.events.pop(event.id, None)
            known.pop(event.id, None)
            if not known:
                del self._by_group[event.group]

    def oldest_poll_ms(self) -> int | None:
        """The longest a group has been silent: its last poll; None if no group is enabled.

        Kept until enrolments change, since it is asked for after every step.
        """
        if self._oldest_poll_ms is None and self.enrolments:
            self._oldest_poll_ms = min(each.polled_ms for each in self.enrolments.values())
        return self._oldest_poll_ms

    def event_ids_of(self, group: str) -> tuple[str, ...]:
        """Ids of a group's live events."""
        return tuple(self._by_group.get(group, ()))


@dataclass(slots=True)
class Changes:
    """What one step writes: new values by key, None where a record is removed."""

    last_number: int
    topology: Topology | None = None
    hosts: dict[str, Host | None] = field(default_factory=dict)
    groups: dict[str, Group | None] = field(default_factory=dict)
    vms: dict[str, Vm | None] = field(default_factory=dict)
    operations: dict[int, Operation] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    enrolments: dict[str, Enrolment | None] = field(default_factory=dict)
    views: dict[str, View | None] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    mark: tuple[str, int] | None = None

    def images(self) -> Iterator[tuple[str, str | int, Record | None]]:
        """Every record written, as kind, key and value; topology first, for foreign keys."""
        for kind, table in _TABLES.items():
            for key, record in getattr(self, table).items():
                yield kind, key, record

    def __bool__(self) -> bool:
        """Whether anything is written at all."""
        return bool(self.entries or self.mark) or any(True for _ in self.images())


@value
class Terms:
    """What a step is given besides the state, the stimulus and the time."""

    policy: Policy
    #: Who does it, for history: `vm web_0 at 10.0.0.4`, `operator`, `clock`, `driver`.
    actor: str
    #: Gives the next event id. Source: D-3.
    new_guid: Callable[[], str]
    #: Driver of hosts that name none. Source: R-3.
    default_driver: str = ""


class Draft:
    """The next state in the making."""

    def __init__(self, state: State, now_ms: int, terms: Terms) -> None:
        """Begin with nothing changed."""
        self.now_ms = now_ms
        self.policy = terms.policy
        self.actor = terms.actor
        self.new_guid = terms.new_guid
        self.default_driver = terms.default_driver
        self.changes = Changes(last_number=state.last_number)
        self.topology = state.topology
        #: Groups whose documents may show something else now.
        self.touched_groups: set[str] = set()
        #: Operations whose joint rule may hold now.
        self.candidates: set[int] = set()
        #: Something ended or was freed: waiting operations may be admitted now.
        self.freed = False
        #: Operations to begin once what they do is shown, and operations to abort.
        self.begin: list[int] = []
        self.abort: list[int] = []
        self._state = state

    def operation(self, number: int) -> Operation | None:
        """Return an operation as drafted, or as it is; None if it is not live."""
        return self.changes.operations.get(number) or self._state.operations.get(number)

    def owed(self, number: int) -> Operation | None:
        """Return an ended operation whose driver is still to be told; None if there is none."""
        operation = self.changes.operations.get(number) or self._state.aborts.get(number)
        return operation if operation is not None and operation.abort_owed else None

    def aborts(self) -> tuple[int, ...]:
        """Numbers of all operations that had ended so before this draft."""
        return tuple(self._state.aborts)

    def operations(self) -> Iterator[Operation]:
        """Every live operation as drafted, in the order of their numbers."""
        drafted = self.changes.operations
        for number, operation in self._state.operations.items():
            current = drafted.get(number, operation)
            if current.live:
                yield current
        for number, operation in drafted.items():
            if operation.live and number not in self._state.operations:
                yield operation

    def event(self, event_id: str) -> Event | None:
        """Return an event as drafted, or as it is; None if it never lived or is gone."""
        return self.changes.events.get(event_id) or self._state.events.get(event_id)

    def events_of(self, operation: Operation) -> list[Event]:
        """The events of an operation, in the order of their groups' names."""
        found = [self.event(event_id) for event_id in operation.events]
        return [event for event in found if event is not None]

    def live_events_in(self, group: str) -> list[tuple[Operation, Event]]:
        """A group's live events with their operations."""
        drafted = [e.id for e in self.changes.events.values() if e.group == group]
        pairs = []
        for event_id in dict.fromkeys((*self._state.event_ids_of(group), *drafted)):
            event = self.event(event_id)
            operation = self.operation(event.operation) if event else None
            if event is not None and event.live and operation is not None:
                pairs.append((operation, event))
        return pairs

    def enabled(self, group: str) -> bool:
        """Whether Scheduled Events is enabled for a group. Source: B-3."""
        return self.enrolment(group) is not None

    def enrolment(self, group: str) -> Enrolment | None:
        """Return a group's enrolment, None while it is disabled."""
        if group in self.changes.enrolments:
            return self.changes.enrolments[group]
        return self._state.enrolments.get(group)

    def enrolments(self) -> Iterable[Enrolment]:
        """Every enrolment as it was before this draft."""
        return self._state.enrolments.values()

    def view(self, key: str) -> View | None:
        """Return a document view as drafted, or as it is."""
        if key in self.changes.views:
            return self.changes.views[key]
        return self._state.views.get(key)

    def views_in(self, group: str) -> list[View]:
        """Every view of an enabled group, the shared one first."""
        found = [self.view(key) for key in self.topology.views_of(group)]
        return [view for view in found if view is not None]

    def put(self, action: str, text: str, *records: Record, vm: str = "") -> None:
        """Write records together with the history entry that explains them.

        Args:
            action: stable name of the transition, `operation.announced`.
            text: one sentence for people.
            records: what changed; the first says what the entry is about.
            vm: who approved, where an event was. Source: A-6.
        """
        for record in records:
            self._write(record)
        images = tuple(
            Image(KIND_OF[type(record)], key_of(record), to_row(record)) for record in records
        )
        self._log(action, text, images, records[0], vm=vm)

    def mark(self, record: Enrolment) -> None:
        """Write when a group last polled: no transition, and so no history."""
        self._write(record)

    def remove(self, action: str, text: str, *records: Record) -> None:
        """Take records out, with the history entry that explains it."""
        images = []
        for record in records:
            kind, key = KIND_OF[type(record)], key_of(record)
            getattr(self.changes, _TABLES[kind])[key] = None
            images.append(Image(kind, key, None))
        self._log(action, text, tuple(images), records[0])

    def set_topology(self, topology: Topology) -> None:
        """Take a new layout of the fleet; its records are `put` and `remove`d beside this."""
        self.topology = self.changes.topology = topology

    def next_number(self) -> int:
        """Give out the next operation number."""
        self.changes.last_number += 1
        return self.changes.last_number

    def _log(
        self, action: str, text: str, images: tuple[Image, ...], about: Record, *, vm: str = ""
    ) -> None:
        telling = partial(Entry, self.now_ms, self.actor, action, text, images=images)
        match about:
            case Operation():
                vm = about.vms[0] if about.of_vm else ""
                entry = telling(operation=about.number, host=about.host, vm=vm)
            case Event():
                entry = telling(operation=about.operation, event=about.id, group=about.group, vm=vm)
            case Host():
                entry = telling(host=about.name)
            case Vm():
                entry = telling(vm=about.name, group=about.group, host=about.host)
            case Group():
                entry = telling(group=about.name)
            case _:
                assert isinstance(about, Enrolment | View), about
                entry = telling(group=about.group)
        self.changes.entries.append(entry)

    def _write(self, record: Record) -> None:
        getattr(self.changes, _TABLES[KIND_OF[type(record)]])[key_of(record)] = record


def _merge(known: dict[str, _R], written: Mapping[str, _R | None]) -> None:
    for key, record in written.items():
        if record is None:
            known.pop(key, None)
        else:
            known[key] = record
