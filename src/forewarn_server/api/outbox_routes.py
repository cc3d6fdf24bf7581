"""Routes of the outbox: list destinations, retry one now, skip refused entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from forewarn_base.validation.fields import WHOLE_MAX, Integer, Text
from forewarn_base.validation.forms import Field, Form
from forewarn_core.access.roles import Permission
from forewarn_server.api.request_forms import EMPTY
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.api.schemas import (
    TABLE,
    TEXT,
    TIME,
    WHOLE,
    Member,
    ObjectSchema,
    page_schema,
    same,
    words,
)
from forewarn_server.outbox.delivery import DeliveryState
from forewarn_server.outbox.outbox import DestinationStatus, Outbox, UnknownDestination

Find: TypeAlias = Callable[[], Outbox | None]

_STATUS: ObjectSchema[DestinationStatus] = ObjectSchema(
    "",
    "The progress of a destination.",
    *same(TEXT, "name", "kind"),
    Member("state", words(DeliveryState)),
    *same(WHOLE, "sequence", "behind"),
    Member("behind_s", WHOLE, lambda status: status.behind_ms // 1000),
    Member("sent", WHOLE),
    Member("skipped", WHOLE, meaning="Entries skipped since the service started."),
    Member("failures", WHOLE),
    Member("error", TEXT),
    Member("failing_since", TIME, "failing_since_ms"),
)
_SKIP = Form(
    "OutboxSkip",
    "The entries of history that the destination skips.",
    (Field("sequence", Integer(1, WHOLE_MAX), "Last entry of history to skip.", required=True),),
)


@Route(
    "GET /v1/outbox",
    Permission.READ_FLEET,
    answer=page_schema("destinations", _STATUS.schema()),
    active=True,
)
async def list_destinations(find: Find, _call: ApiCall) -> ApiResponse:
    """List the destinations of the outbox with their progress."""
    outbox = find()
    statuses = await asyncio.to_thread(outbox.statuses) if outbox else []
    return ApiResponse({"destinations": _STATUS.each(statuses)})


@Route("POST /v1/outbox/{name}/retry", Permission.OPERATE, form=EMPTY, answer=TABLE)
async def retry_destination(find: Find, call: ApiCall) -> ApiResponse:
    """Retry a failing destination now."""
    _outbox(find, call).retry(call.path["name"])
    return ApiResponse({})


@Route(
    "GET /v1/outbox/{name}/validate",
    Permission.PUBLIC,
    query=(Field("code", Text(200), "The code.", required=True),),
    answer=TABLE,
    active=True,
)
async def validate_destination(find: Find, call: ApiCall) -> ApiResponse:
    """Validate a destination with the code that the destination received."""
    name = call.path["name"]
    _outbox(find, call).validate(name, call.query["code"])
    return ApiResponse({"validated": name})


@Route("POST /v1/outbox/{name}/skip", Permission.OPERATE, form=_SKIP, answer=TABLE)
async def skip_entries(find: Find, call: ApiCall) -> ApiResponse:
    """Skip a destination's undelivered entries up to a given entry."""
    _outbox(find, call).skip(call.path["name"], call.form["sequence"])
    return ApiResponse({})


def _outbox(find: Find, call: ApiCall) -> Outbox:
    outbox = find()
    if outbox is None:
        raise UnknownDestination(name=call.path["name"], known="none")
    return outbox
