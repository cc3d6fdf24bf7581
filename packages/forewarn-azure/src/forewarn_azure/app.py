"""Azure Resource Manager as an ASGI application, from request to route. Source: Z-1 to Z-4."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forewarn_azure import (
    configuration_routes,
    login_routes,
    maintenance_routes,
    operations,
    plain_lists,
    set_routes,
    subscription_routes,
    vm_routes,
)
from forewarn_azure.callers import ACTOR, ArmCallers
from forewarn_azure.json_values import JsonObject
from forewarn_azure.refusals import ArmApiVersionMissing, ArmPreconditionFailed, azure_refusal
from forewarn_azure.resources import Resources
from forewarn_azure.routes import ANY_QUERY, ArmCall, ArmResponse, ArmRoute, ArmTable, Condition
from forewarn_base.clock import Clock
from forewarn_base.ids import Ids
from forewarn_base.settings import OperatorSettings
from forewarn_base.validation.complexity import FORM_MEMBERS_MAX
from forewarn_base.validation.fields import ValidationFailed
from forewarn_base.validation.json_reader import BodyUnreadable, read_json
from forewarn_base.values import replace
from forewarn_core.access.roles import NO_AUTHORITY, NOBODY
from forewarn_server.adfs_tokens import TokenIssuer
from forewarn_server.api.auth import Principals, check_single, check_site
from forewarn_server.api.call_audit import REQUEST_LENGTH_MAX, CallAudit, call_record
from forewarn_server.api.control_client import ControlClient
from forewarn_server.api.dispatch import PRECONDITIONS, READ_BYTES_MAX, answered, read_body
from forewarn_server.api.fleet_watch import FleetWatch
from forewarn_server.api.responses import encoded
from forewarn_server.api.routes import BODY_BYTES_MAX, PUBLIC_BYTES_MAX
from forewarn_server.api.watch import HistoryWatch
from forewarn_server.control.run_loop import ControlLoop
from forewarn_store import Store

log = logging.getLogger("forewarn.operator")

#: The newest known api-version; the server answers later versions in the same way. Z-3.
NEWEST_KNOWN = "2025-11-01"
#: Maximum number of unknown api-versions in the log; each version is logged once.
NOTED_MAX = 100

_MODULES = (
    *(login_routes, subscription_routes, vm_routes, set_routes),
    *(maintenance_routes, configuration_routes, operations, plain_lists),
)
#: Names of path segments that identify the object of a call, for the audit.
_OBJECTS = ("vm", "resource", "set", "instance", "event")
_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(-[a-z]{1,20})?")


def every_route() -> tuple[ArmRoute, ...]:
    """Return the whole table of routes."""
    return tuple(route for module in _MODULES for route in module.ROUTES.rows)


def build_arm(
    loop: ControlLoop,
    store: Store,
    *,
    clock: Clock,
    settings: OperatorSettings,
    token_key: bytes = b"",
) -> ArmApp:
    """Return Azure Resource Manager over a running service.

    Args:
        loop: the control loop, which changes and reads the live state.
        store: the store, from which ended work is read.
        clock: the service's time.
        settings: settings of the operator API.
        token_key: key that signs tokens; empty: a new random key.
    """
    watch = HistoryWatch(store, loop, settings.max_streams_per_operator)
    overview = FleetWatch(loop, clock, watch.streams)
    control = ControlClient(loop, store, clock, watch, overview, settings.answer_timeout_s)
    key = token_key or Ids().token("arm").encode()

    def digest(token_id: str) -> str:
        token = loop.token(token_id)
        return token.digest if token else ""

    callers = Principals(loop, store, clock=clock, settings=settings)
    arm_callers = ArmCallers(callers, TokenIssuer(key, digest))
    return ArmApp(control, arm_callers, bookkeeping=settings.open_on_loopback)


class ArmApp:
    """The ASGI application of Azure Resource Manager."""

    def __init__(self, control: ControlClient, callers: ArmCallers, *, bookkeeping: bool) -> None:
        self._control = control
        self._callers = callers
        self._resources = Resources(control, bookkeeping)
        control.loop.on_committed.add(self._resources.committed)
        routes = every_route()
        assert all(each.permission for each in routes), "each route needs a permission"
        self._table = ArmTable(routes)
        self._ids = Ids()
        self._noted: OrderedDict[str, None] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        response = await answered(scope, self._answer(Request(scope, receive)), azure_refusal)
        if response is None:
            return
        response.headers["x-ms-request-id"] = self._ids.guid("request").lower()
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        address = request.client.host if request.client else ""
        check_single(request.scope["headers"])
        check_site(dict(request.scope["headers"]))
        route, path = self._table.find(request.method, request.url.path)
        principal, authority, actor = NOBODY, NO_AUTHORITY, ""
        if not route.public:
            caller = self._callers.caller(request.headers, address)
            principal, authority = caller.principal, caller.authority
            actor = f"{ACTOR}{principal.name}" + (f" at {address}" if address else "")
        record = call_record(
            self._control.clock.now_ms(),
            authority,
            address,
            method=request.method,
            path=request.url.path,
        )
        names = [path[each] for each in _OBJECTS if each in path]
        record = replace(record, object="/".join(names)[:REQUEST_LENGTH_MAX])
        audit = CallAudit(self._control.loop, record)
        with audit.recorded():
            control = self._control.permitted(
                principal, route.permission, authority=authority, call=audit
            )
            return await self._act(route, path, request, control=control, actor=actor)

    async def _act(
        self,
        route: ArmRoute,
        path: dict[str, str],
        request: Request,
        *,
        control: ControlClient,
        actor: str,
    ) -> Response:
        address = request.client.host if request.client else ""
        resources = self._resources
        if actor and "admit" in request.scope.get("state", {}):
            request.scope["state"]["admit"]()
        query = {name.lower(): text for name, text in request.query_params.items()}
        if not route.public:
            self._note_version(query.get("api-version", ""))
            _check_query(route, query)
        condition = _condition(request)
        limit = PUBLIC_BYTES_MAX if route.public else BODY_BYTES_MAX
        body = await read_body(request, limit) if request.method != "GET" else b""
        if request.method in {"PUT", "PATCH"} and route.needs_body and not body.strip():
            raise BodyUnreadable(reason="it is empty")
        call = ArmCall(
            control=control,
            resources=resources.within(control) if control.owners is not None else resources,
            tokens=self._callers.tokens,
            admit=lambda name, secret: self._callers.admit(
                name, secret, headers=request.headers, address=address
            ),
            actor=actor,
            method=request.method,
            base=f"{request.url.scheme}://{request.headers.get('host', 'localhost')}",
            path=path,
            query=query,
            body=body,
            json={} if route.public else await _read_object(control, body),
            condition=condition,
        )
        return _response(await route.act(call), request.method)

    def _note_version(self, version: str) -> None:
        """Accept any api-version, and log an unknown version once. Source: Z-3."""
        if not version:
            raise ArmApiVersionMissing
        known = _VERSION.fullmatch(version) and version[:10] <= NEWEST_KNOWN
        if known or version in self._noted or len(self._noted) >= NOTED_MAX:
            return
        self._noted[version] = None
        log.info("api-version %r is unknown; answered like %s", version[:64], NEWEST_KNOWN)


def _check_query(route: ArmRoute, query: Mapping[str, str]) -> None:
    """Refuse query parameters that the route does not support.

    Raises:
        ValidationFailed: a parameter is not supported.
    """
    if route.query != ANY_QUERY:
        for name in query.keys() - {"api-version", *route.query}:
            known = ", ".join(("api-version", *route.query))
            raise ValidationFailed(
                where=f"The query parameter {name[:64]}",
                problem=f"is not supported; supported: {known}",
            )


def _condition(request: Request) -> Condition:
    """Return the condition of a `PUT`; refuse any other condition of a change.

    Raises:
        ArmPreconditionFailed: the condition compares an ETag, which no resource has.
    """
    if request.method in {"GET", "HEAD"}:
        return Condition.NONE
    given = [header for header in PRECONDITIONS if header in request.headers]
    if not given:
        return Condition.NONE
    header = given[0]
    known = header in {Condition.NEW.value, Condition.PRESENT.value}
    if len(given) == 1 and known and request.method == "PUT" and request.headers[header] == "*":
        return Condition(header)
    reason = "a PUT may have one condition with `*`, because no resource has an ETag"
    raise ArmPreconditionFailed(header=header, reason=reason)


async def _read_object(control: ControlClient, body: bytes) -> JsonObject:
    """Return a JSON body; a missing body is an empty object."""
    if not body.strip():
        return {}
    read = partial(read_json, body, FORM_MEMBERS_MAX)
    value = read() if len(body) <= READ_BYTES_MAX else await control.compute(read)
    if not isinstance(value, dict):
        raise BodyUnreadable(reason="it is not a JSON object")
    return value


def _response(response: ArmResponse, method: str) -> Response:
    headers = {"Cache-Control": "no-cache", **response.headers}
    if method == "HEAD":  # the answer for an existing resource is 204, never 200
        return Response(status_code=204, headers=headers)
    if response.value is None:
        return Response(status_code=response.status, headers=headers)
    return Response(
        encoded(response.value), response.status, headers, media_type="application/json"
    )
