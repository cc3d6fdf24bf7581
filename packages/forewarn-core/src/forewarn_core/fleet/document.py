"""Defines the events in the documents of a group, and when an incarnation grows.

This module only reads operations and events. `protocol/documents.py` encodes documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_base.protocol.versions import RESOURCE_TYPE
from forewarn_base.values import replace, value
from forewarn_core.fleet.lifecycle import SHOWN_AS, Event, EventState, Operation


@value
class Departure:
    """A VM's departure from a host, or from a destination it no longer moves to. Source: M-3."""

    vm: str
    host: str
    #: Time of departure, ms since the epoch UTC.
    left_ms: int


@value
class Enrolment:
    """A group for which Scheduled Events is enabled. Times in ms since the epoch, UTC."""

    group: str
    #: Time of the first request; 0: no request yet, because the emulator enabled the group.
    enabled_ms: int
    #: Time of the last request of any VM of the group, rounded to a minute, or of the enabling
    #: without a request. Source: B-2.
    polled_ms: int
    #: Hosts that VMs of the group have left, the latest last; see `approvals.py`.
    departures: tuple[Departure, ...] = ()

    @property
    def last_poll_ms(self) -> int:
        """Last request of any VM, ms since the epoch UTC; 0: no request. See B-5."""
        return self.polled_ms if self.enabled_ms else 0


@value
class View:
    """One document as last shown: a group's, or one VM's own (S-3)."""

    #: `group` or `group/vm`.
    key: str
    group: str
    document: Document

    @property
    def vm(self) -> str:
        """The only VM that reads the document; empty: the whole group reads it."""
        return self.key[len(self.group) + 1 :]


def shown(operation: Operation, event: Event) -> ScheduledEvent:
    """Return an event as a VM reads it. Source: D-3 to D-9."""
    assert event.live, event
    assert event.operation == operation.number, (event, operation)
    started = event.state is EventState.STARTED
    return ScheduledEvent(
        event_id=event.id,
        status=SHOWN_AS[event.state],
        event_type=operation.impact.value,
        resource_type=RESOURCE_TYPE,
        resources=event.resources,
        not_before_ms=None if started else operation.not_before_ms,
        description=operation.description,
        source=operation.source.value,
        duration_s=operation.duration_s,
    )


def visible(
    view: View, live: Iterable[Event], operations: Mapping[int, Operation]
) -> tuple[ScheduledEvent, ...]:
    """Return the events that a document shows, oldest operation first. Source: S-1, S-3, S-5."""
    mine = [event for event in live if event.belongs_in(view.group, view.vm)]
    mine.sort(key=attrgetter("operation"))
    return tuple([shown(operations[event.operation], event) for event in mine])


def refreshed(view: View, events: tuple[ScheduledEvent, ...]) -> View:
    """Return the view with these events; the incarnation grows if they differ. Source: D-1."""
    if events == view.document.events:
        return view
    incarnation = view.document.incarnation + 1
    assert incarnation > view.document.incarnation >= 0, view
    return replace(view, document=Document(incarnation=incarnation, events=events))


#: The first operation number after the last restore from a backup.
RESTORED_FROM = 10**9

#: A restore raises operation numbers by this multiple of the incarnations' raise.
NUMBERS_PER_INCARNATION = 1000


def fresh(key: str, group: str, last_number: int = 0) -> View:
    """Return the empty document of a group that is being enabled. See D-1, B-2.

    After a restore its incarnation continues from the restore mark, because the backup may not have
    known the group. Source: U-2.
    """
    restored = last_number // NUMBERS_PER_INCARNATION if last_number >= RESTORED_FROM else 0
    return View(key=key, group=group, document=Document(incarnation=restored, events=()))


def ahead_of(view: View, dropped: list[View]) -> View:
    """Return the shared document with a higher incarnation than VMs' documents. Source: D-1.

    The incarnation changes only if a VM's document has the same or a higher one with other events.
    """
    document = view.document
    others = [
        each.document.incarnation
        for each in dropped
        if each.document.incarnation >= document.incarnation and each.document != document
    ]
    if not others:
        return view
    return replace(view, document=Document(max(others) + 1, document.events))
