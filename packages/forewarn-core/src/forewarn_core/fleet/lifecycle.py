"""State machines of operation, event and alert, with their tables and records.

Source: L-1 to L-8. The tables alone define the legal moves; `docs/lifecycle.svg` is drawn from
them. `step.py` decides when a move is due.
"""

from __future__ import annotations

from typing import TypeVar

from forewarn_base.errors import OurError
from forewarn_base.values import Word, replace, value
from forewarn_core.fleet.impact import DURATION_UNKNOWN_S, SECOND_MS, Cause, Impact, Source

_S = TypeVar("_S", bound=Word)
_M = TypeVar("_M", bound=Word)


class IllegalMove(OurError):
    """The tables forbid this move. The cause is a bug; nothing was changed."""

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
    #: The operation is announced and cannot start at its NotBefore.
    BLOCKED = "blocked"
    #: The operation has been running for too long.
    OVERDUE = "overdue"
    #: The operation is running, and its driver has failed.
    STUCK = "stuck"


class AlertMove(Word):
    """A cause that raises or clears an alert."""

    #: NotBefore is reached, and the operation cannot start.
    BLOCK = "block"
    #: The operation has run longer than its duration and the policy's limit.
    EXCEED = "exceed"
    #: The driver has failed.
    BREAK = "break"
    #: The notice, the run or the attempt starts again, or the operation has ended.
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

#: The status that a VM reads for each state; other states are not shown. Source: D-6.
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
    """The work that a maintenance does on a host after the VMs have left it. Source: F-1."""

    NOTHING = "nothing"
    #: The maintenance's own work follows at once.
    WORK = "work"
    #: The maintenance's own work follows, and then the VMs return.
    RETURN = "work-and-return"


@value
class Notice:
    """The notice of announced work. Times are ms since the epoch, UTC; None: not yet set."""

    announced_ms: int | None = None
    #: The NotBefore that VMs read; whole seconds.
    not_before_ms: int | None = None
    #: When the notice was known to be published; the notice period counts from here. Source: N-1,
    #: L-7.
    shown_ms: int | None = None


@value
class Execution:
    """The execution of an operation. Times are ms since the epoch, UTC; None: not yet."""

    started_ms: int | None = None
    #: When the driver confirmed that it had begun this attempt.
    begun_ms: int | None = None
    #: How often the driver was asked to begin; a retry is a new attempt. Source: L-8.
    attempt: int = 0
    #: Name of the driver, fixed at the start; empty before. Source: R-3.
    driver: str = ""
    #: The driver's last report on this attempt, as a clause for people; empty: no report.
    progress: str = ""
    #: Percentage of the work that the driver reports as done, 0 to 100; -1 unknown.
    progress_percent: int = -1
    #: Destinations that the driver has chosen, as (VM, host). Source: M-1.
    placements: tuple[tuple[str, str], ...] = ()
    #: Measured interruption of the VMs, as the driver reports, in ms; -1: not measured.
    interruption_ms: int = -1
    #: Name of the gate that validates the host after the work; empty: not begun. Source: T-7.
    validation: str = ""

    @property
    def since_ms(self) -> int:
        """When the current attempt began, if known, ms since the epoch UTC."""
        since_ms = self.started_ms if self.begun_ms is None else self.begun_ms
        assert since_ms is not None, self
        return since_ms


@value
class MaintenanceWindow:
    """The maintenance window of a host: all of the work from its VMs' moves to their return.

    Each operation of the work carries the window. It stays open until the last has ended. Times are
    ms since the epoch, UTC; None: no window, or not yet. Source: T-5.
    """

    #: When the work was to start, as announced: the NotBefore of its first operation.
    planned_open_ms: int | None = None
    #: When all of the work is to end. Work that starts late has its whole length from its start.
    planned_close_ms: int | None = None
    #: When the first operation started.
    opened_ms: int | None = None
    #: Number of the incident after the planned close has passed; 0: none.
    incident: int = 0


@value
class Operation:
    """One disturbance of one host or one VM.

    Times are milliseconds since the epoch, UTC; None: not yet, or not asked for.
    """

    number: int
    #: The number of the first operation of the same request. Source: A-8.
    request: int
    cause: Cause
    impact: Impact
    source: Source
    #: Whether G-1 applies to this operation.
    routine: bool
    #: The target host; for work on a VM, the VM's host at the time of the request.
    host: str
    #: All disturbed VMs, of all groups, sorted; fixed when announced.
    vms: tuple[str, ...]
    #: Whether the target is one VM rather than the whole host.
    of_vm: bool
    description: str
    #: Expected interruption in seconds; -1 unknown, 0 none. Source: D-9.
    duration_s: int = DURATION_UNKNOWN_S
    #: Required notice, in seconds; 0 for faults and silent deletions. Source: N-1.
    notice_s: int = 0
    #: Whether no event is created, because the group wants no notice. Source: N-1 (Terminate), O-2
    #: (reimage).
    silent: bool = False
    state: OperationState = OperationState.PLANNED
    #: Earliest start in the request; None: as early as notice allows.
    requested_start_ms: int | None = None
    created_ms: int = 0
    notice: Notice = Notice()
    execution: Execution = Execution()
    ended_ms: int | None = None
    #: Why the operation was cancelled, has failed, or is stuck while it runs.
    reason: str = ""
    #: The alert that was raised; a move that restarts the alert's clock clears it.
    alert: Alert = Alert.NONE
    #: Whether the driver must still be notified of the operation's end. Source: L-7.
    abort_owed: bool = False
    #: Host of the VMs afterwards; empty: unchanged.
    destination: str = ""
    #: The principal who requested the operation.
    actor: str = ""
    #: Ids of its events: one per affected group, by group name, then events of VMs that arrived
    #: during the work.
    events: tuple[str, ...] = ()
    #: Number of the operation's maintenance; 0: none. Source: F-1.
    maintenance: int = 0
    #: Earliest start even if approved; None: only the notice counts. L-6, F-3.
    earliest_start_ms: int | None = None
    #: Owners of the VMs that the work disturbs or disturbed, sorted; complete after the end. Empty
    #: before the start, and for a user's own work.
    disturbed_owners: tuple[str, ...] = ()
    #: Number of the operation that replaced this one, such as a failure; 0: none. Source: X-1.
    replaced_by: int = 0
    #: For a move that empties a host for a maintenance: the work on that host afterwards.
    followed_by: FollowedBy = FollowedBy.NOTHING
    #: VMs that could not see the operation in time because their node was cut off. Source: H-7.
    unseen_vms: tuple[str, ...] = ()
    #: Principal for whom the host counts as affected without a second person's confirmation; empty:
    #: a second person has confirmed the work, or the policy does not count it. Source: P-8.
    unconfirmed_by: str = ""
    window: MaintenanceWindow = MaintenanceWindow()

    @property
    def id(self) -> str:
        """The name shown to people and used in commands: `op-12`."""
        return f"op-{self.number}"

    @property
    def target(self) -> str:
        """The target host or VM."""
        return self.vms[0] if self.of_vm else self.host

    @property
    def is_return(self) -> bool:
        """Whether the operation returns a VM to its host after a maintenance. See F-1."""
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
        """Whether the operation has not ended."""
        return self.state in LIVE_OPERATION

    @property
    def window_host(self) -> str:
        """The host whose maintenance window the operation belongs to."""
        return self.destination if self.is_return else self.host

    @property
    def validating(self) -> bool:
        """Whether the host is being validated after the work. Source: T-7."""
        return (
            bool(self.execution.validation)
            and self.state is OperationState.RUNNING
            and self.alert is not Alert.STUCK
        )

    @property
    def closes_ms(self) -> int | None:
        """When its window closes, ms since the epoch UTC; None: not open, or an incident says so.

        Source: T-5.
        """
        window = self.window
        opened = self.live and window.opened_ms is not None and not window.incident
        return window.planned_close_ms if opened else None

    @property
    def unnoticed(self) -> bool:
        """Whether the operation is announced and its notice is not known to be published."""
        return self.state is OperationState.ANNOUNCED and not self.notice.shown_ms

    @property
    def destinations(self) -> tuple[str, ...]:
        """Known destination hosts of the operation's VMs, sorted."""
        hosts = {host for _, host in self.execution.placements}
        return tuple(sorted(hosts | {self.destination} if self.destination else hosts))

    @property
    def budget_key(self) -> str | tuple[str, str]:
        """Key of what the operation disturbs in budgets: its host by name, or its VM's place."""
        return ("vm", self.target) if self.of_vm else self.host

    def destination_of(self, vm: str) -> str:
        """Return the destination of a VM; empty if the VM stays or the driver has not chosen."""
        return dict(self.execution.placements).get(vm, self.destination)

    def has_moved(self, host: str) -> bool:
        """Whether a VM that is now on a host has left; for a return, whether it is back."""
        return host == self.destination if self.is_return else host != self.host

    def overdue_ms(self, grace_s: int) -> int:
        """Return when a running operation becomes overdue. See L-8."""
        assert self.state is OperationState.RUNNING, self
        return self.execution.since_ms + (max(self.duration_s, 0) + grace_s) * SECOND_MS


@value
class Event:
    """One group's share of an operation, which its VMs read and approve."""

    #: Upper-case GUID, never reused. Source: D-3.
    id: str
    #: The operation's number.
    operation: int
    group: str
    #: The disturbed VMs of this group, sorted. Source: D-5.
    resources: tuple[str, ...]
    state: EventState = EventState.SCHEDULED
    #: VMs that approved, in order; a strict group needs all of `resources`. Source: A-7.
    approved_by: tuple[str, ...] = ()
    #: When the event was approved and when it became Started, ms since the epoch UTC; None: not
    #: yet, or an earlier release did it.
    approved_ms: int | None = None
    started_ms: int | None = None

    @property
    def live(self) -> bool:
        """Whether documents still show the event."""
        return self.state in LIVE_EVENT

    def belongs_in(self, group: str, vm: str) -> bool:
        """Whether the document of a group, or of one VM in it, shows the event.

        Source: S-1, S-3, S-4.
        """
        return self.group == group and (not vm or vm in self.resources)


def progress_text(operation: Operation) -> str:
    """Return the progress that a driver reported, as a clause; empty without a report."""
    if operation.execution.progress_percent < 0:
        return operation.execution.progress
    share = f"{operation.execution.progress_percent} % done"
    return f"{operation.execution.progress}, {share}" if operation.execution.progress else share


def with_execution(operation: Operation, **changes: object) -> Operation:
    """Return a copy of an operation with changes to its execution."""
    return replace(operation, execution=replace(operation.execution, **changes))


def move_operation(operation: Operation, move: Move) -> Operation:
    """Return the operation after a move; raises `IllegalMove` if its table has none."""
    return replace(operation, state=_after(OPERATION_MOVES, operation.state, move, operation.id))


def move_alert(operation: Operation, move: AlertMove) -> Operation:
    """Return the operation with its alert raised or cleared; raises `IllegalMove`."""
    subject = f"the alert of {operation.id}"
    return replace(operation, alert=_after(ALERT_MOVES, operation.alert, move, subject))


def move_event(event: Event, move: Move) -> Event:
    """Return the event after a move; raises `IllegalMove` if its table has none."""
    return replace(event, state=_after(EVENT_MOVES, event.state, move, f"event {event.id}"))


def _after(moves: dict[tuple[_S, _M], _S], state: _S, move: _M, subject: str) -> _S:
    """Return the state after a move, by a table."""
    after = moves.get((state, move))
    if after is None:
        raise IllegalMove(subject=subject, state=state.value, move=move.value)
    return after
