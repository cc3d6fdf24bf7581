"""What a request for work does to a draft: its operations are planned, a failure begins at once.

Which requests are refused is decided in `admission.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core import admission, fleet_changes, transitions
from forewarn.core.impact import TRAITS, Cause
from forewarn.core.lifecycle import Operation, OperationState
from forewarn.core.maintenance import targets
from forewarn.core.topology import Health

if TYPE_CHECKING:
    from forewarn.core import stimulus as stimuli
    from forewarn.core.draft import Draft
    from forewarn.core.order import Order


def ask(draft: Draft, ask: stimuli.RequestMaintenance) -> tuple[int, ...]:
    """Plan maintenance; announce what may be, begin what is a fault."""
    planned = admission.plan(draft, ask)
    for operation in planned:
        plan(draft, operation)
    return tuple(operation.number for operation in planned)


def plan(draft: Draft, operation: Operation, changed: tuple[Order, ...] = ()) -> None:
    """Write a planned operation, with the order that it is of; begin it if it is a fault."""
    text = f"{operation.id}: {_sentence(operation)}"
    draft.put("operation.planned", text, operation, *changed)
    draft.planned.add(operation.number)
    if TRAITS[operation.cause].fault:
        _fail_hardware(draft, operation)
    elif operation.cause is Cause.HARDWARE_DEGRADED:
        fleet_changes.set_health(draft, operation.host, Health.DEGRADED)


def _sentence(operation: Operation) -> str:
    kind = "vm" if operation.of_vm else "host"
    asked = f"{operation.cause.value} of {kind} {operation.target} ({operation.impact.value})"
    return f"{asked} is asked for"


def _fail_hardware(draft: Draft, operation: Operation) -> None:
    """A host fails: what was foreseen or announced for it is over. Source: L-4, N-2."""
    lost = operation.cause is Cause.HOST_LOST
    reason = f"host {operation.host} {'is lost' if lost else 'failed'}"
    for other in draft.operations(("host", operation.host)):
        if other.number == operation.number:
            continue
        if other.state is OperationState.RUNNING:
            transitions.end(draft, other, failed=True, reason=reason, abort=True)
        else:
            transitions.cancel(draft, other, reason)
    fleet_changes.set_health(draft, operation.host, Health.FAILED)
    targets.host_failed(draft, operation.host)
    transitions.start_unannounced(draft, operation)
