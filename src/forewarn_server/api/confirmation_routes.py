"""Routes of two-person confirmation: list, confirm or withdraw waiting calls. Source: P-8."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl

from forewarn_base.errors import CallerError
from forewarn_base.validation.durations import written
from forewarn_base.validation.json_reader import BodyUnreadable, read_json
from forewarn_base.values import replace
from forewarn_core.access.confirmations import Confirmation, UnknownConfirmation
from forewarn_core.access.roles import Permission
from forewarn_core.access.stimulus import AskConfirmation, DropConfirmation
from forewarn_server.api import schemas
from forewarn_server.api.auth import NotPermitted
from forewarn_server.api.call_sentence import sentence_of
from forewarn_server.api.path_table import filled_path, match_path
from forewarn_server.api.request_forms import EMPTY
from forewarn_server.api.responses import error_body
from forewarn_server.api.routes import ApiCall, ApiResponse, Route, read_query
from forewarn_server.control.plane import StateView


class ConfirmationAwaited(CallerError):
    """The call waits until a second principal confirms it."""

    code = "confirmation-awaited"
    status = 409
    message = (
        "The call waits until {until} for another operator to confirm {id}; nothing is done yet."
    )
    advice = (
        "Ask another operator to run `forewarn confirmation confirm {id}`, or to confirm on the "
        "page."
    )


_CONFIRMATION: schemas.ObjectSchema[Confirmation] = schemas.ObjectSchema(
    "Confirmation",
    "A call that waits for a second principal.",
    schemas.Member("id", schemas.TEXT),
    schemas.Member("principal", schemas.TEXT, meaning="The caller."),
    schemas.Member("request", schemas.TEXT, meaning="Method and path of the call."),
    schemas.Member("body", schemas.TEXT),
    schemas.Member("text", schemas.TEXT, meaning="The call in words."),
    schemas.Member("asked", schemas.TIME, "asked_ms"),
    schemas.Member("expires", schemas.TIME, "expires_ms"),
)


async def keep_for_confirmation(call: ApiCall, route: Route) -> ApiResponse:
    """Store a call until a second principal confirms it, and return the answer for its caller.

    Raises:
        BodyUnreadable: the body is not UTF-8.
    """
    path, authority = filled_path(route.path, call.path), call.control.authority
    try:
        body = call.body.decode()
    except UnicodeDecodeError as error:
        raise BodyUnreadable(reason="it is not UTF-8") from error
    confirmation = Confirmation(
        0,
        principal=authority.principal,
        actor=call.actor,
        request=f"{route.method} {path}" + (f"?{call.query_text}" if call.query_text else ""),
        body=body,
        media=call.media,
        asked_ms=call.control.clock.now_ms(),
        expires_ms=0,
        token=authority.token,
        names=authority.names,
        built_in=authority.built_in,
        permission=route.permission.value,
        sentence=sentence_of(route, call),
    )
    await call.control.submit(AskConfirmation(confirmation), call.actor)
    waiting = await call.control.read(_waiting)
    kept = next(each for each in waiting if each.is_same_as(confirmation))
    awaited = ConfirmationAwaited(id=kept.id, until=written(kept.expires_ms))
    return ApiResponse(error_body(awaited), awaited.status)


def _waiting(view: StateView) -> list[Confirmation]:
    return list(view.state.access.confirmations.values())


@Route(
    "GET /v1/confirmations",
    Permission.READ_FLEET,
    answer=schemas.page_schema("confirmations", _CONFIRMATION.schema()),
)
async def list_confirmations(call: ApiCall) -> ApiResponse:
    """List the calls that wait for confirmation by a second operator."""
    waiting = await call.control.read(_waiting)
    return ApiResponse({"confirmations": _CONFIRMATION.each(waiting)})


async def _find_confirmation(call: ApiCall) -> Confirmation:
    """Return the waiting call that the path names.

    Raises:
        UnknownConfirmation: no such call waits.
    """
    name = call.path["id"]
    for each in await call.control.read(_waiting):
        if each.id == name:
            return each
    raise UnknownConfirmation(id=name)


@Route("GET /v1/confirmations/{id}", Permission.READ_FLEET, answer=_CONFIRMATION.schema())
async def show_confirmation(call: ApiCall) -> ApiResponse:
    """Show a call that waits for confirmation by a second operator."""
    return ApiResponse(_CONFIRMATION.of(await _find_confirmation(call)))


@Route("DELETE /v1/confirmations/{id}", Permission.OPERATE, answer=None, status=204)
async def drop_confirmation(call: ApiCall) -> ApiResponse:
    """Withdraw your own waiting call, or refuse another operator's waiting call."""
    kept = await _find_confirmation(call)
    await call.control.submit(DropConfirmation(kept.number, call.principal.name), call.actor)
    return ApiResponse(b"", 204)


@Route("POST /v1/confirmations/{id}/confirm", Permission.OPERATE, form=EMPTY, answer=schemas.TABLE)
async def confirm(call: ApiCall) -> ApiResponse:
    """Confirm another operator's call and execute it.

    The call needs the permission of the confirmed call, too. The same transaction removes the
    confirmed call from the store. The answer is that of the confirmed call: of a token that is
    created, the secret.
    """
    kept = await _find_confirmation(call)
    request, _, query = kept.request.partition("?")
    route, names = _target(call.routes, request)
    if call.principal.owners_for(route.permission) is not None:
        raise NotPermitted(principal=call.principal.name, permission=route.permission.value)
    body = kept.body.encode()
    confirmed = replace(
        call,
        control=replace(call.control, confirming=kept.number),
        actor=kept.actor,
        path=names,
        query=read_query(route.query, parse_qsl(query, keep_blank_values=True)),
        form=route.form.read(read_json(body) if body else {}) if route.form else {},
        body=body,
        media=kept.media,
    )
    return replace(await route.act(confirmed), status=200)


def _target(routes: Iterable[Route], request: str) -> tuple[Route, dict[str, str]]:
    """Return the route of a stored call, and the names in its path."""
    method, _, path = request.partition(" ")
    for route in routes:
        names = match_path(route.path, path)
        if names is not None and route.method == method:
            return route, names
    raise UnknownConfirmation(id=request)  # stored by another release
