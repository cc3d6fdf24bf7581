"""Routes that postpone hosts of a maintenance, or the host of an event."""

from __future__ import annotations

from forewarn.api import schemas
from forewarn.api.lookup import find
from forewarn.api.maintenance_forms import POSTPONE_EVENT_FORM, POSTPONE_FORM, postponing_of
from forewarn.api.maintenance_reading import ONE, number_of
from forewarn.api.maintenance_routes import moved
from forewarn.api.routes import NAMES_BYTES_MAX, ApiCall, ApiResponse, Route
from forewarn.core.access import Permission
from forewarn.core.refusals import PostponementRefused


@Route(
    "POST /v1/maintenances/{id}/postpone",
    Permission.OPERATE,
    form=POSTPONE_FORM,
    body_bytes_max=NAMES_BYTES_MAX,
    answer=ONE,
)
async def postpone_maintenance(call: ApiCall) -> ApiResponse:
    """Postpone some hosts at their owners' request.

    Source: F-8.
    """
    return await moved(call, postponing_of(call, number_of(call), tuple(call.form["hosts"])))


@Route(
    "POST /v1/events/{id}/postpone",
    Permission.APPROVE,
    form=POSTPONE_EVENT_FORM,
    answer=schemas.page_schema("operations", schemas.OPERATION.schema()),
)
async def postpone_event(call: ApiCall) -> ApiResponse:
    """Postpone the host of an event at the owner's request."""
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
