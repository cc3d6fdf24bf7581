"""What operators and users do with single operations, and the repair of a host."""

from __future__ import annotations

from forewarn_base.values import replace
from forewarn_core.fleet import fleet_changes, transitions
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import TRAITS, Cause
from forewarn_core.fleet.lifecycle import (
    Alert,
    Operation,
    OperationState,
)
from forewarn_core.fleet.operation_requests import plan as planned_operations
from forewarn_core.fleet.refusals import ReasonNeeded, Unknown, UnknownOperation, WrongState
from forewarn_core.fleet.topology import Health
from forewarn_core.fleet.validations import validation_of


def request(draft: Draft, command: stimuli.RequestMaintenance) -> tuple[int, ...]:
    """Plan requested work. See O-2."""
    return transitions.plan(draft, planned_operations(draft, command))


def cancel(draft: Draft, cancellation: stimuli.Cancel) -> tuple[int, ...]:
    """Withdraw an operation that has not started. See L-3."""
    operation = _live(draft, cancellation.operation)
    if operation.state is OperationState.RUNNING:
        raise WrongState(operation=operation.id, state=operation.state.value, asked="cancelled")
    transitions.cancel(draft, operation, cancellation.reason)
    return (operation.number,)


def complete(draft: Draft, completion: stimuli.Complete) -> tuple[int, ...]:
    """End a running operation as an operator reports. See L-8."""
    operation = _running(draft, completion.operation, "completed")
    failed, reason = completion.failed, completion.reason
    if not failed and not reason and validation_of(draft, operation):
        raise ReasonNeeded(operation=operation.id, host=operation.host)
    transitions.end(draft, operation, failed=failed, reason=reason, abort=True)
    return (operation.number,)


def retry(draft: Draft, retry: stimuli.Retry) -> tuple[int, ...]:
    """Begin a running operation again. See L-8."""
    operation = _running(draft, retry.operation, "retried")
    execution = replace(
        operation.execution,
        attempt=operation.execution.attempt + 1,
        begun_ms=None,
        progress="",
        progress_percent=-1,
        validation="",
    )
    again = replace(operation, execution=execution, reason="", alert=Alert.NONE)
    draft.put("operation.retried", f"{again.id} is begun again", again)
    draft.begin.append(again.number)
    return (again.number,)


def repair(draft: Draft, repair: stimuli.Repair) -> tuple[int, ...]:
    """Mark a host as repaired; end its failure and cancel work for its predicted failure.

    The success of the failure's own operation also repairs a host: see `transitions`.
    """
    if repair.host not in draft.topology.hosts:
        raise Unknown(kind="host", name=repair.host)
    about = []
    for operation in draft.operations(("host", repair.host)):
        if TRAITS[operation.cause].fault:
            transitions.end(
                draft, operation, failed=False, reason="the host is repaired", abort=True
            )
            about.append(operation.number)
        elif (
            operation.cause is Cause.HARDWARE_DEGRADED
            and operation.state is not OperationState.RUNNING
        ):
            transitions.cancel(draft, operation, "the host is repaired")
            about.append(operation.number)
    fleet_changes.set_health(draft, repair.host, Health.HEALTHY)
    return tuple(about)


def _live(draft: Draft, number: int) -> Operation:
    operation = draft.operation(number)
    if operation is None:
        raise UnknownOperation(name=f"op-{number}")
    return operation


def _running(draft: Draft, number: int, move: str) -> Operation:
    operation = _live(draft, number)
    if operation.state is not OperationState.RUNNING:
        raise WrongState(operation=operation.id, state=operation.state.value, asked=move)
    return operation
