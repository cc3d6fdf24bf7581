"""`forewarn watch`: print new entries of history as they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.cli.output import note, print_json_line
from forewarn.cli.parsing import HISTORY_FILTERS, add_filters, whole_number
from forewarn.exit_codes import OK, UNREACHABLE

if TYPE_CHECKING:
    import argparse

    from forewarn.cli.api_client import Answer
    from forewarn.cli.parsing import CommandGroup


def add_commands(commands: CommandGroup) -> None:
    """Add `watch`."""
    watch = commands.command("watch", run=_watch)
    watch.add_argument(
        "--after", metavar="N", type=int, help="start after this entry (default: now)"
    )
    watch.add_argument(
        "--count", metavar="N", type=whole_number, default=0, help="stop after this many entries"
    )
    add_filters(watch, HISTORY_FILTERS)


def _watch(arguments: argparse.Namespace) -> int:
    from forewarn.cli.api_client import client_of  # noqa: PLC0415 - `--help` needs no client

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
