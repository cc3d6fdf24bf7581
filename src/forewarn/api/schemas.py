"""Response schemas of hosts, operations, events and history.

One table defines both the JSON and its schema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from forewarn.core.document import shown
from forewarn.core.impact import Cause, Impact, Source
from forewarn.core.lifecycle import SHOWN_AS, Alert, Event, EventState, Operation, OperationState
from forewarn.core.outcomes import EventOutcome, EventResult, StartTiming
from forewarn.core.topology import Group, GroupKind, Health, Host, Topology, Vm
from forewarn.protocol.documents import format_not_before
from forewarn.validation.durations import iso_duration, written
from forewarn.validation.fields import Schema
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import Enum

    from forewarn.core.document import Enrolment
    from forewarn.replication.messages import VmPoll
    from forewarn.store import Recorded

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
    of: Callable[[V], object]
    meaning: str = ""


@value
class ObjectSchema(Generic[V]):
    """The schema of a JSON object and its encoder."""

    name: str
    meaning: str
    members: tuple[Member[V], ...]

    def of(self, value: V) -> dict[str, object]:
        """Return the JSON object of a value."""
        return {member.name: member.of(value) for member in self.members}

    def each(self, values: Iterable[V]) -> list[dict[str, object]]:
        """Return the JSON objects of values."""
        return [self.of(value) for value in values]

    def schema(self) -> Schema:
        """Return a reference to the schema in the OpenAPI document."""
        return {"$ref": f"#/components/schemas/{self.name}"}

    def definition(self) -> Schema:
        """Return the schema itself."""
        return {
            "type": "object",
            "description": self.meaning,
            "properties": {
                each.name: {**each.schema, "description": each.meaning}
                if each.meaning
                else each.schema
                for each in self.members
            },
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


def _glanced(member: Member[Operation]) -> Member[Glance]:
    return Member(member.name, member.schema, lambda g: member.of(g.operation), member.meaning)


HOST: ObjectSchema[Placed[Host]] = ObjectSchema(
    "Host",
    "A physical machine.",
    (
        Member("name", TEXT, lambda p: p.record.name),
        Member("fault_domain", WHOLE, lambda p: p.record.fault_domain),
        Member("update_domain", WHOLE, lambda p: p.record.update_domain),
        Member("zone", TEXT, lambda p: p.record.zone),
        Member(
            "driver",
            TEXT,
            lambda p: p.record.driver,
            "Driver of the host; empty: the default driver.",
        ),
        Member("labels", TEXTS_BY_NAME, lambda p: dict(p.record.labels)),
        Member(
            "memory_mib",
            WHOLE,
            lambda p: p.record.memory_mib,
            "Memory for VMs, in MiB; 0: unknown.",
        ),
        Member("health", words(Health), lambda p: p.record.health.value),
        Member("vms", TEXTS, lambda p: list(p.topology.vms_on(p.record.name)), "Its VMs."),
    ),
)
_ENABLED: Member[Placed[Any]] = Member(
    "enabled", FLAG, lambda p: p.enrolment is not None, "Whether Scheduled Events is enabled."
)
GROUP: ObjectSchema[Placed[Group]] = ObjectSchema(
    "Group",
    "VMs that share a document.",
    (
        Member("name", TEXT, lambda p: p.record.name),
        Member("kind", words(GroupKind), lambda p: p.record.kind.value),
        Member("owner", TEXT, lambda p: p.record.owner),
        Member("fault_domain_count", WHOLE, lambda p: p.record.fault_domain_count),
        Member("strict_approval", FLAG, lambda p: p.record.strict_approval),
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
        Member("reimage_notice", FLAG, lambda p: p.record.reimage_notice),
        Member("approves_when_down", FLAG, lambda p: p.record.approves_when_down),
        Member("published", TEXT, lambda p: p.record.published),
        _ENABLED,
        Member(
            "polled",
            TIME,
            lambda p: written(p.enrolment.polled_ms if p.enrolment else 0),
            "Last poll of the group, to the minute; null: Scheduled Events is not enabled.",
        ),
        Member(
            "clients",
            TEXTS,
            lambda p: p.clients(p.topology.vms_in(p.record.name)),
            "User-Agent of each VM's last poll.",
        ),
        Member("vms", TEXTS, lambda p: list(p.topology.vms_in(p.record.name)), "Its VMs."),
    ),
)
VM: ObjectSchema[Placed[Vm]] = ObjectSchema(
    "Vm",
    "A virtual machine.",
    (
        Member("name", TEXT, lambda p: p.record.name),
        Member("host", TEXT, lambda p: p.record.host),
        Member("group", TEXT, lambda p: p.record.group),
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
        Member("size", TEXT, lambda p: p.record.size),
        Member("memory_mib", WHOLE, lambda p: p.record.memory_mib, "0: unknown."),
        Member("gpu", FLAG, lambda p: p.record.gpu),
        Member("spot", FLAG, lambda p: p.record.spot),
        Member("addresses", TEXTS, lambda p: list(p.record.addresses)),
        Member("interface", TEXT, lambda p: p.record.interface),
        Member("instance_id", TEXT, lambda p: p.record.instance_id),
        Member("vm_id", TEXT, lambda p: p.record.vm_id),
        Member("os_type", TEXT, lambda p: p.record.os_type),
        Member("location", TEXT, lambda p: p.record.location),
        Member("resource_group", TEXT, lambda p: p.record.resource_group),
        Member("subscription", TEXT, lambda p: p.record.subscription),
        Member("tags", TEXTS_BY_NAME, lambda p: dict(p.record.tags)),
        Member("instance", TEXTS_BY_NAME, lambda p: dict(p.record.instance)),
    ),
)
OPERATION: ObjectSchema[Operation] = ObjectSchema(
    "Operation",
    "Work on one host or one VM. Times that have not arrived are null.",
    (
        Member("id", TEXT, lambda o: o.id, "Display name of the operation, such as op-12."),
        Member("number", WHOLE, lambda o: o.number),
        Member(
            "request",
            WHOLE,
            lambda o: o.request,
            "First operation of the same request, or number of its order.",
        ),
        Member("cause", words(Cause), lambda o: o.cause.value),
        Member("impact", words(Impact), lambda o: o.impact.value),
        Member("source", words(Source), lambda o: o.source.value),
        Member("state", words(OperationState), lambda o: o.state.value),
        Member(
            "target_kind",
            {"type": "string", "enum": ["host", "vm"]},
            lambda o: "vm" if o.of_vm else "host",
        ),
        Member("target", TEXT, lambda o: o.target, "Host or VM of the operation."),
        Member("host", TEXT, lambda o: o.host),
        Member("vms", TEXTS, lambda o: list(o.vms), "Names of all disturbed VMs."),
        Member(
            "events",
            TEXTS,
            lambda o: list(o.events),
            "Ids of the operation's events, one per group.",
        ),
        Member(
            "routine", FLAG, lambda o: o.routine, "Whether the operation is planned platform work."
        ),
        Member(
            "silent",
            FLAG,
            lambda o: o.silent,
            "Whether the operation has no event, because no affected group listens.",
        ),
        Member("description", TEXT, lambda o: o.description),
        Member("duration_s", WHOLE, lambda o: o.duration_s, "0: none, -1: unknown."),
        Member("notice_s", WHOLE, lambda o: o.notice_s, "Minimum notice of the operation."),
        Member(
            "asked_not_before",
            TIME,
            lambda o: written(o.requested_start_ms),
            "The requested earliest start.",
        ),
        Member(
            "not_before",
            TIME,
            lambda o: written(o.notice.not_before_ms),
            "NotBefore as shown to VMs.",
        ),
        Member("created", TIME, lambda o: written(o.created_ms)),
        Member("announced", TIME, lambda o: written(o.notice.announced_ms)),
        Member("shown", TIME, lambda o: written(o.notice.shown_ms)),
        Member("started", TIME, lambda o: written(o.execution.started_ms)),
        Member("begun", TIME, lambda o: written(o.execution.begun_ms)),
        Member("ended", TIME, lambda o: written(o.ended_ms)),
        Member("attempt", WHOLE, lambda o: o.execution.attempt),
        Member("reason", TEXT, lambda o: o.reason, "Reason of the result or of the stuck state."),
        Member(
            "driver",
            TEXT,
            lambda o: o.execution.driver,
            "Driver that carries out the operation; empty before the start.",
        ),
        Member(
            "progress",
            TEXT,
            lambda o: o.execution.progress,
            "Latest progress report of the driver.",
        ),
        Member("progress_percent", WHOLE, lambda o: o.execution.progress_percent, "-1 unknown."),
        Member(
            "alert",
            words(Alert),
            lambda o: o.alert.value,
            "Problem of the operation. blocked: it is due but cannot start; overdue: it runs too "
            "long; stuck: its driver failed.",
        ),
        Member(
            "maintenance",
            TEXT,
            lambda o: f"m-{o.maintenance}" if o.maintenance else "",
            "Maintenance of the operation; may be empty.",
        ),
        Member("destination", TEXT, lambda o: o.destination),
        Member(
            "placements",
            TEXTS_BY_NAME,
            lambda o: dict(o.execution.placements),
            "Hosts to which the driver moves VMs.",
        ),
        Member("actor", TEXT, lambda o: o.actor, "Actor who requested the operation."),
    ),
)
GLANCE: ObjectSchema[Glance] = ObjectSchema(
    "OperationGlance",
    "Summary of an operation, for lists.",
    (
        *(_glanced(each) for each in OPERATION.members if each.name in _AT_A_GLANCE),
        Member("vm_count", WHOLE, lambda g: len(g.operation.vms)),
        Member(
            "asked", WHOLE, lambda g: g.asked, "Number of the operation's events that VMs can read."
        ),
        Member(
            "approved",
            WHOLE,
            lambda g: g.approved,
            "Number of the operation's approved or started events.",
        ),
    ),
)
OUTCOME: ObjectSchema[EventOutcome] = ObjectSchema(
    "Outcome",
    "The outcome of an event: its end, notice and duration.",
    (
        Member("event", TEXT, lambda o: o.event.id),
        Member("operation", TEXT, lambda o: o.operation.id),
        Member(
            "maintenance",
            TEXT_OR_NONE,
            lambda o: f"m-{o.operation.maintenance}" if o.operation.maintenance else None,
        ),
        Member("group", TEXT, lambda o: o.event.group),
        Member("host", TEXT, lambda o: o.operation.host),
        Member("resources", TEXTS, lambda o: list(o.event.resources)),
        Member("type", words(Impact), lambda o: o.operation.impact.value),
        Member("cause", words(Cause), lambda o: o.operation.cause.value),
        Member(
            "result",
            words(EventResult),
            lambda o: o.result.value,
            "End of the event; unknown: VMs can still read the event.",
        ),
        Member("reason", TEXT, lambda o: o.operation.reason),
        Member("notice_promised_s", WHOLE, lambda o: o.operation.notice_s),
        Member(
            "notice_given_s",
            WHOLE_OR_NONE,
            lambda o: o.notice_given_s,
            "Time from the published notice to the start; null without a notice or a start.",
        ),
        Member(
            "approved_by",
            TEXTS,
            lambda o: list(o.approvers),
            "VMs and operators who approved the event.",
        ),
        Member("not_before", TIME, lambda o: written(o.operation.notice.not_before_ms)),
        Member("started", TIME, lambda o: written(o.operation.execution.started_ms)),
        Member(
            "start",
            words(StartTiming),
            lambda o: o.start.value,
            "Time of the start relative to the published NotBefore.",
        ),
        Member("ended", TIME, lambda o: written(o.operation.ended_ms)),
        Member("lasted_s", WHOLE_OR_NONE, lambda o: o.lasted_s, "Time from the start to the end."),
        Member("duration_s", WHOLE, lambda o: o.operation.duration_s, "Announced; -1 unknown."),
        Member(
            "interruption_ms",
            WHOLE_OR_NONE,
            lambda o: o.interruption_ms,
            "Interruption that the driver measured; null: not measured.",
        ),
    ),
)
EVENT: ObjectSchema[OperationSummary] = ObjectSchema(
    "Event",
    "An operation's event as shown to the VMs of one group.",
    (
        Member("id", TEXT, lambda t: t.event.id),
        Member("operation", TEXT, lambda t: t.operation.id),
        Member("group", TEXT, lambda t: t.event.group),
        Member("resources", TEXTS, lambda t: list(t.event.resources)),
        Member("state", words(EventState), lambda t: t.event.state.value),
        Member(
            "shown_as",
            {"enum": ["Scheduled", "Started", None]},
            lambda t: SHOWN_AS.get(t.event.state),
            "EventStatus in the document; null after the end of the event.",
        ),
        Member("type", words(Impact), lambda t: t.operation.impact.value),
        Member("source", words(Source), lambda t: t.operation.source.value),
        Member("not_before", TIME, lambda t: written(t.operation.notice.not_before_ms)),
        Member(
            "shown_not_before",
            TEXT,
            lambda t: (
                format_not_before(shown(t.operation, t.event).not_before_ms) if t.event.live else ""
            ),
            "NotBefore as shown to VMs.",
        ),
        Member("description", TEXT, lambda t: t.operation.description),
        Member("duration_s", WHOLE, lambda t: t.operation.duration_s),
        Member("approved_by", TEXTS, lambda t: list(t.event.approved_by)),
    ),
)


ENTRY: ObjectSchema[Recorded] = ObjectSchema(
    "Entry",
    "One entry of history.",
    (
        Member(
            "sequence",
            WHOLE,
            lambda r: r.seq,
            "Sequence number of the entry: from 1, without gaps.",
        ),
        Member("at", TIME, lambda r: written(r.entry.at_ms)),
        Member("actor", TEXT, lambda r: r.entry.actor, "Actor of the change."),
        Member("action", TEXT, lambda r: r.entry.action, "Stable name of the transition."),
        Member("text", TEXT, lambda r: r.entry.text, "One sentence."),
        Member("operation", TEXT, lambda r: f"op-{r.entry.operation}" if r.entry.operation else ""),
        Member("event", TEXT, lambda r: r.entry.event),
        Member("group", TEXT, lambda r: r.entry.group),
        Member("vm", TEXT, lambda r: r.entry.vm),
        Member("host", TEXT, lambda r: r.entry.host),
        Member(
            "images",
            {"type": "array", "items": TABLE},
            lambda r: [
                {"kind": image.kind, "key": image.key, "row": image.row} for image in r.entry.images
            ],
            "The changed records, with only the changed columns of an existing record; empty "
            "unless requested.",
        ),
    ),
)
