"""`forewarn ticket`: incidents, reports, retirements, repairs and reviews."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from forewarn_base.errors import CallerError
from forewarn_base.exit_codes import OK
from forewarn_server.cli.api_client import Answer, client_of, part
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.completed_names import suggest_owner
from forewarn_server.cli.defaults import LIST_MAX
from forewarn_server.cli.output import (
    listed,
    print_facts,
    print_structured,
    show_done,
    show_list,
    when,
)
from forewarn_server.cli.parameters import (
    COMMON,
    LISTED,
    WATCHED,
    Limit,
    ListOptions,
    Moment,
    ServerOptions,
    WatchOptions,
)

TicketId: TypeAlias = Annotated[str, Parameter(name="ID", help="such as t-12")]
TicketType: TypeAlias = Literal["incident", "report", "retirement", "repair", "review"]
Category: TypeAlias = Literal[
    "gpu", "fan", "memory", "disk", "network", "interconnect", "power", "firmware", "other"
]
Said: TypeAlias = Annotated[str | None, Parameter(help="text for the dialogue")]
ticket = noun_app("ticket")


class TargetAmbiguous(CallerError):
    """A ticket needs exactly one target."""

    code = "ticket-target-ambiguous"
    message = "A ticket is about one VM, host or rack."
    advice = "Give one of --vm, --host and --rack."


@ticket.default
@ticket.command(name="list")
def _list(
    *,
    type_: Annotated[
        TicketType | None, Parameter(name="--type", help="only tickets of this type")
    ] = None,
    target: Annotated[
        str | None, Parameter(metavar="NAME", help="only about this VM, host or rack")
    ] = None,
    host: Annotated[
        str | None, Parameter(metavar="NAME", help="only with a target on this host")
    ] = None,
    owner: Annotated[str | None, Parameter(help="only that concern this owner")] = None,
    all_: Annotated[bool, Parameter(name="--all", help="include tickets that have ended")] = False,
    limit: Limit = LIST_MAX,
    common: ListOptions = LISTED,
) -> int:
    """List tickets that have not ended."""
    client = client_of(common)
    query = {"type": type_, "target": target, "host": host, "owner": owner, "limit": str(limit)}
    answer = client.get("/v1/tickets", **query, live=None if all_ else "true")
    columns = (
        *("id", "type", "state", ("about", _target), "category", "owners", "description"),
        ("opened", lambda each: when(each["opened"], client.now_ms)),
    )
    empty = "No open tickets. Use --all to include those that have ended."
    shown = show_list(common, answer, columns, name="tickets", empty=empty)
    if not answer["tickets"]:
        suggest_owner(owner, common)
    return shown


@ticket.command(name="show")
def _show(id_: TicketId, /, *, common: WatchOptions = WATCHED) -> int:
    """Show one ticket with its dialogue."""
    client = client_of(common)
    answer = client.get(f"/v1/tickets/{part(id_)}")
    if common.structured:
        return print_structured(common, answer)
    now_ms = client.now_ms
    times = ((name, when(answer[name], now_ms)) for name in ("opened", "updated", "closed", "due"))
    names = ("evidence", "action", "account", "external", "operation", "maintenance")
    print_facts(
        (
            ("ticket", f"{answer['id']}, {answer['type']}, {answer['state']}"),
            ("about", f"{_target(answer)}, {answer['category']}"),
            ("hardware", answer["hardware"]),
            ("owners", listed(answer["owners"])),
            ("description", answer["description"]),
            *((name, answer[name]) for name in names),
            *times,
        )
    )
    for each in answer["texts"]:
        print(f"{when(each['at'], now_ms)}  {each['by']}: {each['text']}")
    return OK


@ticket.command(name="open")
def _open(
    *,
    vm: Annotated[str | None, Parameter(metavar="NAME", help="the VM it is about")] = None,
    host: Annotated[str | None, Parameter(metavar="NAME", help="the host it is about")] = None,
    rack: Annotated[str | None, Parameter(metavar="NAME", help="the rack it is about")] = None,
    description: Annotated[str, Parameter(alias="-d", help="the fault, in words")],
    category: Annotated[Category, Parameter(help="the part concerned")] = "other",
    evidence: Annotated[str | None, Parameter(help="log lines, error codes")] = None,
    type_: Annotated[
        Literal["report", "retirement", "repair"],
        Parameter(name="--type", help="report, or for operators retirement or repair"),
    ] = "report",
    due: Annotated[Moment | None, Parameter(help="when a retirement's target leaves")] = None,
    account: Annotated[str | None, Parameter(help="your account, for your own records")] = None,
    external: Annotated[
        str | None, Parameter(metavar="ID", help="id of the ticket in another system")
    ] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Report a VM, or a host or rack that you use, as faulty."""
    targets = [(k, n) for k, n in (("vm", vm), ("host", host), ("rack", rack)) if n]
    if len(targets) != 1:
        raise TargetAmbiguous
    form = {
        "type": type_,
        "target_kind": targets[0][0],
        "target": targets[0][1],
        "category": category,
        "description": description,
        "evidence": evidence,
        "account": account,
        "external": external,
        "due": due,
    }
    return _show_done(common, client_of(common).post("/v1/tickets", form), "opened")


@ticket.command(name="answer")
def _answer(
    id_: TicketId,
    /,
    *,
    text: Annotated[str, Parameter(help="the answer")],
    common: ServerOptions = COMMON,
) -> int:
    """Answer a ticket, or disagree that it is resolved."""
    return _post(common, id_, "answer", "answered", text=text)


@ticket.command(name="close")
def _close(
    id_: TicketId,
    /,
    *,
    text: Said = None,
    action: Annotated[str | None, Parameter(help="what was done")] = None,
    common: ServerOptions = COMMON,
) -> int:
    """Close a ticket; owners can close their own reports."""
    return _post(common, id_, "close", "closed", text=text, action=action)


@ticket.command(name="reopen")
def _reopen(
    id_: TicketId,
    /,
    *,
    text: Annotated[str, Parameter(name="--reason", help="the reason")],
    common: ServerOptions = COMMON,
) -> int:
    """Reopen a closed or refused ticket; owners can reopen their own reports."""
    return _post(common, id_, "reopen", "open again", text=text)


@ticket.command(name="ask")
def _ask(
    id_: TicketId,
    /,
    *,
    text: Annotated[str, Parameter(help="the question")],
    common: ServerOptions = COMMON,
) -> int:
    """Ask the owner of a ticket a question."""
    return _post(common, id_, "ask", "waiting for its owner's answer", text=text)


@ticket.command(name="work")
def _work(
    id_: TicketId,
    /,
    *,
    operation: Annotated[
        str | None, Parameter(metavar="ID", help="operation that does the work, such as op-12")
    ] = None,
    text: Said = None,
    common: ServerOptions = COMMON,
) -> int:
    """Take up a ticket as work."""
    return _post(common, id_, "work", "in work", operation=operation, text=text)


@ticket.command(name="resolve")
def _resolve(
    id_: TicketId,
    /,
    *,
    action: Annotated[str, Parameter(help="what was done")],
    text: Said = None,
    common: ServerOptions = COMMON,
) -> int:
    """Mark the work of a ticket as done; a report then closes unless its owner disagrees."""
    return _post(common, id_, "resolve", "resolved", text=text, action=action)


@ticket.command(name="refuse")
def _refuse(
    id_: TicketId,
    /,
    *,
    text: Annotated[str, Parameter(name="--reason", help="the reason")],
    common: ServerOptions = COMMON,
) -> int:
    """Refuse a ticket, with the reason."""
    return _post(common, id_, "refuse", "refused", text=text)


@ticket.command(name="link")
def _link(
    id_: TicketId,
    external: Annotated[str, Parameter(name="EXTERNAL", help="id in the other system")],
    /,
    *,
    common: ServerOptions = COMMON,
) -> int:
    """Record the id of a ticket in another system."""
    return _post(common, id_, "link", f"linked to {external}", external=external)


def _post(common: ServerOptions, id_: str, verb: str, done: str, **members: str | None) -> int:
    answer = client_of(common).post(f"/v1/tickets/{part(id_)}/{verb}", members)
    return _show_done(common, answer, done)


def _show_done(common: ServerOptions, answer: Answer, done: str) -> int:
    return show_done(common, answer, f"{answer['id']} about {_target(answer)} is {done}")


def _target(ticket: Answer) -> str:
    return f"{ticket['target_kind']} {ticket['target']}"
