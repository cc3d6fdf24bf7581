"""Routes of tickets: incidents, reports of tenants, retirements, repairs and reviews.

Source: T-5, T-9, T-10.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from functools import partial

from forewarn_base.errors import CallerError
from forewarn_base.validation.fields import NAME, Boolean, Choice, Integer, Text, Timestamp
from forewarn_base.validation.forms import Field, Form
from forewarn_base.values import replace, value
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.lifts import LIFTABLE
from forewarn_core.fleet.naming import RACK
from forewarn_core.fleet.refusals import TicketWrongState, UnknownTicket
from forewarn_core.fleet.stimulus import (
    LiftConfirmation,
    LinkTicket,
    MoveTicket,
    OpenTicket,
    ReopenTicket,
)
from forewarn_core.fleet.ticket import (
    TICKET_TEXT_MAX,
    HardwareCategory,
    Ticket,
    TicketMove,
    TicketState,
    TicketTarget,
    TicketText,
    TicketType,
)
from forewarn_core.fleet.ticket_commands import MOVED
from forewarn_server.api import schemas
from forewarn_server.api.auth import NotPermitted
from forewarn_server.api.lookup import find
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.control.plane import StateView
from forewarn_store import Store, TicketPage
from forewarn_store.tickets import PAGE_MAX


class OperationElsewhere(CallerError):
    """The work of a ticket is on another host than its target."""

    code = "operation-elsewhere"
    status = 422
    message = "{operation} works on host {host}, and {ticket} is about another host."
    advice = "Name an operation on the ticket's host; nothing was changed."


_ID = re.compile(r"(?i:t-)?([0-9]{1,15})")
_TYPES = Choice({each.value: each for each in TicketType})
_OPENED = Choice(
    {each.value: each for each in (TicketType.REPORT, TicketType.RETIREMENT, TicketType.REPAIR)}
)
_TARGETS = Choice({e.value: e for e in TicketTarget if e is not TicketTarget.SERVICE})
_CATEGORIES = Choice({each.value: each for each in HardwareCategory})
LIFTED = Choice({each.value: each for each in LIFTABLE})
_PROSE = Text(TICKET_TEXT_MAX, lines=True)
_SAID = Field("text", _PROSE, "Text for the dialogue.")
_WORDS = Text(TICKET_TEXT_MAX, r"[\s\S]*\S[\s\S]*", "a text", lines=True)
_REASON = Field("text", _WORDS, "The reason.", required=True)
_ANSWER = Field("text", _WORDS, "Text for the dialogue.", required=True)
_DONE = Field("action", _PROSE, "What was done.")
_RESULT = Field("action", _WORDS, "What was done.", required=True)

_OPEN = Form(
    "OpenTicket",
    "A new ticket.",
    (
        Field("type", _OPENED, "What the ticket is about (default: report); owners open reports."),
        Field("target_kind", _TARGETS, "The kind of the target.", required=True),
        Field("target", Text(128), "Name of the VM, host or rack.", required=True),
        Field("category", _CATEGORIES, "The part that is concerned (default: other)."),
        Field("description", _WORDS, "The fault, in words.", required=True),
        Field("evidence", _PROSE, "Log lines, error codes, measurements."),
        Field("account", Text(128), "Account of the owner, as the owner names it."),
        Field("external", Text(128), "Id in another system."),
        Field("due", Timestamp(), "When the target of a retirement leaves, at the earliest."),
    ),
)

_TEXT: schemas.ObjectSchema[TicketText] = schemas.ObjectSchema(
    "TicketText",
    "One text of a ticket's dialogue.",
    schemas.Member("at", schemas.TIME, "at_ms"),
    *schemas.same(schemas.TEXT, "by", "text"),
)


@value
class KnownTicket:
    """A ticket with the key of its hardware ids."""

    ticket: Ticket
    key: str

    @property
    def hardware(self) -> str:
        """The stable id of the hardware for its first owner; another owner has another. T-10."""
        owner = self.ticket.owners[0] if self.ticket.owners else ""
        return hardware_id(self.key, owner, self.ticket.serial) if self.ticket.serial else ""


def hardware_id(key: str, owner: str, serial: str) -> str:
    """Return the stable id of a machine for an owner: a keyed digest. Source: T-10."""
    text = f"hardware\n{owner}\n{serial}"
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]


TICKET: schemas.ObjectSchema[KnownTicket] = schemas.ObjectSchema(
    "Ticket",
    "A record of break-fix work with its dialogue.",
    *schemas.same(schemas.TEXT, "id", of="ticket."),
    *schemas.same(schemas.WHOLE, "number", of="ticket."),
    schemas.Member("type", schemas.words(TicketType), "ticket.type"),
    schemas.Member("state", schemas.words(TicketState), "ticket.state"),
    schemas.Member("target_kind", schemas.words(TicketTarget), "ticket.target_kind"),
    *schemas.same(schemas.TEXT, "target", "host", of="ticket."),
    schemas.Member(
        "hardware",
        schemas.TEXT,
        meaning="Id of the machine: the same for all time, and another for each owner.",
    ),
    schemas.Member("category", schemas.words(HardwareCategory), "ticket.category"),
    schemas.Member("owners", schemas.TEXTS, "ticket.owners", "Owners whom it concerns."),
    *schemas.same(schemas.TEXT, "description", "evidence", "action", of="ticket."),
    *schemas.same(schemas.TEXT, "account", "external", of="ticket."),
    schemas.Member(
        "operation",
        schemas.TEXT,
        lambda k: f"op-{k.ticket.operation}" if k.ticket.operation else "",
        "Work that the ticket is about or has become.",
    ),
    schemas.Member(
        "maintenance",
        schemas.TEXT,
        lambda k: f"m-{k.ticket.maintenance}" if k.ticket.maintenance else "",
    ),
    schemas.Member("actor", schemas.TEXT, "ticket.actor", "Who opened it."),
    schemas.Member("opened", schemas.TIME, "ticket.opened_ms"),
    schemas.Member("updated", schemas.TIME, "ticket.updated_ms"),
    schemas.Member("closed", schemas.TIME, "ticket.closed_ms"),
    schemas.Member(
        "due",
        schemas.TIME,
        "ticket.due_ms",
        "When the target of a retirement leaves, or a resolved report closes.",
    ),
    schemas.Member("texts", schemas.list_of(_TEXT.schema()), lambda k: _TEXT.each(k.ticket.texts)),
)


@Route(
    "GET /v1/tickets",
    Permission.READ,
    query=(
        Field("type", _TYPES, "Only tickets of this type."),
        Field("target", Text(128), "Only tickets about this VM, host or rack."),
        Field("host", NAME, "Only tickets whose target is or was on this host, or is its rack."),
        Field("owner", Text(128), "Only tickets that concern this owner."),
        Field("live", Boolean(), "Only tickets that have not ended."),
        Field("before", Integer(), "`next` of the previous page."),
        Field("limit", Integer(1, PAGE_MAX), f"Maximum number of tickets (default: {PAGE_MAX})."),
    ),
    answer=schemas.page_schema("tickets", TICKET.schema(), paged="integer"),
)
async def list_tickets(call: ApiCall) -> ApiResponse:
    """List tickets, newest first."""
    page = TicketPage(**call.query)
    if page.host:
        page = replace(page, rack=await call.control.read(partial(_rack_of, host=page.host)))
    tickets = await call.control.look_up(lambda store: store.tickets(page))
    following = tickets[-1].number if len(tickets) == page.limit else None
    shown = [TICKET.of(_with_key(call, each)) for each in tickets]
    return ApiResponse({"tickets": shown, "next": following})


def _rack_of(view: StateView, host: str) -> str:
    """Return the rack of a host; empty: it has none, or the caller may not see the host."""
    record = view.state.topology.hosts.get(host)
    return dict(record.labels).get(RACK, "") if record else ""


@Route("GET /v1/tickets/{id}", Permission.READ, answer=TICKET.schema())
async def get_ticket(call: ApiCall) -> ApiResponse:
    """Read a ticket with its dialogue."""
    return _answer(call, await _find(call))


@Route(
    "POST /v1/tickets",
    Permission.REQUEST,
    form=_OPEN,
    status=201,
    answer=TICKET.schema(),
    sentence="open a ticket about {target_kind} {target}",
)
async def open_ticket(call: ApiCall) -> ApiResponse:
    """Open a ticket: an owner reports a VM, or a host or rack with a VM of its own, as faulty."""
    form, owners = dict(call.form), call.control.owners
    form.pop("due", None)
    kind = form.pop("type", TicketType.REPORT)
    stimulus = OpenTicket(kind, owners=owners, due_ms=call.time_ms("due"), **form)
    committed = await call.control.submit(stimulus, call.actor)
    assert committed.ticket is not None, "the step has opened it"
    ticket = await _read(call, committed.ticket.number)
    return replace(_answer(call, ticket), status=201)


async def _move(call: ApiCall, move: TicketMove) -> ApiResponse:
    ticket = await _find(call)
    by = _speaker(call, ticket)
    if not ticket.live:
        raise TicketWrongState(ticket=ticket.id, state=ticket.state.value, asked=MOVED[move])
    form, operation = call.form, 0
    if form.get("operation"):
        work = (await find(call, str(form["operation"]))).operation
        if ticket.host and work.host != ticket.host:
            raise OperationElsewhere(ticket=ticket.id, operation=work.id, host=work.host)
        operation = work.number
    stimulus = MoveTicket(
        ticket.number,
        move,
        form.get("text", ""),
        action=form.get("action", ""),
        operation=operation,
        by=by,
    )
    await call.control.submit(stimulus, call.actor)
    return _answer(call, await _read(call, ticket.number))


@Route(
    "POST /v1/tickets/{id}/answer",
    Permission.REQUEST,
    form=Form("AnswerTicket", "An answer.", (_ANSWER,)),
    answer=TICKET.schema(),
)
async def answer_ticket(call: ApiCall) -> ApiResponse:
    """Answer a ticket, or disagree that it is resolved."""
    return await _move(call, TicketMove.ANSWER)


@Route(
    "POST /v1/tickets/{id}/close",
    Permission.REQUEST,
    form=Form("CloseTicket", "The end of a ticket.", (_SAID, _DONE)),
    answer=TICKET.schema(),
)
async def close_ticket(call: ApiCall) -> ApiResponse:
    """Close a ticket; owners can close their own reports."""
    return await _move(call, TicketMove.CLOSE)


@Route(
    "POST /v1/tickets/{id}/reopen",
    Permission.REQUEST,
    form=Form("ReopenTicket", "The reason to reopen a ticket.", (_REASON,)),
    answer=TICKET.schema(),
)
async def reopen_ticket(call: ApiCall) -> ApiResponse:
    """Reopen a closed or refused ticket; owners can reopen their own reports."""
    ticket = await _find(call)
    stimulus = ReopenTicket(ticket.number, str(call.form["text"]), _speaker(call, ticket))
    await call.control.submit(stimulus, call.actor)
    return _answer(call, await _read(call, ticket.number))


def _speaker(call: ApiCall, ticket: Ticket) -> str:
    """Return who acts on a ticket, as its readers see it; empty: the actor.

    Raises:
        NotPermitted: an owner acts on a ticket that is not a report.
    """
    if call.control.owners is None:
        return ""
    if ticket.type is not TicketType.REPORT:
        raise NotPermitted(principal=call.principal.name, permission=Permission.OPERATE.value)
    return f"owner {', '.join(ticket.owners)}"


@Route(
    "POST /v1/tickets/{id}/ask",
    Permission.OPERATE,
    form=Form("AskTicket", "A question.", (_ANSWER,)),
    answer=TICKET.schema(),
)
async def ask_ticket(call: ApiCall) -> ApiResponse:
    """Ask the owner of a ticket a question."""
    return await _move(call, TicketMove.ASK)


@Route(
    "POST /v1/tickets/{id}/work",
    Permission.OPERATE,
    form=Form(
        "WorkTicket",
        "The work on a ticket.",
        (_SAID, Field("operation", Text(64), "Operation that does the work, such as op-12.")),
    ),
    answer=TICKET.schema(),
    sentence="take up ticket {id}",
)
async def work_ticket(call: ApiCall) -> ApiResponse:
    """Take up a ticket as work, optionally as an operation."""
    return await _move(call, TicketMove.WORK)


@Route(
    "POST /v1/tickets/{id}/resolve",
    Permission.OPERATE,
    form=Form("ResolveTicket", "The result of a ticket.", (_SAID, _RESULT)),
    answer=TICKET.schema(),
)
async def resolve_ticket(call: ApiCall) -> ApiResponse:
    """Mark the work of a ticket as done; a report then closes unless its owner disagrees."""
    return await _move(call, TicketMove.RESOLVE)


@Route(
    "POST /v1/tickets/{id}/refuse",
    Permission.OPERATE,
    form=Form("RefuseTicket", "The reason of a refusal.", (_REASON,)),
    answer=TICKET.schema(),
)
async def refuse_ticket(call: ApiCall) -> ApiResponse:
    """Refuse a ticket, with the reason."""
    return await _move(call, TicketMove.REFUSE)


@Route(
    "POST /v1/tickets/{id}/link",
    Permission.OPERATE,
    form=Form(
        "LinkTicket",
        "The id of a ticket in another system.",
        (Field("external", Text(128), "The id; empty: none.", required=True),),
    ),
    answer=TICKET.schema(),
)
async def link_ticket(call: ApiCall) -> ApiResponse:
    """Record the id of a ticket in another system."""
    ticket = await _find(call)
    if not ticket.live:
        raise TicketWrongState(ticket=ticket.id, state=ticket.state.value, asked="linked")
    await call.control.submit(LinkTicket(ticket.number, str(call.form["external"])), call.actor)
    return _answer(call, await _read(call, ticket.number))


@Route(
    "POST /v1/lifts",
    Permission.OPERATE,
    form=Form(
        "LiftConfirmation",
        "A confirmation that you need for a while.",
        (
            Field("act", LIFTED, "The act, as the policy's `confirm` names it.", required=True),
            Field("until", Timestamp(), "When a second person is needed again.", required=True),
            Field("reason", Text(256), "Why nobody can confirm now.", required=True),
        ),
    ),
    status=201,
    answer=TICKET.schema(),
    sentence="lift the confirmation of {act}",
)
async def lift_confirmation(call: ApiCall) -> ApiResponse:
    """Lift a confirmation for your own calls, for at most four hours; opens a review."""
    until_ms = call.time_ms("until")
    assert until_ms is not None, "the form requires it"
    stimulus = LiftConfirmation(call.form["act"], until_ms, str(call.form["reason"]))
    committed = await call.control.submit(stimulus, call.actor)
    assert committed.ticket is not None, "the step has opened it"
    return replace(_answer(call, await _read(call, committed.ticket.number)), status=201)


async def _find(call: ApiCall) -> Ticket:
    """Return the ticket that the path names.

    Raises:
        UnknownTicket: it does not exist, or concerns other owners alone.
    """
    match = _ID.fullmatch(call.path["id"])
    if match is None:
        raise UnknownTicket(name=call.path["id"][:64])
    return await _read(call, int(match[1]))


async def _read(call: ApiCall, number: int) -> Ticket:
    ticket = await call.control.look_up(partial(_ticket_of, number=number))
    if ticket is None:
        raise UnknownTicket(name=f"t-{number}")
    return ticket


def _ticket_of(store: Store, number: int) -> Ticket | None:
    return store.ticket(number)


def _with_key(call: ApiCall, ticket: Ticket) -> KnownTicket:
    return KnownTicket(ticket, call.control.store.lineage.key)


def _answer(call: ApiCall, ticket: Ticket) -> ApiResponse:
    return ApiResponse(TICKET.of(_with_key(call, ticket)))
