"""`forewarn event` and `forewarn document`: show events, and the documents of VMs."""

from __future__ import annotations

import argparse
import re
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from forewarn.cli.api_client import client_of, part
from forewarn.cli.listing import records
from forewarn.cli.metadata_client import get_document
from forewarn.cli.output import (
    Time,
    note,
    offset,
    print_json,
    print_list,
    show_list,
    show_record,
    when,
)
from forewarn.cli.parsing import CommandGroup, add_filters, add_list_options
from forewarn.cli.reports import add_format, all_outcomes, print_outcome, print_outcomes, summary
from forewarn.core.lifecycle import EventState
from forewarn.errors import CallerError
from forewarn.exit_codes import OK
from forewarn.protocol.documents import Document, format_not_before, read_document
from forewarn.protocol.timestamps import iso8601
from forewarn.protocol.versions import VERSIONS

if TYPE_CHECKING:
    from forewarn.protocol.documents import ScheduledEvent


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


def add_commands(commands: CommandGroup) -> None:
    """Add `event` and `document`."""
    event = commands.group("event")
    listing = event.command("list", "list events that have not ended", run=_list)
    add_filters(listing, ("vm", "group"))
    add_list_options(listing, states=[each.value for each in EventState], limit=None)
    show = event.command("show", "show one event", run=_show)
    show.add_argument("id", metavar="ID", help="event id, or its first characters")
    outcome = event.command("outcome", "show how an event ended", run=_outcome)
    outcome.add_argument("id", metavar="ID", help="an event's id")
    report = event.command("report", "report how the events of an owner ended", run=_report)
    report.option("--owner NAME", "only of groups of this owner")
    report.option("--group NAME", "only of this group")
    report.option("--month YYYY-MM", "only of this month, in UTC")
    report.option("--since TIME", "only work that ended after this time")
    report.option("--until TIME", "only work that ended before this time")
    add_format(report)
    document = commands.command("document", run=_document)
    whose = document.add_mutually_exclusive_group()
    whose.add_argument(
        "vm_name", metavar="VM", nargs="?", default="", help="default: the fleet's only VM"
    )
    whose.add_argument("--url", metavar="URL", help="query this metadata service directly")
    document.option("--api-version V", "api-version (default: the newest)")


def _list(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    shown = records(client, "/v1/events", "events", vm=arguments.vm, group=arguments.group)
    wanted = (each for each in shown if not arguments.state or each["state"] in arguments.state)
    events = list(islice(wanted, arguments.limit))
    now_ms = client.now_ms
    columns = (
        *(("event", "id"), "type"),
        ("status", lambda e: "approved" if e["state"] == "approved" else e["shown_as"]),
        ("not before", lambda e: when(e["not_before"], now_ms) if e["shown_not_before"] else ""),
        *("operation", "group", "resources"),
    )
    empty = "No scheduled events."
    return show_list(arguments, {"events": events}, columns, name="events", empty=empty)


def _show(arguments: argparse.Namespace) -> int:
    return show_record(arguments, client_of(arguments).get(f"/v1/events/{part(arguments.id)}"))


def _outcome(arguments: argparse.Namespace) -> int:
    outcome = client_of(arguments).get(f"/v1/events/{part(arguments.id)}/outcome")
    if arguments.json:
        return print_json(outcome)
    print_outcome(outcome)
    return OK


def _report(arguments: argparse.Namespace) -> int:
    span = _month(arguments.month) if arguments.month else (arguments.since, arguments.until)
    query = {"owner": arguments.owner, "group": arguments.group, "since": span[0], "until": span[1]}
    outcomes = all_outcomes(client_of(arguments), "/v1/outcomes", **query)
    if arguments.json:
        return print_json({"summary": summary(outcomes), "outcomes": outcomes})
    of = [f"of {each}" for each in (arguments.owner or arguments.group, arguments.month) if each]
    print_outcomes(outcomes, arguments.format, title=" ".join(["Events", *of]))
    return OK


def _month(text: str) -> tuple[str, str]:
    """Return the start of a month and of the next month, in UTC."""
    match = re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", text)
    if match is None:
        raise MonthInvalid(text=text[:64])
    year, month = int(match[1]), int(match[2])
    end = (year + 1, 1) if month == 12 else (year, month + 1)
    first, after = (f"{y:04}-{m:02}-01T00:00:00Z" for y, m in ((year, month), end))
    return first, after


def _document(arguments: argparse.Namespace) -> int:
    version = arguments.api_version or VERSIONS[-1]
    if arguments.url:
        body, now_ms = get_document(arguments.url, version)
    else:
        body, now_ms = _from_operator(arguments, version)
    if arguments.json:
        print(body.decode("utf-8", "replace"))
        return OK
    return _print_document(read_document(body), now_ms)


def _from_operator(arguments: argparse.Namespace, version: str) -> tuple[bytes, int]:
    client = client_of(arguments)
    vm = arguments.vm_name
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
        ("duration", lambda e: f"{e.duration_s} s" if e.duration_s >= 0 else "unknown"),
        ("source", attrgetter("source")),
        ("resources", attrgetter("resources")),
        ("text", attrgetter("description")),
    )
    return print_list(document.events, columns, empty="No scheduled events.")
