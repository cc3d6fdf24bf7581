"""What drivers report about the work that they do."""

from __future__ import annotations

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet import targets, transitions
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.lifecycle import (
    Alert,
    AlertMove,
    Operation,
    OperationState,
    move_alert,
    with_execution,
)
from forewarn_core.fleet.validations import validate, validation_of


def begun(draft: Draft, report: stimuli.DriverBegun) -> None:
    """Record that the driver has begun."""
    operation = _reported_operation(draft, report.operation, report.attempt)
    if operation and not operation.execution.begun_ms:
        begun = with_execution(operation, begun_ms=draft.now_ms)
        if begun.alert is Alert.OVERDUE:  # the duration counts from now
            begun = move_alert(begun, AlertMove.RESTART)
        draft.put("operation.begun", f"the driver has begun {begun.id}", begun)


def progressed(draft: Draft, report: stimuli.DriverProgressed) -> None:
    """Record a driver's progress. Source: R-1."""
    assert -1 <= report.percent <= 100, report
    operation = _reported_operation(draft, report.operation, report.attempt)
    if operation:
        transitions.progress(draft, operation, report)


def done(draft: Draft, report: stimuli.DriverDone) -> None:
    """End an operation that its driver has completed, or validate its host. See L-5, T-7."""
    operation = _reported_operation(draft, report.operation, report.attempt)
    if operation and not operation.execution.validation:  # a driver may repeat its report
        measured = with_execution(operation, interruption_ms=report.interruption_ms)
        gate = validation_of(draft, measured)
        if gate:
            validate(draft, measured, gate)
        else:
            transitions.end(draft, measured, failed=False)


def broke(draft: Draft, report: stimuli.DriverFailed) -> None:
    """Mark an operation as stuck after its driver failed; operators decide. Source: L-8."""
    operation = _reported_operation(draft, report.operation, report.attempt)
    if operation and operation.alert is not Alert.STUCK:
        reason = report.reason or "the driver gave no reason"
        stuck = replace(move_alert(operation, AlertMove.BREAK), reason=reason)
        draft.put("operation.stuck", f"{stuck.id} is stuck: {reason}", stuck)
        targets.driver_failed(draft, stuck)


def aborted(draft: Draft, report: stimuli.DriverAborted) -> None:
    """Record that a driver was notified of an operation's end, or cannot be notified. See L-7."""
    operation = draft.state.aborts.get(report.operation)
    if operation:
        settled = replace(operation, abort_owed=False)
        text = f"the driver was notified that {settled.id} has ended"
        if report.failed:
            text = f"the driver could not be notified that {settled.id} has ended: {report.failed}"
        draft.put("operation.abort-failed" if report.failed else "operation.aborted", text, settled)


def _reported_operation(draft: Draft, number: int, attempt: int) -> Operation | None:
    """Return the operation a driver reports on; None if the report is about an earlier attempt."""
    operation = draft.operation(number)
    if operation is None or operation.state is not OperationState.RUNNING:
        return None
    return operation if operation.execution.attempt == attempt else None
