"""Changes of bindings and tokens. Source: P-2, P-4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.access import (
    IN_FLEET,
    WITHIN_OWNER,
    AccessStimulus,
    AddToken,
    Grant,
    Principal,
    Revoke,
    RevokeToken,
    Role,
    ScopeInvalid,
    UnknownBinding,
)

if TYPE_CHECKING:
    from forewarn.core.draft import Draft


def change_access(draft: Draft, stimulus: AccessStimulus) -> tuple[int, ...]:
    """Grant or revoke a role, or add or revoke a token.

    Raises:
        ScopeInvalid: the role cannot have this scope.
        UnknownBinding: the binding or token does not exist.
    """
    match stimulus:
        case Grant():
            _check_scope(stimulus.role, stimulus.owner)
            known = draft.principal(stimulus.principal) or Principal(stimulus.principal)
            pair = stimulus.role.value, stimulus.owner
            if pair not in known.bindings:
                granted = Principal(known.name, tuple(sorted({*known.bindings, pair})))
                draft.put("access.granted", f"{known.name} is {_words(*pair)}", granted)
        case Revoke():
            _revoke(draft, stimulus)
        case AddToken():
            token = stimulus.token
            _check_scope(token.role, token.owner)
            words = (
                f"token {token.id} of {token.principal} is {_words(token.role.value, token.owner)}"
            )
            draft.put("token.created", words, token)
        case RevokeToken():
            known_token = draft.token(stimulus.id)
            if known_token is None:
                raise UnknownBinding(what=f"token {stimulus.id[:64]}")
            text = f"token {known_token.id} of {known_token.principal} is revoked"
            draft.remove("token.revoked", text, known_token)
    return ()


def _revoke(draft: Draft, stimulus: Revoke) -> None:
    pair = stimulus.role.value, stimulus.owner
    known = draft.principal(stimulus.principal)
    if known is None or pair not in known.bindings:
        raise UnknownBinding(what=f"binding of {stimulus.principal[:64]} as {_words(*pair)}")
    left = tuple(each for each in known.bindings if each != pair)
    text = f"{known.name} is no longer {_words(*pair)}"
    if left:
        draft.put("access.revoked", text, Principal(known.name, left))
    else:
        draft.remove("access.revoked", text, known)


def _check_scope(role: Role, owner: str) -> None:
    if role not in (WITHIN_OWNER if owner else IN_FLEET):
        wanted = "the whole fleet, not for one owner" if owner else "one owner: name it (`--owner`)"
        raise ScopeInvalid(role=role.value, wanted=wanted)


def _words(role: str, owner: str) -> str:
    return f"{role} of {owner}" if owner else f"{role} of the whole fleet"
