"""What the passing of time makes due, and corrections of the service's clock."""

from __future__ import annotations

from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet import transitions
from forewarn_core.fleet.deferral_commands import refuse_due
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.enabling import disable_silent
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.lifecycle import (
    AlertMove,
    OperationState,
    move_alert,
)
from forewarn_core.fleet.ticket_commands import close_due_tickets
from forewarn_core.fleet.waves import is_ahead_of_clock
from forewarn_core.fleet.windows import check_windows


def tick(draft: Draft, __: stimuli.Tick | None = None) -> None:
    """Do everything that is due except starting work; `step.py` starts work. See B-2, L-8.

    Costs the due work and the maintenances; blocked work is checked again only after its blocker's
    end.
    """
    policy = draft.policy
    disable_silent(draft)
    state = draft.state
    for number, _ in state.looks.due(draft.now_ms):
        draft.look_at(number)
    for maintenance in draft.maintenances.values():
        if is_ahead_of_clock(draft, maintenance):
            draft.look_at(maintenance.number)
    for number in state.ends.due(draft.now_ms - policy.overdue_after_s * SECOND_MS):
        operation = draft.operation(number)
        assert operation is not None, "a tick does not end operations"
        late = move_alert(operation, AlertMove.EXCEED)
        draft.put("operation.overdue", f"{late.id} runs longer than it should", late)
    check_windows(draft)
    close_due_tickets(draft)
    refuse_due(draft)
    state.set_ticked(draft.now_ms)


def proceed(draft: Draft, going_on: stimuli.Proceed) -> None:
    """Continue with the operations that an earlier step left because of its limit."""
    for number in going_on.operations:
        draft.look_at(number)


def marked(draft: Draft, report: stimuli.ClockMarked) -> None:
    """Store the mark of the service's clock, without history. See N-4."""
    draft.changes.mark = (report.boot, report.ahead_ms)
    draft.state.set_mark(draft.changes.mark)


def put_off(draft: Draft, report: stimuli.PutOff) -> None:
    """Preserve every notice when the clock is set forward. See N-4."""
    for operation in draft.operations(("state", OperationState.ANNOUNCED.value)):
        transitions.put_off(draft, operation, report.by_ms)
