"""What must hold over every step of the explored core.

The rules are those of the contract's invariants, and none of the core's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.lifecycle import EventState, OperationState
from forewarn.core.records import to_row
from forewarn.core.stimulus import (
    Acknowledge,
    Approve,
    DriverAborted,
    DriverDone,
    Recover,
    Retry,
)
from tests.simulator.checkers.contract import (
    OWED_S,
    is_a_users_wish,
    is_fault,
    is_routine,
    obstacle,
    owed_s,
    view_owed,
)
from tests.simulator.checkers.state_checker import ORDER
from tests.simulator.world.crash_points import Violation

if TYPE_CHECKING:
    from forewarn.core.document import View
    from forewarn.core.lifecycle import Event, Operation
    from forewarn.core.policy import Policy
    from forewarn.core.state import State
    from forewarn.core.step import Outcome
    from forewarn.core.stimulus import Stimulus
    from tests.simulator.exploration.situations import Situation

S, E = OperationState, EventState


def check_untouched(before: Situation, same: bool) -> None:
    """A step touches nothing, refused or not."""
    if not same:
        raise Violation("10", f"a step has changed the state that it was given: {before.state}")


def check_step(
    before: Situation, stimulus: Stimulus, outcome: Outcome, after: Situation, policy: Policy
) -> tuple[tuple[str, int], ...]:
    """Check a step; return the events whose time has come with it, and the notice of each."""
    _check_history(outcome)
    _check_events(before, stimulus, outcome, after)
    due: list[tuple[str, int]] = []
    for number, operation in outcome.changes.operations.items():
        known = before.state.operations.get(number) or before.state.aborts.get(number)
        _check_moves(known, operation, stimulus, before.state.last_number)
        if operation.state is S.ANNOUNCED:
            _check_notice(known, operation, after, policy)
        starts = operation.state is S.RUNNING and (known is None or known.state is not S.RUNNING)
        if starts and _check_start(known, operation, before, outcome, after):
            due += [
                (each, OWED_S[operation.impact.value] * 1000)
                for each in operation.events
                if after.state.events[each].group in before.state.enrolments
            ]
    _check_documents(before, outcome, after)
    _check_begin(before.state, stimulus, outcome, after.state)
    if isinstance(stimulus, DriverAborted) and stimulus.operation in after.state.aborts:
        raise Violation("L-7", f"op-{stimulus.operation} is owed the word for ever")
    _check_at_rest(after)
    return tuple(due)


def _check_history(outcome: Outcome) -> None:
    """Invariant 10: the images in history are the records written, last of each."""
    told = {
        (image.kind, image.key): image.row
        for entry in outcome.changes.entries
        for image in entry.images
    }
    for kind, key, record in outcome.changes.images():
        if kind == "enrolment" and (kind, key) not in told:
            continue  # when a group polled last makes no history
        row = None if record is None else to_row(record)
        if (kind, key) not in told or told[kind, key] != row:
            raise Violation("10", f"history does not tell what became of {kind} {key}")


def _check_events(
    before: Situation, stimulus: Stimulus, outcome: Outcome, after: Situation
) -> None:
    approved = {e.event for e in outcome.changes.entries if e.action == "event.approved"}
    for event in outcome.changes.events.values():
        known = before.state.events.get(event.id)
        operation = outcome.changes.operations.get(event.operation)
        operation = operation or before.state.operations[event.operation]
        if known is None:
            _check_birth(event, before, after)
        else:
            _check_same(known, event)
        scheduled = known is None or known.state is E.SCHEDULED
        if event.id in approved or (scheduled and event.state is E.APPROVED):
            if known is not None and known.state is not E.SCHEDULED:
                raise Violation("11", f"event {event.id} is approved twice")
            if not _may_be_approved(event, operation, stimulus, after.state):
                raise Violation("1", f"event {event.id} counts as approved")
    if isinstance(stimulus, Approve):
        _check_answered(stimulus, before.state, after.state)


def _check_birth(event: Event, before: Situation, after: Situation) -> None:
    """Invariants 3, 4 and 7: a new event is new, and names VMs of one group and domain."""
    topology = after.state.topology
    hosts = [topology.hosts[topology.vms[name].host] for name in event.resources]
    if len({(host.zone, host.update_domain) for host in hosts}) != 1:
        raise Violation("4", f"event {event.id} spans update domains")
    if {topology.vms[name].group for name in event.resources} != {event.group}:
        raise Violation("7", f"event {event.id} names VMs of another group")
    if int(event.id[:8], 16) <= before.guids:
        raise Violation("3", f"event {event.id} has come back")


def _check_same(known: Event, event: Event) -> None:
    """Invariants 3 and 11: an event goes on, stays what it was, and keeps its approvals."""
    if ORDER[known.state] > ORDER[event.state]:
        raise Violation("3", f"event {event.id} has come back to {event.state.value}")
    if (known.group, known.resources) != (event.group, event.resources):
        raise Violation("3", f"event {event.id} has become another one")
    if event.approved_by[: len(known.approved_by)] != known.approved_by:
        raise Violation("11", f"an approval of {event.id} is lost")


def _may_be_approved(event: Event, operation: Operation, stimulus: Stimulus, state: State) -> bool:
    """Whether an event that was Scheduled may be approved by what has happened. Source: A-1."""
    if isinstance(stimulus, Acknowledge) and event.id in stimulus.event_ids:
        return True
    topology = state.topology
    group = topology.groups.get(event.group)
    left = [name for name in event.resources if name in topology.vms]
    if group is None or not left:
        return True
    if operation.impact in group.automatic_approval and is_a_users_wish(operation):
        return True
    if group.strict_approval:
        return all(name in event.approved_by for name in left)
    if event.approved_by:
        return True  # by somebody, when all had to approve
    asks = isinstance(stimulus, Approve) and event.id in stimulus.event_ids
    return asks and topology.vms[stimulus.vm].group == event.group  # type: ignore[union-attr]


def _check_answered(approval: Approve, before: State, after: State) -> None:
    """Invariants 7 and 11: what was answered 200 is durable, and none of another's business."""
    vm = before.topology.vms.get(approval.vm)
    if vm is None:
        raise Violation("7", f"{approval.vm} approved, and is no more")
    for event_id in approval.event_ids:
        event = before.events.get(event_id)
        view = view_owed(vm, before.topology.groups[vm.group])
        owns = event is not None and (view == vm.group or vm.name in event.resources)
        if event is None or event.group != vm.group or not owns:
            raise Violation("7", f"{vm.name} approved {event_id}, which it is not shown")
        now = after.events.get(event_id)
        counted = now is None or now.state is not E.SCHEDULED or vm.name in now.approved_by
        if not counted and vm.name in event.resources:
            raise Violation("11", f"{vm.name}'s approval of {event_id} is not durable")


def _check_moves(
    known: Operation | None, operation: Operation, stimulus: Stimulus, last_number: int
) -> None:
    if known is None:
        if operation.number <= last_number:
            raise Violation("3", f"{operation.id} has come back")
        return
    if ORDER[known.state] > ORDER[operation.state]:
        raise Violation("3", f"{operation.id} has come back to {operation.state.value}")
    retried = isinstance(stimulus, Retry) and stimulus.operation == operation.number
    started = known.state is not operation.state and operation.state is S.RUNNING
    if operation.attempt - known.attempt != retried + started:
        raise Violation("9", f"{operation.id} is at attempt {operation.attempt} unasked")
    if known.state is S.RUNNING and not operation.live:
        said = isinstance(stimulus, DriverDone) and stimulus.operation == operation.number
        if said == operation.abort_owed:
            raise Violation("L-7", f"{operation.id} ends, and what its driver is owed is wrong")


def _check_notice(
    known: Operation | None, operation: Operation, after: Situation, policy: Policy
) -> None:
    """Invariant 6: at least the notice that is owed, and nothing put forward."""
    if operation.silent:
        return
    least_s = OWED_S[operation.impact.value]
    if known is None or known.state is S.PLANNED:
        least_s = owed_s(operation, after.state.topology)
        if operation.cause.value == "hardware-degraded":
            least_s = policy.prediction_s
    since_ms = operation.shown_ms or operation.announced_ms
    if operation.not_before_ms - since_ms < least_s * 1000:
        raise Violation("6", f"{operation.id} gives less than {least_s} s of notice")
    if known is not None and known.not_before_ms > operation.not_before_ms:
        raise Violation("6", f"{operation.id} was put forward")
    if operation.shown_ms not in {0, after.now_ms, known.shown_ms if known else 0}:
        raise Violation("6", f"{operation.id} was shown at another time than now")


def _check_start(
    known: Operation | None,
    operation: Operation,
    before: Situation,
    outcome: Outcome,
    after: Situation,
) -> bool:
    """Invariants 1 and 5; True if it started since its time has come."""
    if is_fault(operation):
        return False
    announced = known or operation
    due = bool(announced.shown_ms) and announced.not_before_ms <= after.now_ms
    if not due:
        _check_early(operation, before, outcome, after)
    starts = [e.operation for e in outcome.changes.entries if e.action == "operation.started"]
    later = starts[starts.index(operation.number) + 1 :]
    for other in after.state.operations.values():
        beside = other.number != operation.number and other.number not in later
        if beside and other.state is S.RUNNING:
            blocked = obstacle(operation, other, after.state.topology)
            if blocked:
                raise Violation("5", blocked)
    return due


def _check_early(
    operation: Operation, before: Situation, outcome: Outcome, after: Situation
) -> None:
    approved = {e.event for e in outcome.changes.entries if e.action == "event.approved"}
    asked = [
        event_id
        for event_id in operation.events
        if after.state.events[event_id].group in after.state.enrolments
    ]
    if not asked and operation.asked_ms > after.now_ms:
        raise Violation("1", f"{operation.id} started before its time")
    for event_id in asked:
        known = before.state.events.get(event_id)
        if event_id not in approved and (known is None or known.state is not E.APPROVED):
            raise Violation("1", f"{operation.id} started without approval of {event_id}")
    if operation.impact.value == "Terminate" and asked:
        for sibling in _undecided_siblings(operation, after.state):
            raise Violation("1", f"{operation.id} did not wait for {sibling.id}")


def _undecided_siblings(operation: Operation, state: State) -> list[Operation]:
    return [
        other
        for other in state.operations.values()
        if other.number != operation.number
        and other.request == operation.request
        and other.state is S.ANNOUNCED
        and other.not_before_ms == operation.not_before_ms
        and not _approved_by_all(other, state)
    ]


def _approved_by_all(operation: Operation, state: State) -> bool:
    events = [state.events[each] for each in operation.events]
    return all(e.state is not E.SCHEDULED for e in events if e.group in state.enrolments)


def _check_documents(before: Situation, outcome: Outcome, after: Situation) -> None:
    """Invariants 2 and 3, for what became durable."""
    for key, view in outcome.changes.views.items():
        known = before.state.views.get(key)
        if view is None or known is None or view == known:
            continue
        _check_view(known, view, before.guids, of_fleet=outcome.changes.of_fleet)
    for key, view in after.state.views.items():
        enabled_now = view.group not in before.state.enrolments
        if enabled_now and view.document.incarnation != bool(view.document.events):
            raise Violation("2", f"{key} begins at {view.document.incarnation}")


def _check_view(known: View, view: View, guids: int, *, of_fleet: bool) -> None:
    was = {event.event_id for event in known.document.events}
    for event in view.document.events:
        if int(event.event_id[:8], 16) <= guids and event.event_id not in was:
            raise Violation("3", f"{view.key} shows {event.event_id} again")
    step = view.document.incarnation - known.document.incarnation
    changed = view.document.events != known.document.events
    if (changed and step < 1) or (not of_fleet and step != changed):
        raise Violation("2", f"{view.key} has moved by {step}, changed: {changed}")


def _check_begin(before: State, stimulus: Stimulus, outcome: Outcome, after: State) -> None:
    """Invariant 9: a driver is told to begin what has just started, and nothing else."""
    if len(set(outcome.begin)) != len(outcome.begin):
        raise Violation("9", f"{outcome.begin} are to be begun: one of them twice")
    wanted = set()
    for number, operation in after.operations.items():
        if operation.state is S.RUNNING:
            known = before.operations.get(number)
            new = known is None or known.state is not S.RUNNING
            again = known is not None and known.attempt != operation.attempt
            cut_off = isinstance(stimulus, Recover) and not operation.begun_ms
            if new or again or cut_off:
                wanted.add(number)
    if wanted != set(outcome.begin):
        raise Violation("9", f"{sorted(outcome.begin)} are to be begun, not {sorted(wanted)}")
    if isinstance(stimulus, Recover):
        _check_taken_up(outcome, after)
    owed = {number for number in after.aborts if number not in before.aborts}
    owed |= set(after.aborts) if isinstance(stimulus, Recover) else set()
    if owed != set(outcome.abort):
        raise Violation("L-7", f"{sorted(outcome.abort)} are to be aborted, not {sorted(owed)}")


def _check_taken_up(outcome: Outcome, after: State) -> None:
    """L-7: a notice that nobody is known to have seen is given again after a start."""
    for operation in after.operations.values():
        unseen = operation.state is S.ANNOUNCED and not operation.shown_ms
        if unseen and operation.number not in outcome.changes.operations:
            raise Violation("L-7", f"the notice of {operation.id} is not given again")


def _check_at_rest(after: Situation) -> None:
    """Invariant 12: nothing waits that may go on, and what waits waits for what is there. F-4."""
    state, now_ms = after.state, after.now_ms
    live = state.operations
    for number, blocker in state.waits.items():
        if number not in live or blocker not in live:
            raise Violation("F-4", f"op-{number} waits for op-{blocker}, which is no more")
    for operation in live.values():
        others = [other for other in live.values() if other.number != operation.number]
        running = [other for other in others if other.state is S.RUNNING]
        if operation.state is S.ANNOUNCED:
            if _has_reason(operation, state, now_ms) and not any(
                obstacle(operation, other, state.topology) for other in running
            ):
                raise Violation("12", f"{operation.id} may start and does not")
        elif operation.state is S.PLANNED:
            if not is_routine(operation):
                raise Violation("12", f"{operation.id} may be announced and is not")
            told = [other for other in others if other.state is S.ANNOUNCED and is_routine(other)]
            if not any(obstacle(operation, o, state.topology) for o in (*running, *told)):
                raise Violation("12", f"{operation.id} may be announced and is not")


def _has_reason(operation: Operation, state: State, now_ms: int) -> bool:
    if operation.shown_ms and operation.not_before_ms <= now_ms:
        return True
    asked = any(state.events[each].group in state.enrolments for each in operation.events)
    if not asked:
        return operation.asked_ms <= now_ms
    if not _approved_by_all(operation, state):
        return False
    return operation.impact.value != "Terminate" or not _undecided_siblings(operation, state)
