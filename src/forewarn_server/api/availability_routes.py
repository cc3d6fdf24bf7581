"""Routes of the availability of VMs, and of the records from which it is computed. Source: T-13."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from forewarn_base.errors import CallerError
from forewarn_base.validation.durations import written
from forewarn_base.validation.fields import NAME, Schema, Text, Timestamp
from forewarn_base.validation.forms import Field
from forewarn_base.values import replace, value
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.availability import (
    Availability,
    Disturbance,
    Period,
    TenureKey,
    VmAvailability,
    availability,
    period_of,
)
from forewarn_core.fleet.availability_records import (
    AvailabilityKind,
    AvailabilityRecord,
    started_events,
)
from forewarn_core.fleet.impact import Cause, Impact, Source
from forewarn_core.fleet.outcomes import EventResult
from forewarn_core.fleet.refusals import Unknown
from forewarn_core.fleet.topology import Topology
from forewarn_server.api import schemas
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.control.plane import StateView
from forewarn_store import AvailabilityPage, Store

#: Default length of a period, in ms: 30 days.
PERIOD_MS = 30 * 86_400_000
#: Maximum number of records and of VMs in a report.
RECORDS_MAX, VMS_MAX = 100_000, 20_000

_PLACE = Text(48, pattern=r"[0-9]{1,19}:[0-9]{1,9}", wanted="`next` of the previous page")
SCOPE = (
    Field("owner", Text(128), "Only VMs of this owner."),
    Field("group", NAME, "Only VMs of this group."),
    Field("vm", NAME, "Only this VM."),
)
SPAN = (
    Field("from", Timestamp(), "Begin of the period (default: 30 days before its end)."),
    Field("to", Timestamp(), "End of the period (default: now)."),
)


class AvailabilityTooLarge(CallerError):
    """A report would need more records or VMs than one answer may have."""

    code = "availability-too-large"
    status = 422
    message = "The availability of this period needs more than {limit} {things}."
    advice = "Ask for one owner, one group or a shorter period."


@value
class WantedVms:
    """The VMs and the period of a report, and what the state says about them."""

    owner: str | None
    group: str
    vm: str
    period: Period
    since_ms: int
    present: tuple[TenureKey, ...]
    #: Events that are Started now.
    started: tuple[AvailabilityRecord, ...]

    @property
    def page(self) -> AvailabilityPage:
        """The first page of records."""
        return AvailabilityPage(self.period.from_ms, self.group, self.owner, self.vm)

    def narrowed(self, record: AvailabilityRecord) -> AvailabilityRecord:
        """Return a record with only the wanted VMs."""
        return replace(record, vms=(self.vm,)) if self.vm else record


_COUNTED = (
    schemas.Member[VmAvailability]("counted_ms", schemas.WHOLE, meaning="Time that counts."),
    schemas.Member[VmAvailability](
        "disturbed_ms", schemas.WHOLE, meaning="The part of it that an event disturbed."
    ),
    schemas.Member[VmAvailability](
        "available_percent",
        {"type": ["number", "null"]},
        meaning="The undisturbed share, rounded down to four decimals; null: no time counts.",
    ),
)
VM_AVAILABILITY: schemas.ObjectSchema[VmAvailability] = schemas.ObjectSchema(
    "VmAvailability",
    "The availability of a VM while one owner had it in one group.",
    *schemas.same(schemas.TEXT, "vm", "group", "owner"),
    *_COUNTED,
)
DISTURBANCE: schemas.ObjectSchema[Disturbance] = schemas.ObjectSchema(
    "Disturbance",
    "Time in which an event disturbed a VM; time of several events belongs to the first.",
    *schemas.same(schemas.TEXT, "vm", "group", "owner"),
    schemas.Member("event", schemas.TEXT, "event.event"),
    schemas.Member("operation", schemas.TEXT, lambda d: f"op-{d.event.operation}"),
    schemas.Member("type", schemas.words(Impact), "event.impact"),
    schemas.Member("source", schemas.words(Source), "event.source"),
    schemas.Member("from", schemas.TIME, "from_ms"),
    schemas.Member("to", schemas.TIME, "to_ms"),
    schemas.Member("ms", schemas.WHOLE),
    schemas.Member(
        "measured", schemas.FLAG, meaning="Whether the driver measured the interruption."
    ),
)
AVAILABILITY: schemas.ObjectSchema[Availability] = schemas.ObjectSchema(
    "Availability",
    "The availability of VMs over a period.",
    schemas.Member("from", schemas.TIME, "period.from_ms"),
    schemas.Member("to", schemas.TIME, "period.to_ms"),
    schemas.Member("at", schemas.TIME, "period.at_ms", "Time of the report."),
    *_COUNTED,  # type: ignore[arg-type]  # both have these attributes
    schemas.Member(
        "vms", schemas.list_of(VM_AVAILABILITY.schema()), lambda a: VM_AVAILABILITY.each(a.vms)
    ),
    schemas.Member(
        "disturbances",
        schemas.list_of(DISTURBANCE.schema()),
        lambda a: DISTURBANCE.each(a.disturbances),
    ),
)
_KINDS = ("present", *(each.value for each in AvailabilityKind))


def _or_none(kind: type[Cause | Impact | Source | EventResult]) -> Schema:
    return {"enum": [*(each.value for each in kind), None]}


def _word(name: str) -> Callable[[AvailabilityRecord], object]:
    def read(record: AvailabilityRecord) -> object:
        word = getattr(record, name)
        return word.value if word else None

    return read


_TIMES = ("announced", "shown", "not_before", "approved", "started")
RECORD: schemas.ObjectSchema[AvailabilityRecord] = schemas.ObjectSchema(
    "AvailabilityRecord",
    "A change that availability depends on. Members after `vms` are those of an event.",
    schemas.Member(
        "at", schemas.TIME, "at_ms", "When it happened; null: the event is still Started."
    ),
    schemas.Member("kind", {"enum": list(_KINDS)}, lambda r: r.kind.value),
    *schemas.same(schemas.TEXT, "group", "owner"),
    schemas.Member("vms", schemas.TEXTS),
    schemas.Member("event", schemas.TEXT),
    schemas.Member("operation", schemas.TEXT, lambda r: f"op-{r.operation}" if r.event else ""),
    schemas.Member(
        "maintenance", schemas.TEXT, lambda r: f"m-{r.maintenance}" if r.maintenance else ""
    ),
    schemas.Member("cause", _or_none(Cause), _word("cause")),
    schemas.Member("type", _or_none(Impact), _word("impact")),
    schemas.Member("source", _or_none(Source), _word("source")),
    schemas.Member("result", _or_none(EventResult), _word("result")),
    schemas.Member("notice_s", schemas.WHOLE, meaning="Required notice."),
    *(schemas.Member(each, schemas.TIME, f"{each}_ms") for each in _TIMES),
    schemas.Member(
        "interruption_ms",
        schemas.WHOLE_OR_NONE,
        lambda r: r.interruption_ms if r.interruption_ms >= 0 else None,
        "Interruption that the driver measured; null: not measured.",
    ),
)


@Route(
    "GET /v1/availability",
    Permission.READ,
    query=(*SCOPE, *SPAN),
    answer=AVAILABILITY.schema(),
    abandonable=True,
)
async def get_availability(call: ApiCall) -> ApiResponse:
    """Read the availability of VMs over a period, with each disturbance and its event."""
    wanted = await wanted_vms(call)
    records = await call.control.look_up(partial(all_records, wanted=wanted))
    return await call.encode(lambda: AVAILABILITY.of(_report(wanted, records)))


def _report(wanted: WantedVms, records: list[AvailabilityRecord]) -> Availability:
    report = availability([*records, *wanted.started], wanted.present, wanted.period)
    if len(report.vms) > VMS_MAX:
        raise AvailabilityTooLarge(limit=VMS_MAX, things="VMs")
    if not report.vms and (wanted.vm or wanted.group):
        kind = "vm" if wanted.vm else "group"
        raise Unknown(kind=kind, name=wanted.vm or wanted.group)
    return report


@Route(
    "GET /v1/availability/records",
    Permission.READ,
    query=(*SCOPE, *SPAN, Field("after", _PLACE, "`next` of the previous page.")),
    answer=schemas.object_schema(
        **{"from": schemas.TIME, "to": schemas.TIME, "at": schemas.TIME},
        records=schemas.list_of(RECORD.schema()),
        next=schemas.described(schemas.TEXT_OR_NONE, "Value of `after` for the next page."),
    ),
)
async def list_availability_records(call: ApiCall) -> ApiResponse:
    """List the records behind the availability of a period, oldest first.

    The first page begins with the VMs that are there now (`present`) and the events that are
    Started.
    """
    wanted = await wanted_vms(call)
    after = tuple(map(int, str(call.query.get("after", "0:0")).split(":")))
    page = replace(wanted.page, after=after)
    recorded = await call.control.look_up(lambda store: store.availability(page))
    following = "{}:{}".format(*recorded[-1].place) if len(recorded) == page.limit else None

    def answer() -> dict[str, object]:
        first = [] if "after" in call.query else list(_present_forms(wanted))
        records = [wanted.narrowed(each.record) for each in recorded]
        period = wanted.period
        times_ms = {"from": period.from_ms, "to": period.to_ms, "at": period.at_ms}
        return {
            **{name: written(at_ms) for name, at_ms in times_ms.items()},
            "records": first + RECORD.each(records),
            "next": following,
        }

    return await call.encode(answer)


def _present_forms(wanted: WantedVms) -> Iterator[dict[str, object]]:
    """Yield the first records of an export: VMs by group, and events that are Started."""
    groups: dict[tuple[str, str], list[str]] = {}
    for vm, group, owner in wanted.present:
        groups.setdefault((group, owner), []).append(vm)
    for (group, owner), vms in groups.items():
        record = AvailabilityRecord(
            wanted.period.at_ms, AvailabilityKind.ARRIVED, group, owner, tuple(sorted(vms))
        )
        yield RECORD.of(record) | {"kind": "present"}
    yield from RECORD.each(wanted.started)


async def wanted_vms(call: ApiCall) -> WantedVms:
    """Return the VMs and the period that a call is about.

    Raises:
        PeriodInvalid: there are no records of the period.
    """
    query = call.query
    at_ms = call.control.clock.now_ms()
    to_ms = call.time_ms("to") or at_ms
    from_ms = call.time_ms("from") or min(to_ms, at_ms) - PERIOD_MS
    since_ms = await call.control.look_up(lambda store: store.availability_since_ms())
    period = period_of(from_ms, to_ms, since_ms=since_ms, at_ms=at_ms)
    empty = WantedVms(
        query.get("owner"), query.get("group", ""), query.get("vm", ""), period, since_ms, (), ()
    )
    started = await call.control.read(partial(_started_records, empty))
    # Later records complete what the state lacks, so the state is read first.
    fleet = await call.control.fleet()
    present = await call.control.compute(partial(_present, empty, fleet))
    return replace(empty, started=started, present=present)


def _started_records(wanted: WantedVms, view: StateView) -> tuple[AvailabilityRecord, ...]:
    state = view.state
    records = started_events(state.events.values(), state.operations, state.topology.groups)
    return tuple(
        [
            wanted.narrowed(each)
            for each in records
            if wanted.group in {"", each.group}
            and wanted.owner in {None, each.owner}
            and (not wanted.vm or wanted.vm in each.vms)
        ]
    )


def _present(wanted: WantedVms, fleet: Topology) -> tuple[TenureKey, ...]:
    """Return the wanted VMs that are there now; O(VMs of the owner, the group or the fleet)."""
    names: Iterator[str] = iter(fleet.groups)
    if wanted.vm:
        names = iter([fleet.vms[wanted.vm].group] if wanted.vm in fleet.vms else [])
    if wanted.group:
        names = (each for each in names if each == wanted.group)
    return tuple(
        [
            (vm, name, fleet.groups[name].owner)
            for name in names
            if wanted.owner in {None, fleet.groups[name].owner}
            for vm in fleet.vms_in(name)
            if wanted.vm in {"", vm}
        ]
    )


def all_records(store: Store, *, wanted: WantedVms) -> list[AvailabilityRecord]:
    """Return all records of a report, page by page.

    Raises:
        AvailabilityTooLarge: there are too many.
    """
    records: list[AvailabilityRecord] = []
    page = wanted.page
    while recorded := store.availability(page):
        records += [wanted.narrowed(each.record) for each in recorded]
        if len(records) > RECORDS_MAX:
            raise AvailabilityTooLarge(limit=RECORDS_MAX, things="records")
        if len(recorded) < page.limit:
            break
        page = replace(page, after=recorded[-1].place)
    return records
