"""`forewarn history`: list and export history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.cli.output import print_json, print_table, when
from forewarn.cli.parsing import HISTORY_FILTERS, add_filters, add_list_options
from forewarn.exit_codes import OK

if TYPE_CHECKING:
    import argparse

    from forewarn.cli.parsing import CommandGroup


def add_commands(commands: CommandGroup) -> None:
    """Add `history`."""
    history = commands.group("history")
    listing = history.command("list", "list the newest entries", run=_list)
    export = history.command(
        "export", "write entries and their records as JSON lines, oldest first", run=_export
    )
    export.add_argument(
        "--output",
        metavar="FILE",
        default="-",
        help="output file, compressed if it ends in .gz (default: standard output)",
    )
    for parser in (listing, export):
        add_filters(parser, HISTORY_FILTERS)
        parser.add_argument("--after", metavar="N", type=int, help="only entries after entry N")
    add_list_options(listing, since="recorded")


def _export(arguments: argparse.Namespace) -> int:
    from forewarn.cli.history_export import export_history  # noqa: PLC0415

    return export_history(arguments)


def _list(arguments: argparse.Namespace) -> int:
    from forewarn.cli.api_client import client_of  # noqa: PLC0415 - `--help` needs no client
    from forewarn.cli.listing import newest  # noqa: PLC0415

    client = client_of(arguments)
    filters = {name: getattr(arguments, name) for name in (*HISTORY_FILTERS, "after")}
    entries = newest(
        client, "/v1/history", arguments, name="entries", time="at", order="newest", **filters
    )
    if arguments.json:
        return print_json({"entries": entries})
    print_table(
        ("no", "at", "actor", "what"),
        [
            (each["sequence"], when(each["at"], client.now_ms), each["actor"], each["text"])
            for each in entries
        ],
        empty="No history.",
    )
    return OK
