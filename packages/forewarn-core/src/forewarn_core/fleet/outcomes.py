"""Outcomes of events that have left their documents: how they ended, and which promises were met.

Pure. Source: X-1.
"""

from __future__ import annotations

from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.values import Word, value
from forewarn_core.fleet.lifecycle import Event, EventState, Operation, OperationState

#: A start this long after NotBefore still counts as on time, in ms. The service wakes once a
#: second, and the notice must reach every node first.
ON_TIME_MS = 60_000


class EventResult(Word):
    """The outcome of an event."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"
    #: A host failure or other work replaced the operation, or a restore gave it new event ids.
    REPLACED = "replaced"
    #: The event is still in a document.
    UNKNOWN = "unknown"


class StartTiming(Word):
    """The start of the work compared with the NotBefore that VMs were shown."""

    EARLY = "early"
    ON_TIME = "on-time"
    LATE = "late"
    #: The work began without notice: a failure, or the group wants no notice.
    UNANNOUNCED = "unannounced"
    NEVER = "never"


@value
class EventOutcome:
    """One event, its operation, and its approvers."""

    event: Event
    operation: Operation
    #: Approvers as history names them, in order.
    approvers: tuple[str, ...] = ()

    @property
    def result(self) -> EventResult:
        """The outcome of the event."""
        if self.event.live:
            return EventResult.UNKNOWN
        if self.operation.replaced_by:
            return EventResult.REPLACED
        if self.event.state is EventState.CANCELLED:  # also once its VMs have left: L-9
            return EventResult.CANCELLED
        if self.event.id not in self.operation.events:
            return EventResult.REPLACED
        failed = self.operation.state is OperationState.FAILED
        return EventResult.FAILED if failed else EventResult.COMPLETED

    @property
    def start(self) -> StartTiming:
        """When the work began, compared with the last NotBefore shown."""
        started_ms = self.operation.execution.started_ms
        not_before_ms = self.operation.notice.not_before_ms
        if started_ms is None:
            return StartTiming.NEVER
        if not_before_ms is None:
            return StartTiming.UNANNOUNCED
        if started_ms < not_before_ms:
            return StartTiming.EARLY
        late = started_ms > not_before_ms + ON_TIME_MS
        return StartTiming.LATE if late else StartTiming.ON_TIME

    @property
    def not_asked(self) -> bool:
        """Whether the work began before NotBefore although nobody approved. See B-3."""
        return self.start is StartTiming.EARLY and not self.approvers

    @property
    def notice_given_s(self) -> int | None:
        """Seconds between the published notice and the start; None without a notice."""
        operation = self.operation
        if not (operation.notice.shown_ms and operation.execution.started_ms):
            return None
        return (operation.execution.started_ms - operation.notice.shown_ms) // 1000

    @property
    def interruption_ms(self) -> int | None:
        """Interruption of its VMs, as measured; None: not measured."""
        measured_ms = self.operation.execution.interruption_ms
        return None if measured_ms < 0 else measured_ms

    @property
    def lasted_s(self) -> int | None:
        """Seconds from start to end; None until both are reached."""
        operation = self.operation
        if not (operation.execution.started_ms and operation.ended_ms):
            return None
        return (operation.ended_ms - operation.execution.started_ms) // 1000

    def form(self) -> dict[str, object]:
        """Return the outcome for VMs and other systems, as JSON values with the API's names.

        Only operators may read the host, approvers and reasons, so these are left out.
        """
        operation = self.operation
        notice, execution = operation.notice, operation.execution
        times_ms = notice.not_before_ms, execution.started_ms, operation.ended_ms
        not_before, started, ended = (iso8601(each) if each else None for each in times_ms)
        return {
            "event": self.event.id,
            "type": operation.impact.value,
            "result": self.result.value,
            "notice_promised_s": operation.notice_s,
            "notice_given_s": self.notice_given_s,
            "not_before": not_before,
            "started": started,
            "start": self.start.value,
            "ended": ended,
            "lasted_s": self.lasted_s,
            "duration_s": operation.duration_s,
            "interruption_ms": self.interruption_ms,
        }
