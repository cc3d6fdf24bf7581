"""Writes the reference page of the operator API: conventions, routes and actions.

The OpenAPI document describes each route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from forewarn_core.fleet.actions import ACTIONS
from forewarn_emulator import routes as emulator_routes
from forewarn_server.api import outbox_routes
from forewarn_server.api.app import every_route
from forewarn_server.api.routes import routes_of
from forewarn_server.api.service_routes import process_routes
from tools.docs.reference import page

if TYPE_CHECKING:
    from forewarn_emulator.emulator import Emulator

# Each line of a document is a sentence of any length.
# ruff: noqa: E501
HEAD = """\
Operators and programs use this HTTP API to describe the fleet, ask for work, and read events, blockers and history.

Every service describes each route with its parameters, bodies and answers: open `/v1/docs` in a browser (emulator: `http://127.0.0.1:8470/v1/docs`), or read `/v1/openapi.json` with a program.
Neither needs a token or the internet.

## Conventions

**Authentication.** Send `Authorization: Bearer TOKEN`; [access for a team](../howto/access.md) shows how to get one.
The emulator, and a service with `[operator] open_on_loopback`, need none on the machine's own loopback address.

**Bodies and times.** Bodies are JSON; topologies and policies are also taken as TOML and YAML.
The [contract](contract.md#p-13) lists the limits of requests.
Unknown members and parameters are refused.
Times are RFC 3339 in UTC; a request may also give one relative to now (`+4h`).
Durations are seconds (`90`), short (`1h30m`) or ISO 8601 (`PT90S`).

**Lists.** A list has at most `limit` entries (1,000 unless you ask for fewer) and the member `next`.
Pass `next` as `after`, or as `before` where the route reads backwards, to get the next page; `null` marks the last one.

**Errors.** A request refused with a 4xx status changes nothing. The answer is `{"error": {"code", "message", "advice"}}`; programs compare the `code`, which is one of [these](errors.md).
On 429 and 503, wait as long as `Retry-After` says.

**Freshness.** With [several control planes](../howto/several-control-planes.md) each answers reads from its own state.
`Forewarn-Generation` in an answer is the number of the last commit that it contains, and `Forewarn-Age-Ms` how long ago this was the newest one.
Send `Forewarn-Generation` with a read to be answered from that commit on.
History and the watch show an entry once all reads of the process contain its commit.

**Work.** A request for work answers 202 with its operations; follow them with `GET /v1/operations/{id}`, or all changes with `GET /v1/watch`.
A request names at most 100 targets; more is a maintenance.
The service refuses work that is already under way on its target with 409; with `queue`, routine work waits instead.
Send a random `Idempotency-Key` with each POST: if the answer is lost, the same request with the same key gets it within a day, and is not carried out twice. The answer is for the same token, or for the same principal with the same roles.

**Changes.** `PUT` replaces a whole record and needs a body; with `new=true` it only creates one.
Records have no versions, so a change with `If-Match` or another condition is answered 412.

## Routes

Routes are listed by the permission that they need; `forewarn access can-i` says whether you have it.
The routes under `/v1/clock`, `/v1/scenarios` and `/v1/faults` exist in the emulator only."""


async def _nothing() -> tuple[str, ...]:
    return ()


def api_page() -> str:
    """Return the page."""
    nobody = cast(
        "Emulator", None
    )  # the emulator's routes use the argument only when they are called
    routes = every_route(
        (
            *routes_of(emulator_routes, nobody),
            *routes_of(outbox_routes, lambda: None),
            *process_routes(_nothing, _nothing),
        )
    )
    by_permission: dict[str, dict[str, list[str]]] = {}
    for each in routes:
        methods = by_permission.setdefault(each.permission.value, {})
        methods.setdefault(each.method, []).append(f"`{each.path}`")
    listed = (
        f"- {permission}: "
        + "; ".join(f"{method} {', '.join(paths)}" for method, paths in methods.items())
        for permission, methods in by_permission.items()
    )
    by_subject: dict[str, list[str]] = {}
    for action in ACTIONS:
        subject, verb = action.split(".", 1)
        by_subject.setdefault(subject, []).append(f"`{verb}`")
    actions = (f"- `{subject}.`: {', '.join(verbs)}" for subject, verbs in by_subject.items())
    return page(
        "Operator API",
        HEAD,
        "",
        *listed,
        "",
        "## Actions",
        "",
        "History and `GET /v1/watch` name each change with an action, such as `operation.planned`.",
        "`/v1/docs#list_history` explains each action.",
        "",
        *actions,
    )
