"""`forewarn events`, `document`, `operations` and `history`: what there is and what there was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.cli.output import Time, note, offset, print_json, print_table, when
from forewarn.cli.parsing import HISTORY_FILTERS, add_filters, whole_number
from forewarn.cli.work_requests import print_operations
from forewarn.errors import CallerError
from forewarn.exit_codes import OK

if TYPE_CHECKING:
    import argparse

    from forewarn.cli.api_client import Answer
    from forewarn.cli.parsing import CommandGroup
    from forewarn.protocol.documents import Document


class VmUnnamed(CallerError):
    """A document was asked for, but not whose."""

    code = "vm-unnamed"
    message = "It is not clear whose document is meant: the fleet has {count} VM."
    advice = "Name one with --vm, or a metadata service with --url."


def add_commands(commands: CommandGroup) -> None:
    """Add the commands that only read."""
    events = commands.command("events", run=_events)
    add_filters(events, ("vm", "group"))
    document = commands.command("document", run=_document)
    whose = document.add_mutually_exclusive_group()
    whose.add_argument("--vm", metavar="NAME", help="as this VM reads it (else the only VM)")
    whose.add_argument(
        "--url", metavar="URL", help="as a metadata service gives it to this machine"
    )
    document.add_argument("--api-version", metavar="V", help="as this version shows it")
    operations = commands.command("operations", run=_operations)
    add_filters(operations, ("host", "vm", "group"))
    operations.add_argument("--all", action="store_true", help="also those that have ended")
    operations.add_argument("--limit", metavar="N", type=whole_number, default=100)
    history = commands.command("history", run=_history)
    history.add_argument(
        "export",
        nargs="?",
        choices=("export",),
        help="write all of it to --output as JSON lines, oldest first, with what records became",
    )
    history.add_argument(
        "--output",
        metavar="FILE",
        default="-",
        help="where an export goes; compressed if it ends in .gz (default: standard output)",
    )
    add_filters(history, HISTORY_FILTERS)
    history.add_argument("--after", metavar="N", type=int, help="only after this entry")
    history.add_argument(
        "--limit",
        metavar="N",
        type=whole_number,
        default=100,
        help="maximum number of entries: the last ones",
    )


def _given(arguments: argparse.Namespace, *names: str) -> dict[str, object]:
    return {name: getattr(arguments, name) for name in names if getattr(arguments, name, None)}


def _events(arguments: argparse.Namespace) -> int:
    from forewarn.cli.api_client import client_of  # noqa: PLC0415 - `--help` needs no client

    client = client_of(arguments)
    events, after = [], ""
    while True:
        page = client.get("/v1/events", after=after, **_given(arguments, "vm", "group"))
        events += page["events"]
        after = page["next"]
        if not after:
            break
    if arguments.json:
        return print_json({"events": events})
    print_table(
        ("event", "type", "status", "not before", "operation", "group", "resources"),
        [
            (
                each["id"],
                each["type"],
                "approved" if each["state"] == "approved" else each["shown_as"],
                when(each["not_before"], client.now_ms) if each["shown_not_before"] else "",
                each["operation"],
                each["group"],
                each["resources"],
            )
            for each in events
        ],
        empty="nothing is scheduled",
    )
    return OK


def _document(arguments: argparse.Namespace) -> int:
    from forewarn.protocol.documents import read_document  # noqa: PLC0415
    from forewarn.protocol.versions import VERSIONS  # noqa: PLC0415

    version = arguments.api_version or VERSIONS[-1]
    if arguments.url:
        from forewarn.cli.metadata_client import get_document  # noqa: PLC0415

        body, now_ms = get_document(arguments.url, version)
    else:
        body, now_ms = _from_operator(arguments, version)
    if arguments.json:
        print(body.decode("utf-8", "replace"))
        return OK
    _print_document(read_document(body), now_ms)
    return OK


def _from_operator(arguments: argparse.Namespace, version: str) -> tuple[bytes, int]:
    from urllib.parse import urlencode  # noqa: PLC0415

    from forewarn.cli.api_client import client_of  # noqa: PLC0415

    client = client_of(arguments)
    vm = arguments.vm
    if not vm:
        names = [each["name"] for each in client.get("/v1/vms", limit=2)["vms"]]
        if len(names) != 1:
            raise VmUnnamed(count="more than one" if names else "no")
        vm = names[0]
    query = urlencode({"vm": vm, "api-version": version})
    return client.send("GET", f"/v1/documents?{query}"), client.now_ms


def _print_document(document: Document, now_ms: int) -> None:
    from forewarn.protocol.documents import format_not_before  # noqa: PLC0415
    from forewarn.protocol.timestamps import iso8601  # noqa: PLC0415

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
        empty="nothing is scheduled",
    )


def _operations(arguments: argparse.Namespace) -> int:
    from forewarn.cli.api_client import client_of  # noqa: PLC0415

    client = client_of(arguments)
    found: list[Answer] = []
    before: int | None = None
    while len(found) < arguments.limit:
        page = client.get(
            "/v1/operations",
            live=not arguments.all,
            before=before,
            limit=min(arguments.limit - len(found), 500),
            **_given(arguments, "host", "vm", "group"),
        )
        found += page["operations"]
        before = page["next"]
        if before is None:
            break
    if arguments.json:
        return print_json({"operations": found})
    print_operations(reversed(found), client.now_ms)
    return OK


def _history(arguments: argparse.Namespace) -> int:
    if arguments.export:
        from forewarn.cli.history_export import export_history  # noqa: PLC0415

        return export_history(arguments)
    from forewarn.cli.api_client import client_of  # noqa: PLC0415

    client = client_of(arguments)
    filters = _given(arguments, *HISTORY_FILTERS, "after")
    found: list[Answer] = []
    before: int | None = None
    while len(found) < arguments.limit:
        limit = min(arguments.limit - len(found), 1000)
        page = client.get("/v1/history", order="newest", before=before, limit=limit, **filters)
        found += page["entries"]
        before = page["next"]
        if before is None:
            break
    found.reverse()
    if arguments.json:
        return print_json({"entries": found})
    print_table(
        ("no", "at", "actor", "what"),
        [
            (each["sequence"], when(each["at"], client.now_ms), each["actor"], each["text"])
            for each in found
        ],
        empty="nothing has happened",
    )
    return OK
