"""Idempotent calls: a repeated Idempotency-Key returns the first response.

A key belongs to one token, or to a principal with the roles of the call: another caller with the
same principal may not read what the first one may. Source: P-10.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from forewarn_base.audit_chain import CallRecord
from forewarn_base.errors import CallerError
from forewarn_base.validation.json_reader import JSON
from forewarn_base.values import replace
from forewarn_core.access.roles import Authority, Principal
from forewarn_server.api.auth import CALLER, ApiCaller
from forewarn_server.api.call_audit import CallAudit
from forewarn_server.api.control_client import ControlClient
from forewarn_server.api.standby import AnswerPending
from forewarn_store.answers import KeptAnswer

HEADER = "idempotency-key"
#: Longest key, in characters.
KEY_LENGTH_MAX = 128
#: Audit outcome of a repeated call, which gets the stored response.
REPEATED = "repeated"


class KeyInvalid(CallerError):
    """The key is malformed."""

    code = "idempotency-key-invalid"
    message = "The Idempotency-Key must have 1 to {limit} printable ASCII characters."
    advice = "Send a new random key with each new request."


class KeyReused(CallerError):
    """The key was used earlier with a different request."""

    code = "idempotency-key-reused"
    status = 422
    message = "The Idempotency-Key {key} was used with a different request before."
    advice = "Send a new random key with each new request. Nothing was changed."


class AnswerUnknown(CallerError):
    """The response to a repeated call is unknown, but the call's change was started."""

    code = "answer-unknown"
    status = 409
    message = (
        "The first request with the Idempotency-Key {key} was started, but its response is unknown."
    )
    advice = (
        "Check the outcome of the request (`forewarn history`). The request was not started again."
    )


class AnswerMissing(CallerError):
    """The caller has sent no request with the key within a day, or it was refused."""

    code = "answer-missing"
    status = 404
    message = "No request with the Idempotency-Key {key} was carried out for you within a day."
    advice = "Send the request, if it is still wanted."


async def answered_once(
    control: ControlClient,
    request: Request,
    *,
    body: bytes,
    audit: CallAudit,
    act: Callable[[], Awaitable[tuple[Response, bool]]],
) -> Response:
    """Execute a call once, and return the first response to every repetition.

    `act` returns a response, and whether the response may be stored.

    Raises:
        KeyInvalid, KeyReused, AnswerUnknown: the call is not executed.
    """
    caller: ApiCaller = request.scope["state"][CALLER]
    key, owner = request.headers[HEADER], owner_of_keys(caller.principal, caller.authority)
    if not (0 < len(key) <= KEY_LENGTH_MAX and key.isascii() and key.isprintable()):
        raise KeyInvalid(limit=KEY_LENGTH_MAX)
    line = f"{request.method} {request.url.path}\n".encode()  # no POST has a query
    fingerprint = sha256(line + body).hexdigest()
    if (owner, key) in control.in_flight:
        raise AnswerUnknown(key=key)
    control.in_flight.add((owner, key))
    try:
        record = replace(audit.record, key=key, key_owner=owner, fingerprint=fingerprint)
        kept = await control.look_up(lambda store: store.answers.find(record))
        if kept is not None:
            audit.record = replace(audit.record, outcome=REPEATED)
            return _kept_response(kept, fingerprint)
        audit.record = record
        response, may_be_kept = await act()
        if may_be_kept and audit.is_stored:  # otherwise repetitions would fill the store
            first = KeptAnswer.begun(audit.record)
            first = replace(
                first, status=response.status_code, answer=bytes(response.body).decode()
            )
            await control.look_up(lambda store: store.answers.keep(first))
        return response
    finally:
        control.in_flight.discard((owner, key))


async def first_answer(
    control: ControlClient, principal: Principal, authority: Authority, *, key: str
) -> KeptAnswer:
    """Return the answer to the caller's request with a key.

    Raises:
        AnswerMissing, AnswerPending: there is none, or not yet.
        AnswerUnknown: the request was started, and its answer was lost.
    """
    owner = owner_of_keys(principal, authority)
    if (owner, key) in control.in_flight:
        raise AnswerPending(key=key)
    record = CallRecord(
        control.clock.now_ms(), principal.name, "", "", "", key=key, key_owner=owner
    )
    kept = await control.look_up(lambda store: store.answers.find(record))
    if kept is None:
        raise AnswerMissing(key=key)
    if not kept.status:
        raise AnswerUnknown(key=key)
    return kept


def owner_of_keys(principal: Principal, authority: Authority) -> str:
    """Return the owner of a caller's keys: its token, or its principal with its roles."""
    if authority.token:
        return f"{principal.name} token {authority.token}"
    roles = json.dumps(principal.bindings)
    return f"{principal.name} roles {sha256(roles.encode()).hexdigest()}"


def _kept_response(kept: KeptAnswer, fingerprint: str) -> Response:
    if kept.request != fingerprint:
        raise KeyReused(key=kept.key)
    if not kept.status:
        raise AnswerUnknown(key=kept.key)
    headers = {"Cache-Control": "no-store", "Idempotent-Replayed": "true"}
    return Response(kept.answer, kept.status, headers, media_type=JSON)
