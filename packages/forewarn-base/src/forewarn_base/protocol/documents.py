"""Documents: renders and parses them for every api-version; pure."""

from __future__ import annotations

import json
from operator import attrgetter

from forewarn_base.errors import ArgumentInvalid, PeerError
from forewarn_base.protocol import timestamps
from forewarn_base.protocol.json_text import parse_json
from forewarn_base.protocol.versions import (
    FIELD_SINCE,
    RESOURCE_TYPE,
    TYPE_SINCE,
    UNDERSCORE_VERSION,
)

#: Incarnation that `read_document` returns if the document has no valid one.
NO_INCARNATION = -1

DOCUMENT_BYTES_MAX = 4 * 1024 * 1024  # room for 10,000 events of 400 bytes


class DocumentUnreadable(PeerError):
    """A service's answer is not a document."""

    code = "document-unreadable"
    message = "The answer is not a scheduled events document: {reason}."
    advice = "Ask again; incomplete and empty answers are known to happen."


class TimeUnreadable(PeerError):
    """A NotBefore has neither of the two known forms."""

    code = "time-unreadable"
    message = "NotBefore {text!r} is neither RFC 1123 nor ISO 8601."
    advice = "Treat the event as due at any moment."


def _remade(kind: type[_Immutable], values: tuple[object, ...]) -> _Immutable:
    return kind(**dict(zip(kind.__slots__, values, strict=True)))


class _Immutable:
    """A value that compares, shows and copies by its slots, which cannot be set again."""

    __slots__: tuple[str, ...] = ()
    _values: attrgetter[tuple[object, ...]]

    def __init_subclass__(cls) -> None:
        cls._values = attrgetter(*cls.__slots__)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(name)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._values(self) == self._values(other)

    def __hash__(self) -> int:
        return hash(self._values(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{self.__class__.__name__}({shown})"

    def __reduce__(self) -> tuple[object, ...]:
        return _remade, (self.__class__, self._values(self))


class ScheduledEvent(_Immutable):
    """One event of a document: a notice that virtual machines will be disturbed. Immutable."""

    __slots__ = (
        "description",
        "duration_s",
        "event_id",
        "event_type",
        "not_before_ms",
        "resource_type",
        "resources",
        "source",
        "status",
    )
    event_id: str
    status: str
    event_type: str
    resource_type: str
    resources: tuple[str, ...]
    not_before_ms: int | None
    description: str
    source: str
    duration_s: int

    def __init__(
        self,
        *,
        event_id: str = "",
        status: str = "Scheduled",
        event_type: str = "",
        resource_type: str = RESOURCE_TYPE,
        resources: tuple[str, ...] = (),
        not_before_ms: int | None = None,
        description: str = "",
        source: str = "Platform",
        duration_s: int = -1,
    ) -> None:
        """Set the fields; missing members of a document have the defaults.

        Args:
            event_id: A GUID.
            status: `Scheduled` or `Started`.
            event_type: `Freeze`, `Reboot`, `Redeploy`, `Preempt` or `Terminate`.
            resource_type: `VirtualMachine`.
            resources: Names of the affected VMs.
            not_before_ms: Earliest start, ms since the epoch UTC, whole seconds; None once
                started.
            description: Free text.
            source: `Platform` or `User`.
            duration_s: Expected interruption in seconds; 0 none, -1 unknown.
        """
        put = object.__setattr__
        put(self, "event_id", event_id)
        put(self, "status", status)
        put(self, "event_type", event_type)
        put(self, "resource_type", resource_type)
        put(self, "resources", resources)
        put(self, "not_before_ms", not_before_ms)
        put(self, "description", description)
        put(self, "source", source)
        put(self, "duration_s", duration_s)

    def names(self, vm: str) -> bool:
        """Return whether the event names this VM; the oldest form's underscore is ignored.

        Raises:
            ArgumentInvalid: the name is not text.
        """
        if not isinstance(vm, str):
            raise ArgumentInvalid(name="vm", wanted="text", found=vm)
        return vm in self.resources or "_" + vm in self.resources


class Document(_Immutable):
    """The document that a VM reads: the incarnation and the events. Immutable."""

    __slots__ = ("events", "incarnation")
    incarnation: int
    events: tuple[ScheduledEvent, ...]

    def __init__(self, incarnation: int = 0, events: tuple[ScheduledEvent, ...] = ()) -> None:
        """Set incarnation and events; the defaults describe a newly enabled group. Source: D-1."""
        object.__setattr__(self, "incarnation", incarnation)
        object.__setattr__(self, "events", events)


def render_document(document: Document, version: str, *, iaas: bool = True) -> bytes:
    """Return the document in the form of an api-version: one compact line of JSON, ASCII.

    `iaas` is false for a cloud service, whose names have no underscore in any version.

    Source: V-1, V-2, D-2, D-7, D-10, E-7.
    """
    prefix = "_" if iaas and version == UNDERSCORE_VERSION else ""
    shown = [
        _event_text(event, version, prefix)
        for event in document.events
        if TYPE_SINCE.get(event.event_type, "~") <= version
    ]
    text = f'{{"DocumentIncarnation":{document.incarnation},"Events":[{",".join(shown)}]}}'
    return text.encode("ascii")


def read_document(body: bytes | str) -> Document:
    """Parse any documented or observed form of a document; missing members get defaults.

    Raises:
        DocumentUnreadable: `body` is not a JSON object with a list of event objects.
    """
    if len(body) > DOCUMENT_BYTES_MAX:
        raise DocumentUnreadable(reason=f"it is longer than {DOCUMENT_BYTES_MAX} bytes")
    try:
        form = parse_json(body)
    except (ValueError, RecursionError) as error:
        raise DocumentUnreadable(reason="it is not JSON") from error
    if not isinstance(form, dict):
        raise DocumentUnreadable(reason="it is not a JSON object")
    events = form.get("Events")
    if not isinstance(events, list):
        raise DocumentUnreadable(reason="it has no list of Events")
    return Document(
        _int_of(form.get("DocumentIncarnation"), NO_INCARNATION),
        tuple(_read_event(event) for event in events),
    )


def format_not_before(not_before_ms: int | None) -> str:
    """Return RFC 1123 GMT (`Mon, 19 Sep 2016 18:29:47 GMT`), or an empty text once started.

    Milliseconds are truncated, because every NotBefore is set to a whole second. Source: D-7.
    """
    return "" if not_before_ms is None else timestamps.rfc1123(not_before_ms)


def parse_not_before(text: str) -> int | None:
    """Return ms since the epoch UTC from RFC 1123 or ISO 8601; None for an empty text.

    Source: D-7.

    Raises:
        TimeUnreadable: the text has neither form, or is not a possible time.
    """
    try:
        return timestamps.parse(text) if text.strip() else None
    except ValueError as error:
        raise TimeUnreadable(text=text) from error


_quoted = json.encoder.encode_basestring_ascii


def _event_text(event: ScheduledEvent, version: str, prefix: str) -> str:
    """Return an event as JSON; built by hand, in less than half the time. Source: E-7."""
    names = ",".join([_quoted(prefix + name) for name in event.resources])
    text = (
        f'{{"EventId":{_quoted(event.event_id)},"EventStatus":{_quoted(event.status)}'
        f',"EventType":{_quoted(event.event_type)},"ResourceType":{_quoted(event.resource_type)}'
        f',"Resources":[{names}],"NotBefore":{_quoted(format_not_before(event.not_before_ms))}'
    )
    if version >= FIELD_SINCE["Description"]:
        text += f',"Description":{_quoted(event.description)}'
    if version >= FIELD_SINCE["EventSource"]:
        text += f',"EventSource":{_quoted(event.source)}'
    if version >= FIELD_SINCE["DurationInSeconds"]:
        text += f',"DurationInSeconds":{event.duration_s}'
    return text + "}"


def _read_event(form: object) -> ScheduledEvent:
    if not isinstance(form, dict):
        raise DocumentUnreadable(reason="an event is not a JSON object")
    resources = form.get("Resources")
    if isinstance(resources, str):
        resources = [resources]
    elif not isinstance(resources, list):
        resources = []
    try:
        not_before_ms = parse_not_before(_text_or(form.get("NotBefore"), ""))
    except TimeUnreadable:
        not_before_ms = None  # a placeholder of a template; the event may start at any moment
    return ScheduledEvent(
        event_id=_text_or(form.get("EventId"), ""),
        status=_text_or(form.get("EventStatus"), "Scheduled"),
        event_type=_text_or(form.get("EventType"), ""),
        resource_type=_text_or(form.get("ResourceType"), RESOURCE_TYPE),
        resources=tuple(str(name) for name in resources),
        not_before_ms=not_before_ms,
        description=_text_or(form.get("Description"), ""),
        source=_text_or(form.get("EventSource"), "Platform"),
        duration_s=_int_of(form.get("DurationInSeconds"), -1),
    )


def _text_or(value: object, default: str) -> str:
    return value if isinstance(value, str) else default


def _int_of(value: object, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return default
    try:
        return int(value)
    except (ValueError, OverflowError):  # a word, a NaN or an infinity
        return default
