"""Everything a live operation waits for, in words for people: who, what, and until when.

What stands in the way of work is decided in `admission.py` and `step.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.admission import Waiting, no_room, obstacle
from forewarn.core.approvals import unapproving, undecided_siblings
from forewarn.core.impact import SECOND_MS
from forewarn.core.lifecycle import (
    Alert,
    EventState,
    Operation,
    OperationState,
    progress_text,
)
from forewarn.core.maintenance.admission import start_shortage

if TYPE_CHECKING:
    from forewarn.core.draft import Draft


def why(draft: Draft, operation: Operation, *, driver: str = "") -> tuple[Waiting, ...]:
    """Return everything an operation waits for now; empty when it has ended.

    Args:
        draft: what is true now.
        operation: a live operation, or one that has ended.
        driver: whom or what its driver says it waits for; empty while the driver works.
    """
    if operation.state is OperationState.PLANNED:
        blocked = obstacle(draft, operation)
        return (blocked.waiting,) if blocked else ()
    if operation.state is OperationState.ANNOUNCED:
        return _why_announced(draft, operation)
    if operation.state is OperationState.RUNNING:
        return _why_running(operation, driver, draft.now_ms)
    return ()


def _why_announced(draft: Draft, operation: Operation) -> tuple[Waiting, ...]:
    found = []
    due = bool(operation.shown_ms) and operation.not_before_ms <= draft.now_ms
    for event in draft.events_of(operation) if not due else ():
        if event.state is EventState.SCHEDULED and draft.enabled(event.group):
            text = f"group {event.group} has not approved event {event.id}"
            if draft.topology.groups[event.group].strict_approval:
                text += f" (missing: {', '.join(unapproving(draft, event))})"
            found.append(Waiting("approval", text, operation.not_before_ms, (event.group,)))
    siblings = undecided_siblings(draft, operation)
    if siblings and not found and not due:
        names = ", ".join(sibling.id for sibling in siblings)
        text = f"the same request's {names} is not approved"
        found.append(
            Waiting("coupled", text, operation.not_before_ms, tuple(s.id for s in siblings))
        )
    blocked = obstacle(draft, operation)
    if blocked:
        found.append(blocked.waiting)
    short = no_room(operation, start_shortage(draft, operation))
    if short:
        found.append(short)
    if found:
        return tuple(found)
    asks = any(draft.enabled(event.group) for event in draft.events_of(operation))
    if operation.earliest_start_ms > draft.now_ms and (due or asks):  # all have approved it
        return (Waiting("time", "its earliest start is not reached", operation.earliest_start_ms),)
    return (Waiting("time", "its NotBefore is not reached", operation.not_before_ms),)


def _why_running(operation: Operation, driver: str, now_ms: int) -> tuple[Waiting, ...]:
    """Return what running work waits for: people, or its driver. Source: L-8."""
    if operation.alert is Alert.STUCK:
        text = f"the driver failed: {operation.reason}; retry, complete or fail it"
        return (Waiting("operator", text, on=(operation.target,)),)
    late = "; it takes longer than it should" if operation.alert is Alert.OVERDUE else ""
    if driver:
        return (Waiting("operator", f"{driver}{late}", on=(operation.target,)),)
    does = "works" if operation.begun_ms else "has not begun to work"
    said = progress_text(operation)
    text = f"the driver {does} on {operation.target}{said and ': '}{said}{late}"
    due_ms = operation.started_ms + operation.duration_s * SECOND_MS
    return (Waiting("driver", text, due_ms if due_ms > now_ms else 0, (operation.target,)),)
