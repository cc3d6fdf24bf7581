"""Validated return: a host is checked after its work, before it counts as done. Source: T-7.

A host names the gate that validates it by its label `validation`. The events stay Started until the
gate passes. A failed validation is like a driver's failure: the operation is stuck, the host stays
out of service, and its maintenance counts a failed host.
"""

from __future__ import annotations

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet import targets, transitions
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import TRAITS, Cause
from forewarn_core.fleet.lifecycle import (
    AlertMove,
    FollowedBy,
    Operation,
    OperationState,
    move_alert,
    with_execution,
)
from forewarn_core.fleet.windows import open_incident

#: Label of a host with the name of the gate that validates it.
VALIDATION = "validation"


def validation_of(draft: Draft, operation: Operation) -> str:
    """Return the gate that validates the host of an operation after its work; empty: none.

    A move does not work on the host. The repairer reports the end of a failure.
    """
    host = draft.topology.hosts.get(operation.host)
    cause = operation.cause
    moves = cause is Cause.LIVE_MIGRATION or operation.followed_by is not FollowedBy.NOTHING
    if host is None or operation.of_vm or moves or TRAITS[cause].fault:
        return ""
    return dict(host.labels).get(VALIDATION, "")


def validate(draft: Draft, operation: Operation, gate: str) -> None:
    """Begin the validation of a host whose work is done."""
    begun = with_execution(operation, validation=gate, progress="", progress_percent=-1)
    text = f"the work of {begun.id} is done; gate {gate} validates host {begun.host}"
    draft.put("operation.validating", text, begun)


def passed(draft: Draft, report: stimuli.HostValidated) -> None:
    """End an operation whose host has passed its validation."""
    operation = _validating(draft, report)
    if operation:
        transitions.end(draft, operation, failed=False)


def failed(draft: Draft, report: stimuli.HostRejected) -> None:
    """Mark an operation as stuck, open an incident, and count a failed host."""
    operation = _validating(draft, report)
    if operation:
        reason = f"validation failed: {report.reason}"
        stuck = replace(move_alert(operation, AlertMove.BREAK), reason=reason)
        draft.put("operation.stuck", f"{stuck.id} is stuck: {reason}", stuck)
        open_incident(draft, stuck, "validation failed")  # the reason may name VMs of others: P-3
        targets.driver_failed(draft, stuck)


def _validating(
    draft: Draft, report: stimuli.HostValidated | stimuli.HostRejected
) -> Operation | None:
    """Return the operation of a report; None if the report is about an earlier attempt."""
    operation = draft.operation(report.operation)
    if operation is None or not operation.validating:
        return None
    assert operation.state is OperationState.RUNNING, operation
    return operation if operation.execution.attempt == report.attempt else None
