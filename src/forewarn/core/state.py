"""The whole state of the control plane, and the changes that one step makes to it.

Nothing is changed until the changes are durable and `adopt`ed; that costs what they touch.
Which change is right is decided in `step.py` and `admission.py`, never here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from forewarn.core.access import AccessToken, Principal
from forewarn.core.deadlines import Deadlines
from forewarn.core.document import Enrolment, View
from forewarn.core.indexes import Members, Places, is_placed_alike
from forewarn.core.lifecycle import Alert, Event, Operation, OperationState
from forewarn.core.maintenance.index import Maintenances
from forewarn.core.maintenance.records import (
    Maintenance,
    MaintenancePlan,
    Target,
    target_key,
)
from forewarn.core.owner_rest import note_end
from forewarn.core.policy import FLEET_POLICY, AppliedPolicy
from forewarn.core.records import Record, Row
from forewarn.core.topology import Group, Health, Host, Topology, Vm
from forewarn.core.usage import UNCOUNTED_MAX, Usage
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from forewarn.core.indexes import Place
    from forewarn.core.usage import Disturbed
    from forewarn.planning.policy import Subject


_K = TypeVar("_K", str, int)
_R = TypeVar("_R", Enrolment, View, Target, Principal, AccessToken)

#: Which field of `Changes` holds the records of each kind; topology first, for foreign keys.
TABLES: dict[str, str] = {
    "host": "hosts",
    "group": "groups",
    "vm": "vms",
    "operation": "operations",
    "event": "events",
    "enrolment": "enrolments",
    "document": "views",
    "plan": "plans",
    "maintenance": "maintenances",
    "target": "targets",
    "policy": "policies",
    "principal": "principals",
    "token": "tokens",
}

OF_TOPOLOGY = frozenset({"host", "group", "vm"})


@value
class Image:
    """What one record became: its row, or None where it is no more.

    As it is read from a store, a row has only the columns in which it differs from the record's
    image before; `history.Rows` makes it whole.
    """

    kind: str
    key: str | int
    row: Row | None
    #: What has changed since the record's image before, where there is one.
    changed: Row | None = field(default=None, compare=False)


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
    #: Operations that ended without their drivers, which are still to be notified. Source: L-7.
    aborts: dict[int, Operation] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    enrolments: dict[str, Enrolment] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    #: Maintenances that have not ended, with their plans in force and what they have touched.
    maintenances: dict[int, Maintenance] = field(default_factory=dict)
    plans: dict[str, MaintenancePlan] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    #: The maintenance policy that was applied, by its one name; empty before the first one.
    policies: dict[str, AppliedPolicy] = field(default_factory=dict)
    #: Who may do what: bindings by principal, tokens by their ids. Source: P-2.
    principals: dict[str, Principal] = field(default_factory=dict)
    tokens: dict[str, AccessToken] = field(default_factory=dict)
    #: Highest operation number ever given out.
    last_number: int = 0
    #: Mark of the service's clock: boot and ms ahead of the time since it. Source: N-4.
    mark: tuple[str, int] = ("", 0)
    #: When announced work may start, running work has run as long as it said, and a group was
    #: heard of last; policy says what is added to the last two. In ms since the epoch, UTC.
    starts: Deadlines[int] = field(default_factory=Deadlines, repr=False, compare=False)
    ends: Deadlines[int] = field(default_factory=Deadlines, repr=False, compare=False)
    polls: Deadlines[str] = field(default_factory=Deadlines, repr=False, compare=False)
    #: Announced work that may not start yet even if approved, and when maintenances are due.
    holds: Deadlines[int] = field(default_factory=Deadlines, repr=False, compare=False)
    waves: Deadlines[int] = field(default_factory=Deadlines, repr=False, compare=False)
    #: How far maintenances have come.
    progress: Maintenances = field(default_factory=Maintenances, repr=False, compare=False)
    #: Where operations are found.
    places: Places = field(default_factory=Places, repr=False, compare=False)
    #: What is taken of each budget, as of when it was `counted`.
    usage: Usage = field(default_factory=Usage, repr=False, compare=False)
    #: Owner -> when work last ended that disturbed them, ms since the epoch UTC. Source: F-3.
    rested_ms: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    #: Operation that could go on -> the one whose end it waits for, and back.
    waits: dict[int, int] = field(default_factory=dict, repr=False, compare=False)
    waiting: Members[int] = field(default_factory=Members, repr=False, compare=False)
    _by_group: dict[str, dict[str, None]] = field(default_factory=dict, repr=False, compare=False)

    def adopt(self, changes: Changes) -> None:
        """Make durable changes the truth; costs what they touch."""
        asks_more = not changes.enrolments.keys() <= self.enrolments.keys()
        self.places.note_undecided(None if asks_more else changes.undecided)
        disturbed = self._rearranged(changes)
        moved = self._adopt_fleet(changes)
        for event in changes.events.values():
            self._adopt_event(event)
        for number, operation in changes.operations.items():
            self._adopt_operation(number, operation, moved)
        for number in moved - changes.operations.keys():
            self.places.put(self.operations[number], self.topology)
            disturbed.add(self.operations[number].budget_key)
        disturbed.update(each.budget_key for each in changes.operations.values())
        self.usage.uncounted |= disturbed
        if len(self.usage.uncounted) > UNCOUNTED_MAX:
            self.counted()
        _merge(self.enrolments, changes.enrolments)
        for group, enrolment in changes.enrolments.items():
            if enrolment is None:
                self.polls.drop(group)
            else:
                self.polls.put(group, enrolment.polled_ms)
        _merge(self.views, changes.views)
        self._adopt_maintenances(changes)
        self.policies.update(changes.policies)
        _merge(self.principals, changes.principals)
        _merge(self.tokens, changes.tokens)
        self._adopt_derived(changes)
        assert changes.last_number >= self.last_number, changes
        self.last_number = changes.last_number
        self.mark = changes.mark or self.mark

    def _adopt_fleet(self, changes: Changes) -> set[int]:
        """Change the layout; return the live operations that may be found elsewhere now."""
        if changes.topology is not None:
            self.topology = changes.topology
            return set(self.operations)
        if not changes.of_fleet:
            return set()
        topology = self.topology
        before = [topology.vms[name] for name in changes.vms if name in topology.vms]
        hosts = {vm.host for vm in before}
        hosts |= {vm.host for vm in changes.vms.values() if vm is not None}
        if changes.layout is not None:
            topology.adopt(changes.layout)
        else:
            topology.apply(changes)
        places: list[Place] = [("host", host) for host in hosts]
        places += [("vm", vm.name) for vm in before]
        numbers = {n for place in self.places.at(places) for n in self.places.of(place)}
        for group in changes.groups:
            numbers |= {self.events[each].operation for each in self.event_ids_of(group)}
        return numbers

    def _rearranged(self, changes: Changes) -> set[Disturbed]:
        """Return the hosts whose part in budgets may change with the layout, before it does."""
        known = self.topology.vms
        if changes.topology is not None:
            failed = changes.topology.hosts.values()
            return {each.name for each in failed if each.health is Health.FAILED}
        found: set[Disturbed] = set(changes.hosts)
        found.update(known[name].host for name in changes.vms if name in known)
        found.update(vm.host for vm in changes.vms.values() if vm is not None)
        for group in changes.groups:
            found.update(known[name].host for name in self.topology.vms_in(group))
        return found

    def counted(self) -> Usage:
        """What is taken of each budget; costs the VMs of what was touched since the last time."""
        self.usage.count(self.topology, self.operations, self.places)
        return self.usage

    def _adopt_operation(self, number: int, operation: Operation, moved: set[int]) -> None:
        if not operation.live:
            note_end(self.rested_ms, operation)
            self.operations.pop(number, None)
            self.aborts.pop(number, None)
            if operation.abort_owed:
                self.aborts[number] = operation
            self.places.drop(number)
            self.starts.drop(number)
            self.ends.drop(number)
            self.holds.drop(number)
            self._wait(number, 0)
            self.usage.wait(number, None)
            return
        before = self.operations.get(number)
        self.operations[number] = operation
        if before is None or number in moved or not is_placed_alike(before, operation):
            self.places.put(operation, self.topology)
        if operation.state is OperationState.ANNOUNCED:
            self.starts.put(number, operation.not_before_ms)
            if operation.earliest_start_ms:
                self.holds.put(number, operation.earliest_start_ms)
            return
        self.starts.drop(number)
        self.holds.drop(number)
        if operation.state is OperationState.RUNNING and operation.alert is Alert.NONE:
            self.ends.put(number, operation.overdue_ms(0))
        else:
            self.ends.drop(number)

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

    def _adopt_maintenances(self, changes: Changes) -> None:
        for plan in changes.plans.values():
            self.plans[plan.id] = plan
            self.plans.pop(plan.parent, None)
        for key, target in changes.targets.items():
            self.progress.put(self.targets.get(key), target)
        _merge(self.targets, changes.targets)
        for number, maintenance in changes.maintenances.items():
            if maintenance.running and maintenance.due_ms is not None:
                self.waves.put(number, maintenance.due_ms)
            else:
                self.waves.drop(number)
            if maintenance.live:
                self.maintenances[number] = maintenance
                continue
            self.maintenances.pop(number, None)
            self.plans.pop(maintenance.plan, None)
            for host in self.progress.drop(number):
                del self.targets[target_key(number, host)]

    def _adopt_derived(self, changes: Changes) -> None:
        for number, blocker in changes.waits.items():
            self._wait(number, blocker if number in self.operations else 0)
        for number, subject in changes.short.items():
            self.usage.wait(number, subject if number in self.operations else None)
        if changes.ticked_ms:
            self.starts.passed(changes.ticked_ms)
            self.holds.passed(changes.ticked_ms)
            self.waves.passed(changes.ticked_ms)

    def _wait(self, number: int, blocker: int) -> None:
        before = self.waits.pop(number, 0)
        if before:
            self.waiting.discard(before, number)
        if blocker:
            self.waits[number] = blocker
            self.waiting.add(blocker, number)

    def copy(self) -> State:
        """A state of its own with the same records, for another thread; costs what there is."""
        made = State()
        made.adopt(
            Changes(
                self.last_number,
                topology=self.topology.copy(),
                operations={**self.operations, **self.aborts},
                events=dict(self.events),
                enrolments=dict(self.enrolments),
                views=dict(self.views),
                plans=dict(self.plans),
                maintenances=dict(self.maintenances),
                targets=dict(self.targets),
                policies=dict(self.policies),
                principals=dict(self.principals),
                tokens=dict(self.tokens),
                mark=self.mark,
                waits=dict(self.waits),
            )
        )
        made.rested_ms.update(self.rested_ms)
        return made

    @property
    def applied_policy(self) -> AppliedPolicy | None:
        """The maintenance policy that an operator has applied; None before the first one."""
        return self.policies.get(FLEET_POLICY)

    def event_ids_of(self, group: str) -> tuple[str, ...]:
        """Ids of a group's live events."""
        return tuple(self._by_group.get(group, ()))


@dataclass(slots=True)
class Changes:
    """What one step writes: new values by key, None where a record is removed."""

    last_number: int
    #: The whole layout, where everything is loaded; a step names the records that change.
    topology: Topology | None = None
    #: The layout that these records make, drafted over the one they change; None: not drafted.
    #: A holder of that one, or of an equal copy, need not work it out again.
    layout: Topology | None = None
    hosts: dict[str, Host | None] = field(default_factory=dict)
    groups: dict[str, Group | None] = field(default_factory=dict)
    vms: dict[str, Vm | None] = field(default_factory=dict)
    operations: dict[int, Operation] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    enrolments: dict[str, Enrolment | None] = field(default_factory=dict)
    views: dict[str, View | None] = field(default_factory=dict)
    plans: dict[str, MaintenancePlan] = field(default_factory=dict)
    maintenances: dict[int, Maintenance] = field(default_factory=dict)
    targets: dict[str, Target | None] = field(default_factory=dict)
    policies: dict[str, AppliedPolicy] = field(default_factory=dict)
    principals: dict[str, Principal | None] = field(default_factory=dict)
    tokens: dict[str, AccessToken | None] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    mark: tuple[str, int] | None = None
    #: Operation -> the one whose end it waits for now, 0 for none: not durable, since derived.
    waits: dict[int, int] = field(default_factory=dict)
    #: Operation -> the budget's subject in which it waits for room now, None for none; likewise.
    short: dict[int, Subject | None] = field(default_factory=dict)
    #: Coupled deletions that were not seen to be decided, by where they are found; likewise.
    undecided: dict[Place, list[int]] = field(default_factory=dict)
    #: Deadlines up to here were handled, ms since the epoch UTC; not durable either.
    ticked_ms: int = 0

    @property
    def of_fleet(self) -> bool:
        """Whether the layout changes."""
        return bool(self.hosts or self.groups or self.vms)

    @property
    def derived(self) -> bool:
        """Whether there is something to adopt that need not be durable."""
        return bool(self.waits or self.short or self.undecided or self.ticked_ms)

    def images(self) -> Iterator[tuple[str, str | int, Record | None]]:
        """Every record written, as kind, key and value; topology first, for foreign keys."""
        for kind, table in TABLES.items():
            for key, record in getattr(self, table).items():
                yield kind, key, record

    def __bool__(self) -> bool:
        """Whether anything is written at all."""
        return bool(self.entries or self.mark) or any(True for _ in self.images())


def _merge(known: dict[_K, _R], written: Mapping[_K, _R | None]) -> None:
    for key, record in written.items():
        if record is None:
            known.pop(key, None)
        else:
            known[key] = record
