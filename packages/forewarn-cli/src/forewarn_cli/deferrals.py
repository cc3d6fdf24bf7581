"""`forewarn deferral`: owners' requests for later hand-back deadlines, and their answers."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from forewarn_base.exit_codes import OK
from forewarn_cli.declarations import CHOSEN, ChosenVms, DeclarationId, print_deferrals
from forewarn_server.cli.api_client import client_of, part
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.output import show_list, when
from forewarn_server.cli.parameters import COMMON, LISTED, ListOptions, ServerOptions

deferral = noun_app("deferral")
Owner: TypeAlias = Annotated[str, Parameter(metavar="NAME", help="the owner who asked")]
OnlyHost: TypeAlias = Annotated[
    str | None, Parameter(metavar="NAME", help="only the request for this host")
]


@deferral.default
@deferral.command(name="list")
def _list(*, common: ListOptions = LISTED) -> int:
    """List owners' requests for later hand-back deadlines."""
    client = client_of(common)
    answer = client.get("/v1/deferrals")
    now_ms = client.now_ms
    columns = (
        *("declaration", "host", "owner", "state"),
        ("until", lambda each: when(each["until"], now_ms)),
        ("decide by", lambda each: when(each["decide_by"], now_ms)),
        *("reason", "answer"),
    )
    empty = "No owner has asked for a later hand-back deadline."
    return show_list(common, answer, columns, name="deferrals", empty=empty)


@deferral.command(name="withdraw")
def _withdraw(
    id_: DeclarationId, /, *, chosen: ChosenVms = CHOSEN, common: ServerOptions = COMMON
) -> int:
    """Withdraw your requests that wait for a decision."""
    chosen.require_place()
    client = client_of(common)
    answer = client.post(f"/v1/declarations/{part(id_)}/deferrals/withdraw", chosen.named)
    print_deferrals(common, answer, client.now_ms)
    return OK


@deferral.command(name="grant")
def _grant(
    id_: DeclarationId,
    /,
    *,
    owner: Owner,
    host: OnlyHost = None,
    reason: Annotated[
        str | None, Parameter(metavar="TEXT", help="the reason, shown to the owner")
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Grant the requests of an owner that wait for a decision."""
    client = client_of(common)
    form = {"owner": owner, "host": host, "reason": reason}
    answer = client.post(f"/v1/declarations/{part(id_)}/deferrals/grant", form)
    print_deferrals(common, answer, client.now_ms)
    return OK


@deferral.command(name="refuse")
def _refuse(
    id_: DeclarationId,
    /,
    *,
    owner: Owner,
    host: OnlyHost = None,
    reason: Annotated[str, Parameter(metavar="TEXT", help="the reason, shown to the owner")],
    common: ServerOptions = COMMON,
) -> int:
    """Refuse the requests of an owner that wait for a decision."""
    client = client_of(common)
    form = {"owner": owner, "host": host, "reason": reason}
    answer = client.post(f"/v1/declarations/{part(id_)}/deferrals/refuse", form)
    print_deferrals(common, answer, client.now_ms)
    return OK
