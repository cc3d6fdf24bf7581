"""Finds an operation or event by `op-12`, `12`, an event id, or the beginning of an event id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from forewarn_base.errors import CallerError
from forewarn_base.values import value
from forewarn_core.fleet.lifecycle import Event, Operation
from forewarn_core.fleet.refusals import Unknown, UnknownOperation
from forewarn_server.api import schemas
from forewarn_server.api.routes import ApiCall
from forewarn_server.control.plane import StateView
from forewarn_store import HistoryPage, Store

#: Fewest characters of an abbreviated event id.
PREFIX_LENGTH_MIN = 4

#: The id of an operation.
NUMBER = re.compile(r"(?i:op-)?([0-9]{1,15})")
_GUID = re.compile(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}")
_PREFIX = re.compile(rf"[0-9A-F-]{{{PREFIX_LENGTH_MIN},36}}")


class Ambiguous(CallerError):
    """An abbreviated event id matches several live events."""

    code = "ambiguous"
    status = 409
    message = "{name} matches {count} event ids."
    advice = "Give more characters: {some}."


def check_named(store: Store, filters: Mapping[str, object]) -> None:
    """Refuse a filter by a name that never existed, because a misspelt name matches nothing.

    Names of removed records are valid, because history contains them.

    Raises:
        Unknown: no such host, VM or group has existed.
    """
    for kind in ("group", "vm", "host"):
        name: Any = filters.get(kind, "")
        if name and not store.history(HistoryPage(limit=1, **{kind: name})):
            raise Unknown(kind=kind, name=name)


@value
class LookupResult:
    """An operation, and the event if the name was an event's name."""

    operation: Operation
    #: All events of the operation, live and ended.
    events: tuple[Event, ...]
    #: The event, if the given name is an event id.
    event: Event | None = None

    @property
    def summaries(self) -> list[schemas.OperationSummary]:
        """The operation's events, each with the operation."""
        return [schemas.OperationSummary(event, self.operation) for event in self.events]


async def find(call: ApiCall, name: str) -> LookupResult:
    """Return the operation or event of a name; search live work first.

    Raises:
        UnknownOperation: no operation or event has that name.
        Ambiguous: several live events match.
    """
    operation = await call.control.read(lambda view: _find_live(view, name))
    if operation is None:
        operation = await call.control.look_up(lambda store: _find_stored(store, name))
    if operation is None:
        raise UnknownOperation(name=name[:64])
    return operation


async def find_event(call: ApiCall) -> tuple[Event, Operation]:
    """Return the event in the path, or the only event of the operation in the path.

    Raises:
        UnknownOperation: there is no such event, or the operation has several.
        Ambiguous: several live events match.
    """
    work = await find(call, call.path["id"])
    event = work.event or (work.events[0] if len(work.events) == 1 else None)
    if event is None:
        raise UnknownOperation(name=call.path["id"][:64])
    return event, work.operation


def _find_live(view: StateView, name: str) -> LookupResult | None:
    state = view.state
    number = NUMBER.fullmatch(name)
    if number:
        operation = state.operations.get(int(number[1]))
        if operation is not None:
            return LookupResult(operation, _events_of(view, operation))
    beginning = name.upper()
    if not _PREFIX.fullmatch(beginning):
        return None
    if beginning in state.events:
        matches = [beginning]
    else:
        matches = [event_id for event_id in state.events if event_id.startswith(beginning)]
    if len(matches) > 1:
        raise Ambiguous(name=name, count=len(matches), some=", ".join(matches[:3]))
    if not matches:
        return None
    event = state.events[matches[0]]
    operation = state.operations[event.operation]
    return LookupResult(operation, _events_of(view, operation), event)


def _events_of(view: StateView, operation: Operation) -> tuple[Event, ...]:
    events = view.state.events
    return tuple(events[each] for each in operation.events if each in events)


def _find_stored(store: Store, name: str) -> LookupResult | None:
    number = NUMBER.fullmatch(name)
    event = None
    if number:
        operation = store.operation(int(number[1]))
    elif _GUID.fullmatch(name.upper()):
        event = store.event(name.upper())
        operation = store.operation(event.operation) if event else None
    else:
        return None
    if operation is None:
        return None
    return LookupResult(operation, tuple(store.events_of(operation.number)), event)
