"""Two-person confirmation: calls that wait until a second principal confirms them. Source: P-8.

A call that needs confirmation is stored as received. The confirmation removes and executes the call
in one transaction. So each call is executed at most once, even across a restart.
"""

from __future__ import annotations

from forewarn.core.access import Confirmation
from forewarn.core.draft import Draft
from forewarn.core.impact import SECOND_MS, Cause
from forewarn.core.state import State
from forewarn.core.stimulus import (
    Acknowledge,
    ApplyPolicy,
    AskConfirmation,
    Confirmed,
    DropConfirmation,
    PlaneStimulus,
    RequestMaintenance,
    StartMaintenance,
)
from forewarn.errors import CallerError
from forewarn.planning.policy import ConfirmedAct, MaintenancePolicy
from forewarn.values import replace

#: Maximum number of calls that wait for confirmation.
WAITING_MAX = 100


class ConfirmationsFull(CallerError):
    """Too many calls wait for confirmation."""

    code = "confirmations-full"
    status = 429
    message = "{limit} calls wait for confirmation already."
    advice = "Confirm some (`forewarn confirmation list`), or wait until they expire."


class UnknownConfirmation(CallerError):
    """The call to confirm does not wait for confirmation."""

    code = "unknown-confirmation"
    status = 404
    message = "No call {id} waits for confirmation: it was confirmed, dropped or never made."
    advice = "See `forewarn confirmation list` and `forewarn history`."


class OwnConfirmation(CallerError):
    """A principal tries to confirm its own call."""

    code = "own-confirmation"
    status = 403
    message = "{principal} made the call {id}, and cannot confirm it."
    advice = "Ask another operator."


def needs_confirmation(state: State, policy: MaintenancePolicy, stimulus: PlaneStimulus) -> bool:
    """Whether the policy requires a second principal for this stimulus."""
    if isinstance(stimulus, StartMaintenance):
        maintenance = state.maintenances.get(stimulus.maintenance)
        if maintenance is None or len(maintenance.hosts) <= policy.confirm_above:
            return False
    return confirmed_act(stimulus) in policy.confirm


def confirmed_act(stimulus: PlaneStimulus) -> ConfirmedAct | None:
    """Return a policy's name for a stimulus; None: never needs confirmation."""
    match stimulus:
        case Acknowledge():
            return ConfirmedAct.ANSWER
        case RequestMaintenance(cause=Cause.HARDWARE_FAILURE | Cause.HOST_LOST):
            return ConfirmedAct.FAIL_HOST
        case StartMaintenance():
            return ConfirmedAct.START_MAINTENANCE
        case ApplyPolicy():
            return ConfirmedAct.APPLY_POLICY
    return None


def ask(draft: Draft, stimulus: AskConfirmation) -> None:
    """Store a call until it is confirmed or expires; a repeated call is stored once.

    Raises:
        ConfirmationsFull: too many calls wait.
    """
    expire(draft)
    waiting = draft.state.confirmations
    call = stimulus.call
    if any(each.is_same_as(call) for each in waiting.values()):
        return
    if len(waiting) >= WAITING_MAX:
        raise ConfirmationsFull(limit=WAITING_MAX)
    expires_ms = draft.now_ms + draft.maintenance_policy.confirm_within_s * SECOND_MS
    asked = replace(call, number=draft.next_number(), expires_ms=expires_ms)
    text = f"{asked.id} of {asked.principal} waits for a second person: {asked.words}"
    draft.put("confirmation.asked", text, asked)


def confirm(draft: Draft, stimulus: Confirmed) -> None:
    """Remove a confirmed call; the same step then executes the call.

    Raises:
        UnknownConfirmation, OwnConfirmation: this principal cannot confirm the call.
    """
    known = _waiting(draft, stimulus.number)
    if known.principal == stimulus.principal:
        raise OwnConfirmation(id=known.id, principal=known.principal)
    text = f"{known.id} of {known.principal} is confirmed by {stimulus.principal}: {known.words}"
    asker, draft.actor = draft.actor, f"operator {stimulus.principal}"
    draft.remove("confirmation.given", text, known)
    draft.actor = asker


def drop(draft: Draft, stimulus: DropConfirmation) -> None:
    """Remove a call that its principal withdraws or another principal refuses.

    Raises:
        UnknownConfirmation: no such call waits.
    """
    known = _waiting(draft, stimulus.number)
    if known.principal == stimulus.principal:
        text = f"{known.id} is withdrawn by {known.principal}: {known.words}"
        draft.remove("confirmation.withdrawn", text, known)
    else:
        text = f"{known.id} of {known.principal} is refused by {stimulus.principal}"
        draft.remove("confirmation.refused", f"{text}: {known.words}", known)


def drop_all(draft: Draft, reason: str) -> None:
    """Drop every waiting call."""
    for each in tuple(draft.state.confirmations.values()):
        text = f"{each.id} of {each.principal} is dropped: {reason}: {each.words}"
        draft.remove("confirmation.dropped", text, each)


def _waiting(draft: Draft, number: int) -> Confirmation:
    known = draft.state.confirmations.get(number)
    if known is None or known.expires_ms <= draft.now_ms:
        raise UnknownConfirmation(id=f"c-{number}")
    return known


def expire(draft: Draft) -> None:
    """Drop calls that expired without confirmation."""
    for each in tuple(draft.state.confirmations.values()):
        if each.expires_ms <= draft.now_ms:
            text = f"{each.id} of {each.principal} has expired: {each.words}"
            draft.remove("confirmation.expired", text, each)
