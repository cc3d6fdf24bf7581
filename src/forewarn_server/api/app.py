"""The operator API under `/v1`: an ASGI application over the control loop and the store.

This module assembles the application. The modules `*_routes` define the routes, `auth`
authenticates callers, and `dispatch` handles requests and responses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response

from forewarn_base.settings import Settings
from forewarn_core.access.roles import Permission
from forewarn_server.api import (
    access_routes,
    answer_routes,
    audit_routes,
    availability_routes,
    calendar_routes,
    confirmation_routes,
    declaration_routes,
    fleet_routes,
    maintenance_routes,
    openapi,
    openapi_page,
    order_routes,
    outcome_routes,
    overview_routes,
    policy_routes,
    promise_routes,
    read_routes,
    service_routes,
    sign_in_routes,
    ticket_routes,
    why_routes,
    work_routes,
)
from forewarn_server.api.auth import Authenticator, Principals
from forewarn_server.api.control_client import ControlClient
from forewarn_server.api.dispatch import Dispatch, refuse_path
from forewarn_server.api.fleet_watch import FleetWatch
from forewarn_server.api.oidc import Oidc
from forewarn_server.api.path_table import Table
from forewarn_server.api.responses import encoded
from forewarn_server.api.routes import AnyRoute, ApiCall, ApiResponse, Route, routes_of
from forewarn_server.api.schemas import TABLE
from forewarn_server.api.sign_outs import SignOuts
from forewarn_server.api.standby import Forwarder
from forewarn_server.api.watch import HistoryWatch
from forewarn_server.control.readable import ReadableControl
from forewarn_server.web import HEADERS, WebPage, web_files
from forewarn_store import Store

#: Modules whose routes every service has.
_MODULES = (
    fleet_routes,
    work_routes,
    maintenance_routes,
    calendar_routes,
    declaration_routes,
    order_routes,
    why_routes,
    policy_routes,
    read_routes,
    outcome_routes,
    availability_routes,
    promise_routes,
    ticket_routes,
    service_routes,
    overview_routes,
    access_routes,
    answer_routes,
    audit_routes,
    confirmation_routes,
)

__all__ = ["ApiCall", "ApiResponse", "Route", "build_app", "every_route"]


def build_app(
    loop: ReadableControl,
    store: Store,
    *,
    settings: Settings,
    extra_routes: Sequence[AnyRoute] = (),
    forwarder: Forwarder | None = None,
) -> Starlette:
    """Return the operator API.

    Args:
        loop: the control plane, which reads the live state. In the active process it also changes
        the state.
        store: the store with history and ended work.
        settings: the permitted callers, and the time limit of an answer.
        extra_routes: further routes, documented like the others. Routes of Azure Resource Manager,
            which has its own address, are known for questions about permissions.
        forwarder: forwards a follower's calls to the active process; None in the active process.
    """
    clock, operator = loop.clock, settings.operator
    oidc = Oidc(settings.oidc, clock, SignOuts(store, clock))
    ours = every_route([each for each in extra_routes if isinstance(each, Route)], oidc)
    azure = tuple(each for each in extra_routes if not isinstance(each, Route))
    watch = HistoryWatch(store, loop, operator.max_streams_per_operator)
    timeout_s, topology_bytes = operator.answer_timeout_s, operator.max_topology_bytes
    overview = FleetWatch(loop, clock, watch.streams)
    control = ControlClient(
        loop, store, clock, watch, overview, timeout_s, topology_bytes, forwarder
    )
    if forwarder is not None:
        forwarder.active_paths = _pattern([route.path for route in ours if route.active])
    path_of = attrgetter("path")
    by_path = groupby(sorted(ours, key=path_of), key=path_of)
    dispatches = {
        path: Dispatch(control, list(rows), every=ours, azure=azure) for path, rows in by_path
    }
    public = _pattern([route.path for route in ours if route.public])
    callers = Principals(loop, store, clock=clock, settings=operator, oidc=oidc)
    guard = Middleware(
        Authenticator,
        callers=callers,
        public=public,
        page=frozenset(web_files()),
        forwarder=forwarder,
    )
    app = Starlette(
        routes=[Table(dispatches), WebPage()],
        middleware=[guard],
        exception_handlers={HTTPException: refuse_path},
    )
    app.router.redirect_slashes = False
    app.state.oidc = oidc
    app.state.stop_streams = partial(_stop, watch, overview, forwarder)
    return app


def every_route(extra: Sequence[Route] = (), oidc: Oidc | None = None) -> tuple[Route, ...]:
    """Return all routes, including those that describe the API itself."""
    described = _Description()
    all_routes = (
        *(route for module in _MODULES for route in routes_of(module)),
        *service_routes.health_routes(),
        *routes_of(sign_in_routes, oidc),
        *extra,
    )
    described.routes = (*all_routes, *described.own_routes())
    return described.routes


@dataclass(slots=True)
class _Description:
    """The OpenAPI document and its page, each built on the first request."""

    routes: tuple[Route, ...] = ()
    json: bytes = b""
    html: str = ""

    def own_routes(self) -> tuple[Route, Route]:
        html = ("text/html",)
        return (
            Route("GET /v1/openapi.json", Permission.PUBLIC, answer=TABLE)(self.get_openapi),
            Route("GET /v1/docs", Permission.PUBLIC, answer=None, gives=html)(self.get_docs),
        )

    async def get_openapi(self, _call: ApiCall) -> ApiResponse:
        """Read the OpenAPI document of this API."""
        self.json = self.json or encoded(openapi.document(self.routes, "v1"))
        return ApiResponse(self.json)

    async def get_docs(self, _call: ApiCall) -> ApiResponse:
        """Read the OpenAPI document as an HTML page."""
        self.html = self.html or openapi_page.html_page(openapi.document(self.routes, "v1"))
        return ApiResponse(None, stream=Response(self.html, 200, HEADERS, "text/html"))


def _stop(watch: HistoryWatch, overview: FleetWatch, forwarder: Forwarder | None) -> None:
    watch.stop()
    overview.stop()
    if forwarder is not None:
        forwarder.stop()


def _pattern(paths: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that matches these paths. A `{name}` in a path matches any segment."""
    return re.compile("|".join(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(each)) for each in paths))
