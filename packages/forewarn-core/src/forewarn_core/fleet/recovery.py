"""How the control plane goes on after a crash, and from a backup. Source: L-7, U-2."""

from __future__ import annotations

from forewarn_base.protocol.documents import Document
from forewarn_base.values import replace
from forewarn_core.fleet import maintenance_commands, transitions
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.document import Enrolment, fresh
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.enabling import forgive
from forewarn_core.fleet.host_admission import plan_remaining_again
from forewarn_core.fleet.lifecycle import (
    Move,
    Operation,
    OperationState,
    move_event,
)
from forewarn_core.fleet.passing_time import tick
from forewarn_core.rules.local_time import UNREADABLE

RESTORED = "a backup was restored"
UNKNOWN = "unknown since a backup was restored; its driver is asked"


def recover(draft: Draft, recovery: stimuli.Recover) -> None:
    """Resume work that a crash interrupted: unpublished notices, beginnings and aborts. L-7.

    Costs all live operations, once at every start of the service.
    """
    forgive(draft, recovery.away_ms)
    _read_windows_again(draft)
    for loaded in tuple(draft.state.operations.values()):
        transitions.drop_absent_vms(draft, loaded)  # as the version before left them
        operation = draft.operation(loaded.number)
        if operation is None:
            continue
        draft.look_at(operation.number)
        if operation.unnoticed:
            transitions.renew(draft, operation)
        elif operation.state is OperationState.RUNNING and not operation.execution.begun_ms:
            draft.begin.append(operation.number)
    draft.abort += draft.state.aborts
    tick(draft)


def _read_windows_again(draft: Draft) -> None:
    """Plan again by windows whose time zone this machine does not know, or knows again. F-7.

    Costs the plans in force.
    """
    unreadable = any(not each.is_readable for each in draft.maintenance_policy.windows)
    for maintenance in tuple(draft.maintenances.values()):
        body = draft.plan_of(maintenance)
        subjects = [blocker.subject for _, blocker in body.blocked]
        subjects += [wave.waits.subject for wave in body.waves]
        if unreadable or any(UNREADABLE in each for each in subjects):
            text = f"{maintenance.id} is planned again by the time zones of this machine"
            plan_remaining_again(draft, maintenance, text)


def restored(draft: Draft, restore: stimuli.Restored) -> None:
    """Continue from a backup. O(the whole state). Source: U-2, U-3, U-5.

    The state does not know the time between backup and restore. In that time VMs may have read
    documents, waiting work may have been done, and running work may have ended. So the incarnation
    of every document is raised above any that was read. Work that had not started is withdrawn.
    Running work waits for its driver's answer. Tokens may have been revoked and calls refused, so
    `step.py` suspends access as well.
    """
    for name in draft.topology.groups:
        _raise_documents(draft, name, restore.incarnation)
    for maintenance in tuple(draft.maintenances.values()):
        if maintenance.running:
            maintenance_commands.pause(
                draft, stimuli.PauseMaintenance(maintenance.number, RESTORED)
            )
    for before in tuple(draft.state.operations.values()):
        operation = draft.operation(before.number)
        if operation is None:
            continue
        if operation.state is OperationState.RUNNING:
            _restore_running(draft, operation)
        else:
            transitions.cancel(draft, operation, RESTORED)


def _raise_documents(draft: Draft, group: str, incarnation: int) -> None:
    """Raise a group's incarnations and enable the group: VMs may have polled since the backup."""
    enrolment = draft.enrolment(group)
    enrolled = enrolment or Enrolment(group, enabled_ms=draft.now_ms, polled_ms=draft.now_ms)
    views = []
    for key in draft.topology.views_of(group):
        view = draft.view(key) or fresh(key, group)
        assert view.document.incarnation < incarnation, view
        views.append(replace(view, document=Document(incarnation, view.document.events)))
    draft.put("group.restored", f"the documents of {group} go on from a backup", enrolled, *views)
    draft.show(group)


def _restore_running(draft: Draft, operation: Operation) -> None:
    """Restore running work as unknown until its driver answers; a restore never begins work.

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
