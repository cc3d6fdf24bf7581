"""Routes that create, preview, start, pause and cancel maintenances, and read their plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.api import request_forms as forms
from forewarn.api.consent import unasked_groups
from forewarn.api.maintenance_forms import (
    MAINTENANCE_FORM,
    PAUSE_FORM,
    asked_of,
)
from forewarn.api.maintenance_reading import ONE, find_view, number_of, one_view
from forewarn.api.maintenance_schemas import OUTLOOK, PLAN, ROOM, MaintenanceView
from forewarn.api.responses import encoded
from forewarn.api.routes import NAMES_BYTES_MAX, ApiCall, ApiResponse, Route
from forewarn.api.schemas import TEXTS
from forewarn.control.planning import plan_of, planner_task
from forewarn.core import stimulus as stimuli
from forewarn.core.lifecycle import OperationState
from forewarn.core.maintenance import MaintenancePlan
from forewarn.core.outlook import memory_by_wave, outlook
from forewarn.core.refusals import Unknown, UnknownPlan
from forewarn.core.targets import return_time_s
from forewarn.planning.difference import difference
from forewarn.planning.plan import Asked, Plan, WaveBound
from forewarn.validation.fields import Text
from forewarn.validation.forms import Field, Form
from forewarn.values import replace

if TYPE_CHECKING:
    from forewarn.control.plane import StateView
    from forewarn.control.planning import PlannerTask
    from forewarn.store import Store
    from forewarn.validation.fields import Schema

_ROOM: Schema = {"type": "array", "items": ROOM.schema()}
_PLAN: Schema = {
    "type": "object",
    "properties": {"plan": PLAN.schema(), "room": _ROOM},
    "required": ["plan", "room"],
    "additionalProperties": False,
}
_PREVIEW: Schema = {
    "type": "object",
    "properties": {
        "plan": PLAN.schema(),
        "groups": {"type": "array", "items": OUTLOOK.schema()},
        "room": _ROOM,
        "not_asked": TEXTS,
    },
    "required": ["plan", "groups", "room", "not_asked"],
    "additionalProperties": False,
}
_NAMES: Schema = {"type": "array", "items": {"type": "string"}}
_DIFFERENCE: Schema = {
    "type": "object",
    "properties": {
        "from": {"type": "string"},
        "to": {"type": "string"},
        **dict.fromkeys(("added", "removed", "blocked", "unblocked"), _NAMES),
        "changed": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["from", "to", "added", "removed", "blocked", "unblocked", "changed"],
    "additionalProperties": False,
}


async def _create(call: ApiCall) -> ApiResponse:
    committed = await call.control.submit(await asked_of(call), call.actor)
    assert committed.maintenance is not None
    return one_view(MaintenanceView(committed.maintenance), 201)


async def _preview(call: ApiCall) -> ApiResponse:
    """Plan a maintenance without creating it. Source: F-2."""
    asked = await asked_of(call)
    topology = await call.control.fleet()
    for host in asked.hosts:
        if host not in topology.hosts:
            raise Unknown(kind="host", name=host)
    now_ms = call.control.clock.now_ms()
    maintenance = asked.maintenance(0, now_ms, call.actor)

    def take(view: StateView) -> tuple[PlannerTask, set[str]]:
        wanted = replace(maintenance, return_s=return_time_s(asked, view.policy))
        task = planner_task(view.state, wanted, policy=view.policy, now_ms=now_ms)
        live = view.state.operations.values()
        occupied = {each.host for each in live if each.state is OperationState.RUNNING}
        return replace(task, patience_s=call.control.answer_timeout_s), occupied

    task, occupied = await call.control.read(take)
    kept = await call.control.compute(lambda: call.control.writer.planner.make(task))
    plan = plan_of(kept, Asked(asked.hosts, asked.duration_s))
    groups = await call.control.compute(lambda: outlook(plan, topology, occupied))
    unasked = await call.control.read(lambda view: unasked_groups(view, asked.hosts))
    room = await call.control.compute(lambda: memory_by_wave(kept, topology))
    shown = {
        "plan": PLAN.of(kept),
        "groups": OUTLOOK.each(groups),
        "room": ROOM.each(room),
        "not_asked": unasked,
    }
    return ApiResponse(shown)


async def moved(call: ApiCall, word: stimuli.Stimulus) -> ApiResponse:
    """Apply an operator's command and return the maintenance afterwards."""
    number = number_of(call)
    await call.control.submit(word, call.actor)
    return one_view(await find_view(call, number))


async def _start(call: ApiCall) -> ApiResponse:
    return await moved(call, stimuli.StartMaintenance(number_of(call)))


async def _pause(call: ApiCall) -> ApiResponse:
    form = call.form
    keep = form.get("keep_announced", False)
    word = stimuli.PauseMaintenance(number_of(call), form.get("reason", ""), keep)
    return await moved(call, word)


async def _resume(call: ApiCall) -> ApiResponse:
    return await moved(call, stimuli.ResumeMaintenance(number_of(call)))


async def _cancel(call: ApiCall) -> ApiResponse:
    word = stimuli.CancelMaintenance(number_of(call), call.form.get("reason", ""))
    return await moved(call, word)


async def _plan(call: ApiCall) -> ApiResponse:
    view = await find_view(call, number_of(call))
    plan_id = call.query.get("plan", "") or view.maintenance.plan
    plan = await call.control.look_up(lambda store: store.maintenances.plan(plan_id))
    if plan is None or plan.maintenance != view.maintenance.number:
        raise UnknownPlan(maintenance=view.maintenance.id, name=plan_id or "yet")
    topology = await call.control.fleet()
    room = await call.control.compute(lambda: memory_by_wave(plan, topology))
    return ApiResponse({"plan": PLAN.of(plan), "room": ROOM.each(room)})


async def _diff(call: ApiCall) -> ApiResponse:
    """Return the differences between a plan and an earlier one. Source: F-2."""
    view = await find_view(call, number_of(call))
    plan_id = call.query.get("plan", "") or view.maintenance.plan

    def both(store: Store) -> tuple[MaintenancePlan | None, MaintenancePlan | None]:
        after = store.maintenances.plan(plan_id)
        other = call.query.get("against", "") or (after.parent if after else "")
        return store.maintenances.plan(other) if other else None, after

    before, after = await call.control.look_up(both)
    if after is None or after.maintenance != view.maintenance.number:
        raise UnknownPlan(maintenance=view.maintenance.id, name=plan_id or "yet")
    return ApiResponse(await call.control.compute(lambda: encoded(_differs(before, after))))


def _differs(before: MaintenancePlan | None, after: MaintenancePlan) -> dict[str, object]:
    asked = Asked(())
    changes = difference(plan_of(before, asked) if before else _NO_PLAN, plan_of(after, asked))
    return {
        "from": before.id if before else "",
        "to": after.id,
        "added": list(changes.added),
        "removed": list(changes.removed),
        "blocked": list(changes.blocked),
        "unblocked": list(changes.unblocked),
        "changed": [
            {"host": each.host, "from_wave": each.from_wave, "to_wave": each.to_wave}
            for each in changes.changed
        ],
    }


_NO_PLAN = Plan("", "", 0, Asked(()), (), (), (), WaveBound(0, ""))


def routes() -> tuple[Route, ...]:
    """Return the routes of maintenances."""
    return _ROUTES


def _word(action: str, act: object, form: Form, *, summary: str) -> Route:
    return Route(
        method="POST",
        path=f"/v1/maintenances/{{id}}/{action}",
        name=f"{action}_maintenance",
        summary=summary,
        act=act,  # type: ignore[arg-type]
        form=form,
        answer=ONE,
    )


_PLAN_ID = Field("plan", Text(16), "Id of a plan (default: the plan in force).")
_ROUTES = (
    Route(
        method="POST",
        path="/v1/maintenances",
        name="create_maintenance",
        summary="Create a maintenance as a draft.",
        act=_create,
        form=MAINTENANCE_FORM,
        body_bytes_max=NAMES_BYTES_MAX,
        answer=ONE,
        status=201,
    ),
    Route(
        method="POST",
        path="/v1/maintenances/plan",
        name="preview_maintenance",
        summary="Return the plan of a maintenance without creating the maintenance.",
        act=_preview,
        form=MAINTENANCE_FORM,
        body_bytes_max=NAMES_BYTES_MAX,
        answer=_PREVIEW,
        preview=True,
        abandonable=True,
    ),
    _word("start", _start, forms.EMPTY, summary="Start a draft."),
    _word("pause", _pause, PAUSE_FORM, summary="Pause a maintenance: announce no more hosts."),
    _word("resume", _resume, forms.EMPTY, summary="Resume a paused or stopped maintenance."),
    _word("cancel", _cancel, forms.REASON, summary="Cancel a maintenance permanently."),
    Route(
        method="GET",
        path="/v1/maintenances/{id}/plan",
        name="get_plan",
        summary="Read a plan of a maintenance.",
        act=_plan,
        query=(_PLAN_ID,),
        answer=_PLAN,
    ),
    Route(
        method="GET",
        path="/v1/maintenances/{id}/diff",
        name="diff_plans",
        summary="Compare two plans of a maintenance.",
        act=_diff,
        query=(
            _PLAN_ID,
            Field("against", Text(16), "Id of the other plan (default: the previous plan)."),
        ),
        answer=_DIFFERENCE,
    ),
)
