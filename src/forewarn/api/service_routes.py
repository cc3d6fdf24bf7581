"""Routes about the service itself: health and version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forewarn.api.read_routes import last_sequence
from forewarn.api.responses import encoded
from forewarn.api.routes import ApiCall, ApiResponse, Route
from forewarn.control.service_state import STANDBY, ServiceState
from forewarn.core.access import Permission
from forewarn.errors import CallerError, ForewarnError
from forewarn.protocol.timestamps import iso8601
from forewarn.protocol.versions import VERSIONS
from forewarn.validation.fields import Schema
from forewarn.validation.forms import Form
from forewarn.version import version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forewarn.api.control_client import ControlClient

#: Time limit of the control loop and the store together, in seconds; after it the service is not
#: ready.
READY_S_MAX = 2.0
#: Lifetime of a cached health result, in seconds; the cache limits the cost of callers without a
#: token.
HEALTH_S = 1.0
#: Time in seconds in which a resigning process sends its last answer.
ANSWERED_S = 0.1
#: Members of the answer for callers without a token.
PUBLIC = ("live", "ready", "state")


class LeaderAlone(CallerError):
    """The process cannot resign, because no other process can use its store."""

    code = "leader-alone"
    status = 409
    message = "No other process can take over, because only this process can use its store."
    advice = "Restart this process, or move the store to PostgreSQL and start a second process."


class ServiceHealth:
    """The service's health, checked at most once a second."""

    def __init__(self) -> None:
        """Start without a result; the first request checks."""
        self._lock = asyncio.Lock()
        self._due_s = 0.0
        self._status = 503
        #: Bodies for callers without a token, and for operators.
        self._public = self._full = b""

    async def answer(self, call: ApiCall) -> ApiResponse:
        """Return the health of the service, at most `HEALTH_S` seconds old."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if loop.time() >= self._due_s or not self._full:
                health, self._status = await _look(call.control)
                self._full = encoded(health)
                self._public = encoded({name: health[name] for name in PUBLIC})
                self._due_s = loop.time() + HEALTH_S
        return ApiResponse(
            self._full
            if call.principal.owners_for(Permission.READ_FLEET) is None
            else self._public,
            self._status,
        )


async def _look(control: ControlClient) -> tuple[dict[str, object], int]:
    loop, backup_ms = control.loop, 0
    try:
        async with asyncio.timeout(READY_S_MAX):
            await control.see_writer()
            # A commit reads before it writes, so a service must be able to read.
            await control.look_up(last_sequence)
            backup_ms = await control.look_up(lambda store: store.backup_ms())
        reason = loop.trouble
    except (TimeoutError, ForewarnError) as error:
        reason = str(error) or f"no answer within {READY_S_MAX:g} s"
    health: dict[str, object] = {
        "live": True,
        "ready": not reason,
        "state": loop.word,
        "shows": loop.shows,
    }
    fresh = loop.freshness()
    health["generation"], health["age_ms"] = fresh.generation, loop.age_ms(fresh)
    nodes = loop.node_troubles()
    if nodes.behind:
        health["nodes_behind"] = list(nodes.behind)
    if nodes.refused:
        health["nodes_refused"] = list(nodes.refused)
    if backup_ms:
        health["last_backup"] = iso8601(backup_ms)
    if control.store.commit_refused:
        health["commit_refused"] = control.store.commit_refused
    if reason:
        health["reason"] = reason
    return health, 503 if reason else 200


async def _live(_call: ApiCall) -> ApiResponse:
    return ApiResponse({"live": True})


async def _leader(call: ApiCall) -> ApiResponse:
    """Answer the active-process check of load balancers. Source: H-3."""
    leads = call.control.loop.decides and not call.control.loop.lapsed()
    return ApiResponse({"leader": leads}, 200 if leads else 503)


async def _version(_call: ApiCall) -> ApiResponse:
    return ApiResponse({"version": version(), "api": "v1", "api_versions": list(VERSIONS)})


def leader_routes(step_down: Callable[[], object]) -> tuple[Route, ...]:
    """Return the routes about the active process. Source: H-2."""

    async def show(call: ApiCall) -> ApiResponse:
        store = call.control.store
        return ApiResponse({"url": store.url, "generation": store.generation, "store": store.epoch})

    async def act(call: ApiCall) -> ApiResponse:
        if not call.control.store.shared:
            raise LeaderAlone
        asyncio.get_running_loop().call_later(ANSWERED_S, step_down)
        return ApiResponse({"stepping_down": True})

    return (
        Route(
            method="GET",
            path="/v1/leader",
            name="show_leader",
            summary="Show the active process; any process can answer.",
            act=show,
            active=True,
            answer={
                "type": "object",
                "properties": {
                    "url": {
                        "type": "string",
                        "description": "URL of the active process's operator API.",
                    },
                    "generation": {
                        "type": "integer",
                        "description": "Number of the active process's last commit.",
                    },
                    "store": {
                        "type": "string",
                        "description": "Id of the store's sequence of commits.",
                    },
                },
                "required": ["url", "generation", "store"],
                "additionalProperties": False,
            },
        ),
        Route(
            method="POST",
            path="/v1/leader/step-down",
            name="step_down",
            summary="Stop the active process cleanly, so that another process takes over.",
            act=act,
            form=Form("StepDown", "An empty form."),
            answer=_truth("stepping_down"),
        ),
    )


def reload_route(reload: Callable[[], Awaitable[tuple[str, ...]]]) -> Route:
    """Return the route that reloads the settings. Source: P-9."""

    async def act(_call: ApiCall) -> ApiResponse:
        return ApiResponse({"needs_restart": list(await reload())})

    return Route(
        method="POST",
        path="/v1/reload",
        name="reload",
        summary="Reload the settings; an invalid file changes nothing.",
        act=act,
        form=Form("Reload", "An empty form."),
        answer={
            "type": "object",
            "properties": {"needs_restart": _NAMES},
            "required": ["needs_restart"],
            "additionalProperties": False,
        },
    )


def routes() -> tuple[Route, ...]:
    """Return the routes of one application."""
    health = ServiceHealth()
    return (
        Route(
            method="GET",
            path="/live",
            name="get_live",
            summary="Check that the process answers, for liveness probes.",
            act=_live,
            answer=_truth("live"),
        ),
        Route(
            method="GET",
            path="/ready",
            name="get_ready",
            summary="Check whether the service is ready, for load balancers.",
            act=health.answer,
            answer=_HEALTH,
            also={503: "The service is not ready."},
        ),
        Route(
            method="GET",
            path="/leader",
            name="get_leader",
            summary="Check whether this process is active, for load balancers.",
            act=_leader,
            answer=_truth("leader"),
            also={503: "This process is not certain to be active."},
        ),
        Route(
            method="GET",
            path="/v1/health",
            name="get_health",
            summary="Read the service's health: whether it runs, is ready, and can publish. "
            "Without a token, the answer has only the first three members.",
            act=health.answer,
            answer=_HEALTH,
            also={503: "The service is not ready."},
        ),
        Route(
            method="GET",
            path="/v1/version",
            name="get_version",
            summary="Show the version of the service.",
            act=_version,
            answer={
                "type": "object",
                "properties": {
                    "version": {"type": "string"},
                    "api": {"type": "string"},
                    "api_versions": _NAMES,
                },
                "required": ["version", "api", "api_versions"],
                "additionalProperties": False,
            },
        ),
    )


def _truth(name: str) -> Schema:
    """Return the schema of an answer whose only member is true."""
    return {
        "type": "object",
        "properties": {name: {"type": "boolean"}},
        "required": [name],
        "additionalProperties": False,
    }


_NAMES: Schema = {"type": "array", "items": {"type": "string"}}
_HEALTH: Schema = {
    "type": "object",
    "properties": {
        "live": {"type": "boolean"},
        "ready": {"type": "boolean"},
        "state": {"enum": [*(each.value for each in ServiceState), STANDBY]},
        "shows": {"type": "boolean"},
        "generation": {
            "type": "integer",
            "description": "Number of the last commit that the process has read.",
        },
        "age_ms": {
            "type": "integer",
            "description": "Time in ms since the commit was known to be the newest.",
        },
        "nodes_behind": {
            **_NAMES,
            "description": "Metadata nodes that are behind or disconnected; at most 100 of them.",
        },
        "nodes_refused": {
            **_NAMES,
            "description": "Recent requests of metadata nodes for VMs of other nodes.",
        },
        "last_backup": {
            "type": "string",
            "description": "Start of the last backup; absent without a recorded backup.",
        },
        "commit_refused": {
            "type": "string",
            "description": "Reason for which the store refused the last change; absent after an "
            "accepted change.",
        },
        "reason": {"type": "string", "description": "Why the service is not ready."},
    },
    "required": ["live", "ready", "state"],
}
