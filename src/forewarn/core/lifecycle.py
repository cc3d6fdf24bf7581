"""The machines of operation, event and alert as tables, and the values that move through them.

Source: L-1 to L-8. The tables alone say which move is legal; `docs/lifecycle.svg`
is drawn from them. No rule about *when* a move happens may live here (that is `step.py`).
"""

from __future__ import annotations

from typing import TypeVar

from forewarn.core.impact import DURATION_UNKNOWN_S, SECOND_MS, Cause, Impact, Source
from forewarn.errors import OurError
from forewarn.values import Word, replace, value

_S = TypeVar("_S", bound=Word)
_M = TypeVar("_M", bound=Word)


class IllegalMove(OurError):
    """A move that no table allows; always a bug, and nothing was changed."""

    code = "illegal-move"
    message = "{subject} is {state}: it cannot {move}."


class OperationState(Word):
    """The state of an operation."""

    PLANNED = "planned"
    ANNOUNCED = "announced"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EventState(Word):
    """The state of one group's event of an operation."""

    SCHEDULED = "scheduled"
    APPROVED = "approved"
    STARTED = "started"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class Alert(Word):
    """The alert that a live operation raises. Source: L-8."""

    NONE = "none"
    #: Announced; its NotBefore has come and it cannot start.
    BLOCKED = "blocked"
    #: Running for longer than it should.
    OVERDUE = "overdue"
    #: Running; its driver has failed.
    STUCK = "stuck"


class AlertMove(Word):
    """A cause that raises or clears an alert."""

    #: NotBefore has come, and it cannot start.
    BLOCK = "block"
    #: It has run longer than its duration and the policy's limit.
    EXCEED = "exceed"
    #: Its driver has failed.
    BREAK = "break"
    #: Its notice, its run or its attempt begins again, or it has ended.
    RESTART = "restart"


class Move(Word):
    """A cause of a state change."""

    ANNOUNCE = "announce"
    APPROVE = "approve"
    DUE = "due"
    FAULT = "fault"
    DONE = "done"
    FAIL = "fail"
    CANCEL = "cancel"


OPERATION_MOVES: dict[tuple[OperationState, Move], OperationState] = {
    (OperationState.PLANNED, Move.ANNOUNCE): OperationState.ANNOUNCED,
    (OperationState.PLANNED, Move.FAULT): OperationState.RUNNING,
    (OperationState.PLANNED, Move.CANCEL): OperationState.CANCELLED,
    (OperationState.ANNOUNCED, Move.DUE): OperationState.RUNNING,
    (OperationState.ANNOUNCED, Move.CANCEL): OperationState.CANCELLED,
    (OperationState.RUNNING, Move.DONE): OperationState.SUCCEEDED,
    (OperationState.RUNNING, Move.FAIL): OperationState.FAILED,
}

EVENT_MOVES: dict[tuple[EventState, Move], EventState] = {
    (EventState.SCHEDULED, Move.APPROVE): EventState.APPROVED,
    (EventState.SCHEDULED, Move.DUE): EventState.STARTED,
    (EventState.SCHEDULED, Move.CANCEL): EventState.CANCELLED,
    (EventState.APPROVED, Move.DUE): EventState.STARTED,
    (EventState.APPROVED, Move.CANCEL): EventState.CANCELLED,
    (EventState.STARTED, Move.DONE): EventState.COMPLETED,
    (EventState.STARTED, Move.FAIL): EventState.COMPLETED,
}

ALERT_MOVES: dict[tuple[Alert, AlertMove], Alert] = {
    (Alert.NONE, AlertMove.BLOCK): Alert.BLOCKED,
    (Alert.NONE, AlertMove.EXCEED): Alert.OVERDUE,
    (Alert.NONE, AlertMove.BREAK): Alert.STUCK,
    (Alert.OVERDUE, AlertMove.BREAK): Alert.STUCK,
    (Alert.BLOCKED, AlertMove.RESTART): Alert.NONE,
    (Alert.OVERDUE, AlertMove.RESTART): Alert.NONE,
    (Alert.STUCK, AlertMove.RESTART): Alert.NONE,
}

#: What a VM reads for each state; a state that is not here is not shown. Source: D-6.
SHOWN_AS: dict[EventState, str] = {
    EventState.SCHEDULED: "Scheduled",
    EventState.APPROVED: "Scheduled",
    EventState.STARTED: "Started",
}

LIVE_OPERATION = frozenset(
    {OperationState.PLANNED, OperationState.ANNOUNCED, OperationState.RUNNING}
)
LIVE_EVENT = frozenset(SHOWN_AS)


class FollowedBy(Word):
    """What a maintenance does to a host after the VMs have left it. Source: F-1."""

    NOTHING = "nothing"
    #: Its own work, at once.
    WORK = "work"
    #: Its own work; then the VMs return.
    RETURN = "work-and-return"


@value
class Notice:
    """The notice of announced work. Times are ms since the epoch, UTC; None: there is none yet."""

    announced_ms: int | None = None
    #: What is shown as NotBefore; whole seconds.
    not_before_ms: int | None = None
    #: When it was known to be published; the notice owed counts from here. Source: N-1, L-7.
    shown_ms: int | None = None


@value
class Execution:
    """How an operation is carried out. Times are ms since the epoch, UTC; None: not yet."""

    started_ms: int | None = None
    #: When the driver confirmed that it had begun this attempt.
    begun_ms: int | None = None
    #: Times the driver was asked to begin; a retry is a new attempt. Source: L-8.
    attempt: int = 0
    #: Name of the driver it was begun with, and stays with; empty before that. Source: R-3.
    driver: str = ""
    #: What its driver said last of this attempt's work, as a clause for people; empty: nothing.
    progress: str = ""
    #: How much of the work is done, as its driver reports, 0 to 100; -1 unknown.
    progress_percent: int = -1
    #: Where its driver takes VMs, as (VM, host), once it has chosen. Source: M-1.
    placements: tuple[tuple[str, str], ...] = ()
    #: How long its VMs were interrupted, as its driver measured it, in ms; -1: not measured.
    interruption_ms: int = -1

    @property
    def since_ms(self) -> int:
        """When its current attempt began, as far as that is known, ms since the epoch UTC."""
        since_ms = self.started_ms if self.begun_ms is None else self.begun_ms
        assert since_ms is not None, self
        return since_ms


@value
class Operation:
    """One disturbance of one host or one VM that carries maintenance out.

    Times are milliseconds since the epoch, UTC; None: not yet, or not asked for.
    """

    number: int
    #: The number of the first operation asked for in the same request. Source: A-8.
    request: int
    cause: Cause
    impact: Impact
    source: Source
    #: G-1 binds it.
    routine: bool
    #: The host it is done to; for a VM's own operation the host it ran on when asked for.
    host: str
    #: Every VM it disturbs, of all groups, sorted; fixed when announced.
    vms: tuple[str, ...]
    #: Whether the target is one VM rather than the whole host.
    of_vm: bool
    description: str
    #: Expected interruption in seconds; -1 unknown, 0 none. Source: D-9.
    duration_s: int = DURATION_UNKNOWN_S
    #: Notice owed, in seconds; 0 for faults and silent deletions. Source: N-1.
    notice_s: int = 0
    #: No event is made: its group asked for no notice. Source: N-1 (Terminate), O-2 (reimage).
    silent: bool = False
    state: OperationState = OperationState.PLANNED
    #: Earliest start the operator asked for; None: as early as notice allows.
    requested_start_ms: int | None = None
    created_ms: int = 0
    notice: Notice = Notice()
    execution: Execution = Execution()
    ended_ms: int | None = None
    #: Why it was cancelled, failed, or is stuck while it runs.
    reason: str = ""
    #: What people are alerted to, once; a move that restarts its clock clears it.
    alert: Alert = Alert.NONE
    #: It ended without its driver, which is still to be notified. Source: L-7.
    abort_owed: bool = False
    #: Host its VMs are on afterwards; empty: where they were.
    destination: str = ""
    #: Who asked for it.
    actor: str = ""
    #: Ids of its events, one per affected group in the order of the groups' names, then those of
    #: VMs that arrived while it ran.
    events: tuple[str, ...] = ()
    #: Number of the maintenance of many hosts that it is part of; 0: of none. Source: F-1.
    maintenance: int = 0
    #: Not started before, even if approved; None: nothing but its notice is waited for. L-6, F-3.
    earliest_start_ms: int | None = None
    #: Owners of the VMs it has disturbed, sorted, once it has ended; empty for a user's own work.
    disturbed_owners: tuple[str, ...] = ()
    #: Number of the operation that took its place, such as a failure; 0: none. Source: X-1.
    replaced_by: int = 0
    #: Of a move that empties its host for a maintenance: what follows.
    followed_by: FollowedBy = FollowedBy.NOTHING
    #: VMs that were not shown it in time, as their node was cut off. Source: H-7.
    unseen_vms: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The operation's name for people and commands: `op-12`."""
        return f"op-{self.number}"

    @property
    def target(self) -> str:
        """The host or VM it is done to."""
        return self.vms[0] if self.of_vm else self.host

    @property
    def is_return(self) -> bool:
        """Whether it takes one VM back to the host that it left for a maintenance. See F-1."""
        return self.of_vm and self.cause is Cause.LIVE_MIGRATION

    @property
    def not_before_ms(self) -> int:
        """NotBefore of announced work, ms since the epoch UTC."""
        assert self.notice.not_before_ms is not None, self
        return self.notice.not_before_ms

    @property
    def announced_ms(self) -> int:
        """When announced work was announced, ms since the epoch UTC."""
        assert self.notice.announced_ms is not None, self
        return self.notice.announced_ms

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.state in LIVE_OPERATION

    @property
    def unnoticed(self) -> bool:
        """Whether it is announced, and its notice is not known to be shown yet."""
        return self.state is OperationState.ANNOUNCED and not self.notice.shown_ms

    @property
    def destinations(self) -> tuple[str, ...]:
        """Hosts that VMs are moved to, as far as that is known, sorted."""
        hosts = {host for _, host in self.execution.placements}
        return tuple(sorted(hosts | {self.destination} if self.destination else hosts))

    @property
    def budget_key(self) -> str | int:
        """What it takes of budgets: its host, by name; work on one VM counts by its own number."""
        return self.number if self.of_vm else self.host

    def destination_of(self, vm: str) -> str:
        """The destination of a VM; empty: it stays, or its driver has not chosen yet."""
        return dict(self.execution.placements).get(vm, self.destination)

    def overdue_ms(self, grace_s: int) -> int:
        """When a running operation has run for longer than it should. See L-8."""
        assert self.state is OperationState.RUNNING, self
        return self.execution.since_ms + (max(self.duration_s, 0) + grace_s) * SECOND_MS


@value
class Event:
    """One group's share of an operation: what its VMs are shown and approve."""

    #: Upper-case GUID, never reused. Source: D-3.
    id: str
    #: The operation's number.
    operation: int
    group: str
    #: The VMs of this group that are disturbed, sorted. Source: D-5.
    resources: tuple[str, ...]
    state: EventState = EventState.SCHEDULED
    #: VMs that approved, in order; in a strict group all of `resources` must. Source: A-7.
    approved_by: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        """Whether it is still shown."""
        return self.state in LIVE_EVENT

    def belongs_in(self, group: str, vm: str) -> bool:
        """Whether the document of a group, or of one VM of it, shows it. Source: S-1, S-3, S-4."""
        return self.group == group and (not vm or vm in self.resources)


def progress_text(operation: Operation) -> str:
    """Return how far an operation's driver is, as a clause; empty if it said nothing."""
    if operation.execution.progress_percent < 0:
        return operation.execution.progress
    share = f"{operation.execution.progress_percent} % done"
    return f"{operation.execution.progress}, {share}" if operation.execution.progress else share


def with_execution(operation: Operation, **changes: object) -> Operation:
    """Return an operation with other values in its execution."""
    return replace(operation, execution=replace(operation.execution, **changes))


def move_operation(operation: Operation, move: Move) -> Operation:
    """Return the operation after a move.

    Raises:
        IllegalMove: the table has no such move; nothing is changed.
    """
    return replace(operation, state=_after(OPERATION_MOVES, operation.state, move, operation.id))


def move_alert(operation: Operation, move: AlertMove) -> Operation:
    """Return the operation with its alert raised, or cleared.

    Raises:
        IllegalMove: the table has no such move; nothing is changed.
    """
    subject = f"the alert of {operation.id}"
    return replace(operation, alert=_after(ALERT_MOVES, operation.alert, move, subject))


def move_event(event: Event, move: Move) -> Event:
    """Return the event after a move.

    Raises:
        IllegalMove: the table has no such move; nothing is changed.
    """
    return replace(event, state=_after(EVENT_MOVES, event.state, move, f"event {event.id}"))


def _after(moves: dict[tuple[_S, _M], _S], state: _S, move: _M, subject: str) -> _S:
    """Return the state to which a table leads."""
    after = moves.get((state, move))
    if after is None:
        raise IllegalMove(subject=subject, state=state.value, move=move.value)
    return after
