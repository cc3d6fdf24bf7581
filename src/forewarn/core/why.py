"""Everything a live operation waits for, in words for people: who, what, and until when.

What blocks work is decided in `operation_requests.py` and `step.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.approvals import events_to_approve, is_unasked, unapproving, undecided_siblings
from forewarn.core.host_admission import start_shortage
from forewarn.core.impact import SECOND_MS
from forewarn.core.lifecycle import (
    Alert,
    Operation,
    OperationState,
    progress_text,
)
from forewarn.core.operation_requests import no_room, waits_since_ms, work_before
from forewarn.planning.blockers import Blocker, Code

if TYPE_CHECKING:
    from forewarn.core.draft import Draft


def why(draft: Draft, operation: Operation) -> tuple[Blocker, ...]:
    """Whatever waits has a first blocker. Source: F-4.

    Return all that an operation waits for, the first one first; empty when it has ended.

    Args:
        draft: the draft to read.
        operation: a live operation, or one that has ended.
    """
    if operation.state is OperationState.PLANNED:
        blocked = work_before(draft, operation)
        return (blocked,) if blocked else ()
    if operation.state is OperationState.ANNOUNCED:
        return _why_announced(draft, operation)
    if operation.state is OperationState.RUNNING:
        return _why_running(operation, draft.driver_waits(operation.number), draft.now_ms)
    return ()


def _why_announced(draft: Draft, operation: Operation) -> tuple[Blocker, ...]:
    blockers: list[Blocker] = []
    since_ms, due_ms = waits_since_ms(operation), operation.not_before_ms
    due = bool(operation.notice.shown_ms) and due_ms <= draft.now_ms
    for event in events_to_approve(draft, operation) if not due else ():
        text = f"group {event.group} has not approved event {event.id}"
        if draft.topology.groups[event.group].strict_approval:
            text += f" (missing: {', '.join(unapproving(draft, event))})"
        blockers.append(Blocker(Code.APPROVAL, event.group, since_ms, due_ms, text))
    siblings = undecided_siblings(draft, operation)
    if siblings and not blockers and not due:
        names = ", ".join(sibling.id for sibling in siblings)
        text = f"the same request's {names} is not approved"
        blockers.append(Blocker(Code.COUPLED, names, since_ms, due_ms, text))
    blocked = work_before(draft, operation)
    if blocked:
        blockers.append(blocked)
    short = no_room(operation, start_shortage(draft, operation))
    if short:
        blockers.append(short)
    if blockers:
        return tuple(blockers)
    released = due or not is_unasked(draft, operation)
    earliest_ms = operation.earliest_start_ms or 0
    if earliest_ms > draft.now_ms and released:
        at_ms, text = earliest_ms, "its earliest start is not reached"
    else:
        at_ms, text = due_ms, "its NotBefore is not reached"
    return (Blocker(Code.TIME, operation.id, since_ms, at_ms, text),)


def _why_running(operation: Operation, driver: str, now_ms: int) -> tuple[Blocker, ...]:
    """Return what running work waits for: people, or its driver. See L-8."""
    since_ms = waits_since_ms(operation)
    if operation.alert is Alert.STUCK:
        text = f"the driver failed: {operation.reason}; retry, complete or fail it"
        return (Blocker(Code.OPERATOR, operation.target, since_ms, text=text),)
    late = "; it takes longer than it should" if operation.alert is Alert.OVERDUE else ""
    if driver:
        return (Blocker(Code.OPERATOR, operation.target, since_ms, text=f"{driver}{late}"),)
    does = "works" if operation.execution.begun_ms else "has not begun to work"
    progress = progress_text(operation)
    text = f"the driver {does} on {operation.target}{progress and ': '}{progress}{late}"
    assert operation.execution.started_ms is not None, operation
    due_ms = operation.execution.started_ms + operation.duration_s * SECOND_MS
    clears_ms = due_ms if due_ms > now_ms else 0
    return (Blocker(Code.DRIVER, operation.target, since_ms, clears_ms, text),)
