"""Routes of work: asking for it, approving, withdrawing, ending it, and why it waits.

How work is planned is decided in the core.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from forewarn.core import ordering
from forewarn.core.impact import TRAITS, Cause, Target
from forewarn.core.labels import select
from forewarn.core.lifecycle import LIVE_OPERATION, OperationState
from forewarn.core.order import ORDER_TARGETS_MAX
from forewarn.core.refusals import WrongState
from forewarn.core.stimulus import (
    TARGETS_MAX,
    Acknowledge,
    Cancel,
    Complete,
    PlaceOrder,
    Repair,
    RequestMaintenance,
    Retry,
)
from forewarn.operator_api import request_forms as forms
from forewarn.operator_api import schemas
from forewarn.operator_api.lookup import check_named, find
from forewarn.operator_api.order_routes import ORDER, OrderView, number_of_order
from forewarn.operator_api.responses import encoded
from forewarn.operator_api.routes import NAMES_BYTES_MAX, ApiCall, ApiResponse, Route, listed
from forewarn.store import OperationPage
from forewarn.validation.durations import read_time_ms
from forewarn.validation.fields import (
    NAME,
    Boolean,
    Choice,
    Integer,
    Schema,
    Text,
    ValidationFailed,
)
from forewarn.validation.forms import Field, Form, ListOf

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forewarn.control.plane import Committed

#: Operations on one page.
PAGE_MAX = 500
#: Hosts of a request that are planned in the one step that answers it; more are an order, which is
#: accepted in that step and planned in portions.
AT_ONCE_MAX = 64

_OPERATIONS = listed("operations", schemas.OPERATION.schema())
_ORDERED: Schema = {
    "type": "object",
    "properties": {
        "operations": {"type": "array", "items": schemas.OPERATION.schema()},
        "order": {
            "anyOf": [ORDER.schema(), {"type": "null"}],
            "description": "Of more than 64 hosts: planned in portions; else null.",
        },
    },
    "required": ["operations", "order"],
    "additionalProperties": False,
}
_FULL: Schema = {
    "type": "object",
    "properties": {
        "operation": schemas.OPERATION.schema(),
        "events": {"type": "array", "items": schemas.EVENT.schema()},
    },
    "required": ["operation", "events"],
    "additionalProperties": False,
}
_WHY: Schema = {
    "type": "object",
    "properties": {
        "operation": schemas.OPERATION.schema(),
        "waiting": {"type": "array", "items": schemas.WAITING.schema()},
    },
    "required": ["operation", "waiting"],
    "additionalProperties": False,
}
_STATES = Choice({state.value: state for state in OperationState})

#: What can be done to a host or VM by name: action -> cause, form, sentence.
HOST_ACTS: dict[str, tuple[Cause, Form, str]] = {
    "update": (Cause.HOST_UPDATE, forms.UPDATE, "Update a host; its VMs freeze, or reboot."),
    "reboot": (Cause.HOST_REBOOT, forms.WORK, "Reboot a host and its VMs."),
    "migrate": (Cause.LIVE_MIGRATION, forms.WORK, "Move a host's VMs away while they run."),
    "degrade": (Cause.HARDWARE_DEGRADED, forms.WORK, "Say that a host is expected to fail."),
    "fail": (Cause.HARDWARE_FAILURE, forms.FAILURE, "Say that a host has failed."),
}
VM_ACTS: dict[str, tuple[Cause, str]] = {
    "reboot": (Cause.REBOOT, "Reboot a VM, as its user asks."),
    "redeploy": (Cause.REDEPLOY, "Move a VM to another host, as its user asks."),
    "evict": (Cause.EVICTION, "Take a Spot VM away."),
    "delete": (Cause.DELETION, "Delete a VM."),
    "reimage": (Cause.REIMAGE, "Give a VM a new system image."),
}


def routes() -> tuple[Route, ...]:
    """Return the routes of work."""
    found = [
        _asking("host", action, cause, form=form, summary=summary)
        for action, (cause, form, summary) in HOST_ACTS.items()
    ]
    found += [
        _asking("vm", action, cause, form=forms.WORK, summary=summary)
        for action, (cause, summary) in VM_ACTS.items()
    ]
    return (*found, *_ROUTES)


def _asking(kind: str, action: str, cause: Cause, *, form: Form, summary: str) -> Route:
    async def act(call: ApiCall) -> ApiResponse:
        return await _ask(call, _precise(cause, call), (call.path["name"],))

    return Route(
        method="POST",
        path=f"/v1/{kind}s/{{name}}/{action}",
        name=f"{action}_{kind}",
        summary=summary,
        act=act,
        form=form,
        answer=_OPERATIONS,
        status=202,
    )


def _precise(cause: Cause, call: ApiCall) -> Cause:
    """Return the cause that the members of a form make of a general one."""
    if call.form.get("network_only"):
        return Cause.NETWORK_UPDATE
    return Cause.HOST_LOST if call.form.get("lost") else cause


async def _order(call: ApiCall) -> ApiResponse:
    targets, selector = call.form.get("targets", ()), call.form.get("selector")
    if bool(targets) == bool(selector):
        raise ValidationFailed(where="the body", problem="must have either targets or a selector")
    if selector:
        if TRAITS[call.form["cause"]].target is Target.VM:
            problem = f"selects hosts, and {call.form['cause'].value} is work on VMs; give targets"
            raise ValidationFailed(where="selector", problem=problem)
        targets = await call.control.read(
            lambda view: select(view.state.topology.hosts.values(), selector)
        )
        if len(targets) > ORDER_TARGETS_MAX:
            problem = f"it names {len(targets)} hosts; an order takes at most {ORDER_TARGETS_MAX}"
            raise ValidationFailed(where="selector", problem=problem)
    work = _work(call, call.form["cause"], targets)
    if len(targets) > AT_ONCE_MAX and TRAITS[work.cause].target is Target.HOST:
        return await _place(call, work)
    if len(targets) > TARGETS_MAX:  # deletions wait for each other, limits count all (A-8, O-1)
        problem = f"names {len(targets)} VMs; {TARGETS_MAX} of them can be decided at once"
        raise ValidationFailed(where="targets", problem=problem)
    committed = await call.control.submit(work, call.actor)
    shown = {"operations": schemas.OPERATION.each(committed.operations), "order": None}
    return ApiResponse(shown, 202)


async def _place(call: ApiCall, work: RequestMaintenance) -> ApiResponse:
    """Have an order of many hosts accepted; each is checked by the readers' copy before.

    The writer would take 60 ms to check 20,000, and approvals wait for it. What changes from here
    on is found when the turn of a host comes.
    """
    now_ms = call.control.clock.now_ms()
    await call.control.read(lambda view: ordering.check(view.draft(now_ms), work))
    committed = await call.control.submit(PlaceOrder(work, checked=True), call.actor)
    assert committed.order is not None
    return ApiResponse({"operations": [], "order": ORDER.of(OrderView(committed.order))}, 202)


async def _ask(call: ApiCall, cause: Cause, targets: tuple[str, ...]) -> ApiResponse:
    work = _work(call, cause, targets)
    return _operations(await call.control.submit(work, call.actor), 202)


def _work(call: ApiCall, cause: Cause, targets: tuple[str, ...]) -> RequestMaintenance:
    form = call.form
    not_before_ms = 0
    if "not_before" in form:
        # 1 rather than 0 for the epoch itself: 0 means that no time was asked for.
        not_before_ms = max(read_time_ms(form["not_before"], call.control.clock.now_ms()), 1)
    return RequestMaintenance(
        cause=cause,
        targets=targets,
        impact=form.get("impact"),
        source=form.get("source"),
        description=form.get("description"),
        duration_s=form.get("duration"),
        not_before_ms=not_before_ms,
        destination=form.get("destination", ""),
    )


async def _repair(call: ApiCall) -> ApiResponse:
    return _operations(await call.control.submit(Repair(call.path["name"]), call.actor))


def _operations(committed: Committed, status: int = 200) -> ApiResponse:
    return ApiResponse({"operations": schemas.OPERATION.each(committed.operations)}, status)


async def _list(call: ApiCall) -> ApiResponse:
    query = dict(call.query)
    live = query.pop("live", False)
    states = frozenset(query.pop("state", ())) or (LIVE_OPERATION if live else frozenset())
    limit = query.pop("limit", 100)
    if "order" in query:
        query["order"] = number_of_order(query["order"])
    page = OperationPage(states=states, limit=limit, **query)
    found = await call.control.look_up(lambda store: store.operations(page))
    if not found:
        await call.control.look_up(partial(check_named, filters=query))
    following = found[-1].number if len(found) == limit else None
    shown = await call.control.compute(
        lambda: encoded({"operations": schemas.OPERATION.each(found), "next": following})
    )
    return ApiResponse(shown)


async def _get(call: ApiCall) -> ApiResponse:
    found = await find(call, call.path["id"])
    shown = schemas.OPERATION.of(found.operation)
    return ApiResponse({"operation": shown, "events": schemas.EVENT.each(found.summaries)})


async def _why(call: ApiCall) -> ApiResponse:
    found = await find(call, call.path["id"])
    waiting = await call.control.why(found.operation.number)
    shown = schemas.OPERATION.of(found.operation)
    return ApiResponse({"operation": shown, "waiting": schemas.WAITING.each(waiting)})


async def _cancel(call: ApiCall) -> ApiResponse:
    number = (await find(call, call.path["id"])).operation.number
    cancellation = Cancel(number, call.form.get("reason", ""))
    return _operations(await call.control.submit(cancellation, call.actor))


async def _complete(call: ApiCall) -> ApiResponse:
    number = (await find(call, call.path["id"])).operation.number
    form = call.form
    completion = Complete(number, form.get("failed", False), form.get("reason", ""))
    return _operations(await call.control.submit(completion, call.actor))


async def _retry(call: ApiCall) -> ApiResponse:
    number = (await find(call, call.path["id"])).operation.number
    return _operations(await call.control.submit(Retry(number), call.actor))


async def _approve(call: ApiCall) -> ApiResponse:
    """Approve one event, or every event of an operation that is still shown. Source: A-9."""
    found = await find(call, call.path["id"])
    events = [found.event] if found.event else list(found.events)
    live = tuple(event.id for event in events if event.live)
    if not live:
        state = found.operation.state.value
        raise WrongState(operation=found.operation.id, state=state, asked="approved")
    return _operations(await call.control.submit(Acknowledge(live), call.actor))


def _on_operation(
    method: str, action: str, act: Callable[[ApiCall], Awaitable[ApiResponse]], *, summary: str
) -> Route:
    """Return a route that acts on one operation."""
    form = {"cancel": forms.REASON, "complete": forms.COMPLETION}.get(action, forms.EMPTY)
    return Route(
        method=method,
        path=f"/v1/operations/{{id}}/{action}",
        name=f"{action}_operation",
        summary=summary,
        act=act,
        form=form if method == "POST" else None,
        answer=_OPERATIONS if method == "POST" else _WHY,
    )


_ROUTES = (
    Route(
        method="POST",
        path="/v1/hosts/{name}/repair",
        name="repair_host",
        summary="Say that a host is well again; its failure is over.",
        act=_repair,
        form=forms.EMPTY,
        answer=_OPERATIONS,
    ),
    Route(
        method="POST",
        path="/v1/operations",
        name="order_work",
        summary="Ask for work on several hosts or VMs; deletions of one order wait for each other.",
        act=_order,
        form=forms.ORDER,
        body_bytes_max=NAMES_BYTES_MAX,
        answer=_ORDERED,
        status=202,
    ),
    Route(
        method="GET",
        path="/v1/operations",
        name="list_operations",
        summary="List operations, newest first.",
        act=_list,
        query=(
            Field("live", Boolean(), "Only those that have not ended."),
            Field("state", ListOf(_STATES, len(OperationState), 1), "Only in these states."),
            Field("host", NAME, "Only on this host."),
            Field("vm", NAME, "Only those that disturb this VM."),
            Field("group", NAME, "Only those that disturb this group."),
            Field("order", Text(64), "Only those of this order of many hosts: order-12."),
            Field("before", Integer(1), "Only numbers below this one."),
            Field("limit", Integer(1, PAGE_MAX), "Maximum number of entries (default: 100)."),
        ),
        answer=listed("operations", schemas.OPERATION.schema(), paged="integer"),
    ),
    Route(
        method="GET",
        path="/v1/operations/{id}",
        name="get_operation",
        summary="Read one operation with its events, ended ones too.",
        act=_get,
        answer=_FULL,
    ),
    _on_operation("GET", "why", _why, summary="Say what an operation waits for."),
    _on_operation("POST", "approve", _approve, summary="Approve its events from outside."),
    _on_operation("POST", "cancel", _cancel, summary="Withdraw it before it starts."),
    _on_operation("POST", "complete", _complete, summary="Say that it has ended."),
    _on_operation("POST", "retry", _retry, summary="Begin it once more."),
    Route(
        method="POST",
        path="/v1/events/{id}/approve",
        name="approve_event",
        summary="Approve an event from outside its VM.",
        act=_approve,
        form=forms.EMPTY,
        answer=_OPERATIONS,
    ),
)
