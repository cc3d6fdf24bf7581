"""Routes of how promises were kept over a period. Source: T-15."""

from __future__ import annotations

from functools import partial

from forewarn_base.validation.durations import written
from forewarn_base.validation.fields import Choice, Schema
from forewarn_base.validation.forms import Field
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.availability import Availability, Period, availability
from forewarn_core.fleet.availability_records import AvailabilityRecord
from forewarn_core.fleet.promises import Promises, PromisesBy, divided, promises, spans
from forewarn_server.api import schemas
from forewarn_server.api.availability_routes import (
    SCOPE,
    SPAN,
    AvailabilityTooLarge,
    WantedVms,
    all_records,
    wanted_vms,
)
from forewarn_server.api.routes import ApiCall, ApiResponse, Route

#: Maximum number of parts of a period, and of VMs times parts whose time is computed.
PARTS_MAX, WORK_MAX = 100, 1_000_000
_SHARE: Schema = {"type": ["number", "null"]}

PROMISES: schemas.ObjectSchema[Promises] = schemas.ObjectSchema(
    "Promises",
    "How promises were kept. Shares are in percent, rounded down, and null of nothing.",
    schemas.Member("name", schemas.TEXT, meaning="Owner, group, first day; empty: everything."),
    schemas.Member("from", schemas.TIME, "period.from_ms"),
    schemas.Member("to", schemas.TIME, "period.to_ms"),
    schemas.Member("events", schemas.WHOLE, meaning="Events that became Started."),
    schemas.Member("announced", schemas.WHOLE, meaning="Those announced before their start."),
    schemas.Member("announced_percent", _SHARE),
    schemas.Member("promised", schemas.WHOLE, meaning="Events that need notice."),
    schemas.Member(
        "with_notice",
        schemas.WHOLE,
        meaning="Those that started at NotBefore or later, or after an approval.",
    ),
    schemas.Member("notice_percent", _SHARE),
    schemas.Member(
        "approved", schemas.WHOLE, meaning="Announced events that VMs or operators approved."
    ),
    schemas.Member("approved_in_time", schemas.WHOLE, meaning="Those approved by NotBefore."),
    schemas.Member(
        "approved_by_policy",
        schemas.WHOLE,
        meaning="Events that a group's policy approved; no other member counts them as approved.",
    ),
    schemas.Member(
        "approved_percent", _SHARE, meaning="Share of announced events approved by NotBefore."
    ),
    schemas.Member(
        "approval_median_ms",
        schemas.WHOLE_OR_NONE,
        meaning="Median time from announcement to approval.",
    ),
    schemas.Member(
        "approval_p95_ms", schemas.WHOLE_OR_NONE, meaning="The 95th percentile of this time."
    ),
    schemas.Member("vms", schemas.WHOLE, meaning="VMs whose time counts."),
    schemas.Member("disturbed_ms", schemas.WHOLE, meaning="Their disturbed time."),
    schemas.Member("disturbed_per_vm_ms", schemas.WHOLE_OR_NONE, meaning="Its mean, rounded up."),
    schemas.Member(
        "maintenances", schemas.WHOLE, meaning="Maintenances that some of the events belong to."
    ),
    schemas.Member(
        "last_host_ms",
        schemas.WHOLE_OR_NONE,
        meaning="Longest time from a maintenance's first announcement to its last event's end.",
    ),
)


@Route(
    "GET /v1/promises",
    Permission.READ,
    query=(
        *SCOPE,
        *SPAN,
        Field("by", Choice({each.value: each for each in PromisesBy}), "Also list parts."),
    ),
    answer=schemas.object_schema(
        at=schemas.TIME, total=PROMISES.schema(), parts=schemas.list_of(PROMISES.schema())
    ),
    abandonable=True,
)
async def get_promises(call: ApiCall) -> ApiResponse:
    """Read how promises were kept over a period, in total and by owner, group, day or month."""
    wanted, by = await wanted_vms(call), call.query.get("by")
    records = await call.control.look_up(partial(all_records, wanted=wanted))
    records += wanted.started
    return await call.encode(partial(_answer, wanted, records, by))


def _answer(
    wanted: WantedVms, records: list[AvailabilityRecord], by: PromisesBy | None
) -> dict[str, object]:
    def report_of(period: Period) -> Availability:
        return availability(records, wanted.present, period)

    report, parts = report_of(wanted.period), []
    if by is not None:
        _check_work(by, report)
        parts = divided(by, records, report, report_of=report_of)
    return {
        "at": written(wanted.period.at_ms),
        "total": PROMISES.of(promises("", records, report)),
        "parts": PROMISES.each(parts),
    }


def _check_work(by: PromisesBy, report: Availability) -> None:
    if by not in {PromisesBy.DAY, PromisesBy.MONTH}:
        return
    parts = sum(1 for _ in spans(by, report.period))
    if parts > PARTS_MAX:
        raise AvailabilityTooLarge(limit=PARTS_MAX, things=f"{by.value}s")
    if parts * len(report.vms) > WORK_MAX:
        raise AvailabilityTooLarge(limit=WORK_MAX, things=f"VMs times {by.value}s")
