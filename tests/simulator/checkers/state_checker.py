"""Checks what became durable: every change of the state is held against the promises.

The rules are those of `contract.py`; documents are checked in `document_checker.py`, and what is
shown, begun and answered in `invariants.py`.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from forewarn_core.fleet.lifecycle import Event, EventState, Operation, OperationState
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import Changes, State
from forewarn_core.fleet.stimulus import (
    Acknowledge,
    DriverAborted,
    DriverDone,
    HostValidated,
    PlaneStimulus,
    Reports,
)
from forewarn_core.fleet.topology import Topology
from forewarn_core.requests import ApprovalRequest
from tests.simulator.checkers.contract import (
    OWED_S,
    is_a_users_wish,
    is_fault,
    is_owed_notice,
    is_prediction,
    obstacle,
    owed_s,
    shared_vms,
    waived,
)
from tests.simulator.checkers.declaration_checker import DeclarationChecker
from tests.simulator.checkers.document_checker import DocumentChecker
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.metadata_node import SimulatedNode

#: How often the abort of a driver that does not hear is called.
ABORT_TRIES = 8
#: How far the service's clock may be off true time over a restart, both ways, in ms.
NOTICE_TOLERANCE_MS = 1500
#: By how many millionths any machine's clock may run too fast or too slow.
RATE_PPM_MAX, PPM = 200, 1_000_000

DEFAULTS = NoticePolicy()
S, E = OperationState, EventState
#: Nothing ever goes back to an earlier state. Source: L-1.
ORDER: dict[OperationState | EventState, int] = dict(
    (
        *((S.PLANNED, 0), (S.ANNOUNCED, 1), (S.RUNNING, 2)),
        *((state, 3) for state in (S.SUCCEEDED, S.FAILED, S.CANCELLED)),
        *((E.SCHEDULED, 0), (E.APPROVED, 1), (E.STARTED, 2)),
        *((state, 3) for state in (E.COMPLETED, E.CANCELLED)),
    )
)


class StateChecker:
    """Follows every durable change, and checks it alone and against what went before."""

    def __init__(
        self, queue: EventQueue, state: State | None = None, *, policy: NoticePolicy = DEFAULTS
    ) -> None:
        """Begin with what is durable, which is changed from now on; without it, with nothing."""
        self.queue = queue
        self._prediction_s = policy.prediction_s
        #: Since when nothing has kept a change from a node; the world says it.
        self.sound_since_ms: Callable[[SimulatedNode | None], int] = lambda _: 0
        #: Rule -> how often there was something to hold it against.
        self.premises: Counter[str] = Counter()
        #: What is durable now.
        self.state = State() if state is None else state
        #: Every operation and event that ever was, as it was last.
        self.operations: dict[int, Operation] = {}
        self.events: dict[str, Event] = {}
        #: Event -> VMs that have asked to approve it, whatever became of that.
        self.asked: dict[str, dict[str, None]] = {}
        self.acknowledged: set[str] = set()
        #: (operation, attempt) of which its driver has said that it is over, or has failed -> when
        #: it said so last, in true ms.
        self.reported: dict[tuple[int, int], int] = {}
        #: (operation, attempt) whose host has passed its validation.
        self.validated: set[tuple[int, int]] = set()
        #: (operation, attempt) -> since when it durably runs, in true ms.
        self.running_ms: dict[tuple[int, int], int] = {}
        #: Operation -> since when its driver is owed the word that it has ended, in true ms, or
        #: since when the service runs that owes it.
        self.owed: dict[int, int] = {}
        #: How often the service took up what was cut off, and when last, in true ms.
        self.recoveries = 0
        self.recovered_ms = 0
        #: Operation -> times its driver's abort was called since, until it heard.
        self.abort_calls: dict[int, int] = {}
        #: Operation -> times its operator asked to try again.
        self.retries: dict[int, int] = {}
        #: Operation -> when it was announced; view -> when its document changed last: true ms.
        self.announced_ms: dict[int, int] = {}
        self.view_changed_ms: dict[str, int] = {}
        #: Operations whose VMs asked for no notice of such work when it was asked for.
        self.untold: set[int] = set()
        #: Operation -> true time its notice was first shown, less what clocks had jumped by then,
        #: and what is promised from then on, in ms: to VMs whose group was enabled after it was
        #: announced, only what was left by the service's clock.
        self.first_shown: dict[int, tuple[int, int]] = {}
        #: How far new processes' clocks were ahead of those before them, summed up, in ms. Only
        #: the system's clock outlives a process: what it was put right by is not a broken promise.
        self.jumped_ms = 0
        self.documents = DocumentChecker(self.state, self.premises)
        self.declarations = DeclarationChecker(self.state, policy.maintenance, self.premises)
        self.groups_of: dict[str, set[str]] = {}

    def recovers(self) -> None:
        """The service takes up what was cut off, at its start or after a lost commit."""
        self.recoveries += 1
        self.recovered_ms = self.queue.now_ms
        self.owed = dict.fromkeys(self.owed, self.queue.now_ms)
        self.abort_calls = {
            number: tries for number, tries in self.abort_calls.items() if tries >= ABORT_TRIES
        }

    def durable(self, changes: Changes, service_ms: int | None = None) -> None:
        """Take a change that has just become durable, and check it.

        `service_ms`: the time of the service; None: its clock is true.
        """
        now_ms = self.queue.now_ms if service_ms is None else service_ms
        topology = self.state.topology
        if changes.of_fleet:
            topology = topology.copy()
            topology.apply(changes)
        for vm in changes.vms.values():
            if vm is not None:
                self.groups_of.setdefault(vm.name, set()).add(vm.group)
        for event in changes.events.values():
            self._check_event(event, topology, changes)
        for operation in changes.operations.values():
            before = self.operations.get(operation.number)
            self._check_operation(operation, topology, changes)
            self.declarations.check_operation(
                operation, before, topology, changes=changes, now_ms=now_ms
            )
        self.declarations.durable(changes, now_ms)
        self.documents.durable(changes)
        self.view_changed_ms.update(dict.fromkeys(changes.views, self.queue.now_ms))
        self.state.adopt(changes)
        self.declarations.adopted(changes)
        self.operations.update(changes.operations)
        self.events.update(changes.events)
        if changes.of_fleet:
            self._check_arrivals()
        groups = {event.group for event in changes.events.values()}
        for operation in changes.operations.values():  # a new NotBefore is shown, too
            ours = (self.events.get(each) for each in operation.events)
            groups.update(event.group for event in ours if event is not None)
        self.documents.check_groups(groups | {v.group for v in changes.views.values() if v})

    # ---- one record at a time ------------------------------------------------------------------

    def _check_event(self, event: Event, topology: Topology, changes: Changes) -> None:
        before = self.events.get(event.id)
        if before is None:
            self._check_birth(event, topology, changes)
        else:
            if before.group != event.group or not set(event.resources) <= set(before.resources):
                raise Violation("3", f"id {event.id} is used again for something else")
            if before.approved_by != event.approved_by[: len(before.approved_by)]:
                raise Violation("11", f"an approval of {event.id} is lost")
            if ORDER[before.state] > ORDER[event.state]:
                raise Violation("3", f"event {event.id} has come back to {event.state.value}")
        operation = changes.operations.get(event.operation) or self.operations[event.operation]
        if before is not None:
            self._check_leavers(event, before, operation, topology)
        newly = before is None or before.state is E.SCHEDULED
        approved = newly and event.state is E.APPROVED
        if approved and not self._is_approved(event.id, operation, topology, changes):
            raise Violation("1", f"event {event.id} counts as approved by {event.approved_by}")

    def _check_leavers(
        self, event: Event, before: Event, operation: Operation, topology: Topology
    ) -> None:
        """L-9: an event names a VM until the VM leaves the host, or the work is over."""
        withdrawn = event.state is E.CANCELLED and operation.live
        left = set(before.resources) - (set() if withdrawn else set(event.resources))
        self.premises["L-9: a VM leaves announced work"] += bool(left)
        stayed = left.intersection(topology.vms_on(operation.host))
        if stayed or (left and operation.of_vm):
            raise Violation("L-9", f"event {event.id} does not name {sorted(left)} any more")

    def _check_birth(self, event: Event, topology: Topology, changes: Changes) -> None:
        """Invariants 4 and 7: whom a new event names."""
        machines = [topology.vms[name] for name in event.resources]
        domains = {
            (topology.hosts[vm.host].zone, topology.hosts[vm.host].update_domain) for vm in machines
        }
        self.premises["4: an event of several VMs"] += len(machines) > 1
        if len(domains) > 1:
            raise Violation("4", f"event {event.id} spans update domains {sorted(domains)}")
        if not machines or any(vm.group != event.group for vm in machines):
            raise Violation("7", f"event {event.id} names VMs of another group")
        if event.operation not in changes.operations:
            raise Violation("10", f"event {event.id} has no operation")

    def _check_operation(self, operation: Operation, topology: Topology, changes: Changes) -> None:
        before = self.operations.get(operation.number)
        if before is None:
            if operation.number <= self.state.last_number:
                raise Violation("3", f"{operation.id} is numbered twice")
            self._check_silence(operation, topology)
        elif ORDER[before.state] > ORDER[operation.state] or before.silent != operation.silent:
            raise Violation("3", f"{operation.id} has come back to {operation.state.value}")
        self._note_times(operation)
        if operation.state is S.ANNOUNCED:
            waives = waived(operation, {**self.state.maintenances, **changes.maintenances})
            self._check_notice(operation, before, topology, waives=waives)
        starts = before is None or before.state is not S.RUNNING
        if operation.state is S.RUNNING and starts:
            self._check_start(operation, before, topology, changes)
            self._check_destinations(operation, topology, changes)
        if operation.state is S.RUNNING and (
            before is None or starts or operation.vms != before.vms
        ):
            self._check_alone(operation, changes)
        if operation.state in {S.SUCCEEDED, S.FAILED} and not operation.execution.started_ms:
            raise Violation("9", f"{operation.id} has ended and never started")
        self._check_abort(operation, before)
        self._check_end(operation, before)
        new = (
            before is None or before.state is S.PLANNED
        )  # who arrives later gets notice separately
        self._check_told(operation, topology, changes, new=new)
        for event_id in operation.events:
            event = changes.events.get(event_id) or self.events.get(event_id)
            if operation.live != (event is not None and event.live):
                raise Violation("13", f"{operation.id} and event {event_id} do not end together")

    def _note_times(self, operation: Operation) -> None:
        number, now_ms = operation.number, self.queue.now_ms
        if operation.state is S.ANNOUNCED:
            self.announced_ms.setdefault(number, now_ms)
        if operation.state is S.RUNNING:
            self.running_ms.setdefault((number, operation.execution.attempt), now_ms)

    def _check_silence(self, operation: Operation, topology: Topology) -> None:
        """N-1 and O-2: work is kept from those it hits only where they asked for no notice."""
        owed = {is_owed_notice(operation, each) for each in (topology, self.state.topology)}
        if operation.silent in owed and len(owed) == 1:
            owed_text = "owed notice" if operation.silent else "not owed notice"
            raise Violation("6", f"the VM of {operation.id} asked {owed_text} of it")
        if operation.silent:
            self.untold.add(operation.number)

    def _check_told(
        self, operation: Operation, topology: Topology, changes: Changes, *, new: bool
    ) -> None:
        """S-5, L-2: every VM that an announced or running operation hits is named, once."""
        if operation.state not in {S.ANNOUNCED, S.RUNNING}:
            return
        events = [changes.events.get(each) or self.events.get(each) for each in operation.events]
        named = [name for event in events if event is not None for name in event.resources]
        hit = () if operation.number in self.untold else operation.vms
        if sorted(named) != sorted(hit):
            raise Violation("1", f"{operation.id} hits {list(hit)}, and its events name {named}")
        groups = [event.group for event in events if event is not None]
        if new and len(groups) != len(set(groups)):
            raise Violation("1", f"{operation.id} has two events for a group of {groups}")
        there = topology.vms_on(operation.host)
        if new and not operation.of_vm and sorted(operation.vms) != sorted(there):
            raise Violation("1", f"{operation.id} hits {there} and is said to hit {operation.vms}")

    def _check_abort(self, operation: Operation, before: Operation | None) -> None:
        """L-7: a driver is notified of every end that came without it, whatever crashes."""
        self.premises["L-7: a driver is owed an end"] += operation.abort_owed
        if operation.abort_owed:
            self.owed.setdefault(operation.number, self.queue.now_ms)
        if before is None or operation.abort_owed:
            return
        if before.abort_owed and self.abort_calls.get(operation.number, 0) < ABORT_TRIES:
            raise Violation("L-7", f"the driver was not notified that {operation.id} has ended")
        alone = (operation.number, operation.execution.attempt) not in self.reported
        if before.state is S.RUNNING and not operation.live and alone:
            raise Violation("L-7", f"{operation.id} ends and its driver is owed nothing")

    def _check_end(self, operation: Operation, before: Operation | None) -> None:
        """T-5: an overrun has an incident. T-7: a host with a validation ends with its result."""
        if before is None or before.state is not S.RUNNING or operation.live:
            return
        close_ms, ended_ms = operation.window.planned_close_ms, operation.ended_ms
        late = operation.window.opened_ms and close_ms and ended_ms and ended_ms > close_ms
        if late and not operation.window.incident:
            raise Violation("T-5", f"{operation.id} overran its window without an incident")
        attempt = operation.number, operation.execution.attempt
        accepted = attempt in self.validated or (operation.abort_owed and operation.reason)
        if operation.state is S.SUCCEEDED and before.execution.validation and not accepted:
            raise Violation("T-7", f"{operation.id} ends and its host is not validated")

    def _check_notice(
        self,
        operation: Operation,
        before: Operation | None,
        topology: Topology,
        *,
        waives: frozenset[str],
    ) -> None:
        """Invariant 6: notice is at least what is owed, from when it was shown."""
        if operation.number in self.untold:
            return
        self.premises["6: notice is given"] += 1
        self.premises["N-2: a failure is predicted"] += is_prediction(operation)
        least_s = OWED_S[operation.impact.value]
        if before is None or before.state is S.PLANNED:
            least_s = owed_s(operation, topology, self._prediction_s)
        least_s = 0 if "notice" in waives else least_s
        since_ms = operation.notice.shown_ms or operation.announced_ms
        if operation.not_before_ms - since_ms < least_s * 1000:
            raise Violation(
                "6",
                f"{operation.id} gives {(operation.not_before_ms - since_ms) / 1000} s of notice,"
                f" {least_s} s are owed",
            )
        if before is not None and (before.notice.not_before_ms or 0) > operation.not_before_ms:
            raise Violation("6", f"{operation.id} was put forward")

    def _check_start(
        self,
        operation: Operation,
        before: Operation | None,
        topology: Topology,
        changes: Changes,
    ) -> None:
        """Invariant 1 and 5: its time has come, or all approved, or a fault; and it may."""
        if is_fault(operation):
            self._check_others_end(operation, changes)
            return
        announced = operation if before is None else before
        due = bool(announced.notice.shown_ms) and announced.not_before_ms <= (
            operation.execution.started_ms or 0
        )
        if due:
            self.premises["1: its time has come"] += 1
            self._check_true_notice(announced)
        else:
            self.premises["1: everybody approved"] += 1
            self._check_early(operation, topology, changes)
        left_out = set(topology.vms_on(operation.host)) - set(operation.vms)
        if left_out and not operation.of_vm:
            raise Violation("1", f"{operation.id} disturbs {sorted(left_out)}, who got no notice")
        blocked = self.blocked(operation, topology, _without_later_starts(operation, changes))
        if blocked:
            raise Violation("5", blocked)

    def _check_others_end(self, fault: Operation, changes: Changes) -> None:
        """L-4, N-2: what was foreseen, announced or under way on a host is over as it fails."""
        for number, known in self.state.operations.items():
            other = changes.operations.get(number, known)
            if (
                other.live
                and other.host == fault.host
                and not other.of_vm
                and number != fault.number
            ):
                raise Violation("L-4", f"{other.id} goes on, and {fault.host} has failed")

    def _check_alone(self, operation: Operation, changes: Changes) -> None:
        """L-10: a VM has one running operation, for any caller and any failure."""
        for number, known in self.state.operations.items():
            other = changes.operations.get(number, known)
            if number != operation.number and other.state is S.RUNNING:
                self.premises["L-10: something else runs"] += 1
                both = shared_vms(operation, other)
                if both:
                    raise Violation("L-10", f"{operation.id} and {other.id} run on {both}")

    def _check_destinations(
        self, operation: Operation, topology: Topology, changes: Changes
    ) -> None:
        """L-11: VMs go to healthy hosts of their zone, where nothing is done, and fit there."""
        if operation.maintenance or operation.destination:
            return
        busy = {
            other.host
            for number, known in self.state.operations.items()
            if (other := changes.operations.get(number, known)).live and not other.of_vm
        }
        arriving: Counter[str] = Counter()
        for name, to in operation.execution.placements:
            self.premises["L-11: a VM is given a destination"] += 1
            vm, host = topology.vms[name], topology.hosts[to]
            arriving[to] += vm.memory_mib
            apart = host.zone != topology.hosts[vm.host].zone or to == vm.host
            if apart or to in busy or host.health.value != "healthy":
                raise Violation("L-11", f"{operation.id} moves {name} to {to}")
        for to, arriving_mib in arriving.items():
            there_mib = sum(topology.vms[name].memory_mib for name in topology.vms_on(to))
            if there_mib + arriving_mib > topology.hosts[to].memory_mib > 0:
                raise Violation("L-11", f"{operation.id} moves VMs to {to}, which has no room")

    def _check_true_notice(self, announced: Operation) -> None:
        """N-4: what was promised holds by true time, too, whatever the service's clock did."""
        if announced.number not in self.first_shown or announced.number in self.untold:
            return
        first_ms, promised_ms = self.first_shown[announced.number]
        given_ms = self.queue.now_ms + self.jumped_ms - first_ms
        self.premises["N-4: a promised time has come"] += 1
        slowest_ms = promised_ms * (PPM - RATE_PPM_MAX) // PPM
        if given_ms < slowest_ms - NOTICE_TOLERANCE_MS:
            raise Violation(
                "6",
                f"{announced.id} started {given_ms / 1000} s after it was shown;"
                f" {promised_ms / 1000} s were promised",
            )

    def _check_early(self, operation: Operation, topology: Topology, changes: Changes) -> None:
        waiting = [
            event_id
            for event_id in operation.events
            if self._is_asked(self._group_of(event_id, changes), changes)
        ]
        started_ms = operation.execution.started_ms or 0
        approved = operation.events and all(
            self._is_approved(each, operation, topology, changes) for each in operation.events
        )
        requested_ms = operation.requested_start_ms or 0
        if operation.maintenance:  # the latest start of its wave, for which nobody has asked
            requested_ms = operation.earliest_start_ms or 0
        if not (waiting or approved) and requested_ms > started_ms:
            raise Violation("1", f"{operation.id} started before its time")
        for event_id in waiting:
            if not self._is_approved(event_id, operation, topology, changes):
                raise Violation("1", f"{operation.id} started without approval of {event_id}")
        if operation.impact.value != "Terminate":
            return
        self.premises["A-8: an approved deletion starts"] += 1
        for other in self.state.operations.values():
            sibling = changes.operations.get(other.number, other)
            if (
                sibling.request == operation.request
                and sibling.state is S.ANNOUNCED
                and sibling.notice.not_before_ms == operation.notice.not_before_ms
                and not all(
                    self._is_approved(each, sibling, topology, changes)
                    for each in sibling.events
                    if self._is_asked(self._group_of(each, changes), changes)
                )
            ):
                raise Violation("1", f"{operation.id} did not wait for its sibling {sibling.id}")

    def blocked(
        self, operation: Operation, topology: Topology, changed: Mapping[int, Operation]
    ) -> str:
        """Invariant 5: why an operation may not start beside those that run; empty if it may."""
        for other in {**self.state.operations, **changed}.values():
            if other.number != operation.number and other.state is S.RUNNING:
                self.premises["5: something else runs"] += 1
                waives = waived(operation, self.state.maintenances)
                blocked = obstacle(operation, other, topology, waives=waives)
                if blocked:
                    return blocked
        return ""

    def in_its_way(self, operation: Operation) -> str:
        """Say why an announced operation may not start now; empty if it may."""
        return self.blocked(operation, self.state.topology, {})

    def _check_arrivals(self) -> None:
        """Who is on a host is named by the work there, and by no work elsewhere.

        Nobody arrives in the middle of work without notice, and who has left is not disturbed.
        Source: L-5, L-9, S-5.
        """
        for operation in self.state.operations.values():
            if not operation.of_vm:
                there = set(self.state.topology.vms_on(operation.host))
                if operation.state is not S.RUNNING and there != set(operation.vms):
                    text = f"{operation.id} is to disturb {operation.vms}, not {sorted(there)}"
                    raise Violation("L-9", text)
                if there - set(operation.vms):
                    untold = sorted(there - set(operation.vms))
                    raise Violation("1", f"{untold} came to {operation.host}, under {operation.id}")

    # ---- approvals -----------------------------------------------------------------------------

    def _group_of(self, event_id: str, changes: Changes) -> str:
        event = changes.events.get(event_id) or self.events[event_id]
        return event.group

    def _is_asked(self, group: str, changes: Changes) -> bool:
        if group in changes.enrolments:
            return changes.enrolments[group] is not None
        return group in self.state.enrolments

    def _is_approved(
        self, event_id: str, operation: Operation, topology: Topology, changes: Changes
    ) -> bool:
        event = changes.events.get(event_id) or self.events[event_id]
        before = self.events.get(event_id)
        if event_id in self.acknowledged or (before and before.state is E.APPROVED):
            return True
        group = topology.groups.get(event.group)
        if group is None:  # nobody is in it any more
            return True
        self.premises["A-7: a strict group is asked"] += group.strict_approval
        if operation.impact in group.automatic_approval and is_a_users_wish(operation):
            return True
        if not group.strict_approval and self._is_chosen(operation, group.owner):
            return True
        asked = self.asked.get(event_id, {})
        if group.strict_approval:
            return all(name in asked for name in event.resources)
        return any(event.group in self.groups_of[vm] for vm in asked)

    def _is_chosen(self, operation: Operation, owner: str) -> bool:
        """Whether an owner approved work by its choice of a start. Source: T-2."""
        place = (operation.maintenance, operation.host, owner)
        return any(
            each.approves
            and (each.maintenance, each.host, each.owner) == place
            and (each.decision.value == "now" or each.start_ms == operation.requested_start_ms)
            for each in self.state.choices.values()
        )


def step_checker(
    state: State, stimulus: PlaneStimulus, now_ms: int, policy: NoticePolicy
) -> StateChecker:
    """Return the checker as it would be with this state, which is its own, before one stimulus."""
    checker = StateChecker(EventQueue(now_ms), state, policy=policy)
    checker.operations = {**state.operations, **state.aborts}
    checker.events = dict(state.events)
    checker.untold = {each.number for each in checker.operations.values() if each.silent}
    checker.groups_of = {vm.name: {vm.group} for vm in state.topology.vms.values()}
    for event in state.events.values():
        checker.asked[event.id] = dict.fromkeys(event.approved_by)
        for vm in event.approved_by:
            checker.groups_of.setdefault(vm, set()).add(event.group)
    if isinstance(stimulus, ApprovalRequest):
        for event_id in stimulus.event_ids:
            checker.asked.setdefault(event_id.upper(), {})[stimulus.vm] = None
    elif isinstance(stimulus, Acknowledge):
        checker.acknowledged.update(each.upper() for each in stimulus.event_ids)
    for report in stimulus.reports if isinstance(stimulus, Reports) else (stimulus,):
        if isinstance(report, DriverAborted):
            checker.abort_calls[report.operation] = ABORT_TRIES
        elif isinstance(report, DriverDone):
            checker.reported[report.operation, report.attempt] = now_ms
    if isinstance(stimulus, HostValidated):  # only a driver's report begins a validation
        checker.validated.add((stimulus.operation, stimulus.attempt))
        checker.reported[stimulus.operation, stimulus.attempt] = now_ms
    return checker


def _without_later_starts(operation: Operation, changes: Changes) -> dict[int, Operation]:
    """The changed operations, less those that start in the same change after this one."""
    starts = [entry.operation for entry in changes.entries if entry.action == "operation.started"]
    later = starts[starts.index(operation.number) + 1 :]
    return {number: each for number, each in changes.operations.items() if number not in later}
