"""The effect of each stimulus on a draft, before the joint rules of `step.py` apply.

Each function validates, writes, and returns the numbers of its operations. `step.py` contains the
rules that follow each write.
"""

from __future__ import annotations

from collections import Counter

from forewarn.core import fleet_changes, maintenance_commands, targets, transitions
from forewarn.core import stimulus as stimuli
from forewarn.core.approvals import recount, wake_coupled
from forewarn.core.deferral_commands import refuse_due
from forewarn.core.document import Enrolment, fresh
from forewarn.core.draft import Draft
from forewarn.core.host_admission import plan_remaining_again, plan_without
from forewarn.core.impact import MINUTE_S, SECOND_MS, TRAITS, Cause
from forewarn.core.indexes import deletion_key
from forewarn.core.lifecycle import (
    Alert,
    AlertMove,
    Move,
    Operation,
    OperationState,
    move_alert,
    move_event,
    with_execution,
)
from forewarn.core.operation_requests import plan as planned_operations
from forewarn.core.refusals import ReasonNeeded, Unknown, UnknownOperation, WrongState
from forewarn.core.state import Entry
from forewarn.core.ticket_commands import close_due_tickets
from forewarn.core.topology import Health
from forewarn.core.validations import validate, validation_of
from forewarn.core.waiting import some_names, unseen_vms, waits_until_shown
from forewarn.core.waves import is_ahead_of_clock
from forewarn.core.windows import check_windows
from forewarn.protocol.documents import Document
from forewarn.rules.local_time import UNREADABLE
from forewarn.values import replace

#: Polls are recorded to the minute to save writes; the time limit is a day (B-2).
POLL_RECORD_INTERVAL_S = MINUTE_S
#: Absences of the service shorter than this, in seconds, are not recorded for each group.
AWAY_S_MIN = 2 * POLL_RECORD_INTERVAL_S

#: Actions of entries about records of the fleet's layout.
_LAYOUT = frozenset(
    f"{kind}.{verb}" for kind in ("host", "group", "vm") for verb in ("added", "changed", "removed")
)
RESTORED = "a backup was restored"
UNKNOWN = "unknown since a backup was restored; its driver is asked"


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


def shown(draft: Draft, report: stimuli.NoticeShown) -> None:
    """Record that a notice is published; restart a late notice. See N-1."""
    for number in report.operations:
        operation = draft.operation(number)
        if operation is None or not operation.unnoticed:  # a report may be repeated
            continue
        delay_ms = draft.now_ms - operation.announced_ms
        if waits_until_shown(draft, operation, operation.unseen_vms):  # these VMs see the work now
            operation, delay_ms = replace(operation, unseen_vms=()), 0
        if operation.not_before_ms - draft.now_ms < operation.notice_s * SECOND_MS:
            transitions.renew(draft, operation, delay_ms=delay_ms)
            continue
        notice = replace(operation.notice, shown_ms=draft.now_ms)
        shown = replace(operation, notice=notice)
        draft.put("operation.shown", f"the notice of {shown.id} is published", shown)
        draft.look_at(number)


def not_shown(draft: Draft, report: stimuli.NotShown) -> None:
    """Record which VMs were not shown an operation in time; repeats are left out. M-4, H-7."""
    for number in report.operations:
        operation = draft.operation(number)
        if operation is None:
            continue
        vms = unseen_vms(draft, operation, report.hosts)
        waited = waits_until_shown(draft, operation, operation.unseen_vms)
        recorded = operation.unseen_vms if operation.unnoticed else ()
        is_repeat = vms == recorded or (waited and not vms)
        if recorded and is_repeat:
            continue
        names = (
            f"vm {some_names(vms)}"
            if vms
            else f"other VMs of its groups on host {some_names(report.hosts)}"
        )
        nodes = "nodes" if len(report.nodes) > 1 else "node"
        text = (
            f"{nodes} {some_names(report.nodes)} did not show {operation.id} in time: "
            f"{names} may not know of it"
        )
        if waits_until_shown(draft, operation, vms):
            text += ", and it waits for them"
        draft.put("operation.not-shown", text, replace(operation, unseen_vms=vms))


def marked(draft: Draft, report: stimuli.ClockMarked) -> None:
    """Store the mark of the service's clock, without history. See N-4."""
    draft.changes.mark = (report.boot, report.ahead_ms)
    draft.state.set_mark(draft.changes.mark)


def put_off(draft: Draft, report: stimuli.PutOff) -> None:
    """Preserve every notice when the clock is set forward. See N-4."""
    for operation in draft.operations(("state", OperationState.ANNOUNCED.value)):
        transitions.put_off(draft, operation, report.by_ms)


def enable(draft: Draft, enabling: stimuli.Enable) -> None:
    """Enable Scheduled Events for a group, at its first GET, or earlier. Source: B-1."""
    group = draft.topology.groups.get(enabling.group)
    if group is None:
        raise Unknown(kind="group", name=enabling.group)
    if draft.enabled(group.name):
        return
    enabled_ms = 0 if enabling.early else draft.now_ms
    enrolment = Enrolment(group.name, enabled_ms=enabled_ms, polled_ms=draft.now_ms)
    last = draft.changes.last_number
    views = [fresh(key, group.name, last) for key in draft.topology.views_of(group.name)]
    text = f"Scheduled Events is enabled for {group.name}"
    draft.put("group.enabled", text, enrolment, *views)
    draft.show(group.name)
    for event in draft.live_events_in(group.name):  # it may be approved already: N-3
        draft.look_at(event.operation)


def polled(draft: Draft, report: stimuli.GroupsPolled) -> None:
    """Record polls of groups to the minute, even after the clock was set back. See B-2, F-5.

    The first poll after a notice is recorded at once, because it shows that the group knows of it.
    """
    at_ms, operations = draft.now_ms - report.age_ms, draft.state.operations
    for group in sorted(report.groups):
        enrolment = draft.enrolment(group)
        if enrolment is None:
            continue
        if not enrolment.enabled_ms and not report.forgiven:
            draft.mark(replace(enrolment, enabled_ms=at_ms, polled_ms=at_ms))
        elif enrolment.polled_ms > draft.now_ms:
            draft.mark(replace(enrolment, polled_ms=draft.now_ms))
        elif enrolment.polled_ms <= at_ms - POLL_RECORD_INTERVAL_S * SECOND_MS or any(
            enrolment.polled_ms < (operations[event.operation].notice.shown_ms or 0) <= at_ms
            for event in draft.live_events_in(group)
        ):
            draft.mark(replace(enrolment, polled_ms=at_ms))


def change(draft: Draft, change: stimuli.ChangeTopology) -> None:
    """Change the fleet's layout; VMs that leave a host leave its announced work. See L-9."""
    names = [vm.name for vm in change.vms]
    names += [name for kind, name in change.removed if kind == "vm"]
    before = {name: draft.topology.vms.get(name) for name in names}
    fleet_changes.change(draft, change)
    transitions.follow_vms(draft, before)
    recount(draft, change.groups)
    plan_without(draft, frozenset(name for kind, name in change.removed if kind == "host"))
    if change.revision:
        _log_revision(draft, change.revision)


def _log_revision(draft: Draft, revision: str) -> None:
    """Write which revision of a file changed the fleet, if it changed anything."""
    entries = draft.changes.entries
    kinds = Counter(entry.action.partition(".")[2] for entry in entries if entry.action in _LAYOUT)
    if kinds:
        counts = ", ".join(f"{count} {verb}" for verb, count in kinds.items())
        text = f"revision {revision} of the topology is applied: {counts}"
        entries.append(Entry(draft.now_ms, draft.actor, "topology.applied", text))


def tick(draft: Draft, __: stimuli.Tick | None = None) -> None:
    """Do everything that is due except starting work; `step.py` starts work. See B-2, L-8.

    Costs the due work and the maintenances; blocked work is checked again only after its blocker's
    end.
    """
    policy = draft.policy
    silent_ms = draft.now_ms - disabled_ms(0, policy.disable_after_s)
    for group in draft.state.polls.due(silent_ms):
        enrolment = draft.enrolment(group)
        if enrolment is not None and enrolment.polled_ms <= silent_ms:
            _disable(draft, enrolment)
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


def _disable(draft: Draft, enrolment: Enrolment) -> None:
    """Disable groups whose VMs have not polled for a day. Source: B-2."""
    group = enrolment.group
    views = draft.views_in(group)
    text = f"Scheduled Events is disabled for {group}: nobody asked"
    draft.remove("group.disabled", text, enrolment, *views)
    for event in draft.live_events_in(group):
        operation = draft.state.operations[event.operation]
        draft.look_at(operation.number)
        wake_coupled(draft, operation, deletion_key(operation))


def recover(draft: Draft, recovery: stimuli.Recover) -> None:
    """Resume work that a crash interrupted: unpublished notices, beginnings and aborts. L-7.

    Costs all live operations, once at every start of the service.
    """
    _forgive(draft, recovery.away_ms)
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


def _forgive(draft: Draft, away_ms: int) -> None:
    """Do not count downtime of the service as silence of its VMs. See B-2.

    Poll times ahead of this clock are set back, so that they do not look recent later. See F-5.
    """
    forgiven_ms = away_ms if away_ms > AWAY_S_MIN * SECOND_MS else 0
    for enrolment in tuple(draft.state.enrolments.values()):
        polled_ms = min(enrolment.polled_ms + forgiven_ms, draft.now_ms)
        if polled_ms != enrolment.polled_ms:
            draft.mark(replace(enrolment, polled_ms=polled_ms))


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


def _reported_operation(draft: Draft, number: int, attempt: int) -> Operation | None:
    """Return the operation a driver reports on; None if the report is about an earlier attempt."""
    operation = draft.operation(number)
    if operation is None or operation.state is not OperationState.RUNNING:
        return None
    return operation if operation.execution.attempt == attempt else None


def disabled_ms(polled_ms: int, after_s: int) -> int:
    """Return when a group is disabled after its last poll, ms since the epoch UTC.

    See B-2.
    """
    return polled_ms + (after_s + POLL_RECORD_INTERVAL_S) * SECOND_MS
