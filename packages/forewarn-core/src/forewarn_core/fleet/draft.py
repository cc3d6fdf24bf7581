"""One step in progress: its writes, their history entries, and the rules left to run.

Each write changes the state in place and is recorded in `changes` for the store.
`step.py` and `operation_requests.py` decide on the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from heapq import heappop, heappush
from typing import TypeAlias

from forewarn_base.values import value
from forewarn_core.access.reducer import AccessWrite
from forewarn_core.access.roles import Authority
from forewarn_core.fleet.availability_records import AvailabilityRecord
from forewarn_core.fleet.document import Enrolment, View
from forewarn_core.fleet.indexes import Place
from forewarn_core.fleet.lifecycle import Event, Operation, OperationState
from forewarn_core.fleet.maintenance import Maintenance, Target, target_key
from forewarn_core.fleet.policy import NoticePolicy, maintenance_policy
from forewarn_core.fleet.records import KIND_OF, Record, changed_row, key_of, subject_of, to_row
from forewarn_core.fleet.state import OF_TOPOLOGY, TABLES, Changes, Entry, Image, State
from forewarn_core.fleet.ticket import Ticket
from forewarn_core.fleet.topology import FleetChange, Host, Topology
from forewarn_core.fleet.usage import Disturbed
from forewarn_core.planning.plan_text import NO_PLAN, PlanBody
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.exempt import policy_for


class StepRule(IntEnum):
    """The rules of a step, in the order in which they run."""

    #: A maintenance stops, is done, or ends its wave.
    CONCLUDE = 1
    #: Announced work that no other work can block is withdrawn, starts or waits.
    START_UNBOUND = 2
    #: Announced routine work and work on a VM is withdrawn, starts or waits.
    START = 3
    #: Planned work is announced or waits.
    ANNOUNCE = 4
    #: The due wave of a maintenance announces its hosts.
    WAVE = 5
    #: A group's documents are updated.
    DOCUMENTS = 6


#: Agenda entry: rule, priority within the rule, and the operation number or group.
Key: TypeAlias = "tuple[StepRule, int, int] | tuple[StepRule, int, str]"


class Agenda:
    """An ordered set of keys; adding or removing a key costs O(log n)."""

    def __init__(self) -> None:
        self._heap: list[Key] = []
        self._keys: set[Key] = set()

    def add(self, rule: StepRule, subject: int | str, first: int = 0) -> None:
        """Add a number or a group; within a rule the smallest `first` runs first."""
        key: Key = (rule, first, subject)  # type: ignore[assignment]  # each rule has one type
        if key not in self._keys:
            self._keys.add(key)
            heappush(self._heap, key)

    def __bool__(self) -> bool:
        """Whether a key is left."""
        return bool(self._heap)

    def take(self) -> tuple[StepRule, int | str]:
        """Remove the next key; return its rule, and its number or group."""
        key = heappop(self._heap)
        self._keys.discard(key)
        return key[0], key[2]


@value
class Terms:
    """The inputs of a step besides the state, the stimulus and the time."""

    policy: NoticePolicy
    #: The actor for history: `vm web_0 at 10.0.0.4`, `operator`, `clock`, `driver`.
    actor: str
    #: Returns the next event id. Source: D-3.
    new_guid: Callable[[], str]
    #: Driver of hosts that do not name one. Source: R-3.
    default_driver: str = ""
    #: What the driver of each operation waits for, by number; empty while the driver works.
    driver_waits: Callable[[int], str] = lambda _: ""
    #: The caller whose calls a second person may have to confirm; None: the service itself, a VM,
    #: or an owner, who answers for the own VMs alone. Source: P-8.
    authority: Authority | None = None
    #: Why the driver of a host is missing here, by its name; empty while it is there. Source: L-12.
    missing_driver: Callable[[str], str] = lambda _: ""


class Draft:
    """One step in progress, or a read-only view of the state if nothing is written."""

    def __init__(self, state: State, now_ms: int, terms: Terms) -> None:
        self.state = state
        self.now_ms = now_ms
        self.policy = terms.policy
        self.actor = terms.actor
        self.new_guid = terms.new_guid
        self.default_driver = terms.default_driver
        self.driver_waits = terms.driver_waits
        self.authority = terms.authority
        #: Principal for whom hosts count as affected without a confirmation; empty: nobody.
        self.unconfirmed_by = ""
        #: Reviews of the lifts by which the step needs no second person. Source: T-14.
        self.lifts: list[Ticket] = []
        self.missing_driver = terms.missing_driver
        self.changes = Changes(last_number=state.last_number)
        #: Each function returns a live record; None if the record does not exist.
        self.operation = state.operations.get
        self.event = state.events.get
        self.enrolment = state.enrolments.get
        self.view = state.views.get
        #: Maintenances that have not ended, and the progress of each.
        self.maintenances = state.maintenances
        self.plans = state.plans
        self.progress = state.progress
        #: Keys that this step must still process.
        self.agenda = Agenda()
        self.uncoupled: set[Place] = set()  # coupled deletions, all decided: A-8
        #: Operations whose notice begins, and operations to begin, once their documents are
        #: published; operations to abort.
        self.announced: list[int] = []
        self.begin: list[int] = []
        self.abort: list[int] = []
        #: What `StepResult` has under these names, and the groups whose documents change.
        self.numbers: tuple[int, ...] = ()
        self.remaining: list[int] = []
        self.to_plan: tuple[int, ...] = ()
        self.validate: tuple[int, ...] = ()
        self.groups: list[str] = []

    # ---- reading -------------------------------------------------------------------------------

    @property
    def topology(self) -> Topology:
        """The fleet's layout."""
        return self.state.topology

    @property
    def maintenance_policy(self) -> MaintenancePolicy:
        """Return the budgets, windows and pauses in force."""
        return maintenance_policy(self.state.applied_policy, self.policy)

    def policy_of(self, maintenance: Maintenance) -> MaintenancePolicy:
        """Return the policy as it binds a maintenance. Source: T-6."""
        return policy_for(self.maintenance_policy, maintenance.exemption)

    def operations(self, *places: Place) -> list[Operation]:
        """Return the live operations at any of these places, ordered by number."""
        numbers = {number for place in places for number in self.state.places.of(place)}
        return [self.state.operations[number] for number in sorted(numbers)]

    def work_on(self, maintenance: int, host: str) -> Operation | None:
        """Return the live operation that carries out a maintenance's work on a host."""
        target = self.target(maintenance, host)
        return self.operation(target.operation) if target else None

    def host_of(self, operation: Operation) -> Host | None:
        """Return the host that an operation disturbs: of work on a VM, where the VM is now."""
        vm = self.topology.vms.get(operation.vms[0]) if operation.of_vm else None
        return self.topology.hosts.get(vm.host if vm else operation.host)

    def events_of(self, operation: Operation) -> list[Event]:
        """Return the live events of an operation, ordered by group name."""
        return [event for each in operation.events if (event := self.event(each)) is not None]

    def live_events_in(self, group: str) -> list[Event]:
        """Return a group's live events."""
        return [self.state.events[each] for each in self.state.event_ids_of(group)]

    def enabled(self, group: str) -> bool:
        """Whether a group is enabled; disabled groups never delay work. Source: B-3."""
        return group in self.state.enrolments

    def views_in(self, group: str) -> list[View]:
        """Yield every document of an enabled group, the shared one first."""
        views = [self.view(key) for key in self.topology.views_of(group)]
        return [view for view in views if view is not None]

    def plan_of(self, maintenance: Maintenance) -> PlanBody:
        """Return the plan in force of a maintenance; empty before the first plan."""
        plan = self.plans.get(maintenance.plan)
        return plan.body if plan else NO_PLAN

    def target(self, maintenance: int, host: str) -> Target | None:
        """Return a maintenance's record of a host; None if work on the host has not begun."""
        return self.state.targets.get(target_key(maintenance, host))

    # ---- the agenda ----------------------------------------------------------------------------

    def wake(self, operation: Operation) -> None:
        """Add to the agenda the operations that wait for this one."""
        for number in self.state.waiting.of(operation.number):
            self.look_at(number)
        self.wake_room(operation.budget_key)

    def wake_room(self, disturbed: Disturbed) -> None:
        """Add to the agenda the operations that wait for room in these budgets."""
        for subject in self.state.usage.budgets_of(disturbed) if self.state.waits else ():
            for number in self.state.waiting.of(subject):
                self.look_at(number)

    def wake_arrivals(self, hosts: Iterable[str]) -> None:
        """Add to the agenda the operations that move VMs to hosts whose free memory changed.

        See F-3.
        """
        places = [("destination", host) for host in hosts]
        for place in self.state.places.at(places):
            for number in self.state.places.of(place):
                self.look_at(number)

    def look_at(self, number: int) -> None:
        """Add a live operation or maintenance to the agenda of this step."""
        operation = self.operation(number)
        if operation is None:
            if number in self.maintenances:
                self.agenda.add(StepRule.CONCLUDE, number)
        elif operation.state is OperationState.PLANNED:
            self.agenda.add(StepRule.ANNOUNCE, number)
        elif operation.state is OperationState.ANNOUNCED:
            bound = operation.routine or operation.of_vm
            self.agenda.add(StepRule.START if bound else StepRule.START_UNBOUND, number)

    def show(self, group: str) -> None:
        """Update a group's documents at the end of this step."""
        self.agenda.add(StepRule.DOCUMENTS, group)

    # ---- writing -------------------------------------------------------------------------------

    def put(
        self, action: str, text: str, *records: Record, vm: str = "", about: Record | None = None
    ) -> None:
        """Write records together with the history entry that explains them.

        Args:
            action: stable name of the transition, `operation.announced`.
            text: one sentence for people.
            records: the changed records.
            vm: the VM that approved. See A-6.
            about: what the entry is about; None: the first changed record.
        """
        images = tuple([self._put(record) for record in records])
        self.log(action, text, images, about=about or records[0], by_vm=vm)

    def put_documents(self, views: Iterable[View], owners: Mapping[str, Operation]) -> None:
        """Write documents with one entry for all the changes of one operation. Source: D-1.

        `owners` has the operation of each group, from `owners_of`.
        """
        batches: dict[int, list[View]] = {}
        for view in views:
            about = owners.get(view.group)
            batches.setdefault(about.number if about else 0, []).append(view)
        for number, batch in batches.items():
            if number and len(batch) > 1:
                text = f"{len(batch)} documents are updated for op-{number}"
                images = tuple([self._put(view) for view in batch])
                about = self.changes.operations[number]
                self.log("document.updated", text, images, about=about)
                continue
            for view in batch:
                text = f"document {view.key} is at {view.document.incarnation}"
                self.put("document.updated", text, view)

    def mark(self, record: Enrolment) -> None:
        """Write a group's last poll or its departures, without an entry in history."""
        self.changes.enrolments[record.group] = record
        self.state.put(record)

    def record(self, record: AvailabilityRecord) -> None:
        """Write a record of availability in the same commit."""
        self.changes.availability.append(record)

    def remove(self, action: str, text: str, *records: Record) -> None:
        """Remove records, with the history entry that explains it."""
        images = []
        for record in records:
            kind, key = KIND_OF[type(record)], key_of(record)
            getattr(self.changes, TABLES[kind])[key] = None
            if kind not in OF_TOPOLOGY:
                self.state.remove(record)
            images.append(Image(kind, key, None))
        self.log(action, text, tuple(images), about=records[0])

    def write_access(self, write: AccessWrite) -> None:
        """Write a record of access, with its history entry."""
        actor, self.actor = self.actor, write.actor or self.actor
        (self.remove if write.removed else self.put)(write.action, write.text, write.record)
        self.actor = actor

    def rearrange(self, change: FleetChange) -> None:
        """Change the layout; the caller writes its records separately.

        Raises:
            FleetContradiction: the new layout is inconsistent; the step must be undone.
        """
        leaving = {vm.host for name in change.vms if (vm := self.topology.vms.get(name))}
        moved, hosts = self.state.lay_out(change)
        arriving = {vm.host for vm in change.vms.values() if vm is not None}
        self.wake_arrivals(leaving | arriving | change.hosts.keys())
        for number in moved:
            self.look_at(number)
            self.wake(self.state.operations[number])
        for name in hosts:
            self.wake_room(name)

    def next_number(self) -> int:
        """Return the next operation number."""
        self.changes.last_number = self.state.next_number()
        return self.changes.last_number

    def log(
        self, action: str, text: str, images: tuple[Image, ...], *, about: Record, by_vm: str = ""
    ) -> None:
        """Write an entry about a record; `by_vm` is the VM that approved."""
        operation, event, group, vm, host = subject_of(about)
        assert not (vm and by_vm), about
        subject = (operation, event, group, vm or by_vm, host)
        entry = Entry(self.now_ms, self.actor, action, text, *subject, images)
        self.changes.entries.append(entry)

    def _put(self, record: Record) -> Image:
        """Write a record; return its image for history."""
        before = self.state.put(record)
        if isinstance(record, Operation) and before is not None and not record.live:
            sample = self.state.durations.get(record.cause, {}).get(record.number)
            if sample is not None:
                self.changes.durations.append((record.cause, sample))
        image = image_of(before, record)
        getattr(self.changes, TABLES[image.kind])[image.key] = record
        return image


def operation_by_group(changes: Changes, state: State) -> dict[str, Operation]:
    """Return for each group the changed operation that explains its documents.

    Costs the events of the changed operations.
    """
    groups: dict[str, Operation] = {}
    for operation in changes.operations.values():
        for event_id in operation.events:
            event = changes.events.get(event_id) or state.events.get(event_id)
            if event is not None:
                groups[event.group] = operation
    return groups


def image_of(before: Record | None, after: Record) -> Image:
    """Return the image of a changed record: its row, and the columns that changed."""
    row = to_row(after)
    changed = changed_row(before, after, row) if before is not None else None
    return Image(KIND_OF[type(after)], key_of(after), row, changed)
