"""Request dispatch: selects the route by method, parses requests, and encodes responses as JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from forewarn_base.errors import CallerError, ForewarnError, OurError, PeerError
from forewarn_base.validation.complexity import FORM_MEMBERS_MAX
from forewarn_base.validation.fields import Values
from forewarn_base.validation.forms import Form
from forewarn_base.validation.json_reader import JSON, BodyUnreadable, read_json
from forewarn_base.values import replace
from forewarn_core.access.roles import NO_AUTHORITY, NOBODY, Principal
from forewarn_core.fleet.guards import ConfirmationNeeded
from forewarn_server.api.auth import (
    ACTOR,
    CALLER,
    GENERATION_HEADER,
    STILL_PERMITTED,
    NotPermitted,
    StateOutdated,
)
from forewarn_server.api.call_audit import CallAudit, call_record
from forewarn_server.api.confirmation_routes import ConfirmationAwaited, keep_for_confirmation
from forewarn_server.api.connections import SAFE
from forewarn_server.api.control_client import ControlClient
from forewarn_server.api.file_process import NAMES_BODIES, read_file
from forewarn_server.api.idempotency import HEADER as IDEMPOTENCY_KEY
from forewarn_server.api.idempotency import answered_once
from forewarn_server.api.refusal_log import REFUSALS
from forewarn_server.api.responses import BodyTooLarge, body_of, encoded, left, refusal
from forewarn_server.api.routes import (
    PUBLIC_BYTES_MAX,
    AnyRoute,
    ApiCall,
    ApiResponse,
    Route,
    read_query,
)
from forewarn_server.control.inbox import Stopping

log = logging.getLogger("forewarn.operator")

_App = TypeVar("_App", bound="ASGIApp")

#: Largest form parsed on the event loop, in bytes: 20,000 names take 20 ms or more.
READ_BYTES_MAX = 16 * 1024
#: Longest body and query of a call that waits for confirmation, in bytes.
KEPT_BYTES_MAX = 256 * 1024
#: Interval in seconds at which a read checks for its required commit, and maximum digits of a
#: commit number.
REACH_S_MAX, REACH_LOOK_S, GENERATION_LENGTH_MAX = 2.0, 0.01, 18
#: Headers that make a change conditional. Source: RFC 9110 13.1.
PRECONDITIONS = ("If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since")


class NoSuchPath(CallerError):
    """The API does not have this path."""

    code = "no-such-path"
    status = 404
    message = "The operator API has no path {path}."
    advice = "See /v1/openapi.json or 'Operator API' in the documentation."


class MethodRefused(CallerError):
    """The path does not support this method."""

    code = "method-refused"
    status = 405
    message = "{path} accepts {allowed}, not {method}."
    advice = "See /v1/openapi.json or 'Operator API' in the documentation."


class MediaRefused(CallerError):
    """The path does not accept the body's media type."""

    code = "media-refused"
    status = 415
    message = "The body is {media!r}; this path accepts {taken}."
    advice = "Set Content-Type to the media type of the body."


class PreconditionUnsupported(CallerError):
    """The request for a change is conditional, which this API does not support."""

    code = "precondition-unsupported"
    status = 412
    message = (
        "The request has the header {header}, but this API does not support conditional requests."
    )
    advice = "Omit the header; `new=true` refuses to replace a record. Nothing was changed."


class GenerationInvalid(CallerError):
    """The header `Forewarn-Generation`, which requires a minimum commit, is malformed."""

    code = "generation-invalid"
    message = "The header Forewarn-Generation must be a whole number, not {given!r}."
    advice = "Send the value from an earlier answer's header, or omit the header."


class StateBehind(PeerError):
    """A read requires a newer state than the state of this process."""

    code = "state-behind"
    status = 503
    message = (
        "This process has read up to commit {generation}, but the read requires commit {wanted}."
    )
    advice = (
        "Repeat the read, or ask another control plane. Use only commit numbers of the same store."
    )


class Dispatch:
    """ASGI application for all methods of one path."""

    def __init__(
        self,
        control: ControlClient,
        routes: Iterable[Route],
        *,
        every: tuple[Route, ...] = (),
        azure: tuple[AnyRoute, ...] = (),
    ) -> None:
        """Serve `routes`; their calls know every route of the API, and Azure's routes."""
        self._control = control
        self._every = every
        self._azure = azure
        self._routes = {route.method: route for route in routes}
        self._allowed = sorted(self._routes)
        if "GET" in self._routes:
            self._routes["HEAD"] = self._routes["GET"]
            self._allowed.append("HEAD")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        refused = partial(self._error_response, scope)
        response = await answered(scope, self._answer(Request(scope, receive)), refused)
        if response is not None:
            await response(scope, receive, send)

    def _error_response(self, scope: Scope, error: ForewarnError) -> ASGIApp:
        """Return an error response, or forward the call if the permissions may be outdated."""
        forwarder, caller = self._control.forwarder, scope["state"][CALLER]
        if isinstance(error, NotPermitted) and forwarder and caller and caller.in_call:
            return forwarder
        return refusal(error)

    async def _answer(self, request: Request) -> ASGIApp:
        route = self._routes.get(request.method)
        if route is None:
            allowed = ", ".join(self._allowed)
            raise MethodRefused(path=request.url.path, method=request.method, allowed=allowed)
        caller = request.scope["state"][CALLER]
        principal = caller.principal if caller else NOBODY
        authority = caller.authority if caller else NO_AUTHORITY
        control = self._control
        if not route.public:
            await self._check_fresh(request)
        record = call_record(
            control.clock.now_ms(),
            authority,
            request.client.host if request.client else "",
            method=request.method,
            path=request.url.path,
        )
        audit = CallAudit(control.loop, record)
        with audit.recorded():
            control = control.permitted(
                principal, route.permission, authority=authority, call=audit
            )
            app = await self._act(route, request, control, audit)
        if request.method in SAFE and not route.public and control.loop.lapsed():
            raise StateOutdated  # the process may have been suspended
        return app

    async def _check_fresh(self, request: Request) -> None:
        """Refuse a read if this process may be outdated; wait for the read's required commit.

        Raises:
            StateOutdated: the state may be older than the term of a lease.
            StateBehind: the required commit did not arrive in time. GenerationInvalid: the number
            of the required commit is malformed.
        """
        loop, here = self._control.loop, asyncio.get_running_loop()
        if loop.lapsed():
            raise StateOutdated
        still = request.scope["state"].get(STILL_PERMITTED, lambda: True)
        request.scope["state"][STILL_PERMITTED] = lambda: still() and not loop.lapsed()
        header = request.headers.get(GENERATION_HEADER.decode(), "0")
        if not (header.isascii() and header.isdigit()):
            raise GenerationInvalid(given=header[:GENERATION_LENGTH_MAX])
        wanted, until_s = int(header[:GENERATION_LENGTH_MAX]), here.time() + REACH_S_MAX
        while (generation := loop.freshness().generation) < wanted:
            if here.time() > until_s:
                raise StateBehind(generation=generation, wanted=wanted)
            await asyncio.sleep(REACH_LOOK_S)

    async def _act(
        self, route: Route, request: Request, control: ControlClient, audit: CallAudit
    ) -> ASGIApp:
        _check_preconditions(request)
        limit = self._control.max_topology_bytes if route.takes else route.body_bytes_max
        if route.public:
            limit = PUBLIC_BYTES_MAX
        body = await read_body(request, limit) if route.method != "GET" else b""
        if not body and route.method == "PUT":
            raise BodyUnreadable(reason="it is empty")
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        call = ApiCall(
            control=control,
            actor=request.scope["state"][ACTOR],
            principal=_principal(request),
            path=request.path_params,
            query=read_query(route.query, request.query_params.multi_items()),
            query_text=request.url.query,
            form=await self._form(route.form, body, media),
            body=body,
            media=_request_media_type(route, media, body),
            headers=request.headers,
            routes=self._every,
            azure_routes=self._azure,
        )
        audit.name_objects(call.form)
        audit.preview = route.preview or bool(call.query.get("dry_run"))
        if route.method == "POST" and IDEMPOTENCY_KEY in request.headers and call.principal.name:

            async def act() -> tuple[Response, bool]:
                response = await _run_route(route, call, audit)
                return _response(response), response.kept

            return await answered_once(self._control, request, body=body, audit=audit, act=act)
        work = _run_route(route, call, audit)
        response = await (while_waited_for(work, request) if route.abandonable else work)
        return response.stream or _response(response)

    async def _form(self, form: Form | None, body: bytes, media: str) -> Values:
        if len(body) <= READ_BYTES_MAX:
            return _form(form, body, media)
        kind = NAMES_BODIES.get(form.name) if form and media == JSON else None
        if kind:
            return await self._control.read_file(partial(read_file, kind, body, media))
        return await self._control.compute(partial(_form, form, body, media))


async def _run_route(route: Route, call: ApiCall, audit: CallAudit) -> ApiResponse:
    """Return a route's answer. Store a call that a second principal must confirm."""
    try:
        return await route.act(call)
    except ConfirmationNeeded as needed:
        if needed.pinned is not None:
            call = replace(call, body=encoded(needed.pinned))
        if len(call.body) + len(call.query_text) > KEPT_BYTES_MAX:
            raise BodyTooLarge(limit=KEPT_BYTES_MAX) from None
        audit.record = replace(audit.record, outcome=ConfirmationAwaited.code)
        return await keep_for_confirmation(call, route)


async def answered(
    scope: Scope, app: Awaitable[_App], refused: Callable[[ForewarnError], _App]
) -> _App | None:
    """Return the response to a request, possibly an error; None if the caller has disconnected."""
    try:
        return await app
    except ForewarnError as error:
        if not isinstance(error, CallerError):
            REFUSALS.note(f"{scope['method']} {scope['path']}", error)
        return refused(error)
    except ClientDisconnect:
        return None
    except asyncio.CancelledError:  # calls are cancelled only when the service stops
        return refused(Stopping())
    except Exception:
        log.exception("%s %s failed because of a bug", scope["method"], scope["path"])
        return refused(OurError())


def _principal(request: Request) -> Principal:
    caller = request.scope["state"][CALLER]
    return caller.principal if caller else NOBODY


def _check_preconditions(request: Request) -> None:
    """Refuse a conditional change: ignoring its condition could lose an update."""
    if request.method in {"GET", "HEAD"}:
        return
    for header in PRECONDITIONS:
        if header in request.headers:
            raise PreconditionUnsupported(header=header)


async def refuse_path(request: Request, error: Exception) -> Response:
    """Return the error for requests that Starlette refuses: unknown paths and methods."""
    status: int = getattr(error, "status_code", 500)
    if status == 405:
        allowed = (getattr(error, "headers", None) or {}).get("Allow", "")
        return refusal(MethodRefused(path=request.url.path, method=request.method, allowed=allowed))
    if status == 404:
        return refusal(NoSuchPath(path=request.url.path))
    return refusal(OurError())


async def while_waited_for(work: Awaitable[ApiResponse], request: Request) -> ApiResponse:
    """Return an answer, or cancel the work if the caller disconnects.

    Raises:
        ClientDisconnect: the caller has disconnected.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(left(request.receive))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        working.cancel()
        return await working
    finally:
        leaving.cancel()
    if not working.done():
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        raise ClientDisconnect
    return working.result()


def _form(form: Form | None, body: bytes, media: str) -> Values:
    if form is None:
        return {}
    if body and media != JSON:
        raise MediaRefused(media=media, taken=JSON)
    return form.read(read_json(body, FORM_MEMBERS_MAX) if body else {})


def _request_media_type(route: Route, media: str, body: bytes) -> str:
    if route.takes and media not in route.takes:
        raise MediaRefused(media=media, taken=" or ".join(route.takes))
    if body and not route.takes and route.form is None:
        raise BodyUnreadable(reason="this path accepts no parameters")
    return media


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body of a request.

    Raises:
        BodyTooLarge: it has more bytes than allowed.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise BodyTooLarge(limit=limit)
    return await body_of(request.receive, limit)


def _response(response: ApiResponse) -> Response:
    value = response.value
    body = value if isinstance(value, bytes) else encoded(value)
    headers: Mapping[str, str] = {"Cache-Control": "no-store"}
    return Response(body, response.status, headers, media_type=response.media)
