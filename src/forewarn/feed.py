"""What the control plane tells metadata nodes and what they ask of it: values and their lines.

No I/O may go in here, and no decision: who may see what is settled before a change is made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeVar

from forewarn.errors import PeerError
from forewarn.values import value
from forewarn.wire import Document, ScheduledEvent

if TYPE_CHECKING:
    import asyncio

_T = TypeVar("_T")
#: What travels of an event, in this order.
_event_values: attrgetter[tuple[object, ...]] = attrgetter(
    "event_id",
    "status",
    "event_type",
    "resource_type",
    "resources",
    "not_before_ms",
    "description",
    "source",
    "duration_s",
)
_encode = json.JSONEncoder(separators=(",", ":")).encode


class FeedUnreadable(PeerError):
    """A line of the feed is not one of ours."""

    code = "feed-unreadable"
    message = "A line of the feed cannot be read: {reason}."
    advice = "Run the same version of Forewarn on both sides."


@value
class Caller:
    """A VM that may ask, and how it is known."""

    vm: str
    """Name of the VM, as events name it."""
    group: str
    """Name of its group."""
    view: str
    """Which publication it is shown: `group`, or `group/vm`. Source: S-3."""
    addresses: tuple[str, ...] = ()
    """Peer addresses it asks from, IPv4 or IPv6 in their canonical text."""
    interface: str = ""
    """Receiving interface its addresses count on; empty: any."""
    instance_id: str = ""
    """What a proxy calls it in `X-Instance-ID`; empty: no proxy asks for it."""
    instance: Mapping[str, object] = field(default_factory=dict)
    """Its instance metadata, flat, by the names of `compute` and `network`; what is not there is
    empty. Source: I-1."""


@value
class Publication:
    """The document one view shows now."""

    view: str
    enabled: bool
    document: Document


@value
class Change:
    """One step of the feed: what a node must know to be up to date with `sequence`."""

    sequence: int
    whole: bool = False
    """Whether this change replaces everything told before."""
    callers: tuple[Caller, ...] = ()
    gone: tuple[str, ...] = ()
    """Names of VMs that may no longer ask."""
    publications: tuple[Publication, ...] = ()


@value
class ApprovalRequest:
    """A StartRequest body from a VM: approve all these events, or none."""

    vm: str
    event_ids: tuple[str, ...]
    """Upper case, each once."""
    address: str
    """Where the request came from, for history."""


@value
class ApprovalAnswer:
    """What became of an approval; `accepted` is said only when it is durable. Source: A-6."""

    accepted: bool
    error: str = ""
    """Why not, in one sentence, for the body of the refusal."""


class Upstream(Protocol):
    """What the metadata plane asks of the control plane; no call may block the event loop."""

    def approve(self, request: ApprovalRequest) -> asyncio.Future[ApprovalAnswer]:
        """Approve; the future is done once the outcome is durable."""

    def enable(self, vm: str) -> asyncio.Future[None]:
        """Enable the group of this VM, which asks for the first time. Source: B-1."""

    def polled(self, groups: frozenset[str]) -> None:
        """Note that VMs of these groups asked within the last second. Source: B-2."""


def encode(change: Change) -> bytes:
    """Return the change as one line of JSON, the newline included."""
    form = {
        "sequence": change.sequence,
        "whole": change.whole,
        "callers": [_caller_values(caller) for caller in change.callers],
        "gone": list(change.gone),
        "publications": [_publication_form(publication) for publication in change.publications],
    }
    return _encode(form).encode("ascii") + b"\n"


def decode(line: bytes) -> Change:
    """Read one line of the feed.

    Raises:
        FeedUnreadable: the line is not what `encode` writes.
    """
    try:
        form = json.loads(line)
        return Change(
            sequence=_checked(form["sequence"], int),
            whole=_checked(form["whole"], bool),
            callers=tuple(_caller_of(caller) for caller in form["callers"]),
            gone=tuple(_checked(name, str) for name in form["gone"]),
            publications=tuple(_publication_of(each) for each in form["publications"]),
        )
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise FeedUnreadable(reason=f"{type(error).__name__}: {error}") from error


def _caller_values(caller: Caller) -> tuple[object, ...]:
    return (
        caller.vm,
        caller.group,
        caller.view,
        caller.addresses,
        caller.interface,
        caller.instance_id,
        dict(caller.instance),
    )


def _caller_of(values: object) -> Caller:
    vm, group, view, addresses, interface, instance_id, instance = _checked(values, list)
    _check_texts(vm, group, view, interface, instance_id, *_checked(addresses, list))
    return Caller(
        vm, group, view, tuple(addresses), interface, instance_id, _checked(instance, dict)
    )


def _publication_form(publication: Publication) -> dict[str, object]:
    return {
        "view": publication.view,
        "enabled": publication.enabled,
        "incarnation": publication.document.incarnation,
        "events": [_event_values(event) for event in publication.document.events],
    }


def _publication_of(form: Mapping[str, object]) -> Publication:
    events = tuple(_event_of(values) for values in _checked(form["events"], list))
    return Publication(
        view=_checked(form["view"], str),
        enabled=_checked(form["enabled"], bool),
        document=Document(_checked(form["incarnation"], int), events),
    )


def _event_of(values: object) -> ScheduledEvent:
    event_id, status, kind, place, resources, at_ms, text, source, s = _checked(values, list)
    _check_texts(event_id, status, kind, place, text, source, *_checked(resources, list))
    return ScheduledEvent(
        event_id=event_id,
        status=status,
        event_type=kind,
        resource_type=place,
        resources=tuple(resources),
        not_before_ms=None if at_ms is None else _checked(at_ms, int),
        description=text,
        source=source,
        duration_s=_checked(s, int),
    )


def _check_texts(*values: object) -> None:
    for each in values:
        if not isinstance(each, str):
            raise TypeError(f"{each!r} is no str")


def _checked(value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
