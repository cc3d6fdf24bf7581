"""`forewarn event` and `forewarn document`: show events, and the documents of VMs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlencode

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK
from forewarn_base.protocol.documents import Document, format_not_before, read_document
from forewarn_base.protocol.timestamps import duration_text, iso8601
from forewarn_base.protocol.versions import VERSIONS
from forewarn_cli.metadata_client import get_document
from forewarn_cli.reports import all_outcomes, print_outcome, print_outcomes, summary
from forewarn_server.cli.api_client import client_of, part
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.listing import records
from forewarn_server.cli.output import (
    Time,
    note,
    offset,
    print_list,
    print_structured,
    show_list,
    show_record,
    when,
)
from forewarn_server.cli.parameters import (
    COMMON,
    LISTED,
    WATCHED,
    AllLimit,
    ListOptions,
    ServerOptions,
    WatchOptions,
)

if TYPE_CHECKING:
    from forewarn_base.protocol.documents import ScheduledEvent

event = noun_app("event")
document = noun_app("document")


class MonthInvalid(CallerError):
    """The month of `--month` is malformed."""

    code = "month-invalid"
    message = "{text} is not a month."
    advice = "Write the year and the month: 2026-10."


class VmUnnamed(CallerError):
    """No VM is named, and the fleet has either none or several."""

    code = "vm-unnamed"
    message = "No VM is named, and the fleet has {count} VM."
    advice = "Name a VM (`forewarn document VM`), or name a metadata service with --url."


@event.default
@event.command(name="list")
def _list(
    *,
    vm: Annotated[str | None, Parameter(metavar="NAME", help="only of this VM")] = None,
    group: Annotated[str | None, Parameter(metavar="NAME", help="only of this group")] = None,
    state: Annotated[
        Sequence[Literal["scheduled", "approved", "started", "completed", "cancelled"]],
        Parameter(help="only in this state; repeatable"),
    ] = (),
    limit: AllLimit = None,
    common: ListOptions = LISTED,
) -> int:
    """List events that have not ended."""
    client = client_of(common)
    shown = records(client, "/v1/events", "events", vm=vm, group=group)
    wanted = (each for each in shown if not state or each["state"] in state)
    events = list(islice(wanted, limit))
    now_ms = client.now_ms
    columns = (
        *(("event", "id"), "type"),
        ("status", lambda e: "approved" if e["state"] == "approved" else e["shown_as"]),
        ("not before", lambda e: when(e["not_before"], now_ms) if e["shown_not_before"] else ""),
        *("operation", "group", "resources"),
    )
    empty = "No scheduled events."
    return show_list(common, {"events": events}, columns, name="events", empty=empty)


@event.command(name="show")
def _show(
    id_: Annotated[str, Parameter(name="ID", help="event id, or its first characters")],
    /,
    *,
    common: WatchOptions = WATCHED,
) -> int:
    """Show one event."""
    return show_record(common, client_of(common).get(f"/v1/events/{part(id_)}"))


@event.command(name="outcome")
def _outcome(
    id_: Annotated[str, Parameter(name="ID", help="an event's id")],
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Show how an event ended."""
    outcome = client_of(common).get(f"/v1/events/{part(id_)}/outcome")
    if common.structured:
        return print_structured(common, outcome)
    print_outcome(outcome)
    return OK


@event.command(name="report")
def _report(
    *,
    owner: Annotated[
        str | None, Parameter(metavar="NAME", help="only of groups of this owner")
    ] = None,
    group: Annotated[str | None, Parameter(metavar="NAME", help="only of this group")] = None,
    month: Annotated[
        str | None, Parameter(metavar="YYYY-MM", help="only of this month, in UTC")
    ] = None,
    since: Annotated[
        str | None, Parameter(metavar="TIME", help="only work that ended after this time")
    ] = None,
    until: Annotated[
        str | None, Parameter(metavar="TIME", help="only work that ended before this time")
    ] = None,
    format_: Annotated[
        Literal["text", "csv", "html"],
        Parameter(name="--format", help="format of the report (default: text)"),
    ] = "text",
    common: ServerOptions = COMMON,
) -> int:
    """Report how the events of an owner ended."""
    span = month_span(month) if month else (since, until)
    query = {"owner": owner, "group": group, "since": span[0], "until": span[1]}
    outcomes = all_outcomes(client_of(common), "/v1/outcomes", **query)
    if common.structured:
        return print_structured(common, {"summary": summary(outcomes), "outcomes": outcomes})
    of = [f"of {each}" for each in (owner or group, month) if each]
    print_outcomes(outcomes, format_, title=" ".join(["Events", *of]))
    return OK


def month_span(text: str) -> tuple[str, str]:
    """Return the start of a month and of the next month, in UTC.

    Raises:
        MonthInvalid: the text is not a month.
    """
    match = re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", text)
    if match is None:
        raise MonthInvalid(text=text[:64])
    year, month = int(match[1]), int(match[2])
    end = (year + 1, 1) if month == 12 else (year, month + 1)
    first, after = (f"{y:04}-{m:02}-01T00:00:00Z" for y, m in ((year, month), end))
    return first, after


@document.default
def _document(
    vm_name: Annotated[str, Parameter(name="VM", help="default: the fleet's only VM")] = "",
    /,
    *,
    url: Annotated[
        str | None, Parameter(metavar="URL", help="query this metadata service directly")
    ] = None,
    api_version: Annotated[
        str | None, Parameter(metavar="V", help="api-version (default: the newest)")
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Show a VM's document."""
    version = api_version or VERSIONS[-1]
    if url:
        body, now_ms = get_document(url, version)
    else:
        body, now_ms = _from_operator(common, vm_name, version)
    if common.json:
        print(body.decode("utf-8", "replace"))
        return OK
    return _print_document(read_document(body), now_ms)


def _from_operator(common: ServerOptions, vm: str, version: str) -> tuple[bytes, int]:
    client = client_of(common)
    if not vm:
        names = [each["name"] for each in client.get("/v1/vms", limit=2)["vms"]]
        if len(names) != 1:
            raise VmUnnamed(count="more than one" if names else "no")
        vm = names[0]
    query = urlencode({"vm": vm, "api-version": version})
    return client.send("GET", f"/v1/documents?{query}"), client.now_ms


def _print_document(document: Document, now_ms: int) -> int:
    def starts(event: ScheduledEvent) -> str:
        at_ms = event.not_before_ms
        text = format_not_before(at_ms)
        return text if at_ms is None else Time(text, offset(at_ms - now_ms))

    note(f"incarnation {document.incarnation}, read at {iso8601(now_ms // 1000 * 1000)}")
    columns = (
        ("event", attrgetter("event_id")),
        ("type", attrgetter("event_type")),
        ("status", attrgetter("status")),
        ("not before", starts),
        ("duration", lambda e: duration_text(e.duration_s) if e.duration_s >= 0 else "unknown"),
        ("source", attrgetter("source")),
        ("resources", attrgetter("resources")),
        ("text", attrgetter("description")),
    )
    return print_list(document.events, columns, empty="No scheduled events.")
