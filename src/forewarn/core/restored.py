"""Changes to a state from a backup before VMs may read it.

Theory of operation: the state does not know the time between backup and restore. In that time VMs
may have read documents, waiting work may have been done, and running work may have ended. So the
incarnation of every document is raised above any that was read. Work that had not started is
withdrawn. Running work waits for its driver's answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core import transitions
from forewarn.core.document import Enrolment, fresh
from forewarn.core.lifecycle import Move, OperationState, move_event
from forewarn.core.maintenance_commands import pause
from forewarn.core.stimulus import PauseMaintenance
from forewarn.protocol.documents import Document
from forewarn.values import replace

if TYPE_CHECKING:
    from forewarn.core.document import View
    from forewarn.core.draft import Draft
    from forewarn.core.lifecycle import Operation
    from forewarn.core.stimulus import Restored

REASON = "a backup was restored"
UNKNOWN = "unknown since a backup was restored; its driver is asked"


def restored(draft: Draft, restore: Restored) -> None:
    """Continue from a backup. O(the whole state). Source: U-2, U-3."""
    for name in draft.topology.groups:
        _raise_documents(draft, name, restore.incarnation)
    for maintenance in tuple(draft.maintenances.values()):
        if maintenance.running:
            pause(draft, PauseMaintenance(maintenance.number, REASON))
    for before in tuple(draft.state.operations.values()):
        operation = draft.operation(before.number)
        if operation is None:
            continue
        if operation.state is OperationState.RUNNING:
            _doubt(draft, operation)
        else:
            transitions.cancel(draft, operation, REASON)


def _raise_documents(draft: Draft, group: str, incarnation: int) -> None:
    """Raise a group's incarnations and enable the group: VMs may have polled since the backup."""
    enrolment = draft.enrolment(group)
    known = enrolment or Enrolment(group, enabled_ms=draft.now_ms, polled_ms=draft.now_ms)
    views = [
        _raised(draft.view(key) or fresh(key, group), incarnation)
        for key in draft.topology.views_of(group)
    ]
    draft.put("group.restored", f"the documents of {group} go on from a backup", known, *views)
    draft.show(group)


def _raised(view: View, incarnation: int) -> View:
    assert view.document.incarnation < incarnation, view
    return replace(view, document=Document(incarnation, view.document.events))


def _doubt(draft: Draft, operation: Operation) -> None:
    """Wait for the driver's answer about running work; a restore never begins work.

    The work may have ended since the backup, and its old events must not return. So its events get
    new ids. Source: D-3.
    """
    gone = [move_event(event, Move.FAIL) for event in draft.events_of(operation)]
    shown = [replace(event, id=draft.new_guid()) for event in draft.events_of(operation)]
    execution = replace(
        operation.execution,
        begun_ms=operation.execution.since_ms,
        progress=UNKNOWN,
        progress_percent=-1,
    )
    events = tuple(event.id for event in shown)
    doubted = replace(operation, events=events, execution=execution)
    draft.put("operation.unknown", f"{operation.id} is {UNKNOWN}", doubted, *gone, *shown)
    for event in shown:
        draft.show(event.group)
