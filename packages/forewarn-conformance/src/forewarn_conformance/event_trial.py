"""Follows an event from its announcement to its end; other modules check the documents.

Hooks create and cancel events. The first check that needs a stage of the event waits for this
stage.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any

from forewarn_base.values import value
from forewarn_conformance.checks import (
    ConformanceFault,
    NotApplicable,
    approval_of,
    expect_status,
    json_object,
)
from forewarn_conformance.exchange import Reply, ServiceUnderTest

#: Interval of polls of a client of the public service, in seconds. Source: C-1.
POLL_EVERY_S = 1.0
#: Default longest wait for a requested event, in seconds. Source: B-1.
TIMEOUT_S = 300.0

Event = dict[str, Any]
Act = Callable[[], None]


@value
class Hooks:
    """Actions that create, cancel or follow events, outside a VM's requests; None: unavailable."""

    #: Schedules an announced event for this VM.
    schedule: Act | None = None
    #: Cancels the last scheduled event.
    cancel: Act | None = None
    #: Schedules an event that starts at once, like a hardware failure.
    fail: Act | None = None
    #: Runs the agent in this VM during an action that creates an event and returns its id.
    agent: Callable[[Callable[[], str]], None] | None = None
    #: Whether the suite may approve events, whose work then starts.
    approve: bool = False
    #: The service for another VM of the group, and for a VM of another group.
    peer: ServiceUnderTest | None = None
    other: ServiceUnderTest | None = None
    #: Longest wait for the effect of an action, in seconds.
    timeout_s: float = TIMEOUT_S


@value
class Sight:
    """A document, and the time of its read by the server's clock, in seconds since the epoch."""

    incarnation: int
    events: tuple[Event, ...]
    read_s: float

    def event(self, event_id: str) -> Event | None:
        """Return the event with an id."""
        same = (each for each in self.events if each.get("EventId") == event_id)
        return next(same, None)


class EventTrial:
    """Follows one event. A failed stage fails its first check; later checks are skipped."""

    def __init__(self, target: ServiceUnderTest, hooks: Hooks) -> None:
        self.target, self.hooks = target, hooks
        #: All read documents, oldest first.
        self.sights: list[Sight] = []
        #: Ids of ended events.
        self.gone: set[str] = set()
        self._reached: dict[str, Sight | None] = {}
        self._event_id = ""

    def look(self) -> Sight:
        """Read the document."""
        reply = self.target.get()
        expect_status(reply, 200, of="GET")
        form = json_object(reply, "GET")
        sight = Sight(form["DocumentIncarnation"], tuple(form["Events"]), _date_of(reply))
        self.sights.append(sight)
        return sight

    # --- the stages ---------------------------------------------------------------------------

    def scheduled(self) -> tuple[Sight, Event]:
        """Schedule an event; return the event, and the first document with the event."""
        if self.hooks.schedule is None:
            raise NotApplicable("nothing can schedule an event (--schedule)")
        return self._stage("scheduled", lambda: self.announced(self.hooks.schedule))

    def approved(self) -> Event:
        """Approve the event in an unusual but valid form: case, type, older version."""
        if not self.hooks.approve:
            raise NotApplicable("the suite may not approve events (--approve)")

        def act() -> Sight:
            sight, event = self.scheduled()
            more = {"StartRequests": [{**event, "EventId": str(event["EventId"]).lower()}]}
            body = json.dumps({**more, "DocumentIncarnation": str(sight.incarnation)}).encode()
            kind = ("Metadata: true", "Content-Type: application/x-www-form-urlencoded")
            reply = self.target.post(body, version="2019-08-01", headers=kind)
            expect_status(reply, 200, of="the approval")
            if reply.body:
                raise ConformanceFault(
                    f"the approval is answered with the body {reply.body[:80]!r}"
                )
            return sight

        self.scheduled()
        return self._stage("approved", act)[1]

    def started(self) -> tuple[Sight, Event | None]:
        """Wait until the approved event has started; return None if the event is over."""
        self.approved()

        def act() -> Sight:
            return self._wait(
                lambda sight: self._status(sight) != "Scheduled",
                "the approved event has not started",
            )

        sight, _ = self._stage("started", act)
        return sight, sight.event(self._event_id)

    def ended(self) -> tuple[Sight, Event]:
        """Wait until the event disappears; return its last state."""
        _, event = self.scheduled()
        self.started()

        def act() -> Sight:
            return self._wait(
                lambda sight: sight.event(self._event_id) is None, "the started event does not end"
            )

        sight, _ = self._stage("ended", act)
        self.gone.add(self._event_id)
        return sight, event

    # --- other actions ------------------------------------------------------------------------

    def announced(self, act: Act | None) -> Sight:
        """Create an event, and return the first document with the event."""
        assert act is not None, "callers check that the hook exists"
        before = {str(each.get("EventId")) for each in self.look().events}
        act()
        sight = self._wait(
            lambda sight: any(each.get("EventId") not in before for each in sight.events),
            "no new event is shown",
        )
        new = [str(each["EventId"]) for each in sight.events if each["EventId"] not in before]
        again = self.gone.intersection(new)
        if again:
            raise ConformanceFault(f"the id {again.pop()} is used again")
        self._event_id = new[0]
        return sight

    def event_id(self) -> str:
        """Return the id of the last created event."""
        return self._event_id

    def wait_gone(self, event_id: str, fault: str) -> list[Sight]:
        """Wait until an event disappears; return the documents read in this time."""
        first = len(self.sights)
        self._wait(lambda sight: sight.event(event_id) is None, fault)
        self.gone.add(event_id)
        return self.sights[first:]

    def finish(self) -> None:
        """Follow the last created event to its end, if the suite may approve events."""
        if self._event_id in self.gone or not self._event_id:
            return
        if self.hooks.approve:
            self.target.post(approval_of(self._event_id))
            self.wait_gone(self._event_id, "the started event does not end")

    def _stage(self, name: str, reach: Callable[[], Sight]) -> tuple[Sight, Event]:
        if name not in self._reached:
            self._reached[name] = None
            self._reached[name] = reach()
        sight = self._reached[name]
        if sight is None:
            raise NotApplicable(f"the event could not be {name}")
        shown = (each.event(self._event_id) for each in reversed(self.sights))
        event = sight.event(self._event_id) or next(filter(None, shown))
        return sight, event

    def _status(self, sight: Sight) -> str:
        event = sight.event(self._event_id)
        return "" if event is None else str(event.get("EventStatus"))

    def _wait(self, until: Callable[[Sight], bool], fault: str) -> Sight:
        for _ in range(max(1, round(self.hooks.timeout_s / POLL_EVERY_S))):
            sight = self.look()
            if until(sight):
                return sight
            self.target.pause(POLL_EVERY_S)
        raise ConformanceFault(f"{fault} within {self.hooks.timeout_s:g} s")


def _date_of(reply: Reply) -> float:
    try:
        return parsedate_to_datetime(reply.headers.get("date", "")).timestamp()
    except ValueError as error:
        raise ConformanceFault("the answer has no Date") from error
