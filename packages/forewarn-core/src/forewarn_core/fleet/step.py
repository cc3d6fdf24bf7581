"""One step of the control plane: a stimulus goes in, and all its effects come out.

Theory of operation
===================

`step` changes only the given state. The host process commits the changes, publishes and begins, in
this order: **commit, publish, begin** (L-7). If a stimulus is refused, or the commit fails, the
state is rolled back. After a crash the process loads the state, steps `Recover`, and repeats
publish and begin.

1.  *The machines.* An operation and its events move by the tables of `lifecycle.py`, a maintenance
    by those of `maintenance.py`. A move of an operation together with its events is one function of
    `transitions.py`.
2.  *A stimulus acts first.* What it changes of access is decided by `access/reducer.py`, which
    knows nothing of the fleet, and written here. Then its function in `_HANDLERS` checks,
    writes records, and puts their dependents on the agenda.
3.  *The agenda* is one ordered set of keys: a rule, and the number or group it applies to. The loop
    of `_settle` takes the first key and calls its rule until no key is left.
4.  *What wakes what.* A blocked operation records its blocker and is woken by it: by the end of
    another operation or a change that frees room in the same budget (`State.wait`), or by the end
    of an owner's rest (`State.wait_until`). A plan wakes its maintenance's work. Time wakes due
    work. A driver's report and an approval wake their own operation. The end of an operation wakes
    its maintenance. A change of the layout wakes the work on its hosts and VMs. Nothing else wakes
    work, so a rule about time needs a deadline (`deadlines.py`).
5.  *The order of the rules* is that of `draft.StepRule`. A maintenance concludes first, because
    its gate may stop work that is about to start. Announced work comes before planned work, which
    must keep clear of running work. Announced work that no other work can block comes before other
    announced work. Otherwise two fault domains could be disturbed (G-1). New hosts of a wave follow
    the work in progress. Documents come last: each is written once, for all changes of the commit.
6.  *Why it ends.* Each rule moves a record, or records its blocker. An operation moves at most
    twice, from planned to announced to running, and its blocker wakes it once. A maintenance
    without another host to announce waits for its hosts, its planner or its gate.
7.  *A portion.* A step announces, starts and withdraws at most `PORTION_MAX` operations. Further
    steps (`Proceed`) do the remaining work, so that approvals are answered in between.
    Conclusions and documents do not count.
8.  *Steps of one commit.* Many VMs may ask at the same instant. `take` makes one step for each,
    and undoes a refused one alone. `joined` makes one result of them, stored by one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Never

from forewarn_base.audit_chain import CallRecord
from forewarn_base.values import value
from forewarn_core.access import reducer as access
from forewarn_core.access.stimulus import AccessStimulus, ConfirmCall, ExpireCalls, SuspendAccess
from forewarn_core.fleet import (
    approvals,
    choice_commands,
    deferral_commands,
    driver_reports,
    enabling,
    guards,
    notice_reports,
    operation_commands,
    order_commands,
    passing_time,
    recovery,
    topology_commands,
    transitions,
    validations,
    waiting,
    waves,
)
from forewarn_core.fleet import maintenance_commands as commands
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet import ticket_commands as tickets
from forewarn_core.fleet.document import refreshed, visible
from forewarn_core.fleet.draft import Draft, StepRule, Terms, operation_by_group
from forewarn_core.fleet.host_admission import postpone, start_blockers
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.lifecycle import Alert, Operation, OperationState
from forewarn_core.fleet.lifts import lift, note_uses
from forewarn_core.fleet.maintenance import Checking, Maintenance
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import Changes, Entry, State
from forewarn_core.fleet.stimulus import FleetStimulus, PlaneStimulus
from forewarn_core.fleet.ticket import Ticket
from forewarn_core.fleet.windows import PASSED_MS
from forewarn_core.requests import ApprovalRequest

#: Maximum operations that one step announces or starts. Further steps do the other work, so
#: that approvals are answered in between: with ten groups on a host one step takes 7 ms.
PORTION_MAX = 8


def _no_changes() -> Changes:
    return Changes(last_number=0)


@value
class StepResult:
    """The result of the steps of one commit.

    Its effects follow in this order: commit, publish, begin and abort. L-7.
    """

    #: The writes, of one transaction; empty: the steps change nothing.
    changes: Changes = field(default_factory=_no_changes)
    #: Numbers of what the stimuli created or named, in order: operations, or a maintenance.
    numbers: tuple[int, ...] = ()
    #: The operations, the maintenance and the ticket with these numbers.
    operations: tuple[Operation, ...] = ()
    maintenance: Maintenance | None = None
    ticket: Ticket | None = None
    #: Announced operations, whose notice begins once it is published.
    announced: tuple[int, ...] = ()
    #: Operations to begin, or to begin again, once their documents are published.
    begin: tuple[Operation, ...] = ()
    #: Ended operations whose drivers must be notified, perhaps again.
    abort: tuple[Operation, ...] = ()
    #: Work that exceeds a step's portion: operations to announce or start, maintenances and
    #: requests with more hosts. See `Proceed`.
    remaining: tuple[int, ...] = ()
    #: Maintenances that need a plan; planning runs outside the writer.
    to_plan: tuple[int, ...] = ()
    #: Operations whose hosts must be validated, outside the writer. Source: T-7.
    validate: tuple[int, ...] = ()
    #: Number of the last commit that wrote; the control plane sets it.
    sequence: int = 0
    #: Whether VMs see a difference, and the operations that they see in new documents; set when
    #: the commit is published.
    visible: bool = False
    shown: tuple[int, ...] = ()

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries of history that the steps write."""
        return self.changes.entries

    @property
    def has_effects(self) -> bool:
        """Whether anything follows the publication."""
        return bool(self.announced or self.begin or self.abort)

    @property
    def affected(self) -> tuple[int, ...]:
        """Numbers of the operations that the effects after the publication are about."""
        running = [operation.number for operation in (*self.begin, *self.abort)]
        return tuple(dict.fromkeys((*self.announced, *running)))


def step(state: State, stimulus: PlaneStimulus, *, now_ms: int, terms: Terms) -> StepResult:
    """Apply a stimulus to the state; return the changes and their effects.

    The caller then calls `State.keep` once the changes are durable, or `State.rollback`.

    Raises:
        CallerError: the stimulus is refused; the state is as it was.
    """
    savepoint = state.savepoint()
    try:
        return joined([take(state, stimulus, now_ms=now_ms, terms=terms)])
    except BaseException:
        state.rollback(savepoint)
        raise


def take(state: State, stimulus: PlaneStimulus, *, now_ms: int, terms: Terms) -> Draft:
    """Apply a stimulus to the state, as one of the steps that `joined` ends.

    It continues from the state that the earlier steps have left.

    Raises:
        CallerError: the stimulus is refused; the state is as the earlier steps have left it.
    """
    savepoint = state.savepoint()
    draft = Draft(state, now_ms, terms)
    try:
        _apply(draft, stimulus)
    except BaseException:
        state.rollback(savepoint)
        raise
    return draft


def joined(drafts: Sequence[Draft], call: CallRecord | None = None) -> StepResult:
    """Update the documents, and return the result of the steps of one commit; call it once.

    Documents are updated once, for all steps, because an incarnation that nobody could read must
    not exist. Work that a later step has ended is not begun. `call` describes the request of the
    steps for the audit. Source: D-1.
    """
    state, changes = drafts[0].state, drafts[0].changes
    for draft in drafts[1:]:
        changes.extend(draft.changes)
    _refresh_all(drafts, changes)
    if changes:
        changes.call = call
    numbers = tuple([number for draft in drafts for number in draft.numbers])
    first = numbers[0] if numbers else 0
    live = [
        changes.operations.get(n) or state.operations.get(n) or state.aborts.get(n)
        for n in dict.fromkeys(numbers)
    ]
    announced = _distinct(number for draft in drafts for number in draft.announced)
    begin = _distinct(number for draft in drafts for number in draft.begin)
    abort = _distinct(number for draft in drafts for number in draft.abort)
    operations = state.operations
    return StepResult(
        changes,
        numbers,
        operations=tuple([each for each in live if each is not None]),
        maintenance=changes.maintenances.get(first) or state.maintenances.get(first),
        ticket=changes.tickets.get(first),
        announced=tuple([n for n in announced if n in operations and operations[n].unnoticed]),
        begin=tuple([operations[n] for n in begin if n in operations]),
        abort=tuple([state.aborts[n] for n in abort if n in state.aborts]),
        remaining=_distinct(number for draft in drafts for number in draft.remaining),
        to_plan=_distinct(number for draft in drafts for number in draft.to_plan),
        validate=_distinct(number for draft in drafts for number in draft.validate),
    )


def _refresh_all(drafts: Sequence[Draft], changes: Changes) -> None:
    """Update the documents of all steps' groups; each entry names the last step's actor."""
    last = {group: draft for draft in drafts for group in draft.groups}
    if not last:
        return
    groups: dict[Draft, list[str]] = {}
    for group, draft in last.items():
        groups.setdefault(draft, []).append(group)
    operations = operation_by_group(changes, drafts[0].state)
    for draft, names in groups.items():
        draft.changes = changes
        _refresh(draft, names, operations)


def _distinct(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(numbers))


def _apply(draft: Draft, stimulus: PlaneStimulus) -> None:
    """Run a step without its documents, and record its numbers and the work that it leaves."""
    confirmed = isinstance(stimulus, stimuli.Confirmed)
    needs_second = not confirmed and guards.needs_second_person(draft, stimulus)
    _change_access(draft, stimulus)
    draft.numbers = tuple(
        number
        for one in _for_core(stimulus)
        for number in _HANDLERS[type(one)](draft, one) or ()  # type: ignore[arg-type]
    )
    note_uses(draft)
    if needs_second:  # only a call that would be executed waits
        raise guards.ConfirmationNeeded
    _settle(draft)
    recovers = isinstance(stimulus, stimuli.Recover)
    maintenances = draft.state.maintenances if recovers else draft.changes.maintenances
    operations = draft.state.operations if recovers else draft.changes.operations
    draft.to_plan = _to_plan(maintenances)
    draft.validate = tuple([number for number, each in operations.items() if each.validating])


def _change_access(draft: Draft, stimulus: PlaneStimulus) -> None:
    """Write what a stimulus changes of access, before it changes anything else."""
    for each in _for_access(stimulus):
        within_ms = draft.maintenance_policy.confirm_within_s * SECOND_MS
        terms = access.AccessTerms(draft.now_ms, draft.authority, within_ms, draft.next_number)
        for write in access.step(draft.state.access, each, terms):
            draft.write_access(write)


def _for_access(stimulus: PlaneStimulus) -> Iterator[AccessStimulus]:
    if isinstance(stimulus, stimuli.Confirmed):
        yield ConfirmCall(stimulus.number)
    match stimuli.act_of(stimulus):
        case AccessStimulus() as act:
            yield act
        case stimuli.Tick() | stimuli.Recover():
            yield ExpireCalls()
        case stimuli.Restored():
            yield SuspendAccess(recovery.RESTORED)


def _for_core(stimulus: PlaneStimulus) -> tuple[FleetStimulus, ...]:
    match stimuli.act_of(stimulus):
        case AccessStimulus():
            return ()
        case stimuli.Reports() as several:
            return several.reports
        case act:
            return (act,)


def _to_plan(maintenances: Mapping[int, Maintenance]) -> tuple[int, ...]:
    """Return the maintenances that need a plan or a gate check. See F-2, F-5."""
    wanted = (
        number
        for number, each in maintenances.items()
        if each.live and (each.plan_wanted or isinstance(each.phase, Checking))
    )
    return tuple(sorted(wanted))


def next_deadline_ms(state: State, policy: NoticePolicy, now_ms: int) -> int | None:
    """Return when the next deadline is, ms since the epoch UTC; None without one.

    Past deadlines are left out, because the caller has stepped `Tick` since.
    """
    waiting_calls = bool(state.access.confirmations)
    expiry_ms = state.access.next_expiry_ms(now_ms) if waiting_calls else None
    deadlines_ms = [] if expiry_ms is None else [expiry_ms]
    for deadlines, later_ms in (
        (state.looks, 0),
        (state.ends, policy.overdue_after_s * SECOND_MS),
        (state.polls, enabling.disabled_ms(0, policy.disable_after_s)),
        (state.closes, PASSED_MS),
        (state.agreements, 0),
        (state.decisions, 0),
    ):
        next_ms = deadlines.next_ms(now_ms - later_ms)
        if next_ms is not None:
            deadlines_ms.append(next_ms + later_ms)
    return min(deadlines_ms, default=None)


# --- effects of each stimulus --------------------------------------------------------------


#: The function of each stimulus. It returns numbers of operations, or the number of a maintenance.
#: A test checks that every stimulus has an entry.
_HANDLERS: dict[type[FleetStimulus], Callable[[Draft, Never], tuple[int, ...] | None]] = {
    stimuli.RequestMaintenance: operation_commands.request,
    ApprovalRequest: approvals.approve,
    stimuli.Acknowledge: approvals.acknowledge,
    stimuli.Cancel: operation_commands.cancel,
    stimuli.Complete: operation_commands.complete,
    stimuli.Retry: operation_commands.retry,
    stimuli.Repair: operation_commands.repair,
    stimuli.DriverBegun: driver_reports.begun,
    stimuli.DriverProgressed: driver_reports.progressed,
    stimuli.DriverDone: driver_reports.done,
    stimuli.DriverFailed: driver_reports.broke,
    stimuli.DriverAborted: driver_reports.aborted,
    stimuli.NoticeShown: notice_reports.shown,
    stimuli.NotShown: notice_reports.not_shown,
    stimuli.ClockMarked: passing_time.marked,
    stimuli.PutOff: passing_time.put_off,
    stimuli.Enable: enabling.enable,
    stimuli.GroupsPolled: enabling.polled,
    stimuli.ChangeTopology: topology_commands.change,
    stimuli.Tick: passing_time.tick,
    stimuli.Proceed: passing_time.proceed,
    stimuli.Recover: recovery.recover,
    stimuli.Restored: recovery.restored,
    stimuli.CreateMaintenance: commands.create,
    stimuli.StartMaintenance: commands.start,
    stimuli.DeclareMaintenance: commands.declare,
    stimuli.ChooseStarts: choice_commands.choose,
    stimuli.NameFirstGroup: order_commands.name_first_group,
    stimuli.HoldHosts: order_commands.hold,
    stimuli.AskDeferral: deferral_commands.ask,
    stimuli.WithdrawDeferral: deferral_commands.withdraw,
    stimuli.DecideDeferral: deferral_commands.decide,
    stimuli.PauseMaintenance: commands.pause,
    stimuli.ResumeMaintenance: commands.resume,
    stimuli.CancelMaintenance: commands.cancel,
    stimuli.PostponeHosts: postpone,
    stimuli.PlanMade: commands.adopt_plan,
    stimuli.PlanFailed: commands.plan_failed,
    stimuli.GatePassed: commands.gate_passed,
    stimuli.GateFailed: commands.gate_failed,
    stimuli.ApplyPolicy: commands.apply_policy,
    stimuli.HostValidated: validations.passed,
    stimuli.HostRejected: validations.failed,
    stimuli.LiftConfirmation: lift,
    stimuli.OpenTicket: tickets.open_ticket,
    stimuli.MoveTicket: tickets.move,
    stimuli.ReopenTicket: tickets.reopen,
    stimuli.LinkTicket: tickets.link,
}


# --- rules after every stimulus ------------------------------------------------------------


def _settle(draft: Draft) -> None:
    """Run the agenda until it is empty or a portion is full.

    The draft keeps the remaining numbers, and the groups whose documents change.
    """
    agenda, moved = draft.agenda, 0
    while agenda:
        rule, subject = agenda.take()
        if isinstance(subject, str):
            draft.groups.append(subject)
        elif rule is StepRule.CONCLUDE:
            waves.conclude(draft, subject)
        elif moved >= PORTION_MAX:
            draft.remaining.append(subject)
        elif rule is StepRule.ANNOUNCE:
            moved += _announce_or_wait(draft, subject)
        elif rule is StepRule.WAVE:
            moved += waves.announce_hosts(draft, subject, PORTION_MAX - moved)
        else:
            moved += _start_or_wait(draft, subject)


def _announce_or_wait(draft: Draft, number: int) -> bool:
    """Announce planned work, or record its blocker. L-1, G-1.

    Only routine work waits before its announcement. Other work is announced at once (N-2, N-3) and
    may have to wait before it starts.
    """
    operation = draft.operation(number)
    if operation is None or operation.state is not OperationState.PLANNED:
        return False
    blocked = waiting.work_before(draft, operation) if operation.routine else None
    draft.state.wait(number, blocked.wakes if blocked else None)
    if blocked is None:
        transitions.announce(draft, operation)
    return blocked is None


def _start_or_wait(draft: Draft, number: int) -> bool:
    """Withdraw or start announced work, or record its blocker. L-1, L-2, G-1, F-3."""
    operation = draft.operation(number)
    if operation is None or operation.state is not OperationState.ANNOUNCED:
        return False
    withdrawn = waves.withdrawn_because(draft, operation) if operation.maintenance else ""
    if withdrawn:
        transitions.cancel(draft, operation, withdrawn)
        return True
    reason = reason_to_start(draft, operation)
    blocked = next(start_blockers(draft, operation), None) if reason else None
    draft.state.wait(operation.number, blocked.wakes if blocked else None)
    draft.state.wait_until(operation.number, (blocked.clears_ms if blocked else 0) or None)
    if reason and blocked is None:
        transitions.start(draft, operation, reason)
        return True
    if operation.not_before_ms <= draft.now_ms and operation.alert is Alert.NONE:
        first = blocked or waiting.unseen_blocker(draft, operation)
        why = first.text if first else "its notice is not published"
        transitions.note_blocked(draft, operation, why)
    return False


def reason_to_start(draft: Draft, operation: Operation) -> str:
    """Return why work may start now: all events approved, or NotBefore reached. Source: L-1.

    Empty: no reason. Other work is not considered. If all groups are disabled and no operator has
    approved, the work waits for no notice. See B-3.
    """
    if (operation.earliest_start_ms or 0) > draft.now_ms:
        return ""
    if operation.notice.shown_ms and operation.not_before_ms <= draft.now_ms:
        return "NotBefore is reached"
    if approvals.events_to_approve(draft, operation):
        return ""
    if approvals.is_unasked(draft, operation):
        due = approvals.unasked_start_ms(operation) <= draft.now_ms
        return approvals.why_unasked(operation) if due else ""
    return "" if approvals.is_coupled(draft, operation) else "everybody approved"


def _refresh(draft: Draft, groups: Iterable[str], operations: Mapping[str, Operation]) -> None:
    """Update the documents of groups, whose changes these operations explain. Source: D-1."""
    updated = []
    for group in groups:
        if not draft.enabled(group) or group not in draft.topology.groups:
            continue
        live = draft.live_events_in(group)
        for view in draft.views_in(group):
            after = refreshed(view, visible(view, live, draft.state.operations))
            if after is not view:
                updated.append(after)
    draft.put_documents(updated, operations)
