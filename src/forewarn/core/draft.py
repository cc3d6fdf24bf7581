"""The next state in the making.

A draft reads through to the state and keeps every write to itself, with the history entry that
explains it; what it finds and writes costs what it touches.
Which change is right is decided in `step.py` and `admission.py`, never here.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from forewarn.core.access import AccessToken, Principal
from forewarn.core.document import Enrolment, View
from forewarn.core.indexes import Place, is_placed_alike, places_of
from forewarn.core.lifecycle import Event, Operation, OperationState
from forewarn.core.maintenance.drafted import DraftedMaintenances
from forewarn.core.policy import FLEET_POLICY, AppliedPolicy, maintenance_policy
from forewarn.core.records import KIND_OF, Record, changed_row, key_of, subject_of, to_row
from forewarn.core.state import OF_TOPOLOGY, TABLES, Changes, Entry, Image, State
from forewarn.core.usage import DraftedUsage
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from forewarn.core.policy import NoticePolicy
    from forewarn.core.topology import FleetChange
    from forewarn.planning.policy import MaintenancePolicy, Subject


@value
class Terms:
    """What a step is given besides the state, the stimulus and the time."""

    policy: NoticePolicy
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
        #: Planned operations that may be announced now.
        self.planned: set[int] = set()
        #: Maintenances of many hosts that may go on now, and those that need a plan made.
        self.touched_maintenances: set[int] = set()
        self.unplanned: set[int] = set()
        self.uncoupled: set[Place] = set()  # coupled deletions, woken since all are decided: A-8
        #: Operations to begin once what they do is shown, and operations to abort.
        self.begin: list[int] = []
        self.abort: list[int] = []
        self._state = state
        #: Where the operations written here are found, or were: who finds one looks at it.
        self._places: defaultdict[Place, set[int]] = defaultdict(set)
        self._waiting: defaultdict[int, set[int]] = defaultdict(set)
        self._events_in: dict[str, dict[str, None]] = {}
        self.uncounted: set[str | int] = set()  # for `usage`, which few ask

    @cached_property  # an approval asks for neither
    def maintenances(self) -> DraftedMaintenances:
        """Maintenances of many hosts."""
        return DraftedMaintenances(self._state, self.changes)

    @cached_property
    def usage(self) -> DraftedUsage:
        """What is taken of each budget."""
        return DraftedUsage(self._state, self, self.changes.short)

    @property
    def maintenance_policy(self) -> MaintenancePolicy:
        """Budgets, windows and pauses in force: those applied last, else those of the terms."""
        return maintenance_policy(self.applied_policy, self.policy)

    @property
    def policy_applied_ms(self) -> int:
        """When they were applied, ms since the epoch UTC; 0: never."""
        applied = self.applied_policy
        return applied.applied_ms if applied else 0

    @property
    def applied_policy(self) -> AppliedPolicy | None:
        """The maintenance policy that was applied last, as drafted, or as it is; None if none."""
        return self.changes.policies.get(FLEET_POLICY) or self._state.applied_policy

    def principal(self, name: str) -> Principal | None:
        """Return a principal's bindings; None if it has none."""
        found = self._before("principal", name)
        assert found is None or isinstance(found, Principal)
        return found

    def token(self, token_id: str) -> AccessToken | None:
        """Return a token by its id; None if there is none."""
        found = self._before("token", token_id)
        assert found is None or isinstance(found, AccessToken)
        return found

    def operation(self, number: int) -> Operation | None:
        """Return an operation as drafted, or as it is; None if it is not live."""
        return self.changes.operations.get(number) or self._state.operations.get(number)

    def owed(self, number: int) -> Operation | None:
        """Return an ended operation whose driver is still to be notified; None if there is none."""
        operation = self.changes.operations.get(number) or self._state.aborts.get(number)
        return operation if operation is not None and operation.abort_owed else None

    def aborts(self) -> tuple[int, ...]:
        """Numbers of all operations that had ended so before this draft."""
        return tuple(self._state.aborts)

    def taken(self, places: Collection[Place]) -> set[Place]:
        """Return those of some places where operations were before this draft; costs the places."""
        return self._state.places.at(places)

    def numbers(self, *places: Place) -> list[int]:
        """Numbers of operations that are or were at any of these places, in no order."""
        found: set[int] = set()
        for place in places:
            found.update(self._state.places.of(place))
            found.update(self._places.get(place, ()))
        return list(found)

    def undecided(self, place: Place) -> list[int]:
        """Coupled deletions that no earlier step has seen decided, in no order. Source: A-8."""
        known = self._state.places.undecided.get(place)
        return self.numbers(place) if known is None else [*known, *self._places.get(place, ())]

    def operations(self, *places: Place) -> list[Operation]:
        """The live operations at any of these places, or there before, in their numbers' order."""
        return list(self.operations_at(*places))

    def operations_at(self, *places: Place) -> Iterator[Operation]:
        """Yield what `operations` returns, for who needs only the first."""
        for number in sorted(self.numbers(*places)):
            operation = self.operation(number)
            if operation is not None and operation.live:
                yield operation

    def live_count(self) -> int:
        """How many operations were live before this draft."""
        return len(self._state.operations)

    def every_operation(self) -> list[Operation]:
        """Every operation that was live before this draft; costs all of them: at a start only."""
        return list(self._state.operations.values())

    def wait(self, number: int, blocker: int) -> None:
        """Have an operation woken by another's end; by none's, if that is 0."""
        if blocker or number in self._state.waits or number in self.changes.waits:
            self.changes.waits[number] = blocker
        if blocker:
            self._waiting[blocker].add(number)

    def wait_for_room(self, number: int, subject: Subject | None) -> None:
        """Have an operation woken when there may be room for it; not any more if None."""
        if subject is not None or number in self.changes.short or number in self._state.usage.short:
            self.changes.short[number] = subject

    def wake(self, operation: Operation) -> None:
        """Have those looked at again that wait for an operation, if it stands in no way now."""
        number, waits = operation.number, self.changes.waits
        for each in (*self._state.waiting.of(number), *self._waiting.get(number, ())):
            if waits.get(each, number) == number:
                self.look_at(each)
        self.usage.wake(operation.budget_key)

    def look_at(self, number: int) -> None:
        """Have a live operation looked at once more before this draft is done."""
        operation = self.operation(number)
        if operation is None:
            if self.maintenances.get(number) is not None:
                self.touched_maintenances.add(number)
        elif operation.state is OperationState.PLANNED:
            self.planned.add(number)
        elif operation.state is OperationState.ANNOUNCED:
            self.candidates.add(number)

    def event(self, event_id: str) -> Event | None:
        """Return an event as drafted, or as it is; None if it never lived or is gone."""
        return self.changes.events.get(event_id) or self._state.events.get(event_id)

    def events_of(self, operation: Operation) -> list[Event]:
        """The events of an operation, in the order of their groups' names."""
        found = [self.event(event_id) for event_id in operation.events]
        return [event for event in found if event is not None]

    def live_events_in(self, group: str) -> list[tuple[Operation, Event]]:
        """A group's live events with their operations."""
        drafted = self._events_in.get(group, ())
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

    def silent(self, until_ms: int) -> list[str]:
        """Groups that nobody was heard of since then, ms since the epoch UTC, sorted."""
        return self._state.polls.due(until_ms)

    def rested_ms(self, owner: str) -> int:
        """When work last ended that disturbed an owner, ms since the epoch UTC; 0: none has."""
        return self._state.rested_ms.get(owner, 0)

    def due(self) -> list[int]:
        """Announced operations whose NotBefore has come since it was last asked."""
        return [*self._state.starts.due(self.now_ms), *self._state.holds.due(self.now_ms)]

    def overdue(self, until_ms: int) -> list[int]:
        """Running operations that should have ended by then, ms since the epoch UTC."""
        return self._state.ends.due(until_ms)

    def enrolments(self) -> tuple[Enrolment, ...]:
        """Every enrolment as it was before this draft; costs all of them: at a start only."""
        return tuple(self._state.enrolments.values())

    def view(self, key: str) -> View | None:
        """Return a document view as drafted, or as it is."""
        if key in self.changes.views:
            return self.changes.views[key]
        return self._state.views.get(key)

    def views_in(self, group: str) -> list[View]:
        """Every view of an enabled group, the shared one first."""
        found = [self.view(key) for key in self.topology.views_of(group)]
        return [view for view in found if view is not None]

    def put(self, action: str, text: str, *records: Record, vm: str = "", host: str = "") -> None:
        """Write records together with the history entry that explains them.

        Args:
            action: stable name of the transition, `operation.announced`.
            text: one sentence for people.
            records: what changed; the first says what the entry is about.
            vm: who approved, where an event was. Source: A-6.
            host: what an order leaves out.
        """
        images = tuple([self._image(record) for record in records])
        self._log(action, text, images, records[0], place=(vm, host))

    def put_documents(self, views: Iterable[View]) -> None:
        """Write documents: one entry for all that one operation changes. Source: D-1.

        Cost: the documents, and the events of the operations that this draft has written.
        """
        owners = {
            event.group: operation
            for operation in self.changes.operations.values()
            for event in self.events_of(operation)
        }
        batches: dict[int, list[View]] = {}
        for view in views:
            about = owners.get(view.group)
            batches.setdefault(about.number if about else 0, []).append(view)
        for number, batch in batches.items():
            if number and len(batch) > 1:
                text = f"{len(batch)} documents are updated for op-{number}"
                images = tuple([self._image(view) for view in batch])
                self._log("document.updated", text, images, self.changes.operations[number])
                continue
            for view in batch:
                text = f"document {view.key} is at {view.document.incarnation}"
                self.put("document.updated", text, view)

    def mark(self, record: Enrolment) -> None:
        """Write when a group last polled, or what its VMs left: no transition, and no history."""
        self._write(record)

    def remove(self, action: str, text: str, *records: Record) -> None:
        """Take records out, with the history entry that explains it."""
        images = []
        for record in records:
            kind, key = KIND_OF[type(record)], key_of(record)
            getattr(self.changes, TABLES[kind])[key] = None
            images.append(Image(kind, key, None))
        self._log(action, text, tuple(images), records[0])

    def rearrange(self, change: FleetChange) -> None:
        """Change the layout; its records are `put` and `remove`d beside this.

        Raises:
            FleetContradiction: the fleet would contradict itself; the draft is to be thrown away.
        """
        if self.topology is self._state.topology:
            self.topology = self.changes.layout = self.topology.draft()
        known, vms = self.topology.vms, change.vms
        before = [vm for name in vms if (vm := known.get(name)) is not None]
        hosts = dict.fromkeys([vm.host for vm in before])
        hosts |= dict.fromkeys([vm.host for vm in vms.values() if vm is not None])
        moved = dict.fromkeys(vm.name for vm in before)
        for vm_name in self._of_other_owners(change):
            moved[vm_name] = hosts[known[vm_name].host] = None
        self.topology.apply(change)
        for name in change.hosts:
            moved |= dict.fromkeys(self.topology.vms_on(name))
        places: list[Place] = [("host", name) for name in hosts]
        places += [("vm", name) for name in moved]
        for operation in self.operations(*self.taken(places)):
            self.uncounted.add(operation.budget_key)
            self._place(operation)
            self.look_at(operation.number)
            self.wake(operation)
        for name in dict.fromkeys((*change.hosts, *hosts)):
            self.uncounted.add(name)
            self.usage.wake(name)

    def _of_other_owners(self, change: FleetChange) -> Iterator[str]:
        """Yield the VMs whose groups are to have another owner, and so count in his budgets."""
        groups = self.topology.groups
        for name, group in change.groups.items():
            if group is not None and name in groups and groups[name].owner != group.owner:
                yield from self.topology.vms_in(name)

    def next_number(self) -> int:
        """Give out the next operation number."""
        self.changes.last_number += 1
        return self.changes.last_number

    def _log(
        self,
        action: str,
        text: str,
        images: tuple[Image, ...],
        about: Record,
        *,
        place: tuple[str, str] = ("", ""),
    ) -> None:
        """Write an entry; `place` is a VM and a host that its record does not name."""
        operation, event, group, vm, host = subject_of(about)
        assert not (vm and place[0]), about
        assert not (host and place[1]), about
        subject = (operation, event, group, vm or place[0], host or place[1])
        entry = Entry(self.now_ms, self.actor, action, text, *subject, images)
        self.changes.entries.append(entry)

    def _image(self, record: Record) -> Image:
        """Write a record; return what it became, beside what it was."""
        kind, key = KIND_OF[type(record)], key_of(record)
        before = self._before(kind, key)
        self._write(record)
        changed = changed_row(before, record) if before is not None else None
        return Image(kind, key, to_row(record), changed)

    def _before(self, kind: str, key: str | int) -> Record | None:
        """Return a record as it is before the next write of it; None where it is not live."""
        table = TABLES[kind]
        drafted = getattr(self.changes, table)
        if key in drafted:
            found: Record | None = drafted[key]
            return found
        state = self._state
        home = state.topology if kind in OF_TOPOLOGY else state
        found = getattr(home, table).get(key)
        return state.aborts.get(int(key)) if found is None and kind == "operation" else found

    def _write(self, record: Record) -> None:
        if isinstance(record, Operation):
            self.uncounted.add(record.budget_key)
        if isinstance(record, Operation) and record.live:
            before = self.operation(record.number)
            if before is None or not is_placed_alike(before, record):
                self._place(record)
        elif isinstance(record, Event):
            self._events_in.setdefault(record.group, {})[record.id] = None
        getattr(self.changes, TABLES[KIND_OF[type(record)]])[key_of(record)] = record

    def _place(self, operation: Operation) -> None:
        for place in places_of(operation, self.topology):
            self._places[place].add(operation.number)
