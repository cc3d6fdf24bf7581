"""Routes about the service itself: health and version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from forewarn_base.errors import CallerError, ForewarnError
from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.protocol.versions import VERSIONS
from forewarn_base.validation.fields import Schema
from forewarn_base.values import value
from forewarn_base.version import version
from forewarn_core.access.roles import Permission
from forewarn_server.api.control_client import ControlClient
from forewarn_server.api.read_routes import last_sequence
from forewarn_server.api.request_forms import EMPTY
from forewarn_server.api.responses import encoded
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.api.schemas import (
    FLAG,
    TEXT,
    TEXTS,
    TIME,
    WHOLE,
    WHOLE_OR_NONE,
    Member,
    ObjectSchema,
    described,
    list_of,
    object_schema,
)
from forewarn_server.control.service_state import STANDBY, ServiceState
from forewarn_store.processes import ControlProcess

#: Time limit of the control loop and the store together, in seconds; after it the service is not
#: ready.
READY_S_MAX = 2.0
#: Lifetime of a cached health result, in seconds; the cache limits the cost of callers without a
#: token.
HEALTH_S = 1.0
#: Time in seconds in which a resigning process sends its last answer.
ANSWERED_S = 0.1
#: Maximum number of metadata nodes in an answer.
NODES_MAX = 1000
_HEALTH: Schema = {
    "type": "object",
    "properties": {
        "live": FLAG,
        "ready": FLAG,
        "state": {"enum": [*(each.value for each in ServiceState), STANDBY]},
        "shows": FLAG,
        "generation": described(WHOLE, "Number of the last commit that the process has read."),
        "age_ms": described(WHOLE, "Time in ms since the commit was known to be the newest."),
        "nodes_behind": described(
            TEXTS, "Metadata nodes that are behind or disconnected; at most 100 of them."
        ),
        "nodes_refused": described(
            TEXTS, "Recent requests of metadata nodes for VMs of other nodes."
        ),
        "degraded": described(
            TEXTS,
            "Parts of the state that this process cannot use, such as a window of an unknown time "
            "zone, and problems of history; all other work goes on.",
        ),
        "past_checked": described(
            WHOLE,
            "Percentage of history and ended work that was checked since the start; absent before "
            "the check, and after it.",
        ),
        "last_backup": described(
            TEXT, "Start of the last backup; absent without a recorded backup."
        ),
        "commit_refused": described(
            TEXT,
            "Reason for which the store refused the last change; absent after an accepted change.",
        ),
        "reason": described(TEXT, "Why the service is not ready."),
    },
    "required": ["live", "ready", "state"],
}
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
    if loop.view is None:
        return {"live": True, "ready": False, "state": loop.word, "reason": loop.trouble}, 503
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
    progress = control.store.past_progress
    if progress is not None and progress.percent < 100:
        health["past_checked"] = progress.percent
    if degraded := loop.degraded():
        health["degraded"] = list(degraded)
    if backup_ms:
        health["last_backup"] = iso8601(backup_ms)
    if control.store.commit_refused:
        health["commit_refused"] = control.store.commit_refused
    if reason:
        health["reason"] = reason
    return health, 503 if reason else 200


@Route("GET /live", Permission.PUBLIC, answer=object_schema(live=FLAG))
async def get_live(_call: ApiCall) -> ApiResponse:
    """Check that the process answers, for liveness probes."""
    return ApiResponse({"live": True})


@Route(
    "GET /leader",
    Permission.PUBLIC,
    answer=object_schema(leader=FLAG),
    also={503: "This process is not certain to be active."},
)
async def get_leader(call: ApiCall) -> ApiResponse:
    """Check whether this process is active, for load balancers.

    Source: H-3.
    """
    leads = call.control.loop.decides and not call.control.loop.lapsed()
    return ApiResponse({"leader": leads}, 200 if leads else 503)


@Route(
    "GET /v1/version",
    Permission.SIGNED_IN,
    answer=object_schema(version=TEXT, api=TEXT, api_versions=TEXTS),
)
async def get_version(_call: ApiCall) -> ApiResponse:
    """Show the version of the service."""
    return ApiResponse({"version": version(), "api": "v1", "api_versions": list(VERSIONS)})


@value
class NodeLag:
    """A metadata node, and the number of changes that it lacks; -1: disconnected."""

    name: str
    lag: int


@value
class Expiry:
    """A certificate of the active process."""

    section: str
    until_ms: int


@value
class Limit:
    """A limit of the service, and how much of it is used."""

    name: str
    used: int
    most: int


_PROCESS: ObjectSchema[ControlProcess] = ObjectSchema(
    "",
    "A control plane that shares the store.",
    Member("url", TEXT, meaning="URL of its operator API; empty: not known."),
    Member("version", TEXT),
    Member("behind", WHOLE, meaning="Number of commits that it has not read."),
    Member("age_s", WHOLE, lambda each: int(each.age_s), "Time since its last sign of life."),
    Member("runs", FLAG, meaning="Whether it has shown a recent sign of life."),
    Member("active", FLAG),
)
_NODE: ObjectSchema[NodeLag] = ObjectSchema(
    "",
    "A metadata node, as the active process knows it.",
    Member("name", TEXT),
    Member("connected", FLAG, lambda each: each.lag >= 0),
    Member(
        "behind",
        WHOLE_OR_NONE,
        lambda each: each.lag if each.lag >= 0 else None,
        "Number of changes that it has not confirmed; null: not known.",
    ),
)
_EXPIRY: ObjectSchema[Expiry] = ObjectSchema(
    "",
    "A certificate of the active process.",
    Member("section", TEXT, meaning="Section of the settings that names it."),
    Member("until", TIME, "until_ms"),
)
_LIMIT: ObjectSchema[Limit] = ObjectSchema(
    "",
    "A limit of the service, and how much of it is used.",
    Member("name", TEXT),
    Member("used", WHOLE),
    Member("max", WHOLE, "most"),
)


@Route(
    "GET /v1/service",
    Permission.READ_FLEET,
    active=True,
    answer=object_schema(
        processes=described(
            list_of(_PROCESS.schema()), "The active process first; empty: none can take over."
        ),
        nodes=described(
            list_of(_NODE.schema()),
            f"Metadata nodes, the worst first; at most {NODES_MAX} of them.",
        ),
        node_count=WHOLE,
        certificates=list_of(_EXPIRY.schema()),
        limits=list_of(_LIMIT.schema()),
    ),
)
async def show_service(call: ApiCall) -> ApiResponse:
    """Show the parts of the service: control planes, metadata nodes, certificates, limits."""
    loop = call.control.loop
    expiries = await asyncio.to_thread(loop.certificates)
    lags = loop.node_lags()
    nodes = sorted(lags.items(), key=_order_of_node)
    limits = await call.control.read(
        lambda view: (
            Limit("live operations", len(view.state.operations), view.policy.max_operations),
        )
    )
    return ApiResponse(
        {
            "processes": _PROCESS.each(await call.control.look_up(lambda s: s.processes())),
            "nodes": _NODE.each([NodeLag(*each) for each in nodes[:NODES_MAX]]),
            "node_count": len(lags),
            "certificates": _EXPIRY.each([Expiry(*each) for each in expiries.items()]),
            "limits": _LIMIT.each(limits),
        }
    )


def _order_of_node(lag: tuple[str, int]) -> tuple[bool, bool, int, str]:
    """Order disconnected nodes first, then those that lack most changes, then by name."""
    name, missing = lag
    return missing == 0, missing > 0, -missing, name


@Route(
    "GET /v1/leader",
    Permission.SIGNED_IN,
    active=True,
    answer=object_schema(
        url=described(TEXT, "URL of the active process's operator API."),
        generation=described(WHOLE, "Number of the active process's last commit."),
        store=described(TEXT, "Id of the store's sequence of commits."),
    ),
)
async def show_leader(call: ApiCall) -> ApiResponse:
    """Show the active process; any process can answer."""
    store, url = call.control.store, call.control.loop.operator_url()
    return ApiResponse({"url": url, "generation": store.generation, "store": store.epoch})


def process_routes(
    step_down: Callable[[], object], reload: Callable[[], Awaitable[tuple[str, ...]]]
) -> tuple[Route, ...]:
    """Return the routes that act on the process. Source: H-2, P-9."""

    @Route(
        "POST /v1/leader/step-down",
        Permission.ADMINISTER,
        form=EMPTY,
        answer=object_schema(stepping_down=FLAG),
        name="step_down",
    )
    async def resign(call: ApiCall) -> ApiResponse:
        """Stop the active process cleanly, so that another process takes over."""
        if not call.control.store.shared:
            raise LeaderAlone
        asyncio.get_running_loop().call_later(ANSWERED_S, step_down)
        return ApiResponse({"stepping_down": True})

    @Route(
        "POST /v1/reload",
        Permission.ADMINISTER,
        form=EMPTY,
        answer=object_schema(needs_restart=TEXTS),
        name="reload",
    )
    async def read_settings(_call: ApiCall) -> ApiResponse:
        """Reload the settings; an invalid file changes nothing."""
        return ApiResponse({"needs_restart": list(await reload())})

    return resign, read_settings


def health_routes() -> tuple[Route, ...]:
    """Return the routes of the service's health, which share the last result."""
    health = ServiceHealth()
    also = {503: "The service is not ready."}
    return (
        Route(
            "GET /ready",
            Permission.PUBLIC,
            answer=_HEALTH,
            also=also,
            name="get_ready",
            summary="Check whether the service is ready, for load balancers.",
        )(health.answer),
        Route(
            "GET /v1/health",
            Permission.PUBLIC,
            answer=_HEALTH,
            also=also,
            name="get_health",
            summary="Read the service's health: whether it runs, is ready, and can publish. "
            "Without a token, the answer has only the first three members.",
        )(health.answer),
    )
