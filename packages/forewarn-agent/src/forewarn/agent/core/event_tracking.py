"""Event tracking: updates the records of the VM's events from each document; pure."""

from __future__ import annotations

from forewarn.agent.core import records as rec
from forewarn.agent.core.records import EventRecord
from forewarn.agent.core.rules import ADVISORY, NAMELESS, matching_rule
from forewarn.agent.core.values import NotifyIntent
from forewarn.agent.json_fields import member, several, texts
from forewarn_base.protocol.documents import NO_INCARNATION, Document, ScheduledEvent
from forewarn_base.protocol.versions import ADVISORY_STATUS

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from forewarn.agent.core.identity import Identity
    from forewarn.agent.core.rules import Rule
    from forewarn.agent.core.values import Intent
    from forewarn_base.protocol.documents import Document

EVENTS_MAX = 256  # most followed events; further events are only logged
MISSING_MS = 30_000  # an event missing this long in one incarnation is over
FINISHED_MAX = 64  # most stored ids of ended events, to detect stale documents


def notification(
    action: str, event: ScheduledEvent, text: str, *, level: str = "info"
) -> NotifyIntent:
    """Return a notification with a sentence about an event."""
    sentence = f"{event.event_type} {event.event_id} {text}."
    return NotifyIntent(action, event, text=sentence, level=level)


class TrackedEvents:
    """The events that this VM follows, each with the decision made at its first appearance."""

    def __init__(self, identity: Identity, rules: tuple[Rule, ...], *, out: list[Intent]) -> None:
        """Start without events; append notifications to `out`."""
        self._identity = identity
        self._rules = rules
        self._out = out
        self._records: dict[str, EventRecord] = {}
        self._finished: dict[str, str] = {}
        self._incarnation = NO_INCARNATION
        self._last: Document | None = None
        self._last_events: dict[str, ScheduledEvent] = {}  # by upper-case event id
        self._doubted: Document | None = None
        self._overdue = False
        self._beyond = ""
        #: How far the service's clock is ahead of `now_ms`.
        self.ahead_ms = 0
        #: Whether the agent has confirmed a document since its start.
        self.sighted = False
        #: Number that grows with each change that the journal must contain.
        self.generation = 0

    @property
    def records(self) -> tuple[EventRecord, ...]:
        """The records, in the order in which the events first appeared."""
        return tuple(self._records.values())

    @property
    def doubts(self) -> bool:
        """Whether the agent must read the document again as a confirmation."""
        return self._doubted is not None or self._overdue

    def deadlines(self) -> list[int]:
        """Return when to check missing events again, ms since the epoch."""
        if self._overdue:
            return []
        missing = (record.missing_ms for record in self._records.values() if record.missing_ms)
        return [since_ms + MISSING_MS for since_ms in missing]

    def time_passed(self, now_ms: int) -> None:
        """Request another read of the document when an event has been missing for `MISSING_MS`."""
        self._overdue = False
        for record in self._records.values():
            if record.missing_ms and _is_overdue(record, now_ms):
                self._overdue = True

    def get(self, event_id: str) -> EventRecord | None:
        """Return the record of an event; ignore case in the id."""
        return self._records.get(event_id.upper())

    def polled(self, document: Document, now_ms: int) -> None:
        """Update the records of events from a document, and append notifications."""
        followed = [record.event_id for record in self._records.values() if not record.gone]
        if document != self._doubted and doubtful(document, self._incarnation, followed=followed):
            self._doubted = document
            return
        self._doubted = None
        self.sighted = True
        if document == self._last:
            self._end_missing(now_ms, at_once=False)
            return
        newer = document.incarnation > self._incarnation or document.incarnation == NO_INCARNATION
        self._last = document
        self._last_events = {event.event_id.upper(): event for event in reversed(document.events)}
        self._incarnation = document.incarnation
        for event in sorted(document.events, key=self._is_of_others):
            record = self.get(event.event_id)
            if record is None:
                self._add_event(event, now_ms)
            elif not record.gone:
                record.missing_ms = 0
                if record.event != event:
                    self._update_event(record, event, now_ms=now_ms)
        self._end_missing(now_ms, at_once=newer)

    def _end_missing(self, now_ms: int, *, at_once: bool) -> None:
        """End the events missing in the document, at once or after `MISSING_MS`.

        A missing event without a newer incarnation violates D-1, unless the service started over
        (B-2). An event may also be missing from a wrong answer, but only for seconds.
        """
        for record in self._records.values():
            if record.gone or record.event_id in self._last_events:
                continue
            if at_once or _is_overdue(record, now_ms):
                self._end_event(record, now_ms)
            else:
                record.missing_ms = record.missing_ms or now_ms

    def shown_again(self, record: EventRecord) -> ScheduledEvent | None:
        """Return the event of an ended record if the event is announced again, or None."""
        event = self._last_event(record.event_id) if record.gone else None
        return event if event is not None and event.status != "Started" else None

    def revive(self, record: EventRecord, event: ScheduledEvent, *, now_ms: int) -> None:
        """Follow an ended event again, which is announced again with the same id. Source: D-3."""
        record.event = event
        record.gone = record.approved = record.unprepared = False
        record.ending = record.remains = ""
        record.missing_ms = record.group = 0
        record.ready_ms = now_ms
        record.stage = rec.PREPARING
        self._mark()
        self._notify("seen", record, "is announced again", level="warning")

    def _last_event(self, event_id: str) -> ScheduledEvent | None:
        return self._last_events.get(event_id)

    def _is_of_others(self, event: ScheduledEvent) -> bool:
        return not self._identity.named_in(event.resources)

    def _add_event(self, event: ScheduledEvent, now_ms: int) -> None:
        event_id = event.event_id.upper()
        if self._finished.get(event_id) == "recover":
            return  # only a stale document shows an ended event
        if len(self._records) >= EVENTS_MAX:
            if self._beyond != event_id:  # log the first event beyond the limit once
                self._beyond = self._beyond or event_id
                text = (
                    f"is not followed: the agent already follows the maximum of {EVENTS_MAX} events"
                )
                if self._beyond == event_id:
                    self._out.append(notification("not-followed", event, text, level="error"))
            return
        self._beyond = ""
        record = EventRecord(event, now_ms)
        self._records[event_id] = record
        self._apply_rule(record, now_ms)

    def _apply_rule(self, record: EventRecord, now_ms: int) -> None:
        event = record.event
        rules = (ADVISORY,) if event.status == ADVISORY_STATUS else self._rules
        rule = (
            matching_rule(rules, event, self._identity, now_ms=now_ms + self.ahead_ms)
            if event.event_id
            else NAMELESS
        )
        record.rule = rule.name
        record.action = rule.action
        record.then = rule.then
        record.coordination = rule.coordination
        record.stand_in_s = rule.stand_in_s
        record.plan = rule.steps if rule.action == "prepare" else ()
        record.checks = rule.checks
        record.group = 0
        record.ready_ms = now_ms
        record.next_ms = None
        record.hit = record.started and self._identity.named_in(event.resources)
        record.unprepared = record.started
        if record.started or rule.action in ("ignore", "notify"):
            record.stage = rec.UNDER_WAY if record.started else rec.WATCHING
        else:
            record.stage = rec.PREPARING if rule.action == "prepare" else rec.READY
        self._mark()
        late = " and has already started" if record.started else ""
        level = "info" if rule.action == "ignore" else "warning"
        self._notify("seen", record, f"is announced{late}; rule: {rule.name}", level=level)

    def _update_event(self, record: EventRecord, event: ScheduledEvent, *, now_ms: int) -> None:
        before = record.event
        record.event = event
        self._mark()
        if before.status == ADVISORY_STATUS != event.status:
            self._apply_rule(record, now_ms)
            return
        mine = self._identity.named_in(event.resources)
        if record.started and before.status != "Started":
            record.hit = record.hit or mine
            record.start_untold = record.stage == rec.APPROVING and record.next_ms is None
            if record.stage not in (rec.PREPARING, rec.ABORTING, rec.ABORTED):
                record.stage = rec.UNDER_WAY
                record.next_ms = None
            if not record.start_untold:
                self.tell_start(record)
            return
        self._notify("changed", record, "has changed")
        record.asked_ms = 0
        was_mine = self._identity.named_in(before.resources)
        if was_mine and not mine and not record.started:
            record.stage = rec.ABORTING
            record.ending = record.ending or "cancel"
        elif record.stage == rec.ABORTED:
            if mine and not was_mine:
                self._apply_rule(record, now_ms)
        elif record.stage in (rec.WATCHING, rec.READY) and not record.plan:
            self._apply_rule(record, now_ms)

    def tell_start(self, record: EventRecord) -> None:
        """Append the notification that an event has started."""
        record.start_untold = False
        self._mark()
        mine = self._identity.named_in(record.event.resources)
        self._notify("started", record, "has started", level="warning" if mine else "info")

    def _end_event(self, record: EventRecord, now_ms: int) -> None:
        if record.start_untold:
            self.tell_start(record)
        due_ms = record.event.not_before_ms
        due = due_ms is not None and now_ms + self.ahead_ms >= due_ms
        consented = record.approved or record.stage == rec.APPROVING
        came = record.hit or record.started or consented or due
        record.gone = True
        record.missing_ms = 0
        record.next_ms = None
        record.ending = record.ending or ("recover" if came else "cancel")
        self._mark()
        self._notify(
            "ended" if came else "cancelled", record, "is over" if came else "is cancelled"
        )

    def finish(self, record: EventRecord, now_ms: int) -> None:
        """Delete the record of an event that is over; store its id.

        Follow an event that is announced again, unless the event had started.
        """
        del self._records[record.event_id]
        self._finished.pop(record.event_id, None)
        self._finished[record.event_id] = "recover" if record.hit or record.started else "cancel"
        while len(self._finished) > FINISHED_MAX:
            del self._finished[next(iter(self._finished))]
        self._mark()
        again = self._last_event(record.event_id)
        if again is not None:
            self._add_event(again, now_ms)

    def form(self) -> dict[str, object]:
        """Return the durable state, in JSON types."""
        return {
            "incarnation": self._incarnation,
            "names": sorted(self._identity.names),
            "events": [record.form() for record in self.records],
            "finished": dict(self._finished),
        }

    def restore(self, form: Mapping[str, object]) -> None:
        """Restore the state from a result of `form`; a new document must confirm the state.

        The rules decide again about events that were ignored under another name of the VM, because
        the earlier name may have been a guess. Source: C-3.
        """
        events = [rec.read_event_record(event) for event in several(form, "events")]
        if form.get("names", self.form()["names"]) != self.form()["names"]:
            events = [event for event in events if event.action not in ("ignore", "notify")]
        self._records = {record.event_id: record for record in events}
        self._finished = texts(form, "finished")
        self._incarnation = member(form, "incarnation", NO_INCARNATION)

    def _mark(self) -> None:
        self.generation += 1

    def _notify(self, action: str, record: EventRecord, text: str, *, level: str = "info") -> None:
        self._out.append(notification(action, record.event, text, level=level))


def _is_overdue(record: EventRecord, now_ms: int) -> bool:
    missed = bool(record.missing_ms) and not record.gone
    return missed and now_ms >= record.missing_ms + MISSING_MS


def doubtful(document: Document, incarnation: int, *, followed: Iterable[str]) -> bool:
    """Return whether the agent must read a document a second time before acting.

    If one wrong answer undid a preparation, the VM would be unprepared at the start of the event. A
    lower incarnation, or a missing event without a new incarnation, is permitted by B-2, but is
    also typical of a stale answer.
    `followed` are ids in upper case.

    Source: D-1, B-2, C-7.
    """
    if document.incarnation > incarnation:
        return False
    shown = {event.event_id.upper() for event in document.events}
    return document.incarnation < incarnation or not shown.issuperset(followed)
