"""`forewarn history` and `forewarn watch`: list, export and follow history.

An export writes JSON lines with the changed records, and leaves history unchanged.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from forewarn.cli.api_client import Answer, client_of
from forewarn.cli.listing import newest, records
from forewarn.cli.output import note, print_json_line, show_list, when
from forewarn.cli.parsing import (
    HISTORY_FILTERS,
    CommandGroup,
    add_filters,
    add_list_options,
    whole_number,
)
from forewarn.errors import CallerError
from forewarn.exit_codes import OK, UNREACHABLE

#: Entries per request of an export; an answer with the changed records has about 300 KB.
EXPORT_PAGE = 1000


class ExportUnwritable(CallerError):
    """The export file cannot be written."""

    code = "export-unwritable"
    message = "The export cannot be written to {path}: {reason}."
    advice = "Name a writable file with --output."


def add_commands(commands: CommandGroup) -> None:
    """Add `history` and `watch`."""
    history = commands.group("history")
    listing = history.command("list", "list the newest entries", run=_list)
    export = history.command(
        "export", "write entries and their records as JSON lines, oldest first", run=_export
    )
    export.option(
        "--output FILE",
        "output file, compressed if it ends in .gz (default: standard output)",
        default="-",
    )
    for parser in (listing, export):
        add_filters(parser, HISTORY_FILTERS)
        parser.option("--after N", "only entries after entry N", type=int)
    add_list_options(listing, since="recorded")
    watch = commands.command("watch", run=_watch)
    watch.option("--after N", "start after this entry (default: now)", type=int)
    watch.option("--count N", "stop after this many entries", type=whole_number, default=0)
    add_filters(watch, HISTORY_FILTERS)


def _list(arguments: argparse.Namespace) -> int:
    client = client_of(arguments)
    filters = {name: getattr(arguments, name) for name in (*HISTORY_FILTERS, "after")}
    entries = newest(
        client, "/v1/history", arguments, name="entries", time="at", order="newest", **filters
    )
    columns = (
        ("no", "sequence"),
        ("at", lambda each: when(each["at"], client.now_ms)),
        *("actor", ("what", "text")),
    )
    answer = {"entries": entries}
    return show_list(arguments, answer, columns, name="entries", empty="No history.")


def _export(arguments: argparse.Namespace) -> int:
    """Write history as JSON lines, one page at a time."""
    query = {name: getattr(arguments, name) for name in HISTORY_FILTERS}
    query |= {"limit": EXPORT_PAGE, "images": "true"}
    start, count = arguments.after or 0, 0
    with _export_file(arguments.output) as file:
        for each in records(client_of(arguments), "/v1/history", "entries", start=start, **query):
            file.write(json.dumps(each, separators=(",", ":")) + "\n")
            count += 1
    if arguments.output != "-":
        print(f"{count} entries written to {arguments.output}", file=sys.stderr)
    return OK


@contextmanager
def _export_file(output: str) -> Iterator[TextIO]:
    """Open the output file of an export, or standard output."""
    if output == "-":
        yield sys.stdout
        return
    opener = gzip.open if output.endswith(".gz") else open
    try:
        with opener(output, "wt", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise ExportUnwritable(path=output, reason=error.strerror) from error


def _watch(arguments: argparse.Namespace) -> int:
    count = 0
    wanted = {name: getattr(arguments, name) for name in HISTORY_FILTERS}
    for entry in client_of(arguments).lines("/v1/watch", after=arguments.after, **wanted):
        if entry is None:
            continue
        if "end" in entry:
            note(f"the server ended the stream: {entry['end']}")
            break
        _print(entry, as_json=arguments.json)
        count += 1
        if count == arguments.count:
            return OK
    return UNREACHABLE if arguments.count else OK  # fewer entries than `--count` arrived


def _print(entry: Answer, *, as_json: bool) -> None:
    if as_json:
        print_json_line(entry)
    else:
        print(f"{entry['at']}  {entry['text']}  ({entry['actor']})", flush=True)
