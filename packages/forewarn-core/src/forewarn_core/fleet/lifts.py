"""Break-glass: a principal acts without a second person for a bounded time. Source: T-14.

A lift is a review that is in work until its time. Each use is a text of the review, in the same
commit as what it permits. Another person closes the review.
"""

from __future__ import annotations

from forewarn_base.values import replace
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.draft import Draft
from forewarn_core.fleet.impact import SECOND_MS
from forewarn_core.fleet.refusals import LiftRefused, OwnReview
from forewarn_core.fleet.ticket import (
    TEXTS_MAX,
    TICKET_TEXT_MAX,
    Ticket,
    TicketMove,
    TicketState,
    TicketTarget,
    TicketText,
    TicketType,
)
from forewarn_core.planning.policy import ConfirmedAct

#: Acts whose confirmation may be lifted: none changes who may act or who answers.
LIFTABLE = (ConfirmedAct.ANSWER, ConfirmedAct.FAIL_HOST, ConfirmedAct.START_MAINTENANCE)
#: Longest lift, in seconds.
LIFT_S_MAX = 4 * 3600


def lift(draft: Draft, request: stimuli.LiftConfirmation) -> tuple[int, ...]:
    """Lift the confirmation of an act for the caller, and open its review.

    Raises:
        LiftRefused: nothing is to be lifted, or not for this time.
    """
    problem, authority = "", draft.authority
    if request.act not in LIFTABLE:
        problem = "it decides who may act or who answers"
    elif request.act not in draft.maintenance_policy.confirm or authority is None:
        problem = "the policy requires none"
    elif not draft.now_ms < request.until_ms <= draft.now_ms + LIFT_S_MAX * SECOND_MS:
        problem = f"it must end within {LIFT_S_MAX // 3600} hours"
    elif lift_of(draft, request.act):
        problem = "it is lifted already"
    if problem:
        raise LiftRefused(act=request.act.value, problem=problem)
    assert authority is not None, "checked above"
    review = Ticket(
        draft.next_number(),
        TicketType.REVIEW,
        TicketTarget.SERVICE,
        request.act.value,
        opened_ms=draft.now_ms,
        updated_ms=draft.now_ms,
        description=request.reason,
        account=authority.principal,
        actor=draft.actor,
        state=TicketState.IN_WORK,
        due_ms=request.until_ms,
    )
    about = f"{review.account} needs no second person for {review.target}"
    draft.put("ticket.opened", f"{review.id}: {about}: {request.reason}", review)
    return (review.number,)


def lift_of(draft: Draft, act: ConfirmedAct) -> Ticket | None:
    """Return the review of the caller's lift of an act that is in force; None: there is none."""
    caller = draft.authority.principal if draft.authority else ""
    for each in draft.state.tickets.values():
        in_force = each.type is TicketType.REVIEW and each.state is TicketState.IN_WORK
        if in_force and (each.target, each.account) == (act.value, caller):
            return each if draft.now_ms < (each.due_ms or 0) else None
    return None


def note_uses(draft: Draft) -> None:
    """Write each lift that the step needed into its review."""
    acts = [each.text for each in draft.changes.entries]
    for number in dict.fromkeys(each.number for each in draft.lifts):
        review = draft.state.tickets[number]
        text = f"{review.account} acts without a second person: {review.target}"
        if acts:
            more = len(acts) - 1
            text += f" ({acts[0]}{f', and {more} more' if more else ''})"
        text = text[:TICKET_TEXT_MAX]
        texts = (*review.texts, TicketText(draft.now_ms, draft.actor, text))[-TEXTS_MAX:]
        used = replace(review, texts=texts, updated_ms=draft.now_ms)
        draft.put("ticket.used", f"{used.id}: {text}", used)


def check_reviewer(draft: Draft, review: Ticket, request: stimuli.MoveTicket) -> None:
    """Refuse the end of a review by the person it is about, or without a text.

    Raises:
        OwnReview: the caller may be that person, or gives no text.
    """
    persons = draft.state.access.persons(draft.authority) if draft.authority else frozenset()
    problem = ""
    if request.move in {TicketMove.CLOSE, TicketMove.RESOLVE, TicketMove.REFUSE}:
        if review.account in persons:
            problem = "another person must review it"
        elif not request.text:
            problem = "its review needs a text"
    if problem:
        raise OwnReview(ticket=review.id, principal=review.account, problem=problem)
