"""Routes of operations: request, approve, cancel, complete and retry."""

from __future__ import annotations

import json
from functools import partial

from forewarn_base.errors import CallerError
from forewarn_base.validation.fields import NAME, Boolean, Choice, Integer, ValidationFailed
from forewarn_base.validation.forms import Field, Form, ListOf
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.guards import ConfirmationNeeded
from forewarn_core.fleet.impact import TRAITS, Cause, TargetKind
from forewarn_core.fleet.lifecycle import LIVE_OPERATION, OperationState
from forewarn_core.fleet.refusals import WrongState
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import (
    Acknowledge,
    Cancel,
    Complete,
    Repair,
    RequestMaintenance,
    Retry,
)
from forewarn_core.fleet.topology import select
from forewarn_server.api import request_forms as forms
from forewarn_server.api import schemas
from forewarn_server.api.lookup import check_named, find
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_store import OperationPage

#: Maximum number of operations on one page.
PAGE_MAX = 500
#: Maximum number of hosts or VMs in one request; use a maintenance for more hosts.
REQUEST_TARGETS_MAX = 100

_OPERATIONS = schemas.page_schema("operations", schemas.OPERATION.schema())
_FULL = schemas.object_schema(
    operation=schemas.OPERATION.schema(), events=schemas.list_of(schemas.EVENT.schema())
)
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


def _request_route(kind: str, action: str, cause: Cause, *, form: Form, summary: str) -> Route:
    async def act(call: ApiCall) -> ApiResponse:
        return await _ask(call, _precise(cause, call), (call.path["name"],))

    return Route(
        f"POST /v1/{kind}s/{{name}}/{action}",
        Permission.OPERATE if kind == "host" else Permission.REQUEST,
        form=form,
        answer=_OPERATIONS,
        status=202,
        name=f"{action}_{kind}",
        summary=summary,
    )(act)


_ACTIONS = (
    *(
        _request_route("host", action, cause, form=form, summary=summary)
        for action, (cause, form, summary) in HOST_ACTS.items()
    ),
    *(
        _request_route("vm", action, cause, form=forms.WORK, summary=summary)
        for action, (cause, summary) in VM_ACTS.items()
    ),
)


def _precise(cause: Cause, call: ApiCall) -> Cause:
    """Return the precise cause of a form, such as a kind of host update."""
    if call.form.get("network_only"):
        return Cause.NETWORK_UPDATE
    return Cause.HOST_LOST if call.form.get("lost") else cause


@Route(
    "POST /v1/operations",
    Permission.REQUEST,
    summary="Request work on hosts or VMs. A deletion waits for the approvals of the "
    "request's other deletions.",
    form=forms.WORK_REQUEST,
    answer=_OPERATIONS,
    status=202,
    sentence="request {cause} of {targets}",
)
async def request_work(call: ApiCall) -> ApiResponse:
    """Request work on hosts or VMs.

    The request is accepted or refused as a whole.
    """
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
    try:
        return await _ask(call, cause, targets)
    except ConfirmationNeeded as needed:
        if selector:
            form = {
                name: each for name, each in json.loads(call.body).items() if name != "selector"
            }
            needed.pinned = {**form, "targets": targets}
        raise


async def _ask(call: ApiCall, cause: Cause, targets: tuple[str, ...]) -> ApiResponse:
    work = _work(call, cause, targets)
    return _operations(await call.control.submit(work, call.actor), 202)


def _work(call: ApiCall, cause: Cause, targets: tuple[str, ...]) -> RequestMaintenance:
    form = call.form
    not_before_ms = call.time_ms("not_before")
    return RequestMaintenance(
        cause=cause,
        targets=targets,
        impact=form.get("impact"),
        source=form.get("source"),
        description=form.get("description"),
        duration_s=form.get("duration"),
        # Use 1 for the epoch, because 0 in a row means no time.
        not_before_ms=None if not_before_ms is None else max(not_before_ms, 1),
        destination=form.get("destination", ""),
        queue=form.get("queue", False),
    )


@Route("POST /v1/hosts/{name}/repair", Permission.OPERATE, form=forms.EMPTY, answer=_OPERATIONS)
async def repair_host(call: ApiCall) -> ApiResponse:
    """Mark a host as repaired."""
    return _operations(await call.control.submit(Repair(call.path["name"]), call.actor))


def _operations(committed: StepResult, status: int = 200) -> ApiResponse:
    return ApiResponse({"operations": schemas.OPERATION.each(committed.operations)}, status)


@Route(
    "GET /v1/operations",
    Permission.READ,
    query=(
        Field("live", Boolean(), "Only operations that have not ended."),
        Field("state", ListOf(_STATES, len(OperationState), 1), "Only operations in these states."),
        Field("host", NAME, "Only operations on this host."),
        Field("vm", NAME, "Only operations that disturb this VM."),
        Field("group", NAME, "Only operations that disturb this group."),
        Field("before", Integer(1), "Only operations with lower numbers."),
        Field("limit", Integer(1, PAGE_MAX), "Maximum number of entries (default: 100)."),
    ),
    answer=schemas.page_schema("operations", schemas.OPERATION.schema(), paged="integer"),
)
async def list_operations(call: ApiCall) -> ApiResponse:
    """List operations, newest first."""
    query = dict(call.query)
    live = query.pop("live", False)
    states = frozenset(query.pop("state", ())) or (LIVE_OPERATION if live else frozenset())
    limit = query.pop("limit", 100)
    page = OperationPage(states=states, limit=limit, **query)
    operations = await call.control.look_up(lambda store: store.operations(page))
    if not operations:
        await call.control.look_up(partial(check_named, filters=query))
    following = operations[-1].number if len(operations) == limit else None
    shown = schemas.OPERATION.each
    return await call.encode(lambda: {"operations": shown(operations), "next": following})


@Route("GET /v1/operations/{id}", Permission.READ, answer=_FULL)
async def get_operation(call: ApiCall) -> ApiResponse:
    """Read one operation, live or ended, with its events."""
    record = await find(call, call.path["id"])
    shown = schemas.OPERATION.of(record.operation)
    return ApiResponse({"operation": shown, "events": schemas.EVENT.each(record.summaries)})


@Route("POST /v1/operations/{id}/cancel", Permission.OPERATE, form=forms.REASON, answer=_OPERATIONS)
async def cancel_operation(call: ApiCall) -> ApiResponse:
    """Cancel an operation before it starts."""
    number = (await find(call, call.path["id"])).operation.number
    cancellation = Cancel(number, call.form.get("reason", ""))
    return _operations(await call.control.submit(cancellation, call.actor))


@Route(
    "POST /v1/operations/{id}/complete",
    Permission.OPERATE,
    form=forms.COMPLETION,
    answer=_OPERATIONS,
)
async def complete_operation(call: ApiCall) -> ApiResponse:
    """Complete a running operation."""
    number = (await find(call, call.path["id"])).operation.number
    form = call.form
    completion = Complete(number, form.get("failed", False), form.get("reason", ""))
    return _operations(await call.control.submit(completion, call.actor))


@Route("POST /v1/operations/{id}/retry", Permission.OPERATE, form=forms.EMPTY, answer=_OPERATIONS)
async def retry_operation(call: ApiCall) -> ApiResponse:
    """Retry an operation."""
    number = (await find(call, call.path["id"])).operation.number
    return _operations(await call.control.submit(Retry(number), call.actor))


@Route("POST /v1/operations/{id}/approve", Permission.APPROVE, form=forms.EMPTY, answer=_OPERATIONS)
async def approve_operation(call: ApiCall) -> ApiResponse:
    """Approve an event, or all events of an operation.

    Source: A-9.
    """
    record = await find(call, call.path["id"])
    events = [record.event] if record.event else list(record.events)
    live = tuple(event.id for event in events if event.live)
    if not live:
        state = record.operation.state.value
        raise WrongState(operation=record.operation.id, state=state, asked="approved")
    return _operations(await call.control.submit(Acknowledge(live), call.actor))
