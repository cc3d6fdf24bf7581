"""AKS's notice on a node: reads its conditions as scheduled events; pure.

AKS's node problem detector keeps the condition `VMEventScheduled` true while an event is scheduled,
and names the event in the message. `PreemptionScheduled` is true beside it for a Preempt. Earlier
releases had a type for each impact, such as `RebootScheduled`. Messages have not always had the
event's id, so that one is derived where it is missing. Source: K-5.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from forewarn_base.ids import guid_of
from forewarn_base.kubernetes.node_notices import TEXT_CHARACTERS_MAX, TYPES_HELD, WRITER
from forewarn_base.protocol.documents import ScheduledEvent
from forewarn_base.protocol.timestamps import parse
from forewarn_base.protocol.versions import TYPE_SINCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: In place of an event type: the condition's message names the type.
MESSAGE = "message"

#: Condition type of AKS -> event type, or `message`.
AKS_TYPES: Mapping[str, str] = {
    "VMEventScheduled": MESSAGE,
    "PreemptionScheduled": "Preempt",
    "PreemptScheduled": "Preempt",
    "FreezeScheduled": "Freeze",
    "RebootScheduled": "Reboot",
    "RedeployScheduled": "Redeploy",
    "TerminateScheduled": "Terminate",
}

EVENT_TYPES = tuple(TYPE_SINCE)

_SUBJECT = re.compile(r"([A-Za-z]{1,40}) (Scheduled|Started)\b")
_TIME = re.compile(r"[A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{4} \d{1,2}:\d{2}:\d{2} (?:GMT|UTC)")
_DURATION = re.compile(r"DurationInSeconds: ?(-?\d{1,9})\b")
_ID = re.compile(r"EventId: ?([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})\b")


class ConditionReader:
    """Reads the conditions of one node, time after time.

    It remembers the last events, because a message without an id changes when its event starts, and
    because a condition is `Unknown` while AKS cannot ask for events.
    """

    def __init__(self, types: Mapping[str, str] = AKS_TYPES) -> None:
        """Store the condition types, each with its event type or `message`."""
        self._types = types
        self._last: dict[str, ScheduledEvent] = {}

    def read(self, node: Mapping[str, Any]) -> tuple[ScheduledEvent, ...]:
        """Return the events that a node's conditions announce; each names the node as its VM.

        A condition that the agent has set itself announces nothing.
        """
        own = _own_types(node)
        events: dict[str, ScheduledEvent] = {}
        for condition in (node.get("status") or {}).get("conditions") or []:
            kind = str(condition.get("type"))
            if kind not in self._types or kind in own:
                continue
            before = self._last.get(kind)
            if condition.get("status") == "True":
                event = self._event(node, condition, before)
            else:
                event = before if condition.get("status") == "Unknown" else None
            if event is not None:
                events[kind] = event
        self._last = events
        return _distinct(events.values())

    def _event(
        self, node: Mapping[str, Any], condition: Mapping[str, Any], before: ScheduledEvent | None
    ) -> ScheduledEvent | None:
        """Return the event of a true condition; None if its message names no known type."""
        message = str(condition.get("message") or "")[: 2 * TEXT_CHARACTERS_MAX]
        subject = _SUBJECT.match(message)
        event_type = self._types[str(condition["type"])]
        if event_type == MESSAGE:
            event_type = subject[1].capitalize() if subject else ""
        if event_type not in EVENT_TYPES:
            return None
        started = subject is not None and subject[2] == "Started"
        duration, named = _DURATION.search(message), _ID.search(message)
        event_id = named[1].upper() if named else ""
        if not event_id and before is not None and before.event_type == event_type:
            event_id = before.event_id
        name = str(node["metadata"]["name"])
        return ScheduledEvent(
            event_id=event_id or _derived_id(name, event_type, condition),
            status="Started" if started else "Scheduled",
            event_type=event_type,
            resources=(name,),
            not_before_ms=None if started else _time_in(message),
            description=f"AKS reports {condition['type']} on the node.",
            duration_s=int(duration[1]) if duration else -1,
        )


def _own_types(node: Mapping[str, Any]) -> frozenset[str]:
    """Return the types of the conditions that an agent has set on the node."""
    marks = node["metadata"].get("annotations") or {}
    if not str(marks.get(WRITER, "")).startswith("agent/"):
        return frozenset()
    return frozenset(str(marks.get(TYPES_HELD, "")).split(","))


def _derived_id(name: str, event_type: str, condition: Mapping[str, Any]) -> str:
    """Return an id in the form of a GUID, the same as long as the condition stays true."""
    text = "\n".join((name, event_type, str(condition.get("lastTransitionTime"))))
    return guid_of(text)


def _time_in(message: str) -> int | None:
    time = _TIME.search(message)
    try:
        return parse(time[0]) if time else None
    except ValueError:
        return None


def _distinct(events: Iterable[ScheduledEvent]) -> tuple[ScheduledEvent, ...]:
    """Return one event for each type; several conditions may announce the same event.

    A condition whose message has a time says most about it.
    """
    by_type: dict[str, ScheduledEvent] = {}
    for event in events:
        known = by_type.setdefault(event.event_type, event)
        if known.not_before_ms is None and known.status == event.status == "Scheduled":
            by_type[event.event_type] = event
    return tuple(by_type.values())
