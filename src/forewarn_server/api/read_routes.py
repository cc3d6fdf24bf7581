"""Read-only routes: events, documents, history, the watch."""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from forewarn_base.protocol.documents import Document, render_document
from forewarn_base.protocol.versions import PREVIEW_VERSION, VERSIONS
from forewarn_base.validation.fields import (
    NAME,
    WHOLE_MAX,
    Boolean,
    Choice,
    Integer,
    Text,
    Timestamp,
)
from forewarn_base.validation.forms import Field
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.actions import ACTIONS
from forewarn_core.fleet.document import View, fresh, refreshed, visible
from forewarn_core.fleet.refusals import Unknown, UnknownOperation
from forewarn_server.api import schemas
from forewarn_server.api.control_client import ControlClient
from forewarn_server.api.lookup import check_named, find, find_event
from forewarn_server.api.responses import encoded
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.api.watch import WatchStream, check_cursor
from forewarn_server.control.plane import StateView
from forewarn_store import HistoryPage, Recorded, Store

#: Maximum number of entries of history, or of events, on one page.
PAGE_MAX = 1000
JSON_LINES, SERVER_SENT = "application/jsonl", "text/event-stream"
STOPPED = {"end": "stopped"}

_VERSIONS = Choice({each: each for each in (*VERSIONS, PREVIEW_VERSION)})
_ID = Text(48)
_PLACE = Text(144, pattern=rf"[0-9]{{1,15}}:{NAME.pattern}", wanted="`next` of the previous page")
_FILTERS = (
    Field("operation", _ID, "Only entries of history of this operation, such as op-12."),
    Field("event", _ID, "Only entries of this event."),
    Field("group", NAME, "Only of this group."),
    Field("vm", NAME, "Only entries caused by or about this VM."),
    Field("host", NAME, "Only entries of this host."),
    Field(
        "action",
        Choice({name: name for name in ACTIONS}, ACTIONS),
        "Only entries of this transition, one of:",
    ),
)


@Route(
    "GET /v1/events",
    Permission.READ,
    query=(
        Field("vm", NAME, "Only events that this VM can read."),
        Field("group", NAME, "Only of this group."),
        Field("after", _PLACE, "`next` of the previous page."),
        Field("limit", Integer(1, PAGE_MAX), f"Maximum number of entries (default: {PAGE_MAX})."),
    ),
    answer=schemas.page_schema("events", schemas.EVENT.schema(), paged="string"),
)
async def list_events(call: ApiCall) -> ApiResponse:
    """List the events shown to VMs now."""
    shown = await call.control.read(
        partial(_summaries, call.query.get("vm", ""), call.query.get("group", ""))
    )
    return await call.encode(partial(_events_page, call, shown))


def _events_page(call: ApiCall, shown: list[schemas.OperationSummary]) -> dict[str, object]:
    """Return one page of events by number and group; run on a thread. O(live events)."""
    after, limit = _read_place(call.query.get("after", "")), call.query.get("limit", PAGE_MAX)
    page = heapq.nsmallest(
        limit + 1, (each for each in shown if _place_of(each) > after), key=_place_of
    )
    following = "{}:{}".format(*_place_of(page[limit - 1])) if len(page) > limit else None
    return {"events": schemas.EVENT.each(page[:limit]), "next": following}


def _place_of(summary: schemas.OperationSummary) -> tuple[int, str]:
    """Return the sort key of an event: number of its operation, then group."""
    return summary.operation.number, summary.event.group


def _read_place(text: str) -> tuple[int, str]:
    number, _, group = text.partition(":")
    return int(number or 0), group


def _summaries(vm: str, group: str, view: StateView) -> list[schemas.OperationSummary]:
    """Return live events, optionally of one group or shown to one VM; O(result)."""
    state = view.state
    topology = state.topology
    if vm and vm not in topology.vms:
        raise Unknown(kind="vm", name=vm)
    if group and group not in topology.groups:
        raise Unknown(kind="group", name=group)
    if vm and group and topology.vms[vm].group != group:
        return []
    group = topology.vms[vm].group if vm else group
    own = vm if vm and topology.reads_alone(vm) else ""
    events = map(state.events.__getitem__, state.event_ids_of(group)) if group else None
    return [
        schemas.OperationSummary(event, state.operations[event.operation])
        for event in events or state.events.values()
        if event.belongs_in(event.group, own)
    ]


@Route("GET /v1/events/{id}", Permission.READ, answer=schemas.EVENT.schema())
async def get_event(call: ApiCall) -> ApiResponse:
    """Read one live or ended event. The id of a live event may be abbreviated."""
    return ApiResponse(schemas.EVENT.of(schemas.OperationSummary(*await find_event(call))))


@Route(
    "GET /v1/documents",
    Permission.READ,
    query=(
        Field("vm", NAME, "Whose document.", required=True),
        Field("api-version", _VERSIONS, "Version of the document (default: the newest)."),
    ),
    answer=schemas.object_schema(
        DocumentIncarnation=schemas.WHOLE, Events=schemas.list_of(schemas.TABLE)
    ),
)
async def get_document(call: ApiCall) -> ApiResponse:
    """Read a VM's current document, byte for byte."""
    vm = call.query["vm"]
    api_version = call.query.get("api-version", VERSIONS[-1])
    document = await call.control.read(lambda view: _document_of(view, vm))
    return ApiResponse(render_document(document, api_version))


def _document_of(view: StateView, vm: str) -> Document:
    """Return a VM's current document; for a disabled group, its first document (B-3)."""
    state = view.state
    if vm not in state.topology.vms:
        raise Unknown(kind="vm", name=vm)
    key, group = state.topology.view_of(vm), state.topology.vms[vm].group
    present: View | None = state.views.get(key)
    if present is not None:
        return present.document
    empty = fresh(key, group)
    live = [state.events[each] for each in state.event_ids_of(group)]
    return refreshed(empty, visible(empty, live, state.operations)).document


@Route(
    "GET /v1/history",
    Permission.READ,
    query=(
        *_FILTERS,
        Field("after", Integer(), "Only sequence numbers greater than this."),
        Field("before", Integer(), "Only sequence numbers less than this; 0: no limit."),
        Field("since", Timestamp(), "Only entries recorded at or after this time."),
        Field("until", Timestamp(), "Only entries recorded before this time."),
        Field("limit", Integer(1, PAGE_MAX), "Maximum number of entries (default: 100)."),
        Field(
            "order",
            Choice({"oldest": False, "newest": True}),
            "Sort order (default: oldest first).",
        ),
        Field("images", Boolean(), "Also return the changed records."),
    ),
    answer=schemas.page_schema("entries", schemas.ENTRY.schema(), paged="integer"),
)
async def list_history(call: ApiCall) -> ApiResponse:
    """List entries of history: changes with their actors."""
    query = call.query
    limit = query.get("limit", 100)
    paging = {name: query[name] for name in ("after", "before", "images") if name in query}
    newest_first = query.get("order", False)
    filters = await _filters(call)
    if since_ms := call.time_ms("since"):
        earlier = await call.control.look_up(partial(_last_before, time_ms=since_ms))
        paging["after"] = max(paging.get("after", 0), earlier)
    if until_ms := call.time_ms("until"):
        first_after = 1 + await call.control.look_up(partial(_last_before, time_ms=until_ms))
        paging["before"] = min(paging.get("before", 0) or first_after, first_after)
    # Entries appear with their commit, like everything else that this process answers.
    unread = call.control.loop.freshness().history_seq + 1
    paging["before"] = min(paging.get("before", 0) or unread, unread)
    page = HistoryPage(limit=limit, newest_first=newest_first, **paging, **filters)
    entries = await call.control.look_up(lambda store: store.history(page))
    if not entries:
        await call.control.look_up(partial(check_named, filters=filters))
    following = entries[-1].seq if len(entries) == limit else None
    return await call.encode(lambda: {"entries": schemas.ENTRY.each(entries), "next": following})


def _last_before(store: Store, *, time_ms: int) -> int:
    """Return the number of the last entry before a time; 0 without one. O(log entries) reads."""
    low, high = 0, last_sequence(store)
    while low < high:
        middle = (low + high) // 2
        following = store.history(HistoryPage(after=middle, limit=1))
        if following and following[0].seq <= high and following[0].entry.at_ms < time_ms:
            low = following[0].seq
        else:
            high = middle
    return low


async def _filters(call: ApiCall) -> dict[str, Any]:
    """Return the filters of a call; resolve the operation's number and the full event id."""
    names = {field.name for field in _FILTERS}
    query = {name: value for name, value in call.query.items() if name in names}
    if "operation" in query:
        query["operation"] = (await find(call, str(query["operation"]))).operation.number
    if "event" in query:
        record = await find(call, str(query["event"]))
        if record.event is None:
            raise UnknownOperation(name=query["event"])
        query["event"] = record.event.id
    return query


@Route(
    "GET /v1/watch",
    Permission.READ,
    query=(
        *_FILTERS,
        Field("after", Integer(), "Start after this sequence number (default: now)."),
    ),
    answer=None,
    gives=(JSON_LINES, SERVER_SENT),
)
async def watch_history(call: ApiCall) -> ApiResponse:
    """Stream new entries of history as JSON lines or server-sent events."""
    after: int | None = call.query.get("after")
    server_sent = SERVER_SENT in call.headers.get("accept", "")
    resumed = call.headers.get("last-event-id", "")
    if server_sent and resumed.isascii() and resumed.isdigit():
        after = min(int(resumed), WHOLE_MAX)
    filters = await _filters(call)
    await call.control.look_up(partial(check_named, filters=filters))
    if after is None:
        after = await call.control.look_up(last_sequence)
    else:
        await call.control.look_up(partial(check_cursor, after=after))
    call.control.tail.enter(call.principal.name)
    pages = call.control.tail.follow(after or 0, call.principal.name)
    if filters or call.control.owners is not None:
        pages = _matching(call.control, pages, filters)
    if server_sent:
        last = b"event: end\ndata: " + encoded(STOPPED) + b"\n\n"
        stream = WatchStream(pages, SERVER_SENT, _server_sent, alive=b":\n\n", last=last)
    else:
        last = encoded(STOPPED) + b"\n"
        stream = WatchStream(pages, JSON_LINES, _json_line, alive=b"\n", last=last)
    return ApiResponse(None, stream=stream)


async def _matching(
    control: ControlClient, pages: AsyncGenerator[list[Recorded], None], filters: Mapping[str, Any]
) -> AsyncGenerator[list[Recorded], None]:
    """Yield pages of filtered history; an empty page is a keep-alive."""
    async with aclosing(pages) as following:
        async for page in following:
            yield page and await control.look_up(partial(_left_of, page=page, filters=filters))


def _left_of(store: Store, page: list[Recorded], filters: Mapping[str, Any]) -> list[Recorded]:
    after, before = page[0].seq - 1, page[-1].seq + 1
    return store.history(HistoryPage(after=after, before=before, limit=PAGE_MAX, **filters))


def last_sequence(store: Store) -> int:
    """Return the number of the latest entry of history; 0 if history is empty."""
    newest = store.history(HistoryPage(limit=1, newest_first=True))
    return newest[0].seq if newest else 0


def _json_line(recorded: Recorded) -> bytes:
    return encoded(schemas.ENTRY.of(recorded)) + b"\n"


def _server_sent(recorded: Recorded) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (recorded.seq, encoded(schemas.ENTRY.of(recorded)))
