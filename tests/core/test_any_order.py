"""The core under any order of stimuli: the promises hold after each of them.

The world here is a toy without wire, store or agents; the simulator's is whole.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from forewarn.core.admission import work_before
from forewarn.core.draft import Draft
from forewarn.core.history import Replay
from forewarn.core.impact import NOTICE_S, TRAITS, Cause
from forewarn.core.lifecycle import EventState, Operation, OperationState
from forewarn.core.records import FIXED, Record
from forewarn.core.stimulus import (
    Acknowledge,
    Approve,
    Cancel,
    ChangeTopology,
    Complete,
    DriverBegun,
    DriverDone,
    DriverFailed,
    Enable,
    GroupsPolled,
    Recover,
    Repair,
    RequestMaintenance,
    Retry,
    Stimulus,
)
from forewarn.core.topology import Group, GroupKind, Host, Vm
from forewarn.errors import CallerError
from forewarn.protocol.documents import ScheduledEvent
from tests.core.rig import MINUTE_MS, Rig

S = OperationState

HOSTS = tuple(Host(f"h{n}", fault_domain=n % 3, update_domain=n) for n in range(4))
GROUPS = (
    Group("web", owner="ann"),
    Group("db", strict_approval=True),
    Group("gpu", GroupKind.SCALE_SET, fault_domain_count=1, terminate_notice_s=300),
)
VMS = tuple(
    Vm(f"{group.name}_{n}", f"h{(n + place) % 4}", group.name, gpu=group.name == "gpu" and n > 0)
    for place, group in enumerate(GROUPS)
    for n in range(3)
)
vm_names = st.sampled_from([vm.name for vm in VMS])
host_names = st.sampled_from([host.name for host in HOSTS])
group_names = st.sampled_from([group.name for group in GROUPS])
numbers = st.integers(1, 12)
attempts = st.integers(1, 2)


class AnyOrder(RuleBasedStateMachine):
    """Tells the core anything, and looks at what it promises."""

    def __init__(self) -> None:
        """Begin with a fleet nobody has asked anything of."""
        super().__init__()
        self.rig = Rig()
        self.gone: dict[str, set[str]] = {}
        self.documents: dict[str, tuple[int, tuple[ScheduledEvent, ...]]] = {}
        self.seen_ids: set[str] = set()
        self.fixed: dict[tuple[str, str | int], dict[str, object]] = {}
        self.tell(ChangeTopology(hosts=HOSTS, groups=GROUPS, vms=VMS))

    def tell(self, stimulus: Stimulus) -> None:
        """Tell it; a refusal changes nothing, which the rig's own tests see to."""
        before = dict(self.rig.state.operations)
        try:
            outcome = self.rig.tell(stimulus)
        except CallerError:
            assert self.rig.state.operations == before
            return
        for kind, key, record in outcome.changes.images():
            self.check_fixed(kind, key, record)
        for begun in outcome.follow_up.begin:
            self.check_start(begun, before.get(begun.number), stimulus)

    def check_fixed(self, kind: str, key: str | int, record: Record | None) -> None:
        """What a store never writes again never changes while the record is there. Source: L-7."""
        if record is None:
            self.fixed.pop((kind, key), None)
            return
        fixed = {name: getattr(record, name) for name in FIXED.get(kind, ())}
        assert self.fixed.setdefault((kind, key), fixed) == fixed

    def check_start(
        self, operation: Operation, before: Operation | None, stimulus: Stimulus
    ) -> None:
        """Invariant 1: its time has come, or everybody approved, or it is a fault."""
        if before is not None and before.state is S.RUNNING:
            assert isinstance(stimulus, Retry | Recover)
            return
        rig = self.rig
        asked = [
            event
            for event in (rig.events[event_id] for event_id in operation.events)
            if event.group in rig.state.enrolments
        ]
        fault = TRAITS[operation.cause].fault
        due = operation.notice.shown_ms and operation.not_before_ms <= rig.now_ms
        entries = [entry for entry in rig.entries if entry.action == "event.approved"]
        approved = {entry.event for entry in entries}
        assert fault or due or all(event.id in approved for event in asked)

    @rule(cause=st.sampled_from(Cause), host=host_names, vm=vm_names, other=vm_names)
    def ask(self, cause: Cause, host: str, vm: str, other: str) -> None:
        """Somebody asks for something."""
        of_vm = TRAITS[cause].target.value == "vm"
        targets = tuple(dict.fromkeys((vm, other))) if of_vm else (host,)
        self.tell(RequestMaintenance(cause=cause, targets=targets))

    @rule(host=host_names, to=host_names)
    def evacuate(self, host: str, to: str) -> None:
        """A host's VMs are moved elsewhere."""
        self.tell(RequestMaintenance(cause=Cause.LIVE_MIGRATION, targets=(host,), destination=to))

    @rule(vm=vm_names, pick=st.randoms(use_true_random=False))
    def approve(self, vm: str, pick: object) -> None:
        """A VM approves an event, of its own or of somebody else."""
        if self.rig.state.events:
            ids = sorted(self.rig.state.events)
            self.tell(Approve(vm, (pick.choice(ids),)))  # type: ignore[attr-defined]

    @rule(pick=st.randoms(use_true_random=False))
    def acknowledge(self, pick: object) -> None:
        """The operator approves one."""
        if self.rig.state.events:
            self.tell(Acknowledge((pick.choice(sorted(self.rig.state.events)),)))  # type: ignore[attr-defined]

    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        """The operator withdraws something."""
        self.tell(Cancel(number))

    @rule(number=numbers, failed=st.booleans())
    def complete(self, number: int, *, failed: bool) -> None:
        """The operator ends something."""
        self.tell(Complete(number, failed=failed))

    @rule(number=numbers, attempt=attempts, report=st.sampled_from([DriverBegun, DriverDone]))
    def report(self, number: int, attempt: int, report: type[DriverBegun | DriverDone]) -> None:
        """A driver reports, perhaps on another time."""
        self.tell(report(number, attempt))

    @rule(number=numbers, attempt=attempts)
    def break_down(self, number: int, attempt: int) -> None:
        """A driver fails."""
        self.tell(DriverFailed(number, attempt, "it fell over"))

    @rule(number=numbers)
    def retry(self, number: int) -> None:
        """The operator tries again."""
        self.tell(Retry(number))

    @rule(host=host_names)
    def repair(self, host: str) -> None:
        """A host is repaired."""
        self.tell(Repair(host))

    @rule()
    def show(self) -> None:
        """What is announced is published."""
        self.rig.show()

    @rule(group=group_names)
    def enable(self, group: str) -> None:
        """A VM of a group asks for the first time."""
        self.tell(Enable(group))

    @precondition(lambda self: self.rig.state.enrolments)
    @rule(group=group_names)
    def poll(self, group: str) -> None:
        """A group polls."""
        self.tell(GroupsPolled(frozenset({group})))

    @rule(vm=vm_names, host=host_names)
    def move(self, vm: str, host: str) -> None:
        """The fleet is described differently."""
        self.tell(ChangeTopology(vms=(Vm(vm, host, vm.partition("_")[0]),)))

    @rule(vm=vm_names)
    def remove(self, vm: str) -> None:
        """A VM is taken out of the fleet."""
        self.tell(ChangeTopology(removed=(("vm", vm),)))

    @rule(minutes=st.sampled_from([0, 1, 5, 16, 90, 1500]))
    def wait(self, minutes: int) -> None:
        """Time passes."""
        self.rig.wait(minutes * MINUTE_MS)

    @rule()
    def restart(self) -> None:
        """The service starts again from what history says."""
        again = Replay()
        again.extend(self.rig.entries)
        assert again == self.rig.replay
        self.tell(Recover())

    @invariant()
    def the_incarnation_moves_with_the_events(self) -> None:
        """Invariant 2 and 3, for every document. Source: D-1, D-3."""
        dropped = {
            key: self.documents.pop(key) for key in self.documents.keys() - self.rig.state.views
        }
        for key, view in self.rig.state.views.items():
            now = (view.document.incarnation, view.document.events)
            known = self.documents.get(key, (0, ()))
            gone = self.gone.setdefault(key, set())
            if now[0] < known[0]:
                assert now[0] <= 1, "only enabling again starts over"
                gone.clear()
            elif now[0] > known[0] and now[1] == known[1]:
                # A VM whose own document is dropped reads on in this one, and must see it move.
                own = [each for name, each in dropped.items() if name.startswith(f"{key}/")]
                assert now[0] == max(each[0] for each in own if each != known) + 1
            else:
                assert (now[0] == known[0]) == (now[1] == known[1])
                gone |= {e.event_id for e in known[1]} - {e.event_id for e in now[1]}
            assert gone.isdisjoint(event.event_id for event in now[1])
            self.documents[key] = now
        for key in dropped:
            self.gone.pop(key, None)

    @invariant()
    def resources_lie_in_one_domain_and_group(self) -> None:
        """Invariants 4 and 7. Source: G-2, S-4, S-5."""
        topology = self.rig.state.topology
        for view in self.rig.state.views.values():
            for event in view.document.events:
                machines = [topology.vms[name] for name in event.resources if name in topology.vms]
                assert all(machine.group == view.group for machine in machines)
                operation = self.rig.now(self.rig.events[event.event_id].operation)
                assert operation.of_vm <= (len(event.resources) == 1)
                assert not view.vm or view.vm in event.resources

    @invariant()
    def one_fault_domain_at_a_time(self) -> None:
        """Invariant 5, among routine work. Source: G-1."""
        topology = self.rig.state.topology
        zones: dict[str, set[tuple[str, int]]] = {}
        for operation in self.rig.state.operations.values():
            if operation.state is S.RUNNING and operation.routine:
                zone = topology.hosts[operation.host].fault_zone
                for group in topology.grouped(topology.vms_on(operation.host)):
                    zones.setdefault(group, set()).add(zone)
        assert all(len(found) == 1 for found in zones.values()), zones

    @invariant()
    def notice_is_what_is_owed(self) -> None:
        """Invariant 6. Source: N-1."""
        for operation in self.rig.state.operations.values():
            if operation.state is S.ANNOUNCED and not operation.silent:
                since_ms = operation.notice.shown_ms or operation.announced_ms
                owed_ms = NOTICE_S[operation.impact] * 1000
                assert operation.not_before_ms - since_ms >= owed_ms

    @invariant()
    def everybody_on_the_host_was_told(self) -> None:
        """What is announced or running on a host names every VM on it. Source: N-1, L-5."""
        topology = self.rig.state.topology
        for operation in self.rig.state.operations.values():
            if operation.state is S.ANNOUNCED and not operation.of_vm:
                assert set(topology.vms_on(operation.host)) <= set(operation.vms)

    @invariant()
    def operations_and_events_agree(self) -> None:
        """The two machines move together. Source: L-1."""
        for operation in self.rig.state.operations.values():
            for event_id in operation.events:
                state = self.rig.state.events[event_id].state
                assert (operation.state is S.RUNNING) == (state is EventState.STARTED)
        live = self.rig.state.operations
        assert all(event.operation in live for event in self.rig.state.events.values())
        ids = {event_id for o in self.rig.operations.values() for event_id in o.events}
        assert self.seen_ids <= ids
        self.seen_ids = ids

    @invariant()
    def nothing_waits_that_could_go_on(self) -> None:
        """Whatever waits to be announced waits for work that stands in its way. Source: G-1."""
        state = self.rig.state
        draft = Draft(state, self.rig.now_ms, self.rig.terms())
        for operation in state.operations.values():
            if operation.state is S.PLANNED:
                assert work_before(draft, operation) is not None
                assert operation.number in state.waits

    def teardown(self) -> None:
        """Invariant 10. Source: L-7."""
        self.rig.check_replay()


AnyOrder.TestCase.settings = settings(max_examples=120, stateful_step_count=40)
TestAnyOrder = AnyOrder.TestCase
