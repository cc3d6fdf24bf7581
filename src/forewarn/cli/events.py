"""`forewarn event` and `forewarn document`: show events, and the documents of VMs."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from forewarn.cli.api_client import Answer, client_of, part
from forewarn.cli.listing import records
from forewarn.cli.metadata_client import get_document
from forewarn.cli.output import Time, note, offset, print_facts, print_json, print_table, when
from forewarn.cli.parsing import CommandGroup, add_filters, add_list_options
from forewarn.cli.reports import add_format, all_outcomes, print_outcome, print_outcomes, summary
from forewarn.core.lifecycle import EventState
from forewarn.errors import CallerError
from forewarn.exit_codes import OK
from forewarn.protocol.documents import Document, format_not_before, read_document
from forewarn.protocol.timestamps import iso8601
from forewarn.protocol.versions import VERSIONS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable


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
    if arguments.json:
        return print_json({"events": events})
    _print_events(events, client.now_ms)
    return OK


def _show(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).get(f"/v1/events/{part(arguments.id)}")
    if arguments.json:
        return print_json(answer)
    return print_facts((name.replace("_", " "), value) for name, value in answer.items())


def _print_events(events: Iterable[Answer], now_ms: int) -> None:
    print_table(
        ("event", "type", "status", "not before", "operation", "group", "resources"),
        [
            (
                each["id"],
                each["type"],
                "approved" if each["state"] == "approved" else each["shown_as"],
                when(each["not_before"], now_ms) if each["shown_not_before"] else "",
                each["operation"],
                each["group"],
                each["resources"],
            )
            for each in events
        ],
        empty="No scheduled events.",
    )


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
    _print_document(read_document(body), now_ms)
    return OK


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


def _print_document(document: Document, now_ms: int) -> None:
    def starts(not_before_ms: int | None) -> str:
        text = format_not_before(not_before_ms)
        return text if not_before_ms is None else Time(text, offset(not_before_ms - now_ms))

    note(f"incarnation {document.incarnation}, read at {iso8601(now_ms // 1000 * 1000)}")
    print_table(
        ("event", "type", "status", "not before", "duration", "source", "resources", "text"),
        [
            (
                each.event_id,
                each.event_type,
                each.status,
                starts(each.not_before_ms),
                f"{each.duration_s} s" if each.duration_s >= 0 else "unknown",
                each.source,
                each.resources,
                each.description,
            )
            for each in document.events
        ],
        empty="No scheduled events.",
    )
