"""`forewarn outbox`: list, retry and unblock the destinations of the outbox.

The service's settings define the destinations.
"""

from __future__ import annotations

import argparse

from forewarn.cli.api_client import client_of
from forewarn.cli.output import Column, note, show_list
from forewarn.cli.parsing import CommandGroup, whole_number
from forewarn.exit_codes import OK

#: Columns of the list of destinations.
COLUMNS: tuple[Column, ...] = (
    *(("destination", "name"), "kind", "state", ("delivered to", "sequence"), "behind"),
    ("for", lambda each: f"{each['behind_s']} s" if each["behind"] else ""),
    ("skipped", lambda each: each.get("skipped") or ""),  # 0.1.0 does not send it
    "error",
)
_EMPTY = "No destinations. Add them under [outbox] in the settings."


def add_commands(commands: CommandGroup) -> None:
    """Add `outbox`."""
    outbox = commands.group("outbox")
    outbox.command("list", "list the destinations and their progress", run=_list)
    retry = outbox.command("retry", "retry a failing destination now", run=_retry)
    retry.add_argument("name", metavar="NAME", help="destination, as in [outbox.NAME]")
    skip = outbox.command("skip", "skip entries that a destination refuses", run=_skip)
    skip.add_argument("name", metavar="NAME", help="destination, as in [outbox.NAME]")
    skip.option("--to SEQUENCE", "last entry to skip", type=whole_number, required=True)


def _list(arguments: argparse.Namespace) -> int:
    answer = client_of(arguments).get("/v1/outbox")
    return show_list(arguments, answer, COLUMNS, name="destinations", empty=_EMPTY)


def _retry(arguments: argparse.Namespace) -> int:
    client_of(arguments).post(f"/v1/outbox/{arguments.name}/retry")
    note(f"{arguments.name}: retrying")
    return OK


def _skip(arguments: argparse.Namespace) -> int:
    client_of(arguments).post(f"/v1/outbox/{arguments.name}/skip", {"sequence": arguments.to})
    note(f"{arguments.name}: undelivered entries up to {arguments.to} are skipped")
    return OK
