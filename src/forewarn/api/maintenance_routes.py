"""Routes that create, preview, start, pause, postpone and cancel maintenances; their plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.api import request_forms as forms
from forewarn.api.consent import unasked_groups
from forewarn.api.lookup import find
from forewarn.api.maintenance_reading import ONE, find_view, number_of, one_view
from forewarn.api.maintenance_schemas import OUTLOOK, PLAN, ROOM, MaintenanceView
from forewarn.api.responses import encoded
from forewarn.api.routes import NAMES_BYTES_MAX, ApiCall, ApiResponse, Route
from forewarn.api.schemas import OPERATION, TABLE, TEXT, TEXTS, list_of, object_schema, page_schema
from forewarn.control.planning import PlannerTask, planner_task
from forewarn.core import stimulus as stimuli
from forewarn.core.access import Permission
from forewarn.core.lifecycle import OperationState
from forewarn.core.maintenance import MaintenancePlan
from forewarn.core.outlook import memory_by_wave, outlook
from forewarn.core.refusals import MaintenanceInvalid, PostponementRefused, Unknown, UnknownPlan
from forewarn.core.targets import return_time_s
from forewarn.core.topology import select
from forewarn.planning.difference import difference
from forewarn.planning.plan_text import NO_PLAN
from forewarn.planning.policy import Budget, Scope
from forewarn.validation.fields import Text
from forewarn.validation.forms import Field
from forewarn.values import replace

if TYPE_CHECKING:
    from forewarn.control.plane import StateView
    from forewarn.core.topology import Topology
    from forewarn.store import Store

_ROOM = list_of(ROOM.schema())
_PREVIEW = object_schema(
    plan=PLAN.schema(), groups=list_of(OUTLOOK.schema()), room=_ROOM, not_asked=TEXTS
)
_DIFFERENCE = object_schema(
    **{"from": TEXT},
    to=TEXT,
    **dict.fromkeys(("added", "removed", "blocked", "unblocked"), TEXTS),
    changed=list_of(TABLE),
)
_PLAN_ID = Field("plan", Text(16), "Id of a plan (default: the plan in force).")


@Route(
    "POST /v1/maintenances",
    Permission.OPERATE,
    form=forms.MAINTENANCE,
    body_bytes_max=NAMES_BYTES_MAX,
    answer=ONE,
    status=201,
)
async def create_maintenance(call: ApiCall) -> ApiResponse:
    """Create a maintenance as a draft."""
    committed = await call.control.submit(await _asked(call), call.actor)
    assert committed.maintenance is not None
    return one_view(MaintenanceView(committed.maintenance), 201)


@Route(
    "POST /v1/maintenances/plan",
    Permission.OPERATE,
    form=forms.MAINTENANCE,
    body_bytes_max=NAMES_BYTES_MAX,
    answer=_PREVIEW,
    preview=True,
    abandonable=True,
)
async def preview_maintenance(call: ApiCall) -> ApiResponse:
    """Return the plan of a maintenance without creating the maintenance.

    Source: F-2.
    """
    asked = await _asked(call)
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
    groups = await call.control.compute(lambda: outlook(kept.body, topology, occupied))
    unasked = await call.control.read(lambda view: unasked_groups(view, asked.hosts))
    room = await call.control.compute(lambda: memory_by_wave(kept, topology))
    shown = {
        "plan": PLAN.of(kept),
        "groups": OUTLOOK.each(groups),
        "room": ROOM.each(room),
        "not_asked": unasked,
    }
    return ApiResponse(shown)


async def _moved(call: ApiCall, word: stimuli.PlaneStimulus) -> ApiResponse:
    """Apply an operator's command and return the maintenance afterwards."""
    number = number_of(call)
    await call.control.submit(word, call.actor)
    return one_view(await find_view(call, number))


@Route("POST /v1/maintenances/{id}/start", Permission.OPERATE, form=forms.EMPTY, answer=ONE)
async def start_maintenance(call: ApiCall) -> ApiResponse:
    """Start a draft."""
    return await _moved(call, stimuli.StartMaintenance(number_of(call)))


@Route("POST /v1/maintenances/{id}/pause", Permission.OPERATE, form=forms.PAUSE, answer=ONE)
async def pause_maintenance(call: ApiCall) -> ApiResponse:
    """Pause a maintenance: announce no more hosts."""
    form = call.form
    keep = form.get("keep_announced", False)
    word = stimuli.PauseMaintenance(number_of(call), form.get("reason", ""), keep)
    return await _moved(call, word)


@Route("POST /v1/maintenances/{id}/resume", Permission.OPERATE, form=forms.EMPTY, answer=ONE)
async def resume_maintenance(call: ApiCall) -> ApiResponse:
    """Resume a paused or stopped maintenance."""
    return await _moved(call, stimuli.ResumeMaintenance(number_of(call)))


@Route("POST /v1/maintenances/{id}/cancel", Permission.OPERATE, form=forms.REASON, answer=ONE)
async def cancel_maintenance(call: ApiCall) -> ApiResponse:
    """Cancel a maintenance permanently."""
    word = stimuli.CancelMaintenance(number_of(call), call.form.get("reason", ""))
    return await _moved(call, word)


@Route(
    "GET /v1/maintenances/{id}/plan",
    Permission.READ_FLEET,
    query=(_PLAN_ID,),
    answer=object_schema(plan=PLAN.schema(), room=_ROOM),
)
async def get_plan(call: ApiCall) -> ApiResponse:
    """Read a plan of a maintenance."""
    view = await find_view(call, number_of(call))
    plan_id = call.query.get("plan", "") or view.maintenance.plan
    plan = await call.control.look_up(lambda store: store.maintenances.plan(plan_id))
    if plan is None or plan.maintenance != view.maintenance.number:
        raise UnknownPlan(maintenance=view.maintenance.id, name=plan_id or "yet")
    topology = await call.control.fleet()
    room = await call.control.compute(lambda: memory_by_wave(plan, topology))
    return ApiResponse({"plan": PLAN.of(plan), "room": ROOM.each(room)})


@Route(
    "GET /v1/maintenances/{id}/diff",
    Permission.READ_FLEET,
    query=(
        _PLAN_ID,
        Field("against", Text(16), "Id of the other plan (default: the previous plan)."),
    ),
    answer=_DIFFERENCE,
)
async def diff_plans(call: ApiCall) -> ApiResponse:
    """Compare two plans of a maintenance.

    Source: F-2.
    """
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
    changes = difference(before.body if before else NO_PLAN, after.body)
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


@Route(
    "POST /v1/maintenances/{id}/postpone",
    Permission.OPERATE,
    form=forms.POSTPONE,
    body_bytes_max=NAMES_BYTES_MAX,
    answer=ONE,
)
async def postpone_maintenance(call: ApiCall) -> ApiResponse:
    """Postpone some hosts at their owners' request.

    Source: F-8.
    """
    return await _moved(call, _postponing(call, number_of(call), tuple(call.form["hosts"])))


@Route(
    "POST /v1/events/{id}/postpone",
    Permission.APPROVE,
    form=forms.POSTPONE_EVENT,
    answer=page_schema("operations", OPERATION.schema()),
)
async def postpone_event(call: ApiCall) -> ApiResponse:
    """Postpone the host of an event at the owner's request."""
    operation = (await find(call, call.path["id"])).operation
    if not operation.maintenance or operation.is_return:
        problem = "the operation belongs to no maintenance"
        if operation.is_return:
            problem = "the operation returns a VM, which cannot be postponed"
        raise PostponementRefused(host=operation.host, maintenance=operation.id, problem=problem)
    word = _postponing(call, operation.maintenance, (operation.host,))
    await call.control.submit(word, call.actor)
    after = (await find(call, operation.id)).operation
    return ApiResponse({"operations": [OPERATION.of(after)]})


def _postponing(call: ApiCall, maintenance: int, hosts: tuple[str, ...]) -> stimuli.PostponeHosts:
    """Convert a form to a request for a later start."""
    form = call.form
    until_ms = call.time_ms("until")
    assert until_ms is not None, "the form requires it"
    by = form.get("by", call.actor)
    return stimuli.PostponeHosts(maintenance, hosts, until_ms, by, form.get("reason", ""))


def _selected(topology: Topology, call: ApiCall) -> tuple[str, ...]:
    """Return the hosts selected by a form; O(fleet)."""
    form = call.form
    ways = [name for name in ("hosts", "selector", "all") if form.get(name)]
    if len(ways) != 1:
        raise MaintenanceInvalid(problem="give exactly one of hosts, selector and all")
    if ways == ["hosts"]:
        return tuple(form["hosts"])
    if ways == ["selector"]:
        return select(topology.hosts.values(), form["selector"])
    hosts = tuple(topology.hosts)
    if not hosts:
        raise MaintenanceInvalid(
            problem="the fleet has no hosts; add them with `forewarn topology apply`"
        )
    return hosts


async def _asked(call: ApiCall) -> stimuli.CreateMaintenance:
    """Return the requested maintenance; O(fleet) for a form with a selector."""
    form = call.form
    hosts = await call.control.read(lambda view: _selected(view.state.topology, call))
    policy = await call.control.read(lambda view: view.maintenance_policy)
    at_once = form.get("max_at_once", 0)
    return stimuli.CreateMaintenance(
        cause=form["cause"],
        hosts=hosts,
        duration_s=form["duration"],
        impact=form.get("impact"),
        reason=form.get("reason", ""),
        description=form.get("description", ""),
        earliest_ms=call.time_ms("earliest_start"),
        deadline_ms=call.time_ms("deadline"),
        priority=form.get("priority", 0),
        budgets=(Budget(Scope.FLEET, at_once),) if at_once else (),
        canary_hosts=tuple(form.get("canary_hosts", ())),
        gate=form.get("gate", ""),
        max_failures=form.get("max_failures", policy.max_failures),
        move_s=form.get("move_vms", 0),
        return_vms=form.get("return_vms", False),
    )
