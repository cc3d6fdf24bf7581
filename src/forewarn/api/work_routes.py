"""Routes of operations: request, approve, cancel, complete and retry."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from forewarn.api import request_forms as forms
from forewarn.api import schemas
from forewarn.api.lookup import check_named, find
from forewarn.api.responses import encoded
from forewarn.api.routes import NAMES_BYTES_MAX, ApiCall, ApiResponse, Route, list_page_schema
from forewarn.core.impact import TRAITS, Cause, TargetKind
from forewarn.core.lifecycle import LIVE_OPERATION, OperationState
from forewarn.core.naming import select
from forewarn.core.refusals import WrongState
from forewarn.core.stimulus import (
    Acknowledge,
    Cancel,
    Complete,
    Repair,
    RequestMaintenance,
    Retry,
)
from forewarn.errors import CallerError
from forewarn.store import OperationPage
from forewarn.validation.durations import read_time_ms
from forewarn.validation.fields import (
    NAME,
    Boolean,
    Choice,
    Integer,
    Schema,
    ValidationFailed,
)
from forewarn.validation.forms import Field, Form, ListOf

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forewarn.control.plane import Committed

#: Maximum number of operations on one page.
PAGE_MAX = 500
#: Maximum number of hosts or VMs in one request; use a maintenance for more hosts.
REQUEST_TARGETS_MAX = 100

_OPERATIONS = list_page_schema("operations", schemas.OPERATION.schema())
_FULL: Schema = {
    "type": "object",
    "properties": {
        "operation": schemas.OPERATION.schema(),
        "events": {"type": "array", "items": schemas.EVENT.schema()},
    },
    "required": ["operation", "events"],
    "additionalProperties": False,
}
_STATES = Choice({state.value: state for state in OperationState})

#: Name of an action on a host or VM -> cause, form, summary.
HOST_ACTS: dict[str, tuple[Cause, Form, str]] = {
    "update": (Cause.HOST_UPDATE, forms.UPDATE, "Update a host; its VMs freeze or reboot."),
    "reboot": (Cause.HOST_REBOOT, forms.WORK, "Reboot a host and its VMs."),
    "migrate": (Cause.LIVE_MIGRATION, forms.WORK, "Live-migrate all VMs of a host."),
    "degrade": (
        Cause.HARDWARE_DEGRADED,
        forms.WORK,
        "Mark a host as degraded, because its failure is expected.",
    ),
    "fail": (Cause.HARDWARE_FAILURE, forms.FAILURE, "Mark a host as failed."),
}
VM_ACTS: dict[str, tuple[Cause, str]] = {
    "reboot": (Cause.REBOOT, "Reboot a VM at its user's request."),
    "redeploy": (Cause.REDEPLOY, "Redeploy a VM to another host at its user's request."),
    "evict": (Cause.EVICTION, "Evict a Spot VM."),
    "delete": (Cause.DELETION, "Delete a VM."),
    "reimage": (Cause.REIMAGE, "Reimage a VM."),
}


class TooManyTargets(CallerError):
    """The request has too many hosts or VMs."""

    code = "too-many-targets"
    message = "The request has {count} targets; the maximum is {limit}."
    advice = "{remedy}"


def routes() -> tuple[Route, ...]:
    """Return the routes of operations."""
    table = [
        _asking("host", action, cause, form=form, summary=summary)
        for action, (cause, form, summary) in HOST_ACTS.items()
    ]
    table += [
        _asking("vm", action, cause, form=forms.WORK, summary=summary)
        for action, (cause, summary) in VM_ACTS.items()
    ]
    return (*table, *_ROUTES)


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
    """Return the precise cause of a form, such as a kind of host update."""
    if call.form.get("network_only"):
        return Cause.NETWORK_UPDATE
    return Cause.HOST_LOST if call.form.get("lost") else cause


async def _request_work(call: ApiCall) -> ApiResponse:
    targets, selector = call.form.get("targets", ()), call.form.get("selector")
    if bool(targets) == bool(selector):
        raise ValidationFailed(where="the body", problem="must have either targets or a selector")
    cause: Cause = call.form["cause"]
    if selector:
        if TRAITS[cause].target is TargetKind.VM:
            problem = f"selects hosts, but {cause.value} is work on VMs; give targets"
            raise ValidationFailed(where="selector", problem=problem)
        targets = await call.control.read(
            lambda view: select(view.state.topology.hosts.values(), selector)
        )
    if len(targets) > REQUEST_TARGETS_MAX:
        remedy = f"Send at most {REQUEST_TARGETS_MAX} per request. Nothing was changed."
        if TRAITS[cause].routine and TRAITS[cause].target is TargetKind.HOST:
            hosts = f"--selector {selector}" if selector else "--file FILE"
            remedy = (
                "For more hosts, create a maintenance, which runs in waves: forewarn maintenance "
                "create"
                f" --cause {cause.value} {hosts} --start"
            )
        raise TooManyTargets(count=len(targets), limit=REQUEST_TARGETS_MAX, remedy=remedy)
    return await _ask(call, cause, targets)


async def _ask(call: ApiCall, cause: Cause, targets: tuple[str, ...]) -> ApiResponse:
    work = _work(call, cause, targets)
    return _operations(await call.control.submit(work, call.actor), 202)


def _work(call: ApiCall, cause: Cause, targets: tuple[str, ...]) -> RequestMaintenance:
    form = call.form
    not_before_ms = None
    if "not_before" in form:
        # Use 1 for the epoch, because 0 in a row means no time.
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
        queue=form.get("queue", False),
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
    page = OperationPage(states=states, limit=limit, **query)
    operations = await call.control.look_up(lambda store: store.operations(page))
    if not operations:
        await call.control.look_up(partial(check_named, filters=query))
    following = operations[-1].number if len(operations) == limit else None
    shown = await call.control.compute(
        lambda: encoded({"operations": schemas.OPERATION.each(operations), "next": following})
    )
    return ApiResponse(shown)


async def _get(call: ApiCall) -> ApiResponse:
    record = await find(call, call.path["id"])
    shown = schemas.OPERATION.of(record.operation)
    return ApiResponse({"operation": shown, "events": schemas.EVENT.each(record.summaries)})


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
    """Approve one event, or all published events of an operation. Source: A-9."""
    record = await find(call, call.path["id"])
    events = [record.event] if record.event else list(record.events)
    live = tuple(event.id for event in events if event.live)
    if not live:
        state = record.operation.state.value
        raise WrongState(operation=record.operation.id, state=state, asked="approved")
    return _operations(await call.control.submit(Acknowledge(live), call.actor))


def _on_operation(
    action: str, act: Callable[[ApiCall], Awaitable[ApiResponse]], *, summary: str
) -> Route:
    """Return a route that acts on one operation."""
    form = {"cancel": forms.REASON, "complete": forms.COMPLETION}.get(action, forms.EMPTY)
    return Route(
        method="POST",
        path=f"/v1/operations/{{id}}/{action}",
        name=f"{action}_operation",
        summary=summary,
        act=act,
        form=form,
        answer=_OPERATIONS,
    )


_ROUTES = (
    Route(
        method="POST",
        path="/v1/hosts/{name}/repair",
        name="repair_host",
        summary="Mark a host as repaired.",
        act=_repair,
        form=forms.EMPTY,
        answer=_OPERATIONS,
    ),
    Route(
        method="POST",
        path="/v1/operations",
        name="request_work",
        summary="Request work on hosts or VMs. A deletion waits for the approvals of the "
        "request's other deletions.",
        act=_request_work,
        form=forms.WORK_REQUEST,
        body_bytes_max=NAMES_BYTES_MAX,
        answer=_OPERATIONS,
        status=202,
    ),
    Route(
        method="GET",
        path="/v1/operations",
        name="list_operations",
        summary="List operations, newest first.",
        act=_list,
        query=(
            Field("live", Boolean(), "Only operations that have not ended."),
            Field(
                "state", ListOf(_STATES, len(OperationState), 1), "Only operations in these states."
            ),
            Field("host", NAME, "Only operations on this host."),
            Field("vm", NAME, "Only operations that disturb this VM."),
            Field("group", NAME, "Only operations that disturb this group."),
            Field("before", Integer(1), "Only operations with lower numbers."),
            Field("limit", Integer(1, PAGE_MAX), "Maximum number of entries (default: 100)."),
        ),
        answer=list_page_schema("operations", schemas.OPERATION.schema(), paged="integer"),
    ),
    Route(
        method="GET",
        path="/v1/operations/{id}",
        name="get_operation",
        summary="Read one operation, live or ended, with its events.",
        act=_get,
        answer=_FULL,
    ),
    _on_operation("approve", _approve, summary="Approve an event, or all events of an operation."),
    _on_operation("cancel", _cancel, summary="Cancel an operation before it starts."),
    _on_operation("complete", _complete, summary="Complete a running operation."),
    _on_operation("retry", _retry, summary="Retry an operation."),
)
