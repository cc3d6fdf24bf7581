"""`forewarn history` and `forewarn watch`: list, export and follow history.

An export writes JSON lines with the changed records, and leaves history unchanged.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, TextIO

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK, UNREACHABLE
from forewarn_core.fleet.actions import ACTIONS
from forewarn_server.cli.api_client import Answer, client_of
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.defaults import LIST_MAX
from forewarn_server.cli.listing import Chosen, newest, records
from forewarn_server.cli.output import note, print_json_line, show_list, when
from forewarn_server.cli.parameters import (
    COMMON,
    LISTED,
    FileOrDash,
    Int,
    Limit,
    ListOptions,
    PositiveInt,
    ServerOptions,
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Filters:
    """Options that filter entries of history."""

    operation: Annotated[str | None, Parameter(metavar="ID", help="only of this operation")] = None
    event: Annotated[str | None, Parameter(metavar="ID", help="only of this event")] = None
    host: Annotated[str | None, Parameter(metavar="NAME", help="only of this host")] = None
    vm: Annotated[str | None, Parameter(metavar="NAME", help="only of this VM")] = None
    group: Annotated[str | None, Parameter(metavar="NAME", help="only of this group")] = None
    action: Annotated[
        str | None,
        Parameter(
            choices=tuple(ACTIONS),
            metavar="NAME",
            help="only of this action, such as operation.started",
        ),
    ] = None


FILTERS = Filters()
history = noun_app("history")
watch = noun_app("watch")


#: Entries per request of an export; an answer with the changed records has about 300 KB.
EXPORT_PAGE = 1000


class ExportUnwritable(CallerError):
    """The export file cannot be written."""

    code = "export-unwritable"
    message = "The export cannot be written to {path}: {reason}."
    advice = "Name a writable file with --output."


@history.default
@history.command(name="list")
def _list(
    *,
    filters: Filters = FILTERS,
    after: Annotated[Int | None, Parameter(metavar="N", help="only entries after entry N")] = None,
    since: Annotated[
        str | None,
        Parameter(
            metavar="TIME", help="only recorded since this time: 2h (ago), or 2026-11-21T18:30:00Z"
        ),
    ] = None,
    limit: Limit = LIST_MAX,
    common: ListOptions = LISTED,
) -> int:
    """List the newest entries."""
    client = client_of(common)
    entries = newest(
        client,
        "/v1/history",
        time="at",
        chosen=Chosen(since=since, limit=limit),
        order="newest",
        after=after,
        **vars(filters),
    )
    columns = (
        ("no", "sequence"),
        ("at", lambda each: when(each["at"], client.now_ms)),
        *("actor", ("what", "text")),
    )
    answer = {"entries": entries}
    return show_list(common, answer, columns, name="entries", empty="No history.")


@history.command(name="export")
def _export(
    *,
    output: Annotated[
        FileOrDash,
        Parameter(
            metavar="FILE",
            help="output file, compressed if it ends in .gz (default: standard output)",
        ),
    ] = "-",
    filters: Filters = FILTERS,
    after: Annotated[Int | None, Parameter(metavar="N", help="only entries after entry N")] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Write entries and their records as JSON lines, oldest first."""
    query = {**vars(filters), "limit": EXPORT_PAGE, "images": "true"}
    entries = records(client_of(common), "/v1/history", "entries", start=after or 0, **query)
    count = written_lines(output, entries)
    if output != "-":
        print(f"{count} entries written to {output}", file=sys.stderr)
    return OK


def written_lines(output: str, lines: Iterable[Answer]) -> int:
    """Write JSON lines to a file, or to standard output; return their number.

    Raises:
        ExportUnwritable: the file cannot be written.
    """
    count = 0
    with _export_file(output) as file:
        for each in lines:
            file.write(json.dumps(each, separators=(",", ":")) + "\n")
            count += 1
    return count


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


@watch.default
def _watch(
    *,
    after: Annotated[
        int | None, Parameter(metavar="N", help="start after this entry (default: now)")
    ] = None,
    count: Annotated[PositiveInt, Parameter(metavar="N", help="stop after this many entries")] = 0,
    filters: Filters = FILTERS,
    common: ServerOptions = COMMON,
) -> int:
    """Follow new entries of history."""
    shown = 0
    for entry in client_of(common).lines("/v1/watch", after=after, **vars(filters)):
        if entry is None:
            continue
        if "end" in entry:
            note(f"the server ended the stream: {entry['end']}")
            break
        _print(entry, as_json=common.structured)
        shown += 1
        if shown == count:
            return OK
    return UNREACHABLE if count else OK  # fewer entries than `--count` arrived


def _print(entry: Answer, *, as_json: bool) -> None:
    if as_json:
        print_json_line(entry)
    else:
        print(f"{entry['at']}  {entry['text']}  ({entry['actor']})", flush=True)
