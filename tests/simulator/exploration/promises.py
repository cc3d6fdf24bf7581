"""What must hold over every step of the explored core.

What random worlds check of a change is checked by the same checker; in here is what holds more
sharply where nothing is hidden. No rule is the core's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn_core.fleet.lifecycle import EventState, OperationState
from forewarn_core.fleet.records import to_row
from forewarn_core.fleet.state import TABLES
from forewarn_core.fleet.stimulus import DriverAborted, DriverDone, Recover, Retry
from forewarn_core.requests import ApprovalRequest
from tests.simulator.checkers.contract import (
    OWED_S,
    is_fault,
    is_routine,
    obstacle,
    view_owed,
)
from tests.simulator.checkers.state_checker import step_checker
from tests.simulator.exploration.copies import cloned
from tests.simulator.world.crash_points import Violation

if TYPE_CHECKING:
    from forewarn_core.fleet.lifecycle import Operation
    from forewarn_core.fleet.policy import NoticePolicy
    from forewarn_core.fleet.state import State
    from forewarn_core.fleet.step import StepResult
    from forewarn_core.fleet.stimulus import PlaneStimulus
    from tests.simulator.exploration.situations import Situation

S, E = OperationState, EventState


def check_untouched(before: Situation, same: bool) -> None:
    """A step touches nothing, refused or not."""
    if not same:
        raise Violation("10", f"a step has changed the state that it was given: {before.state}")


def check_step(
    before: Situation,
    stimulus: PlaneStimulus,
    outcome: StepResult,
    after: Situation,
    policy: NoticePolicy,
) -> tuple[tuple[str, int], ...]:
    """Check a step; return the events whose time has come with it, and the notice of each."""
    _check_history(outcome)
    _check_changes(before, stimulus, outcome, after, policy)
    due: list[tuple[str, int]] = []
    for number, operation in outcome.changes.operations.items():
        known = before.state.operations.get(number) or before.state.aborts.get(number)
        _check_moves(known, operation, stimulus)
        was_shown_ms = known.notice.shown_ms if known else None
        if operation.notice.shown_ms not in {None, after.now_ms, was_shown_ms}:
            raise Violation("6", f"{operation.id} was shown at another time than now")
        starts = operation.state is S.RUNNING and (known is None or known.state is not S.RUNNING)
        if starts and _is_due(known or operation, after.now_ms):
            due += [
                (each, OWED_S[operation.impact.value] * 1000)
                for each in operation.events
                if after.state.events[each].group in before.state.enrolments
            ]
    _check_begin(before.state, stimulus, outcome, after.state)
    if isinstance(stimulus, DriverAborted) and stimulus.operation in after.state.aborts:
        raise Violation("L-7", f"op-{stimulus.operation} is owed the word for ever")
    _check_at_rest(after)
    return tuple(due)


def _check_history(outcome: StepResult) -> None:
    """Invariant 10: the images in history are the records written, last of each."""
    told = {
        (image.kind, image.key): image.row
        for entry in outcome.changes.entries
        for image in entry.images
    }
    for kind in TABLES:
        for key, record in outcome.changes.records(kind).items():
            if kind == "enrolment" and (kind, key) not in told:
                continue  # when a group polled last makes no history
            row = None if record is None else to_row(record)
            if (kind, key) not in told or told[kind, key] != row:
                raise Violation("10", f"history does not tell what became of {kind} {key}")


def _check_changes(
    before: Situation,
    stimulus: PlaneStimulus,
    outcome: StepResult,
    after: Situation,
    policy: NoticePolicy,
) -> None:
    """Check a change as that of a random world, and that no id was given out twice."""
    state = before.state
    own = cloned(state, of_fleet=True)
    step_checker(own, stimulus, after.now_ms, policy).durable(outcome.changes)
    for event in outcome.changes.events.values():
        if event.id not in state.events and int(event.id[:8], 16) <= before.guids:
            raise Violation("3", f"event {event.id} has come back")
    if isinstance(stimulus, ApprovalRequest):
        _check_answered(stimulus, state, after.state)


def _check_answered(approval: ApprovalRequest, before: State, after: State) -> None:
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


def _check_moves(known: Operation | None, operation: Operation, stimulus: PlaneStimulus) -> None:
    """Invariant 9: its attempts are counted, and its driver is owed the word of its end."""
    if known is None:
        return
    retried = isinstance(stimulus, Retry) and stimulus.operation == operation.number
    started = known.state is not operation.state and operation.state is S.RUNNING
    if operation.execution.attempt - known.execution.attempt != retried + started:
        raise Violation("9", f"{operation.id} is at attempt {operation.execution.attempt} unasked")
    if known.state is S.RUNNING and not operation.live:
        said = isinstance(stimulus, DriverDone) and stimulus.operation == operation.number
        if said == operation.abort_owed:
            raise Violation("L-7", f"{operation.id} ends, and what its driver is owed is wrong")


def _is_due(announced: Operation, now_ms: int) -> bool:
    """Whether it starts since its time has come."""
    due = bool(announced.notice.shown_ms) and announced.not_before_ms <= now_ms
    return due and not is_fault(announced)


def _undecided_siblings(operation: Operation, state: State) -> list[Operation]:
    return [
        other
        for other in state.operations.values()
        if other.number != operation.number
        and other.request == operation.request
        and other.state is S.ANNOUNCED
        and other.notice.not_before_ms == operation.notice.not_before_ms
        and not _approved_by_all(other, state)
    ]


def _approved_by_all(operation: Operation, state: State) -> bool:
    events = [state.events[each] for each in operation.events]
    return all(e.state is not E.SCHEDULED for e in events if e.group in state.enrolments)


def _check_begin(before: State, stimulus: PlaneStimulus, outcome: StepResult, after: State) -> None:
    """Invariant 9: a driver is told to begin what has just started, and nothing else."""
    begin = [each.number for each in outcome.begin]
    if len(set(begin)) != len(begin):
        raise Violation("9", f"{begin} are to be begun: one of them twice")
    wanted = set()
    for number, operation in after.operations.items():
        if operation.state is S.RUNNING:
            known = before.operations.get(number)
            new = known is None or known.state is not S.RUNNING
            again = known is not None and known.execution.attempt != operation.execution.attempt
            cut_off = isinstance(stimulus, Recover) and not operation.execution.begun_ms
            if new or again or cut_off:
                wanted.add(number)
    if wanted != set(begin):
        raise Violation("9", f"{sorted(begin)} are to be begun, not {sorted(wanted)}")
    if isinstance(stimulus, Recover):
        _check_taken_up(outcome, after)
    owed = {number for number in after.aborts if number not in before.aborts}
    owed |= set(after.aborts) if isinstance(stimulus, Recover) else set()
    aborts = {each.number for each in outcome.abort}
    if owed != aborts:
        raise Violation("L-7", f"{sorted(aborts)} are to be aborted, not {sorted(owed)}")


def _check_taken_up(outcome: StepResult, after: State) -> None:
    """L-7: a notice that nobody is known to have seen is given again after a start."""
    for operation in after.operations.values():
        unseen = operation.state is S.ANNOUNCED and not operation.notice.shown_ms
        if unseen and operation.number not in outcome.changes.operations:
            raise Violation("L-7", f"the notice of {operation.id} is not given again")


def _check_at_rest(after: Situation) -> None:
    """Invariant 12: nothing waits that may go on, and what waits waits for what is there. F-4."""
    state, now_ms = after.state, after.now_ms
    live = state.operations
    for number, blocker in state.waits.items():
        if number not in live or (isinstance(blocker, int) and blocker not in live):
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
    if operation.maintenance and (operation.earliest_start_ms or 0) > now_ms:
        return False
    if operation.notice.shown_ms and operation.not_before_ms <= now_ms:
        return True
    events = [state.events[each] for each in operation.events]
    asked = any(event.group in state.enrolments for event in events)
    approved = events and all(event.state is E.APPROVED for event in events)
    if not asked and not approved:
        return bool(operation.maintenance) or (operation.requested_start_ms or 0) <= now_ms
    if not _approved_by_all(operation, state):
        return False
    return operation.impact.value != "Terminate" or not _undecided_siblings(operation, state)
