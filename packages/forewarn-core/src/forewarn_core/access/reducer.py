"""The effect of each stimulus of access: the records to write, with their entries of history.

`step` reads the state and changes nothing. Its caller writes the records, and stores them with
everything else that the same commit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Never

from forewarn_base.values import replace, value
from forewarn_core.access import stimulus as stimuli
from forewarn_core.access.confirmations import (
    OF_PRINCIPAL_MAX,
    WAITING_MAX,
    AskerNotPermitted,
    Confirmation,
    ConfirmationsFull,
    OwnConfirmation,
    UnknownConfirmation,
)
from forewarn_core.access.roles import (
    CLUSTER_PRINCIPAL,
    IN_FLEET,
    WITHIN_OWNER,
    Authority,
    Permission,
    Principal,
    Role,
    ScopeInvalid,
    UnknownBinding,
)
from forewarn_core.access.state import AccessRecord, AccessState
from forewarn_core.access.stimulus import AccessStimulus
from forewarn_core.access.tokens import AccessToken


@value
class AccessTerms:
    """The inputs of a step besides the state and the stimulus."""

    now_ms: int
    #: The caller; None: the service itself.
    authority: Authority | None
    #: How long a call waits for confirmation, in ms.
    confirm_within_ms: int
    #: Returns the number of the next waiting call.
    next_number: Callable[[], int]


@value
class AccessWrite:
    """One write of a record, and its entry of history."""

    #: Stable name of the transition: `token.created`.
    action: str
    #: One sentence for people.
    text: str
    record: AccessRecord
    removed: bool = False
    #: The actor in history; empty: that of the step.
    actor: str = ""


def step(
    state: AccessState, stimulus: AccessStimulus, terms: AccessTerms
) -> tuple[AccessWrite, ...]:
    """Return the writes of a stimulus, in order.

    Raises:
        CallerError: the stimulus is refused.
    """
    return tuple(_HANDLERS[type(stimulus)](state, stimulus, terms))  # type: ignore[arg-type]


# ---- roles and tokens --------------------------------------------------------------------------


def _grant(state: AccessState, grant: stimuli.Grant, _: AccessTerms) -> Iterator[AccessWrite]:
    _check_scope(grant.role, grant.owner)
    principal = state.principals.get(grant.principal) or Principal(grant.principal)
    pair = grant.role.value, grant.owner
    if pair not in principal.bindings:
        granted = Principal(principal.name, tuple(sorted({*principal.bindings, pair})))
        yield AccessWrite("access.granted", f"{principal.name} is {_words(*pair)}", granted)


def _revoke(state: AccessState, revoke: stimuli.Revoke, _: AccessTerms) -> Iterator[AccessWrite]:
    pair = revoke.role.value, revoke.owner
    principal = state.principals.get(revoke.principal)
    if principal is None or pair not in principal.bindings:
        raise UnknownBinding(what=f"binding of {revoke.principal[:64]} as {_words(*pair)}")
    left = Principal(principal.name, tuple(each for each in principal.bindings if each != pair))
    text = f"{principal.name} is no longer {_words(*pair)}"
    yield AccessWrite("access.revoked", text, left, removed=not left.bindings)


def _add_token(
    state: AccessState, adding: stimuli.AddToken, terms: AccessTerms
) -> Iterator[AccessWrite]:
    token = adding.token
    if terms.authority is not None:
        makers = state.persons(terms.authority) - {token.principal}
        token = replace(token, makers=tuple(sorted(makers)))
    _check_scope(token.role, token.owner)
    text = f"token {token.id} of {token.principal} is {_words(token.role.value, token.owner)}"
    yield AccessWrite("token.created", text, token)


def _revoke_token(
    state: AccessState, revoke: stimuli.RevokeToken, _: AccessTerms
) -> Iterator[AccessWrite]:
    token = _token(state, revoke.id)
    text = f"token {token.id} of {token.principal} is revoked"
    yield AccessWrite("token.revoked", text, token, removed=True)


def _resume_token(
    state: AccessState, resume: stimuli.ResumeToken, _: AccessTerms
) -> Iterator[AccessWrite]:
    token = _token(state, resume.id)
    if token.suspended:
        text = f"token {token.id} of {token.principal} is resumed"
        yield AccessWrite("token.resumed", text, replace(token, suspended=False))


def _token(state: AccessState, token_id: str) -> AccessToken:
    token = state.tokens.get(token_id)
    if token is None:
        raise UnknownBinding(what=f"token {token_id[:64]}")
    return token


def _check_scope(role: Role, owner: str) -> None:
    if role not in (WITHIN_OWNER if owner else IN_FLEET):
        wanted = (
            "the whole fleet, not for one owner" if owner else "one owner, named with `--owner`"
        )
        raise ScopeInvalid(role=role.value, wanted=wanted)


def _words(role: str, owner: str) -> str:
    return f"{role} of {owner}" if owner else f"{role} of the whole fleet"


# ---- calls that wait for a second principal ----------------------------------------------------


def _ask(
    state: AccessState, asking: stimuli.AskConfirmation, terms: AccessTerms
) -> Iterator[AccessWrite]:
    """Store a call until it is confirmed or expires; a repeated call is stored once."""
    call, now_ms = asking.call, terms.now_ms
    yield from _expire(state, None, terms)
    waiting = [each for each in state.confirmations.values() if each.expires_ms > now_ms]
    if any(each.is_same_as(call) for each in waiting):
        return
    if len(waiting) >= WAITING_MAX:
        raise ConfirmationsFull(limit=WAITING_MAX, whose="")
    if sum(each.principal == call.principal for each in waiting) >= OF_PRINCIPAL_MAX:
        raise ConfirmationsFull(limit=OF_PRINCIPAL_MAX, whose=f" of {call.principal}")
    expires_ms = now_ms + terms.confirm_within_ms
    stored = replace(call, number=terms.next_number(), expires_ms=expires_ms)
    text = f"{stored.id} of {stored.principal} waits for a second person: {stored.text}"
    yield AccessWrite("confirmation.asked", text, stored)


def _confirm(
    state: AccessState, confirming: stimuli.ConfirmCall, terms: AccessTerms
) -> Iterator[AccessWrite]:
    """Remove a call that another person confirms; the same commit executes the call."""
    call, second = _waiting(state, confirming.number, terms.now_ms), terms.authority
    assert second is not None, "somebody confirms"
    asker = call.principal
    if second.principal.startswith(CLUSTER_PRINCIPAL):
        reason = "a namespace of a cluster is not a person"
        raise OwnConfirmation(id=call.id, principal=second.principal, asker=asker, reason=reason)
    same = state.persons(call.authority) & state.persons(second)
    if same:
        reason = f"both count as {', '.join(sorted(same))}, who may know the secret of a token"
        if second.principal == asker:
            reason = "both are the same principal"
        raise OwnConfirmation(id=call.id, principal=second.principal, asker=asker, reason=reason)
    permission = Permission(call.permission) if call.permission else None
    if permission is None or not state.holds(call.authority, permission, terms.now_ms):
        raise AskerNotPermitted(id=call.id, asker=asker)
    text = f"{call.id} of {asker} is confirmed by {second.principal}: {call.text}"
    actor = f"operator {second.principal}"
    yield AccessWrite("confirmation.given", text, call, removed=True, actor=actor)


def _drop(
    state: AccessState, drop: stimuli.DropConfirmation, terms: AccessTerms
) -> Iterator[AccessWrite]:
    """Remove a call that its principal withdraws or another principal refuses."""
    call = _waiting(state, drop.number, terms.now_ms)
    if call.principal == drop.principal:
        text = f"{call.id} is withdrawn by {call.principal}: {call.text}"
        yield AccessWrite("confirmation.withdrawn", text, call, removed=True)
    else:
        text = f"{call.id} of {call.principal} is refused by {drop.principal}: {call.text}"
        yield AccessWrite("confirmation.refused", text, call, removed=True)


def _waiting(state: AccessState, number: int, now_ms: int) -> Confirmation:
    call = state.confirmations.get(number)
    if call is None or call.expires_ms <= now_ms:
        raise UnknownConfirmation(id=f"c-{number}")
    return call


def _expire(
    state: AccessState, _: stimuli.ExpireCalls | None, terms: AccessTerms
) -> Iterator[AccessWrite]:
    for each in state.confirmations.values():
        if each.expires_ms <= terms.now_ms:
            text = f"{each.id} of {each.principal} has expired: {each.text}"
            yield AccessWrite("confirmation.expired", text, each, removed=True)


def _suspend(
    state: AccessState, suspension: stimuli.SuspendAccess, _: AccessTerms
) -> Iterator[AccessWrite]:
    for token in state.tokens.values():
        text = f"token {token.id} of {token.principal} is suspended: {suspension.reason}"
        yield AccessWrite("token.suspended", text, replace(token, suspended=True))
    for call in state.confirmations.values():
        text = f"{call.id} of {call.principal} is dropped: {suspension.reason}: {call.text}"
        yield AccessWrite("confirmation.dropped", text, call, removed=True)


#: The function of each stimulus; it yields the writes.
_HANDLERS: dict[
    type[AccessStimulus], Callable[[AccessState, Never, AccessTerms], Iterable[AccessWrite]]
] = {
    stimuli.Grant: _grant,
    stimuli.Revoke: _revoke,
    stimuli.AddToken: _add_token,
    stimuli.RevokeToken: _revoke_token,
    stimuli.ResumeToken: _resume_token,
    stimuli.AskConfirmation: _ask,
    stimuli.ConfirmCall: _confirm,
    stimuli.DropConfirmation: _drop,
    stimuli.ExpireCalls: _expire,
    stimuli.SuspendAccess: _suspend,
}
