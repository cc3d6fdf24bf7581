"""Response schemas of hosts, operations, events and history.

One table defines both the JSON and its schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from operator import attrgetter
from typing import Any, Generic, TypeVar

from forewarn_base.protocol.documents import format_not_before
from forewarn_base.validation.durations import iso_duration, written
from forewarn_base.validation.fields import Schema
from forewarn_base.values import value
from forewarn_core.fleet.document import Enrolment, shown
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.lifecycle import (
    SHOWN_AS,
    Alert,
    Event,
    EventState,
    Operation,
    OperationState,
)
from forewarn_core.fleet.outcomes import EventOutcome, EventResult, StartTiming
from forewarn_core.fleet.topology import Group, GroupKind, Health, Host, Topology, Vm
from forewarn_metadata.replication.messages import VmPoll
from forewarn_store import Recorded

V = TypeVar("V")

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
TEXTS: Schema = {"type": "array", "items": TEXT}
TEXT_OR_NONE: Schema = {"type": ["string", "null"]}
WHOLE_OR_NONE: Schema = {"type": ["integer", "null"]}
TEXTS_BY_NAME: Schema = {"type": "object", "additionalProperties": TEXT}
TABLE: Schema = {"type": "object"}


def described(schema: Schema, meaning: str) -> Schema:
    """Return a schema with its description."""
    return {**schema, "description": meaning}


def list_of(schema: Schema) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": schema}


def object_schema(**members: Schema) -> Schema:
    """Return the schema of an object with exactly these members."""
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


def page_schema(name: str, schema: Schema, *, paged: str = "") -> Schema:
    """Return the schema of a page of a list.

    Args:
        name: the member with the list.
        schema: of one element.
        paged: the JSON type of `next`; empty for a list without pages.
    """
    members = {name: list_of(schema)}
    if paged:
        members["next"] = {
            "type": [paged, "null"],
            "description": "Value of `after` or `before` for the next page; null: last page.",
        }
    return object_schema(**members)


def words(kind: type[Enum]) -> Schema:
    """Return the schema of an enumeration's values."""
    return {"type": "string", "enum": [each.value for each in kind]}


@value
class Member(Generic[V]):
    """One member of an object schema."""

    name: str
    schema: Schema
    #: A function of the value, or an attribute of the value; empty: the attribute `name`.
    of: str | Callable[[V], object] = ""
    meaning: str = ""

    def described(self) -> Schema:
        """Return the schema with the member's meaning."""
        return described(self.schema, self.meaning) if self.meaning else self.schema

    def reader(self) -> Callable[[V], object]:
        """Return the function that reads the member from a value.

        The schema determines the JSON of an attribute: times in ms, enumerations, lists, pairs.
        """
        if not isinstance(self.of, str):
            return self.of
        read: Callable[[Any], Any] = attrgetter(self.of or self.name)
        if self.schema is TIME:
            return lambda value: written(read(value))
        if self.schema is TEXTS:
            return lambda value: list(read(value))
        if self.schema is TEXTS_BY_NAME:
            return lambda value: dict(read(value))
        if "enum" in self.schema:
            return lambda value: getattr(word := read(value), "value", word)
        return read


def same(schema: Schema, *names: str, of: str = "") -> tuple[Member[Any], ...]:
    """Return members with one schema; each is the attribute of its name, after the prefix `of`."""
    return tuple(Member(name, schema, of + name) for name in names)


class ObjectSchema(Generic[V]):
    """The schema of a JSON object and its encoder; without a name, it is part of other schemas."""

    def __init__(self, name: str, meaning: str, *members: Member[V]) -> None:
        self.name = name
        self.meaning = meaning
        self.members = members
        self._readers = [(each.name, each.reader()) for each in members]

    def of(self, value: V) -> dict[str, object]:
        """Return the JSON object of a value."""
        return {name: read(value) for name, read in self._readers}

    def each(self, values: Iterable[V]) -> list[dict[str, object]]:
        """Return the JSON objects of values."""
        return [self.of(value) for value in values]

    def schema(self) -> Schema:
        """Return a reference to the schema in the OpenAPI document, or an unnamed schema itself."""
        if not self.name:
            return object_schema(**{each.name: each.described() for each in self.members})
        return {"$ref": f"#/components/schemas/{self.name}"}

    def definition(self) -> Schema:
        """Return the schema itself."""
        return {
            "type": "object",
            "description": self.meaning,
            "properties": {each.name: each.described() for each in self.members},
            "required": [each.name for each in self.members],
            "additionalProperties": False,
        }


@value
class Placed(Generic[V]):
    """A record with its topology."""

    record: V
    topology: Topology
    #: Enrolment of the record's group; None: Scheduled Events is not enabled.
    enrolment: Enrolment | None = None
    #: Function that returns a VM's last poll.
    poll_of: Callable[[str], VmPoll | None] = lambda _: None
    now_ms: int = 0

    def polled(self, vm: str) -> str | None:
        """Return the time of a VM's last poll; None if no poll is known."""
        poll = self.poll_of(vm)
        return written(self.now_ms - poll.age_s * 1000) if poll else None

    def clients(self, vms: Iterable[str]) -> list[str]:
        """Return the clients of these VMs' last polls, sorted."""
        polls = (self.poll_of(vm) for vm in vms)
        return sorted({poll.user_agent for poll in polls if poll})


@value
class OperationSummary:
    """An event with its operation."""

    event: Event
    operation: Operation


@value
class Glance:
    """A live operation with the number of its approved events."""

    operation: Operation
    approved: int
    asked: int


_AT_A_GLANCE = frozenset(
    (
        *("id", "number", "cause", "impact", "source", "state", "target_kind", "target", "host"),
        *("silent", "duration_s", "not_before", "announced", "started", "ended", "reason"),
        *("alert", "description", "maintenance"),
    )
)


def _of_glance(member: Member[Operation]) -> Member[Glance]:
    read = member.reader()
    return Member(member.name, member.schema, lambda g: read(g.operation), member.meaning)


HOST: ObjectSchema[Placed[Host]] = ObjectSchema(
    "Host",
    "A physical machine.",
    Member("name", TEXT, "record.name"),
    *same(WHOLE, "fault_domain", "update_domain", of="record."),
    Member("zone", TEXT, "record.zone"),
    Member("driver", TEXT, "record.driver", "Driver of the host; empty: the default driver."),
    Member("labels", TEXTS_BY_NAME, "record.labels"),
    Member("memory_mib", WHOLE, "record.memory_mib", "Memory for VMs, in MiB; 0: unknown."),
    Member("health", words(Health), "record.health"),
    Member("vms", TEXTS, lambda p: list(p.topology.vms_on(p.record.name)), "Its VMs."),
)
_ENABLED: Member[Placed[Any]] = Member(
    "enabled", FLAG, lambda p: p.enrolment is not None, "Whether Scheduled Events is enabled."
)
GROUP: ObjectSchema[Placed[Group]] = ObjectSchema(
    "Group",
    "VMs that share a document.",
    Member("name", TEXT, "record.name"),
    Member("kind", words(GroupKind), "record.kind"),
    Member("owner", TEXT, "record.owner"),
    Member("fault_domain_count", WHOLE, "record.fault_domain_count"),
    Member("strict_approval", FLAG, "record.strict_approval"),
    Member(
        "automatic_approval",
        TEXTS,
        lambda p: sorted(impact.value for impact in p.record.automatic_approval),
    ),
    Member(
        "terminate_notice",
        TEXT,
        lambda p: iso_duration(p.record.terminate_notice_s),
        "Notice of a deletion, ISO 8601; PT0S: deletions are not announced.",
    ),
    *same(FLAG, "reimage_notice", "approves_when_down", of="record."),
    Member("published", TEXT, "record.published"),
    Member(
        "keep_apart",
        TEXTS,
        "record.keep_apart",
        "Labels of hosts: moves keep its VMs on hosts with different values.",
    ),
    Member(
        "keep_together",
        TEXTS,
        "record.keep_together",
        "Labels of hosts: moves keep its VMs on hosts with the same value.",
    ),
    _ENABLED,
    Member(
        "polled",
        TIME,
        lambda p: written(p.enrolment.last_poll_ms if p.enrolment else 0),
        "Last poll of the group, to the minute; null: no poll since Scheduled Events was enabled.",
    ),
    Member(
        "clients",
        TEXTS,
        lambda p: p.clients(p.topology.vms_in(p.record.name)),
        "User-Agent of each VM's last poll.",
    ),
    Member("vms", TEXTS, lambda p: list(p.topology.vms_in(p.record.name)), "Its VMs."),
)
VM: ObjectSchema[Placed[Vm]] = ObjectSchema(
    "Vm",
    "A virtual machine.",
    *same(TEXT, "name", "host", "group", of="record."),
    _ENABLED,
    Member(
        "polled",
        TIME,
        lambda p: p.polled(p.record.name),
        "The VM's last poll, to about a minute; null: no poll since the start of the service.",
    ),
    Member(
        "client",
        TEXT,
        lambda p: "".join(p.clients((p.record.name,))),
        "User-Agent of the VM's last poll; empty: unknown.",
    ),
    Member("size", TEXT, "record.size"),
    Member("memory_mib", WHOLE, "record.memory_mib", "0: unknown."),
    *same(FLAG, "gpu", "spot", of="record."),
    Member("addresses", TEXTS, "record.addresses"),
    *same(TEXT, "interface", "instance_id", "vm_id", "os_type", of="record."),
    *same(TEXT, "location", "resource_group", "subscription", of="record."),
    *same(TEXTS_BY_NAME, "tags", "instance", of="record."),
)
WINDOW: ObjectSchema[Operation] = ObjectSchema(
    "MaintenanceWindow",
    "When the work on a host was to begin and end, and when it did.",
    Member("planned_open", TIME, "window.planned_open_ms"),
    Member("planned_close", TIME, "window.planned_close_ms", "Later if the work started late."),
    Member("opened", TIME, "window.opened_ms", "Start of the first operation."),
    Member(
        "closed",
        TIME,
        lambda o: written(o.ended_ms if o.window.opened_ms else None),
        "End of this operation; the window closes with the last operation on the host.",
    ),
    Member(
        "incident",
        TEXT,
        lambda o: f"t-{o.window.incident}" if o.window.incident else "",
        "Ticket of the overrun; may be empty.",
    ),
)
OPERATION: ObjectSchema[Operation] = ObjectSchema(
    "Operation",
    "Work on one host or one VM. Times that have not arrived are null.",
    Member("id", TEXT, meaning="Display name of the operation, such as op-12."),
    Member("number", WHOLE),
    Member(
        "request", WHOLE, meaning="First operation of the same request, or number of its order."
    ),
    Member("cause", words(Cause)),
    Member("impact", words(Impact)),
    Member("source", words(Source)),
    Member("state", words(OperationState)),
    Member(
        "target_kind",
        {"type": "string", "enum": ["host", "vm"]},
        lambda o: "vm" if o.of_vm else "host",
    ),
    Member("target", TEXT, meaning="Host or VM of the operation."),
    Member("host", TEXT),
    Member("vms", TEXTS, meaning="Names of all disturbed VMs."),
    Member("events", TEXTS, meaning="Ids of the operation's events, one per group."),
    Member("routine", FLAG, meaning="Whether the operation is planned platform work."),
    Member(
        "silent",
        FLAG,
        meaning="Whether the operation has no event, because no affected group listens.",
    ),
    Member("description", TEXT),
    Member("duration_s", WHOLE, meaning="0: none, -1: unknown."),
    Member("notice_s", WHOLE, meaning="Minimum notice of the operation."),
    Member("asked_not_before", TIME, "requested_start_ms", "The requested earliest start."),
    Member("not_before", TIME, "notice.not_before_ms", "NotBefore as shown to VMs."),
    Member("created", TIME, "created_ms"),
    Member("announced", TIME, "notice.announced_ms"),
    Member("shown", TIME, "notice.shown_ms"),
    Member("started", TIME, "execution.started_ms"),
    Member("begun", TIME, "execution.begun_ms"),
    Member("ended", TIME, "ended_ms"),
    Member(
        "window",
        WINDOW.schema(),
        WINDOW.of,
        "Maintenance window of the host's work; all null without one.",
    ),
    Member("attempt", WHOLE, "execution.attempt"),
    Member("reason", TEXT, meaning="Reason of the result or of the stuck state."),
    Member(
        "driver",
        TEXT,
        "execution.driver",
        "Driver that carries out the operation; empty before the start.",
    ),
    Member(
        "validation",
        TEXT,
        "execution.validation",
        "Gate that validates the host after the work; empty: not begun, or none.",
    ),
    Member("progress", TEXT, "execution.progress", "Latest progress report of the driver."),
    Member("progress_percent", WHOLE, "execution.progress_percent", "-1 unknown."),
    Member(
        "alert",
        words(Alert),
        "alert",
        "Problem of the operation. blocked: it is due but cannot start; overdue: it runs too "
        "long; stuck: its driver failed.",
    ),
    Member(
        "maintenance",
        TEXT,
        lambda o: f"m-{o.maintenance}" if o.maintenance else "",
        "Maintenance of the operation; may be empty.",
    ),
    Member("destination", TEXT),
    Member(
        "placements", TEXTS_BY_NAME, "execution.placements", "Hosts to which the driver moves VMs."
    ),
    Member("actor", TEXT, meaning="Actor who requested the operation."),
)
GLANCE: ObjectSchema[Glance] = ObjectSchema(
    "OperationGlance",
    "Summary of an operation, for lists.",
    *(_of_glance(each) for each in OPERATION.members if each.name in _AT_A_GLANCE),
    Member("vm_count", WHOLE, lambda g: len(g.operation.vms)),
    Member("asked", WHOLE, meaning="Number of the operation's events that VMs can read."),
    Member("approved", WHOLE, meaning="Number of the operation's approved or started events."),
)
OUTCOME: ObjectSchema[EventOutcome] = ObjectSchema(
    "Outcome",
    "The outcome of an event: its end, notice and duration.",
    Member("event", TEXT, "event.id"),
    Member("operation", TEXT, "operation.id"),
    Member(
        "maintenance",
        TEXT_OR_NONE,
        lambda o: f"m-{o.operation.maintenance}" if o.operation.maintenance else None,
    ),
    Member("group", TEXT, "event.group"),
    Member("host", TEXT, "operation.host"),
    Member("resources", TEXTS, "event.resources"),
    Member("type", words(Impact), "operation.impact"),
    Member("cause", words(Cause), "operation.cause"),
    Member(
        "result",
        words(EventResult),
        meaning="End of the event; unknown: VMs can still read the event.",
    ),
    Member("reason", TEXT, "operation.reason"),
    Member("notice_promised_s", WHOLE, "operation.notice_s"),
    Member(
        "notice_given_s",
        WHOLE_OR_NONE,
        "notice_given_s",
        "Time from the published notice to the start; null without a notice or a start.",
    ),
    Member("approved_by", TEXTS, "approvers", "VMs and operators who approved the event."),
    Member(
        "not_asked",
        FLAG,
        meaning="Whether the work began early without the group's approval: its VMs did not poll.",
    ),
    Member("not_before", TIME, "operation.notice.not_before_ms"),
    Member("started", TIME, "operation.execution.started_ms"),
    Member(
        "start",
        words(StartTiming),
        meaning="Time of the start relative to the published NotBefore.",
    ),
    Member("ended", TIME, "operation.ended_ms"),
    Member("lasted_s", WHOLE_OR_NONE, meaning="Time from the start to the end."),
    Member("duration_s", WHOLE, "operation.duration_s", "Announced; -1 unknown."),
    Member(
        "interruption_ms",
        WHOLE_OR_NONE,
        meaning="Interruption that the driver measured; null: not measured.",
    ),
)
EVENT: ObjectSchema[OperationSummary] = ObjectSchema(
    "Event",
    "An operation's event as shown to the VMs of one group.",
    Member("id", TEXT, "event.id"),
    Member("operation", TEXT, "operation.id"),
    Member("group", TEXT, "event.group"),
    Member("resources", TEXTS, "event.resources"),
    Member("state", words(EventState), "event.state"),
    Member(
        "shown_as",
        {"enum": ["Scheduled", "Started", None]},
        lambda t: SHOWN_AS.get(t.event.state),
        "EventStatus in the document; null after the end of the event.",
    ),
    Member("type", words(Impact), "operation.impact"),
    Member("source", words(Source), "operation.source"),
    Member("not_before", TIME, "operation.notice.not_before_ms"),
    Member(
        "shown_not_before",
        TEXT,
        lambda t: (
            format_not_before(shown(t.operation, t.event).not_before_ms) if t.event.live else ""
        ),
        "NotBefore as shown to VMs.",
    ),
    Member("description", TEXT, "operation.description"),
    Member("duration_s", WHOLE, "operation.duration_s"),
    Member("approved_by", TEXTS, "event.approved_by"),
)


ENTRY: ObjectSchema[Recorded] = ObjectSchema(
    "Entry",
    "One entry of history.",
    Member("sequence", WHOLE, "seq", "Sequence number of the entry: from 1, without gaps."),
    Member("at", TIME, "entry.at_ms"),
    Member("actor", TEXT, "entry.actor", "Actor of the change."),
    Member("action", TEXT, "entry.action", "Stable name of the transition."),
    Member("text", TEXT, "entry.text", "One sentence."),
    Member("operation", TEXT, lambda r: f"op-{r.entry.operation}" if r.entry.operation else ""),
    *same(TEXT, "event", "group", "vm", "host", of="entry."),
    Member(
        "images",
        {"type": "array", "items": TABLE},
        lambda r: [
            {"kind": image.kind, "key": image.key, "row": image.row} for image in r.entry.images
        ],
        "The changed records, with only the changed columns of an existing record; empty "
        "unless requested.",
    ),
)
