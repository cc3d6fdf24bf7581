"""Routes of the page's fleet overview; responses have a bounded size."""

from __future__ import annotations

from functools import partial

from forewarn.api import schemas
from forewarn.api.fleet_overview import FleetOverview
from forewarn.api.responses import encoded
from forewarn.api.routes import ApiCall, ApiResponse, Route
from forewarn.api.watch import WatchStream
from forewarn.core.refusals import Unknown
from forewarn.validation.fields import NAME, Integer, Schema, Text
from forewarn.validation.forms import Field

#: Host names in one response.
NAMES_MAX = 2000
_SERVER_SENT = "text/event-stream"
_END = b'event: end\ndata: {"end":"stopped"}\n\n'


async def _overview(call: ApiCall) -> ApiResponse:
    overview, control = call.control.overview, call.control
    whole = overview.whole if control.owners is None else overview.within
    return ApiResponse(await whole(control))


async def _hosts(call: ApiCall) -> ApiResponse:
    first, limit = call.query.get("from", 0), call.query.get("limit", NAMES_MAX)
    ask = partial(_named, first=first, limit=limit, name=call.query.get("host", ""))
    if call.control.owners is not None:
        fleet = await call.control.fleet()
        return ApiResponse(await call.control.compute(lambda: ask(FleetOverview(fleet, {}, {}))))
    return ApiResponse(await call.control.overview.look(call.control, ask))


def _named(overview: FleetOverview, *, first: int, limit: int, name: str) -> bytes:
    if name:
        place = overview.place_of(name)
        if place is None:
            raise Unknown(kind="host", name=name)
        first, limit = place, 1
    hosts = [{"name": host, "vms": count} for host, count in overview.hosts(first, limit)]
    return encoded({"layout": overview.layout, "from": first, "hosts": hosts})


async def _watch(call: ApiCall) -> ApiResponse:
    overview = call.control.overview
    place = call.headers.get("last-event-id", "") or call.query.get("after", "")
    call.control.tail.streams.enter(call.principal.name)
    if call.control.owners is None:
        pages = overview.follow(call.control, place, call.principal.name)
    else:
        pages = overview.follow_scoped(call.control, call.principal.name)
    stream = WatchStream(pages, _SERVER_SENT, _as_it_is, alive=b":\n\n", last=_END)
    return ApiResponse(None, stream=stream)


def _as_it_is(data: bytes) -> bytes:
    return data


def routes() -> tuple[Route, ...]:
    """Return the routes of the fleet overview."""
    return _ROUTES


def _object(**members: Schema) -> Schema:
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


_TEXTS: Schema = {"type": "array", "items": schemas.TEXT}
_COUNTS: Schema = {"type": "object", "additionalProperties": {"type": "integer"}}
_RACK = _object(
    zone=schemas.TEXT,
    first={
        "type": "string",
        "description": "The hosts' label `rack`, or their fault domain.",
    },
    last={"type": "string", "description": "Last rack, if the entry combines several racks."},
    hosts={**_COUNTS, "description": "Number of hosts by state letter."},
    vms=schemas.WHOLE,
    disturbed={**_COUNTS, "description": "Number of affected VMs by state letter."},
)
_ROUTES = (
    Route(
        method="GET",
        path="/v1/overview",
        name="get_overview",
        summary="Read the fleet overview: racks, a letter for each host, and live operations.",
        act=_overview,
        answer=_object(
            now=schemas.TEXT,
            refused={**_TEXTS, "description": "Records that the topology refused recently."},
            place={
                "type": "string",
                "description": "Place from which to follow `/v1/overview/watch`.",
            },
            layout={
                "type": "integer",
                "description": "Number of the layout; grows when hosts are added, removed or "
                "moved.",
            },
            states={**schemas.TEXTS_BY_NAME, "description": "State letter -> its meaning."},
            hosts=schemas.WHOLE,
            host_states={
                "type": "string",
                "description": "The state letter of each host, run-length encoded.",
            },
            racks={"type": "array", "items": _RACK},
            counts={**_COUNTS, "description": "Live operations by state."},
            operations={
                "type": "array",
                "items": schemas.GLANCE.schema(),
                "description": "Running operations, then those that start next; at most 200.",
            },
        ),
    ),
    Route(
        method="GET",
        path="/v1/overview/hosts",
        name="get_overview_hosts",
        summary="List the names of hosts, in the order of the overview.",
        act=_hosts,
        query=(
            Field("from", Integer(), "Position of the first host, from 0 (default: 0)."),
            Field(
                "limit", Integer(1, NAMES_MAX), f"Maximum number of entries (default: {NAMES_MAX})."
            ),
            Field("host", NAME, "Return only this host."),
        ),
        answer={"type": "object"},
    ),
    Route(
        method="GET",
        path="/v1/overview/watch",
        name="watch_overview",
        summary="Follow the overview as it changes: server-sent events.",
        act=_watch,
        query=(Field("after", Text(48), "`place` of the last overview that the client has read."),),
        answer=None,
        gives=(_SERVER_SENT,),
    ),
)
