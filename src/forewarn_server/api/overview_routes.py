"""Routes of the page's fleet overview; responses have a bounded size."""

from __future__ import annotations

from functools import partial

from forewarn_base.validation.fields import NAME, Integer, Text
from forewarn_base.validation.forms import Field
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.refusals import Unknown
from forewarn_server.api import schemas
from forewarn_server.api.fleet_overview import FleetOverview
from forewarn_server.api.fleet_watch import COUNTS, RACK
from forewarn_server.api.responses import encoded
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.api.watch import WatchStream

#: Host names in one response.
NAMES_MAX = 2000
_SERVER_SENT = "text/event-stream"
_END = b'event: end\ndata: {"end":"stopped"}\n\n'


@Route(
    "GET /v1/overview",
    Permission.READ,
    answer=schemas.object_schema(
        now=schemas.TEXT,
        refused=schemas.described(schemas.TEXTS, "Records that the topology refused recently."),
        place=schemas.described(schemas.TEXT, "Place from which to follow `/v1/overview/watch`."),
        layout=schemas.described(
            schemas.WHOLE, "Number of the layout; grows when hosts are added, removed or moved."
        ),
        states=schemas.described(schemas.TEXTS_BY_NAME, "State letter -> its meaning."),
        hosts=schemas.WHOLE,
        host_states=schemas.described(
            schemas.TEXT, "The state letter of each host, run-length encoded."
        ),
        racks=schemas.list_of(RACK.schema()),
        counts=schemas.described(COUNTS, "Live operations by state."),
        operations=schemas.described(
            schemas.list_of(schemas.GLANCE.schema()),
            "Running operations, then those that start next; at most 200.",
        ),
    ),
)
async def get_overview(call: ApiCall) -> ApiResponse:
    """Read the fleet overview: racks, a letter for each host, and live operations."""
    overview, control = call.control.overview, call.control
    whole = overview.whole if control.owners is None else overview.within
    return ApiResponse(await whole(control))


@Route(
    "GET /v1/overview/hosts",
    Permission.READ,
    query=(
        Field("from", Integer(), "Position of the first host, from 0 (default: 0)."),
        Field("limit", Integer(1, NAMES_MAX), f"Maximum number of entries (default: {NAMES_MAX})."),
        Field("host", NAME, "Return only this host."),
    ),
    answer=schemas.TABLE,
)
async def get_overview_hosts(call: ApiCall) -> ApiResponse:
    """List the names of hosts, in the order of the overview."""
    first, limit = call.query.get("from", 0), call.query.get("limit", NAMES_MAX)
    ask = partial(_hosts_body, first=first, limit=limit, name=call.query.get("host", ""))
    if call.control.owners is not None:
        fleet = await call.control.fleet()
        return ApiResponse(await call.control.compute(lambda: ask(FleetOverview(fleet, {}, {}))))
    return ApiResponse(await call.control.overview.query(call.control, ask))


def _hosts_body(overview: FleetOverview, *, first: int, limit: int, name: str) -> bytes:
    if name:
        place = overview.place_of(name)
        if place is None:
            raise Unknown(kind="host", name=name)
        first, limit = place, 1
    hosts = [{"name": host, "vms": count} for host, count in overview.hosts(first, limit)]
    return encoded({"layout": overview.layout, "from": first, "hosts": hosts})


@Route(
    "GET /v1/overview/watch",
    Permission.READ,
    query=(Field("after", Text(48), "`place` of the last overview that the client has read."),),
    answer=None,
    gives=(_SERVER_SENT,),
)
async def watch_overview(call: ApiCall) -> ApiResponse:
    """Follow the overview as it changes: server-sent events."""
    overview = call.control.overview
    place = call.headers.get("last-event-id", "") or call.query.get("after", "")
    call.control.tail.streams.enter(call.principal.name)
    if call.control.owners is None:
        pages = overview.follow(call.control, place, call.principal.name)
    else:
        pages = overview.follow_scoped(call.control, call.principal.name)
    stream = WatchStream(pages, _SERVER_SENT, bytes, alive=b":\n\n", last=_END)
    return ApiResponse(None, stream=stream)
