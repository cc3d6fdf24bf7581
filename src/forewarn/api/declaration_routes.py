"""Routes of declared maintenances, for operators and owners. Source: T-1."""

from __future__ import annotations

from forewarn.access.roles import Permission
from forewarn.api import request_forms as forms
from forewarn.api import schemas
from forewarn.api.maintenance_routes import ONE, find_view, number_of, one_view
from forewarn.api.routes import ApiCall, ApiResponse, Route
from forewarn.control.plane import StateView
from forewarn.core import stimulus as stimuli
from forewarn.core.declarations import (
    DeclaredMaintenance,
    DeclaredResource,
    ResourceState,
    declared,
)
from forewarn.core.impact import TRAITS, Cause, Impact
from forewarn.core.maintenance import MaintenanceState
from forewarn.core.refusals import Unknown
from forewarn.rules.hand_back import Severity

RESOURCE: schemas.ObjectSchema[DeclaredResource] = schemas.ObjectSchema(
    "DeclaredResource",
    "One owner's VMs on a host of a declared maintenance.",
    schemas.Member("host", schemas.TEXT),
    schemas.Member("owner", schemas.TEXT, meaning="Owner of the VMs; may be empty."),
    schemas.Member("vms", schemas.TEXTS),
    schemas.Member("state", schemas.words(ResourceState)),
    schemas.Member(
        "hand_back_deadline",
        schemas.TIME,
        "deadline_ms",
        "Until then, the work starts only if the owner chooses so.",
    ),
    schemas.Member(
        "start",
        schemas.TIME,
        "start_ms",
        "Announced start, or the latest start by the plan; null: not known yet.",
    ),
)
DECLARATION: schemas.ObjectSchema[DeclaredMaintenance] = schemas.ObjectSchema(
    "Declaration",
    "A maintenance that was declared to the owners of its VMs, with the resources of the caller.",
    schemas.Member("id", schemas.TEXT, "maintenance.id", "Id of the maintenance, such as m-12."),
    schemas.Member("version", schemas.WHOLE, "declaration.version"),
    schemas.Member("severity", schemas.words(Severity), "declaration.severity"),
    schemas.Member("state", schemas.words(MaintenanceState), "maintenance.state"),
    schemas.Member("cause", schemas.words(Cause), "maintenance.cause"),
    schemas.Member(
        "impact",
        schemas.words(Impact),
        "maintenance.shown_impact",
        "Impact that the event of each VM will have.",
    ),
    schemas.Member("reason", schemas.TEXT, "maintenance.reason"),
    schemas.Member("declared", schemas.TIME, "declaration.declared_ms"),
    schemas.Member("hand_back_deadline", schemas.TIME, "declaration.deadline_ms"),
    schemas.Member("earliest_start", schemas.TIME, "maintenance.earliest_ms"),
    schemas.Member("deadline", schemas.TIME, "maintenance.deadline_ms"),
    schemas.Member(
        "interruption_s",
        schemas.WHOLE,
        lambda d: TRAITS[d.maintenance.cause].shown(d.maintenance.impact)[1],
        "Expected interruption of each VM; -1: for as long as the work lasts.",
    ),
    schemas.Member(
        "window_s",
        schemas.WHOLE,
        "maintenance.host_s",
        "Length of the maintenance window of each host, from its start to its planned close.",
    ),
    schemas.Member(
        "resources",
        schemas.list_of(RESOURCE.schema()),
        lambda d: RESOURCE.each(d.resources),
    ),
)


@Route("POST /v1/maintenances/{id}/declare", Permission.OPERATE, form=forms.DECLARE, answer=ONE)
async def declare_maintenance(call: ApiCall) -> ApiResponse:
    """Declare a draft to the owners of its VMs, and start it.

    The hand-back window begins now, or when a second principal confirms the call.
    """
    number, form = number_of(call), call.form
    severity = form.get("severity", Severity.ROUTINE)
    word = stimuli.DeclareMaintenance(number, severity, form.get("hand_back"))
    await call.control.submit(word, call.actor)
    return one_view(await find_view(call, number))


@Route(
    "GET /v1/declarations",
    Permission.READ,
    answer=schemas.object_schema(declarations=schemas.list_of(DECLARATION.schema())),
)
async def list_declarations(call: ApiCall) -> ApiResponse:
    """List the live declared maintenances that concern VMs of the caller, newest first."""
    every = await _declared(call)
    return await call.encode(lambda: {"declarations": DECLARATION.each(every)})


@Route(
    "GET /v1/declarations/{id}",
    Permission.READ,
    answer=schemas.object_schema(declaration=DECLARATION.schema()),
)
async def get_declaration(call: ApiCall) -> ApiResponse:
    """Read one declared maintenance with the resources of the caller."""
    number = number_of(call)
    named = await _declared(call, only=number)
    if not named:
        raise Unknown(kind="declaration", name=f"m-{number}")
    return await call.encode(lambda: {"declaration": DECLARATION.of(named[0])})


async def _declared(call: ApiCall, only: int | None = None) -> tuple[DeclaredMaintenance, ...]:
    now_ms = call.control.clock.now_ms()

    def every(view: StateView) -> tuple[DeclaredMaintenance, ...]:
        return declared((view.unscoped or view).state, view.state.topology, now_ms, only=only)

    return await call.control.read(every)
