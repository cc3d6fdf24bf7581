"""Routes of the outbox: list destinations, retry one now, skip refused entries."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from forewarn.api.routes import ApiCall, ApiResponse, Route, list_page_schema
from forewarn.api.schemas import TEXT, TIME, WHOLE
from forewarn.outbox.delivery import DeliveryState
from forewarn.outbox.outbox import UnknownDestination
from forewarn.protocol.timestamps import iso8601
from forewarn.validation.fields import WHOLE_MAX, Integer, Text
from forewarn.validation.forms import Field, Form

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from forewarn.outbox.outbox import DestinationStatus, Outbox
    from forewarn.validation.fields import Schema

    Find: TypeAlias = Callable[[], Outbox | None]

_STATUS: Schema = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "kind": TEXT,
        "state": {"type": "string", "enum": [each.value for each in DeliveryState]},
        "sequence": WHOLE,
        "behind": WHOLE,
        "behind_s": WHOLE,
        "sent": WHOLE,
        "skipped": {**WHOLE, "description": "Entries skipped since the service started."},
        "failures": WHOLE,
        "error": TEXT,
        "failing_since": TIME,
    },
    "required": [
        "name",
        "kind",
        "state",
        "sequence",
        "behind",
        "behind_s",
        "sent",
        "skipped",
        "failures",
        "error",
        "failing_since",
    ],
    "additionalProperties": False,
}
_RETRY = Form("OutboxRetry", "An empty form.")
_SKIP = Form(
    "OutboxSkip",
    "The entries of history that the destination skips.",
    (Field("sequence", Integer(1, WHOLE_MAX), "Last entry of history to skip.", required=True),),
)


async def _list(find: Find, _call: ApiCall) -> ApiResponse:
    outbox = find()
    statuses = await asyncio.to_thread(outbox.statuses) if outbox else []
    return ApiResponse({"destinations": [_told(each) for each in statuses]})


async def _retry(find: Find, call: ApiCall) -> ApiResponse:
    outbox = find()
    name = call.path["name"]
    if outbox is None:
        raise UnknownDestination(name=name, known="none")
    outbox.retry(name)
    return ApiResponse({})


async def _validate(find: Find, call: ApiCall) -> ApiResponse:
    outbox = find()
    name = call.path["name"]
    if outbox is None:
        raise UnknownDestination(name=name, known="none")
    outbox.validate(name, call.query["code"])
    return ApiResponse({"validated": name})


async def _skip(find: Find, call: ApiCall) -> ApiResponse:
    outbox = find()
    name = call.path["name"]
    if outbox is None:
        raise UnknownDestination(name=name, known="none")
    outbox.skip(name, call.form["sequence"])
    return ApiResponse({})


def _told(status: DestinationStatus) -> dict[str, object]:
    since_ms = status.failing_since_ms
    return {
        "name": status.name,
        "kind": status.kind,
        "state": status.state.value,
        "sequence": status.sequence,
        "behind": status.behind,
        "behind_s": status.behind_ms // 1000,
        "sent": status.sent,
        "skipped": status.skipped,
        "failures": status.failures,
        "error": status.error,
        "failing_since": iso8601(since_ms) if since_ms else None,
    }


def routes(find: Find) -> tuple[Route, ...]:
    """Return the outbox routes. `find` returns the outbox; None without destinations."""
    return (
        Route(
            method="GET",
            path="/v1/outbox",
            name="list_destinations",
            summary="List the destinations of the outbox with their progress.",
            act=partial(_list, find),
            active=True,
            answer=list_page_schema("destinations", _STATUS),
        ),
        Route(
            method="POST",
            path="/v1/outbox/{name}/retry",
            name="retry_destination",
            summary="Retry a failing destination now.",
            act=partial(_retry, find),
            form=_RETRY,
            answer={"type": "object"},
        ),
        Route(
            method="GET",
            path="/v1/outbox/{name}/validate",
            name="validate_destination",
            summary="Validate a destination with the code that the destination received.",
            act=partial(_validate, find),
            active=True,
            query=(Field("code", Text(200), "The code.", required=True),),
            answer={"type": "object"},
        ),
        Route(
            method="POST",
            path="/v1/outbox/{name}/skip",
            name="skip_entries",
            summary="Skip a destination's undelivered entries up to a given entry.",
            act=partial(_skip, find),
            form=_SKIP,
            answer={"type": "object"},
        ),
    )
