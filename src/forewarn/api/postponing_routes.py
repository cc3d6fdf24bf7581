"""Routes that postpone hosts of a maintenance, or the host of an event."""

from __future__ import annotations

from forewarn.api import schemas
from forewarn.api.lookup import find
from forewarn.api.maintenance_forms import (
    POSTPONE_EVENT_FORM,
    POSTPONE_FORM,
    postponing_of,
)
from forewarn.api.maintenance_reading import ONE, number_of
from forewarn.api.maintenance_routes import moved
from forewarn.api.routes import NAMES_BYTES_MAX, ApiCall, ApiResponse, Route, list_page_schema
from forewarn.core.refusals import PostponementRefused


async def _postpone_hosts(call: ApiCall) -> ApiResponse:
    """Postpone some hosts at an owner's request. Source: F-8."""
    return await moved(call, postponing_of(call, number_of(call), tuple(call.form["hosts"])))


async def _postpone_event(call: ApiCall) -> ApiResponse:
    operation = (await find(call, call.path["id"])).operation
    if not operation.maintenance or operation.is_return:
        problem = "the operation belongs to no maintenance"
        if operation.is_return:
            problem = "the operation returns a VM, which cannot be postponed"
        raise PostponementRefused(host=operation.host, maintenance=operation.id, problem=problem)
    word = postponing_of(call, operation.maintenance, (operation.host,))
    await call.control.submit(word, call.actor)
    after = (await find(call, operation.id)).operation
    return ApiResponse({"operations": [schemas.OPERATION.of(after)]})


def routes() -> tuple[Route, ...]:
    """Return the routes of postponing."""
    return (
        Route(
            method="POST",
            path="/v1/maintenances/{id}/postpone",
            name="postpone_maintenance",
            summary="Postpone some hosts at their owners' request.",
            act=_postpone_hosts,
            form=POSTPONE_FORM,
            body_bytes_max=NAMES_BYTES_MAX,
            answer=ONE,
        ),
        Route(
            method="POST",
            path="/v1/events/{id}/postpone",
            name="postpone_event",
            summary="Postpone the host of an event at the owner's request.",
            act=_postpone_event,
            form=POSTPONE_EVENT_FORM,
            answer=list_page_schema("operations", schemas.OPERATION.schema()),
        ),
    )
