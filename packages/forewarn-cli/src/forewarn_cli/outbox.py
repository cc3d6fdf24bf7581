"""`forewarn outbox`: list, retry and unblock the destinations of the outbox.

The service's settings define the destinations.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from forewarn_base.exit_codes import OK
from forewarn_base.protocol.timestamps import duration_text
from forewarn_server.cli.api_client import client_of
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.output import Column, note, show_list
from forewarn_server.cli.parameters import (
    COMMON,
    LISTED,
    ListOptions,
    PositiveInt,
    ServerOptions,
)

outbox = noun_app("outbox")


#: Columns of the list of destinations.
COLUMNS: tuple[Column, ...] = (
    *(("destination", "name"), "kind", "state", ("delivered to", "sequence"), "behind"),
    ("for", lambda each: duration_text(each["behind_s"]) if each["behind"] else ""),
    ("skipped", lambda each: each.get("skipped") or ""),  # 0.1.0 does not send it
    "error",
)
_EMPTY = "No destinations. Add them under [outbox] in the settings."


@outbox.default
@outbox.command(name="list")
def _list(
    *,
    common: ListOptions = LISTED,
) -> int:
    """List the destinations and their progress."""
    answer = client_of(common).get("/v1/outbox")
    return show_list(common, answer, COLUMNS, name="destinations", empty=_EMPTY)


@outbox.command(name="retry")
def _retry(
    name: Annotated[str, Parameter(name="NAME", help="destination, as in [outbox.NAME]")],
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Retry a failing destination now."""
    client_of(common).post(f"/v1/outbox/{name}/retry")
    note(f"{name}: retrying")
    return OK


@outbox.command(name="skip")
def _skip(
    name: Annotated[str, Parameter(name="NAME", help="destination, as in [outbox.NAME]")],
    /,
    *,
    to: Annotated[PositiveInt, Parameter(metavar="SEQUENCE", help="last entry to skip")],
    common: ServerOptions = COMMON,
) -> int:
    """Skip entries that a destination refuses."""
    client_of(common).post(f"/v1/outbox/{name}/skip", {"sequence": to})
    note(f"{name}: undelivered entries up to {to} are skipped")
    return OK
