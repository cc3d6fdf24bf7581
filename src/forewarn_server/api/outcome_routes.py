"""Routes of event outcomes, one by one and as a report. Source: X-1."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from forewarn_base.validation.fields import NAME, Integer, Text, Timestamp
from forewarn_base.validation.forms import Field
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.outcomes import EventOutcome
from forewarn_server.api import schemas
from forewarn_server.api.lookup import check_named, find_event
from forewarn_server.api.maintenance_routes import find_view, number_of
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_store import HistoryPage, OperationPage, Store

#: Maximum number of operations on one page, and of approvers listed for one event.
PAGE_MAX, APPROVALS_MAX = 500, 100

_SPAN = (
    Field("since", Timestamp(), "Only work that ended at or after this time."),
    Field("until", Timestamp(), "Only work that ended before this time."),
    Field("before", Integer(), "`next` of the previous page."),
    Field("limit", Integer(1, PAGE_MAX), f"Maximum number of operations (default: {PAGE_MAX})."),
)

_PAGE = schemas.page_schema("outcomes", schemas.OUTCOME.schema(), paged="integer")


@Route("GET /v1/events/{id}/outcome", Permission.READ, answer=schemas.OUTCOME.schema())
async def get_outcome(call: ApiCall) -> ApiResponse:
    """Read the outcome of an event."""
    event, operation = await find_event(call)
    by = await call.control.look_up(lambda store: _approvers(store, event.id))
    return ApiResponse(schemas.OUTCOME.of(EventOutcome(event, operation, by)))


@Route("GET /v1/maintenances/{id}/report", Permission.READ_FLEET, query=_SPAN, answer=_PAGE)
async def report_maintenance(call: ApiCall) -> ApiResponse:
    """List the outcomes of a maintenance's events, newest first."""
    number = number_of(call)
    await find_view(call, number)
    return await _report(call, maintenance=number)


@Route(
    "GET /v1/outcomes",
    Permission.READ,
    query=(
        Field("group", NAME, "Only events of this group."),
        Field("owner", Text(128), "Only events of this owner's groups."),
        *_SPAN,
    ),
    answer=_PAGE,
)
async def list_outcomes(call: ApiCall) -> ApiResponse:
    """List outcomes of events, newest first, optionally of one group or owner."""
    group, owner = str(call.query.get("group", "")), call.query.get("owner")
    groups: Collection[str] | None = (group,) if group else None
    if owner is not None:
        owned = await call.control.read(
            lambda view: [g.name for g in view.state.topology.groups.values() if g.owner == owner]
        )
        groups = [each for each in owned if groups is None or each in groups]
    response = await _report(call, group=group, groups=groups)
    if group:
        await call.control.look_up(partial(check_named, filters={"group": group}))
    return response


async def _report(
    call: ApiCall, *, group: str = "", groups: Collection[str] | None = None, maintenance: int = 0
) -> ApiResponse:
    """Return one page of outcomes, newest operation first; O(operations of the page)."""
    page = OperationPage(
        group=group,
        maintenance=maintenance,
        since_ms=call.time_ms("since") or 1,
        until_ms=call.time_ms("until") or 0,
        before=call.query.get("before", 0),
        limit=call.query.get("limit", PAGE_MAX),
    )

    def outcomes_page(store: Store) -> tuple[list[EventOutcome], int | None]:
        operations = store.operations(page)
        outcomes = [each for one in operations for each in _of(store, one, groups)]
        return outcomes, operations[-1].number if len(operations) == page.limit else None

    outcomes, following = await call.control.look_up(outcomes_page)
    shown = schemas.OUTCOME.each
    return await call.encode(lambda: {"outcomes": shown(outcomes), "next": following})


def _of(store: Store, operation: Operation, groups: Collection[str] | None) -> list[EventOutcome]:
    return [
        EventOutcome(event, operation, _approvers(store, event.id))
        for event in store.events_of(operation.number)
        if not event.live and (groups is None or event.group in groups)
    ]


def _approvers(store: Store, event_id: str) -> tuple[str, ...]:
    page = HistoryPage(event=event_id, action="event.approved", limit=APPROVALS_MAX)
    return tuple(dict.fromkeys(each.entry.actor for each in store.history(page)))
