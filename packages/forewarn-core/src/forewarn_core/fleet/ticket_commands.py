"""The effect of commands about tickets. Source: T-9, T-10, T-11."""

from __future__ import annotations

from collections.abc import Iterable

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.lifts import check_reviewer
from forewarn_core.fleet.naming import RACK
from forewarn_core.fleet.refusals import (
    TicketInvalid,
    TicketWrongState,
    TooManyTickets,
    Unknown,
    UnknownTicket,
)
from forewarn_core.fleet.ticket import (
    LIVE_MAX,
    TEXTS_MAX,
    TICKET_MOVES,
    Ticket,
    TicketMove,
    TicketState,
    TicketTarget,
    TicketText,
    TicketType,
    move_ticket,
)
from forewarn_core.fleet.usage import owners_of
from forewarn_core.fleet.windows import serial_of

#: How long an owner may disagree with a resolved ticket, in seconds: seven days.
AGREES_WITHIN_S = 7 * 86_400

#: Move of a ticket -> what it makes of the ticket, in a sentence.
MOVED = {
    TicketMove.ASK: "asked",
    TicketMove.ANSWER: "answered",
    TicketMove.WORK: "taken up",
    TicketMove.RESOLVE: "resolved",
    TicketMove.REFUSE: "refused",
    TicketMove.CLOSE: "closed",
    TicketMove.REOPEN: "reopened",
}


def open_ticket(draft: Draft, request: stimuli.OpenTicket) -> tuple[int, ...]:
    """Open a ticket about a VM, a host or a rack. See T-9, T-11.

    Raises:
        Unknown: the target does not exist, or an owner who asks has no VM there (P-3).
        TicketInvalid: a retirement lacks its time.
        TooManyTickets: an owner has too many live tickets.
    """
    hosts = _hosts_of(draft, request.target_kind, request.target)
    topology = draft.topology
    if request.target_kind is TicketTarget.VM:
        vms: tuple[str, ...] = (request.target,)
    else:
        vms = tuple(name for host in hosts for name in topology.vms_on(host))
    there = frozenset(owners_of(topology, vms)) - {""}
    owners = there if request.owners is None else there & request.owners
    if request.owners is not None and not owners:
        raise _unknown(request.target_kind, request.target)
    if request.type is TicketType.RETIREMENT and not request.due_ms:
        raise TicketInvalid(target=request.target, problem="a retirement needs a time")
    if request.owners is not None:
        _check_count(draft, owners)
    of_rack = request.target_kind is TicketTarget.RACK
    ticket = Ticket(
        draft.next_number(),
        request.type,
        request.target_kind,
        request.target,
        opened_ms=draft.now_ms,
        updated_ms=draft.now_ms,
        owners=tuple(sorted(owners)),
        host="" if of_rack else hosts[0],
        serial=request.target if of_rack else serial_of(draft, hosts[0]),
        category=request.category,
        description=request.description,
        evidence=request.evidence,
        account=request.account,
        external=request.external,
        actor=draft.actor,
        due_ms=request.due_ms,
    )
    about = f"{ticket.type.value} about {ticket.target_kind.value} {ticket.target}"
    draft.put("ticket.opened", f"{ticket.id}: {about}: {ticket.description}", ticket)
    return (ticket.number,)


def move(draft: Draft, request: stimuli.MoveTicket) -> tuple[int, ...]:
    """Ask, answer, resolve, refuse or close a ticket. See T-9.

    Raises:
        UnknownTicket: no live ticket has this number.
        TicketWrongState: the ticket's state does not allow the move, or its work still runs.
        TooManyTickets: the ticket has too many texts.
    """
    before = _live(draft, request.ticket)
    ends = request.move in {TicketMove.CLOSE, TicketMove.REFUSE, TicketMove.RESOLVE}
    if (before.state, request.move) not in TICKET_MOVES:
        raise TicketWrongState(
            ticket=before.id, state=before.state.value, asked=MOVED[request.move]
        )
    if ends and before.type is TicketType.INCIDENT and _runs(draft, before):
        raise TicketWrongState(
            ticket=before.id, state="about running work", asked=MOVED[request.move]
        )
    if before.type is TicketType.REVIEW:
        check_reviewer(draft, before, request)
    if request.text and len(before.texts) >= TEXTS_MAX:
        raise TooManyTickets(whose=before.id, limit=TEXTS_MAX, things="texts")
    after = move_ticket(before, request.move, draft.now_ms)
    if request.text:
        entry = TicketText(draft.now_ms, request.by or draft.actor, request.text)
        after = replace(after, texts=(*after.texts, entry))
    after = replace(
        after,
        action=request.action or after.action,
        operation=request.operation or after.operation,
    )
    if after.type is TicketType.REPORT:
        closes_ms = draft.now_ms + AGREES_WITHIN_S * SECOND_MS
        after = replace(after, due_ms=closes_ms if after.state is TicketState.RESOLVED else None)
    text = f"{after.id} is {MOVED[request.move]}" + (f": {request.text}" if request.text else "")
    answers = request.move is TicketMove.ANSWER
    draft.put(f"ticket.{'answered' if answers else after.state.value}", text, after)
    return (after.number,)


def reopen(draft: Draft, request: stimuli.ReopenTicket) -> tuple[int, ...]:
    """Reopen a ticket that was closed or refused by mistake. See T-9.

    It waits as a new one does: nothing closes it by time, and a lift of its review is over.

    Raises:
        UnknownTicket: there is no such ticket any more.
        TicketWrongState: the ticket is live, or was reopened meanwhile.
        TooManyTickets: an owner has too many live tickets, or the ticket too many texts.
    """
    before = draft.state.tickets.get(request.ticket, request.ended)
    if before is None:
        raise UnknownTicket(name=f"t-{request.ticket}")
    if before.live:
        again = MOVED[TicketMove.REOPEN]
        raise TicketWrongState(ticket=before.id, state=before.state.value, asked=again)
    if before.type is TicketType.REPORT:
        _check_count(draft, before.owners)
    if len(before.texts) >= TEXTS_MAX:
        raise TooManyTickets(whose=before.id, limit=TEXTS_MAX, things="texts")
    entry = TicketText(draft.now_ms, request.by or draft.actor, request.text)
    after = replace(
        move_ticket(before, TicketMove.REOPEN, draft.now_ms),
        texts=(*before.texts, entry),
        due_ms=before.due_ms if before.type is TicketType.RETIREMENT else None,
    )
    draft.put("ticket.reopened", f"{after.id} is reopened: {request.text}", after)
    return (after.number,)


def _check_count(draft: Draft, owners: Iterable[str]) -> None:
    """Refuse one more ticket of an owner with too many; O(live tickets) for each owner."""
    for owner in owners:
        live = sum(owner in each.owners for each in draft.state.tickets.values())
        if live >= LIVE_MAX:
            raise TooManyTickets(whose=owner, limit=LIVE_MAX, things="tickets")


def link(draft: Draft, request: stimuli.LinkTicket) -> tuple[int, ...]:
    """Record the id of a ticket in another system; a system's answer replaces none. See T-10.

    Raises:
        UnknownTicket: no live ticket has this number.
    """
    before = _live(draft, request.ticket)
    kept = request.keeps and before.external
    if before.external != request.external and not kept:
        after = replace(before, external=request.external, updated_ms=draft.now_ms)
        draft.put("ticket.linked", f"{after.id} is {after.external or 'not linked'}", after)
    return (before.number,)


def close_due_tickets(draft: Draft) -> None:
    """Close reports whose owner had time to disagree, and end lifted confirmations; O(due tickets).

    A lifted confirmation (`lifts.py`) is a review ticket, which becomes due when the lift ends.
    """
    for number in draft.state.agreements.due(draft.now_ms):
        ticket = draft.state.tickets[number]
        if ticket.type is TicketType.REVIEW:
            ended = move_ticket(ticket, TicketMove.RESOLVE, draft.now_ms)
            text = f"{ended.id}: {ended.target} of {ended.account} needs a second person again"
            draft.put("ticket.resolved", text, ended)
            continue
        closed = move_ticket(ticket, TicketMove.CLOSE, draft.now_ms)
        draft.put("ticket.closed", f"{closed.id} is closed: its owner did not disagree", closed)


def _hosts_of(draft: Draft, kind: TicketTarget, target: str) -> tuple[str, ...]:
    """Return the hosts of a target, at least one.

    Raises:
        Unknown: the target does not exist.
    """
    topology = draft.topology
    hosts: tuple[str, ...] = ()
    if kind is TicketTarget.VM and target in topology.vms:
        hosts = (topology.vms[target].host,)
    elif kind is TicketTarget.HOST and target in topology.hosts:
        hosts = (target,)
    elif kind is TicketTarget.RACK:
        pair = RACK, target
        hosts = tuple(sorted(e.name for e in topology.hosts.values() if pair in e.labels))
    if not hosts:
        raise _unknown(kind, target)
    return hosts


def _unknown(kind: TicketTarget, target: str) -> Unknown:
    """Return the refusal of a target that does not exist, or that its owner cannot see. P-3."""
    if kind is TicketTarget.RACK:
        return Unknown(kind="host", name=f"in rack {target}")
    return Unknown(kind=kind.value, name=target)


def _live(draft: Draft, number: int) -> Ticket:
    ticket = draft.state.tickets.get(number)
    if ticket is None:
        raise UnknownTicket(name=f"t-{number}")
    return ticket


def _runs(draft: Draft, ticket: Ticket) -> bool:
    """Whether the work that an incident is about has not ended."""
    places = draft.operations(("host", ticket.host), ("destination", ticket.host))
    return ticket.operation in draft.state.operations or any(
        each.window.incident == ticket.number for each in places
    )
