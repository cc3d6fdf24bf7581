"""The whole state of the control plane, and the changes of one step.

A step changes the state in place. The caller stores and keeps the changes, or undoes them.
`step.py` and `operation_requests.py` decide on the changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TypeAlias, TypeVar

from forewarn_base.audit_chain import CallRecord
from forewarn_base.values import value
from forewarn_core.access.confirmations import Confirmation
from forewarn_core.access.roles import Principal
from forewarn_core.access.state import AccessState
from forewarn_core.access.tokens import AccessToken
from forewarn_core.fleet.availability_records import AvailabilityRecord
from forewarn_core.fleet.deadlines import Deadlines
from forewarn_core.fleet.deferrals import Deferral
from forewarn_core.fleet.document import Enrolment, View
from forewarn_core.fleet.impact import SECOND_MS, Cause
from forewarn_core.fleet.indexes import Members, Place, Places, is_placed_alike
from forewarn_core.fleet.lifecycle import Alert, Event, Operation, OperationState
from forewarn_core.fleet.maintenance import (
    Maintenance,
    MaintenancePlan,
    Target,
    TargetProgress,
    target_key,
)
from forewarn_core.fleet.owner_choices import OwnerChoice
from forewarn_core.fleet.policy import FLEET_POLICY, AppliedPolicy
from forewarn_core.fleet.records import KIND_OF, KINDS, Columns, Record, key_of
from forewarn_core.fleet.ticket import Ticket
from forewarn_core.fleet.topology import FleetChange, Health, Topology, words_of
from forewarn_core.fleet.usage import UNCOUNTED_MAX, Usage
from forewarn_core.planning.durations import SAMPLES_MAX, DurationSample
from forewarn_core.planning.policy import Subject

_K = TypeVar("_K", str, int, tuple[int, str])
_I = TypeVar("_I", str, int)
_Undo: TypeAlias = "Callable[[], object]"

#: The field of `Changes` for the records of each kind; topology first, for foreign keys.
TABLES = {kind: f"{kind}s" for kind in KINDS} | {"document": "views", "policy": "policies"}

#: Kinds of records that belong to the layout, and to access.
OF_TOPOLOGY = frozenset({"host", "group", "vm"})
OF_ACCESS = frozenset({"principal", "token", "confirmation"})


@value
class Image:
    """A change of one record: its new row, or None after its removal.

    A row read from a store has only the columns that changed; `history.Rows` completes it.
    """

    kind: str
    key: str | int
    row: Columns | None
    #: The changed columns; None for a new record.
    changed: Columns | None = field(default=None, compare=False)


@value
class Entry:
    """One entry of history: the change, its actor, and the new values of the changed records."""

    #: Milliseconds since the epoch, UTC.
    at_ms: int
    #: The actor: `vm web_0 at 10.0.0.4`, `operator`, `clock`, `driver`.
    actor: str
    #: Stable name of the kind of transition: `operation.announced`.
    action: str
    #: One sentence for people.
    text: str
    #: The operation it belongs to; 0: none.
    operation: int = 0
    event: str = ""
    group: str = ""
    vm: str = ""
    host: str = ""
    images: tuple[Image, ...] = ()


@dataclass(slots=True)
class State:
    """The whole current state: the fleet, live work, enabled groups and their documents.

    `put`, `remove`, `lay_out`, `wait` and `wait_until` change it in place. Each updates the indexes
    and deadlines and records the previous values in a journal. `keep` clears the journal,
    `rollback` undoes all of it, or the part since a `savepoint`. The state must not be shared while
    the journal has entries: its owner steps it, once or several times, commits, and then keeps or
    rolls back.

    Ended operations and events are only in the store, except operations whose driver must still be
    notified.
    """

    topology: Topology = field(default_factory=Topology)
    operations: dict[int, Operation] = field(default_factory=dict)
    #: Ended operations whose drivers must still be notified. Source: L-7.
    aborts: dict[int, Operation] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    enrolments: dict[str, Enrolment] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    #: Maintenances that have not ended, their plans in force, and the hosts they have touched.
    maintenances: dict[int, Maintenance] = field(default_factory=dict)
    plans: dict[str, MaintenancePlan] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    #: What owners chose about their VMs on hosts of declared maintenances. Source: T-2.
    choices: dict[str, OwnerChoice] = field(default_factory=dict)
    #: Their requests for later hand-back deadlines, by the same keys. Source: T-4.
    deferrals: dict[str, Deferral] = field(default_factory=dict)
    #: The applied maintenance policy by its fixed name; empty before the first.
    policies: dict[str, AppliedPolicy] = field(default_factory=dict)
    #: Tickets that have not ended.
    tickets: dict[int, Ticket] = field(default_factory=dict)
    #: Roles, tokens and waiting calls, which no rule of the core reads.
    access: AccessState = field(default_factory=AccessState)
    #: Highest operation number so far.
    last_number: int = 0
    #: Mark of the service's clock: the boot, and how far the clock is ahead of the time since boot,
    #: in ms. Source: N-4.
    mark: tuple[str, int] = ("", 0)
    #: When an operation or a maintenance is due, with the reason: its NotBefore, its earliest
    #: start, the end of a wait, or its next wave. Times in `looks`, `ends` and `polls` are ms since
    #: the epoch UTC.
    looks: Deadlines[tuple[int, str]] = field(default_factory=Deadlines, repr=False, compare=False)
    #: When running work should end, and when a group last polled; the policy adds a grace period to
    #: each.
    ends: Deadlines[int] = field(default_factory=Deadlines, repr=False, compare=False)
    polls: Deadlines[str] = field(default_factory=Deadlines, repr=False, compare=False)
    #: When the open window of an operation closes, when a ticket closes without agreement, and
    #: when a deferral is refused without a decision.
    closes: Deadlines[int] = field(default_factory=Deadlines, repr=False, compare=False)
    agreements: Deadlines[int] = field(default_factory=Deadlines, repr=False, compare=False)
    decisions: Deadlines[str] = field(default_factory=Deadlines, repr=False, compare=False)
    _progress: dict[int, TargetProgress] = field(default_factory=dict, repr=False, compare=False)
    #: Index of operations.
    places: Places = field(default_factory=Places, repr=False, compare=False)
    #: The use of each budget, as of the last call of `counted`.
    usage: Usage = field(default_factory=Usage, repr=False, compare=False)
    #: Owner -> end of the last work that disturbed the owner, ms since the epoch UTC. Source: F-3.
    last_disturbed_ms: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    #: Principal -> its live operations that no second person has confirmed, with their hosts; and
    #: host -> end of the last one that had started, ms since the epoch UTC. Source: P-8.
    unconfirmed: dict[str, dict[int, str]] = field(default_factory=dict, repr=False, compare=False)
    affected_ms: dict[str, dict[str, int]] = field(default_factory=dict, repr=False, compare=False)
    #: Cause -> number of an operation -> how long its work took, of the last ones. Source: F-9.
    durations: dict[Cause, dict[int, DurationSample]] = field(
        default_factory=dict, repr=False, compare=False
    )
    #: Operation -> the operation whose end it waits for, or the budget in which it waits for room;
    #: and the inverse table.
    waits: dict[int, int | Subject] = field(default_factory=dict, repr=False, compare=False)
    waiting: Members[int | Subject] = field(default_factory=Members, repr=False, compare=False)
    #: The current step handles deadlines up to this time, ms since the epoch UTC.
    ticked_ms: int = field(default=0, repr=False, compare=False)
    _by_group: dict[str, dict[str, None]] = field(default_factory=dict, repr=False, compare=False)
    #: Undo functions of each change since the last `keep`, oldest first.
    _undo: list[_Undo] | deque[_Undo] = field(default_factory=list, repr=False, compare=False)

    # ---- changes -------------------------------------------------------------------------------

    def put(self, record: Record) -> Record | None:
        """Write a record that is not part of the layout; return the one it replaces, or None."""
        kind, key = KIND_OF[type(record)], key_of(record)
        before = self._write(kind, key, record)
        match record:
            case Operation():
                self._follow_operation(record)
                if isinstance(before, Operation) and before.live:
                    self._take_sample(record)
            case Enrolment():
                self._arm(self.polls, record.group, record.polled_ms)
            case Maintenance():
                self._follow_maintenance(record)
            case Ticket():
                self._arm(self.agreements, record.number, record.deadline_ms)
            case Deferral():
                self._arm(self.decisions, record.key, record.deadline_ms)
            case MaintenancePlan() if record.parent in self.plans:
                self._write("plan", record.parent, None)
        return before

    def remove(self, record: Record) -> None:
        """Remove a record that is not part of the layout."""
        kind, key = KIND_OF[type(record)], key_of(record)
        self._write(kind, key, None)
        if isinstance(record, Enrolment):
            self._arm(self.polls, record.group, None)

    def lay_out(self, change: FleetChange) -> tuple[set[int], set[str]]:
        """Change the layout; return the live operations and hosts that the change may affect.

        Costs the records, and the VMs of their hosts and groups.

        Raises:
            FleetContradiction: the new layout is inconsistent; call `rollback` next.
        """
        self._undo.append(partial(self._lay_out, self.topology.before(change)))
        return self._lay_out(change)

    def wait(self, number: int, blocker: int | Subject | None) -> None:
        """Wake an operation when another one ends, or a budget may have room; None: no wait."""
        before = self.waits.get(number)
        if before != blocker:
            self._undo.append(partial(self._wait, number, before))
            self._wait(number, blocker)

    def wait_until(self, number: int, at_ms: int | None) -> None:
        """Wake an operation at a time, ms since the epoch UTC; None: cancel the wait."""
        self._arm(self.looks, (number, "wait"), at_ms)

    def next_number(self) -> int:
        """Return the next operation number."""
        self._undo.append(partial(self._set, "last_number", self.last_number))
        self.last_number += 1
        return self.last_number

    def set_mark(self, mark: tuple[str, int]) -> None:
        """Set `mark`, which carries the service's clock over a restart. See N-4."""
        self._undo.append(partial(self._set, "mark", self.mark))
        self.mark = mark

    def set_ticked(self, now_ms: int) -> None:
        """Note that the step handles deadlines up to this time, ms since the epoch UTC."""
        self._undo.append(partial(self._set, "ticked_ms", self.ticked_ms))
        self.ticked_ms = now_ms

    def savepoint(self) -> int:
        """Return the place in the journal to which `rollback` undoes later changes."""
        return len(self._undo)

    def keep(self) -> None:
        """Clear the journal after the changes are stored."""
        self._undo.clear()
        self._drop_samples()
        if self.ticked_ms:
            self.looks.passed(self.ticked_ms)
            self.ticked_ms = 0
        self._count_many()

    def rollback(self, savepoint: int = 0) -> None:
        """Undo everything since a savepoint, by default since the last `keep`; O(changes)."""
        while len(self._undo) > savepoint:
            self._undo.pop()()
        self.places.undecided.clear()
        # Count now: if a counted operation was undone, the work that waits for its room must wake.
        if self.waits:
            self.current_usage()
        self._count_many()

    def adopt(self, changes: Changes) -> None:
        """Apply stored changes of another process; O(records they touch)."""
        assert not self._undo, "a step is neither kept nor rolled back"
        assert changes.last_number >= self.last_number, changes
        self._undo = deque(maxlen=0)
        if changes.topology is not None:
            self.topology = changes.topology
            failed = changes.topology.hosts.values()
            self.usage.uncounted |= {each.name for each in failed if each.health is Health.FAILED}
            for operation in self.operations.values():
                self._place(operation)
        elif changes.of_fleet:
            self._lay_out(changes)
        for kind in TABLES:
            if kind not in OF_TOPOLOGY and kind != "maintenance":
                self._adopt(kind, changes.records(kind))
        for maintenance in changes.maintenances.values():  # an ended maintenance drops its hosts
            self.put(maintenance)
        for cause, sample in changes.durations:
            self.durations.setdefault(cause, {})[sample.operation] = sample
        self.last_number = changes.last_number
        self.mark = changes.mark or self.mark
        self._undo = []
        self.keep()

    def _adopt(self, kind: str, records: Mapping[str | int, Record | None]) -> None:
        for key, record in records.items():
            if record is not None:
                self.put(record)
            elif (before := self.record(kind, key)) is not None:
                self.remove(before)

    def _count_many(self) -> None:
        """Update budget counts early if too many changes have accumulated."""
        if len(self.usage.uncounted) > UNCOUNTED_MAX:
            self.current_usage()

    def _drop_samples(self) -> None:
        """Drop the oldest samples once there are twice as many as are used."""
        for samples in self.durations.values():
            if len(samples) > 2 * SAMPLES_MAX:
                for number in sorted(samples)[:-SAMPLES_MAX]:
                    del samples[number]

    def _set(self, name: str, before: object) -> None:
        setattr(self, name, before)

    def _write(self, kind: str, key: str | int, record: Record | None) -> Record | None:
        before = self.record(kind, key)
        self._undo.append(partial(self._replace, kind, key, record, before))
        self._replace(kind, key, before, record)
        return before

    def _replace(
        self, kind: str, key: str | int, before: Record | None, after: Record | None
    ) -> None:
        """Replace a record and its index entries; None: no record."""
        either = after or before
        if isinstance(either, Operation):
            self._replace_operation(before, after)  # type: ignore[arg-type]  # both are of a kind
            return
        kept = after if not isinstance(after, Event | Maintenance | Ticket) or after.live else None
        table = self._table(kind)
        if kept is None:
            table.pop(key, None)
        else:
            table[key] = kept
        if isinstance(either, Event):
            event_ids = self._by_group.setdefault(either.group, {})
            if kept is None:
                event_ids.pop(either.id, None)
                if not event_ids:
                    del self._by_group[either.group]
            else:
                event_ids[either.id] = None
        elif isinstance(either, Target):
            progress = self._progress.setdefault(either.maintenance, TargetProgress())
            progress.put(after) if after is not None else progress.drop(either.host)  # type: ignore[arg-type]
        elif isinstance(either, Enrolment) and before is None:
            self.places.undecided.clear()  # a newly enabled group must approve, too

    def _replace_operation(self, before: Operation | None, after: Operation | None) -> None:
        either = after or before
        assert either is not None
        number = either.number
        self.usage.uncounted.add(either.budget_key)
        self.aborts.pop(number, None)
        if after is None or not after.live:
            self.operations.pop(number, None)
            self.places.drop(number)
            if after is not None and after.abort_owed:
                self.aborts[number] = after
            return
        earlier: Operation | None = self.operations.get(number)
        self.operations[number] = after
        if earlier is None or not is_placed_alike(earlier, after):
            self.places.put(after, self.topology)

    def _follow_operation(self, operation: Operation) -> None:
        """Update the deadlines of an operation and its wait."""
        number, state = operation.number, operation.state
        announced = state is OperationState.ANNOUNCED
        running = state is OperationState.RUNNING and operation.alert is Alert.NONE
        start_ms, earliest_ms = operation.notice.not_before_ms, operation.earliest_start_ms
        self._arm(self.looks, (number, "start"), start_ms if announced else None)
        self._arm(self.looks, (number, "earliest"), earliest_ms if announced else None)
        self._arm(self.ends, number, operation.overdue_ms(0) if running else None)
        self._arm(self.closes, number, operation.closes_ms)
        if operation.unconfirmed_by:
            self._count_unconfirmed(operation)
        if not operation.live:
            self.wait(number, None)
            self.wait_until(number, None)
            assert operation.ended_ms is not None, operation
            for owner in operation.disturbed_owners:
                self._set_latest(self.last_disturbed_ms, owner, operation.ended_ms)

    def _count_unconfirmed(self, operation: Operation) -> None:
        """Update the hosts that a principal's unconfirmed work affects."""
        name, number = operation.unconfirmed_by, operation.number
        live = self.unconfirmed.setdefault(name, {})
        counted, host = live.get(number), operation.host if operation.live else None
        if counted != host:
            self._undo.append(partial(_set_item, live, number, counted))
            _set_item(live, number, host)
        if operation.ended_ms is not None and operation.execution.started_ms is not None:
            times_ms = self.affected_ms.setdefault(name, {})
            self._set_latest(times_ms, operation.host, operation.ended_ms)

    def _take_sample(self, operation: Operation) -> None:
        sample = duration_sample(operation, self.topology)
        if sample is not None:
            samples = self.durations.setdefault(operation.cause, {})
            self._undo.append(partial(samples.pop, sample.operation))
            samples[sample.operation] = sample

    def _set_latest(self, times_ms: dict[str, int], key: str, at_ms: int) -> None:
        before_ms = times_ms.get(key)
        self._undo.append(partial(_set_item, times_ms, key, before_ms))
        times_ms[key] = max(at_ms, before_ms or 0)

    def _follow_maintenance(self, maintenance: Maintenance) -> None:
        """Update when a maintenance is due; drop its touched hosts once it has ended."""
        number = maintenance.number
        due_ms = maintenance.due_ms if maintenance.running else None
        self._arm(self.looks, (number, "wave"), due_ms)
        if not maintenance.live:
            self._write("plan", maintenance.plan, None)
            for host in tuple(self.progress(number).targets):
                self._write("target", target_key(number, host), None)
            own = [key for key, each in self.choices.items() if each.maintenance == number]
            for key in own:
                self._write("choice", key, None)
            own = [key for key, each in self.deferrals.items() if each.maintenance == number]
            for key in own:
                self._write("deferral", key, None)
                self._arm(self.decisions, key, None)

    def _arm(self, deadlines: Deadlines[_K], key: _K, at_ms: int | None) -> None:
        """Set a deadline; None removes it."""
        noted = deadlines.noted(key)
        if noted[0] != at_ms:
            self._undo.append(partial(deadlines.restore, key, *noted))
            deadlines.restore(key, at_ms, passed=False)

    def _wait(self, number: int, blocker: int | Subject | None) -> None:
        before = self.waits.pop(number, None)
        if before is not None:
            self.waiting.discard(before, number)
        if blocker is not None:
            self.waits[number] = blocker
            self.waiting.add(blocker, number)

    def _lay_out(self, change: FleetChange) -> tuple[set[int], set[str]]:
        topology = self.topology
        names = dict.fromkeys(change.vms)
        for group in change.groups:  # the group's owner may have changed
            names |= dict.fromkeys(topology.vms_in(group))
        for host in change.hosts:
            names |= dict.fromkeys(topology.vms_on(host))
        before = [topology.vms[name] for name in names if name in topology.vms]
        hosts = {vm.host for vm in before} | change.hosts.keys()
        hosts |= {vm.host for vm in change.vms.values() if vm is not None}
        places: list[Place] = [("host", host) for host in hosts]
        places += [("vm", name) for name in names]
        moved = {n for place in self.places.at(places) for n in self.places.of(place)}
        topology.apply(change)
        for number in moved:
            self._place(self.operations[number])
        self.usage.uncounted |= hosts
        return moved, hosts

    def _place(self, operation: Operation) -> None:
        self.places.put(operation, self.topology)
        self.usage.uncounted.add(operation.budget_key)

    # ---- queries -------------------------------------------------------------------------------

    def record(self, kind: str, key: str | int) -> Record | None:
        """Return the current record; None if it is not live."""
        record = self._table(kind).get(key)
        return self.aborts.get(int(key)) if record is None and kind == "operation" else record

    def _table(self, kind: str) -> dict[str | int, Record]:
        home: object = self
        if kind in OF_TOPOLOGY:
            home = self.topology
        elif kind in OF_ACCESS:
            home = self.access
        table: dict[str | int, Record] = getattr(home, TABLES[kind])
        return table

    def current_usage(self) -> Usage:
        """Return the use of each budget; O(VMs of records changed since the last call)."""
        self.usage.count(self.topology, self.operations, self.places)
        return self.usage

    def samples_of(self, cause: Cause) -> tuple[DurationSample, ...]:
        """Return how long the last operations of a cause took, oldest first; O(samples)."""
        samples = self.durations.get(cause, {})
        return tuple([samples[number] for number in sorted(samples)[-SAMPLES_MAX:]])

    def progress(self, maintenance: int) -> TargetProgress:
        """Return the progress of a live maintenance; callers must not change it."""
        return self._progress.get(maintenance) or TargetProgress()

    def copy(self) -> State:
        """Return an independent copy of the state, for another thread; O(all records)."""
        state = State()
        changes = Changes(
            last_number=self.last_number, topology=self.topology.copy(), mark=self.mark
        )
        for kind, table in TABLES.items():
            if kind not in OF_TOPOLOGY:
                getattr(changes, table).update(self._table(kind))
        changes.operations |= self.aborts
        state.adopt(changes)
        state.last_disturbed_ms.update(self.last_disturbed_ms)
        state.affected_ms.update((name, {**each}) for name, each in self.affected_ms.items())
        state.durations.update((cause, {**each}) for cause, each in self.durations.items())
        for number, blocker in self.waits.items():
            state._wait(number, blocker)
        return state

    @property
    def applied_policy(self) -> AppliedPolicy | None:
        """The maintenance policy that an operator has applied; None before the first one."""
        return self.policies.get(FLEET_POLICY)

    def event_ids_of(self, group: str) -> tuple[str, ...]:
        """Return the ids of a group's live events."""
        return tuple(self._by_group.get(group, ()))


def duration_sample(operation: Operation, topology: Topology) -> DurationSample | None:
    """Return how long the work of an ended operation took; None if it shows nothing.

    Only work on a whole host counts, whose first attempt succeeded without a person. A live
    migration does not count.
    """
    host, started_ms = topology.hosts.get(operation.host), operation.execution.started_ms
    succeeded = operation.state is OperationState.SUCCEEDED and not operation.abort_owed
    alone = operation.execution.attempt == 1 and not operation.of_vm
    if not (succeeded and alone) or operation.cause is Cause.LIVE_MIGRATION:
        return None
    if host is None or started_ms is None or operation.ended_ms is None:
        return None
    duration_s = -(-(operation.ended_ms - started_ms) // SECOND_MS)
    if duration_s < 1:  # the clock was set back
        return None
    return DurationSample(operation.number, tuple(sorted(words_of(host))), duration_s)


def _set_item(table: dict[_K, _I], key: _K, item: _I | None) -> None:
    """Set an item of a table; None removes it."""
    if item is None:
        table.pop(key, None)
    else:
        table[key] = item


@dataclass(slots=True)
class Changes(FleetChange):
    """The writes of one step: new values by key, None for removed records."""

    _: KW_ONLY
    last_number: int
    #: The whole layout when everything is loaded; a step lists only the changed records.
    topology: Topology | None = None
    operations: dict[int, Operation] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    enrolments: dict[str, Enrolment | None] = field(default_factory=dict)
    views: dict[str, View | None] = field(default_factory=dict)
    plans: dict[str, MaintenancePlan] = field(default_factory=dict)
    maintenances: dict[int, Maintenance] = field(default_factory=dict)
    targets: dict[str, Target | None] = field(default_factory=dict)
    choices: dict[str, OwnerChoice | None] = field(default_factory=dict)
    deferrals: dict[str, Deferral | None] = field(default_factory=dict)
    policies: dict[str, AppliedPolicy] = field(default_factory=dict)
    principals: dict[str, Principal | None] = field(default_factory=dict)
    tokens: dict[str, AccessToken | None] = field(default_factory=dict)
    confirmations: dict[int, Confirmation | None] = field(default_factory=dict)
    tickets: dict[int, Ticket] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    #: Records beside the state, which only the store has. Source: T-13.
    availability: list[AvailabilityRecord] = field(default_factory=list)
    #: How long work took, of each operation that ended; all that is known when everything is
    #: loaded. Source: F-9.
    durations: list[tuple[Cause, DurationSample]] = field(default_factory=list)
    mark: tuple[str, int] | None = None
    #: The API call that caused the step, for the audit. Source: P-7.
    call: CallRecord | None = None

    @property
    def of_fleet(self) -> bool:
        """Whether the layout changes."""
        return bool(self.hosts or self.groups or self.vms)

    def extend(self, later: Changes) -> None:
        """Add the writes of a later step, to be stored in the same transaction."""
        assert self.topology is None, "a loaded state has no later step"
        for table in TABLES.values():
            getattr(self, table).update(getattr(later, table))
        self.entries += later.entries
        self.availability += later.availability
        self.durations += later.durations
        self.last_number = later.last_number
        self.mark = later.mark or self.mark

    def records(self, kind: str) -> Mapping[str | int, Record | None]:
        """Return the written records of a kind of `TABLES`, by key; None: it is removed."""
        records: Mapping[str | int, Record | None] = getattr(self, TABLES[kind])
        return records

    def __bool__(self) -> bool:
        """Whether anything changes."""
        written = self.entries or self.mark or self.topology is not None
        return bool(written) or any(map(self.records, TABLES))
