"""Routes of maintenances: read, create, preview, start, pause, postpone, cancel; their plans."""

from __future__ import annotations

import re

from forewarn_base.validation.fields import NAME, Boolean, Integer, Schema, Text
from forewarn_base.validation.forms import Field
from forewarn_base.values import replace
from forewarn_core.access.roles import Permission
from forewarn_core.fleet import stimulus as stimuli
from forewarn_core.fleet.lifecycle import OperationState
from forewarn_core.fleet.maintenance import Halted, MaintenancePlan
from forewarn_core.fleet.outlook import memory_by_wave, outlook
from forewarn_core.fleet.refusals import (
    MaintenanceInvalid,
    PostponementRefused,
    Unknown,
    UnknownMaintenance,
    UnknownPlan,
)
from forewarn_core.fleet.targets import return_time_s
from forewarn_core.fleet.topology import Topology, select
from forewarn_core.fleet.why import why_maintenance
from forewarn_core.planning.difference import difference
from forewarn_core.planning.plan_text import NO_PLAN
from forewarn_core.planning.policy import Budget, Scope
from forewarn_server.api import request_forms as forms
from forewarn_server.api.consent import APPROVAL, approvals, unasked_groups
from forewarn_server.api.lookup import find
from forewarn_server.api.maintenance_schemas import (
    BLOCKER,
    HOST_WORK,
    MAINTENANCE,
    OUTLOOK,
    PLAN,
    ROOM,
    WAVE,
    MaintenanceView,
    Waits,
    WaveView,
)
from forewarn_server.api.routes import NAMES_BYTES_MAX, ApiCall, ApiResponse, Route
from forewarn_server.api.schemas import (
    OPERATION,
    TABLE,
    TEXT,
    TEXTS,
    described,
    list_of,
    object_schema,
    page_schema,
)
from forewarn_server.control.plane import StateView
from forewarn_server.control.planning import PlannerTask, planner_task
from forewarn_store import Store
from forewarn_store.maintenances import HostState, HostWork

#: Maximum number of maintenances, or of a maintenance's hosts, on one page.
PAGE_MAX, HOSTS_PAGE_MAX = 500, 1000
_NUMBER = re.compile(r"(?i:m-)?([0-9]{1,15})")
ONE: Schema = object_schema(maintenance=MAINTENANCE.schema())
_FULL: Schema = object_schema(
    maintenance=MAINTENANCE.schema(),
    waves=list_of(WAVE.schema()),
    blocked=list_of(BLOCKER.schema()),
    waits_for=described(
        {"anyOf": [BLOCKER.schema(), {"type": "null"}]}, "The same blocker as in `maintenance`."
    ),
    approvals=list_of(APPROVAL.schema()),
    not_asked=described(
        TEXTS, "Groups with VMs on the remaining hosts that do not listen for events."
    ),
)
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
    committed = await call.control.submit(await _read_maintenance(call), call.actor)
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
    request = await _read_maintenance(call)
    topology = await call.control.fleet()
    now_ms = call.control.clock.now_ms()

    def take(view: StateView) -> tuple[PlannerTask, set[str]]:
        for host in request.hosts:
            if host not in topology.hosts:
                raise Unknown(kind="host", name=host)
        maintenance = request.maintenance(0, now_ms, call.actor)
        wanted = replace(maintenance, return_s=return_time_s(request, view.policy))
        task = planner_task(view.state, wanted, policy=view.policy, now_ms=now_ms)
        live = view.state.operations.values()
        occupied = {each.host for each in live if each.state is OperationState.RUNNING}
        return replace(task, patience_s=call.control.answer_timeout_s), occupied

    task, occupied = await call.control.read(take)
    kept = await call.control.compute(lambda: call.control.writer.planner.make(task))
    returning = bool(request.return_vms)
    groups = await call.control.compute(
        lambda: outlook(kept.body, topology, occupied, returning=returning)
    )
    unasked = await call.control.read(lambda view: unasked_groups(view, request.hosts))
    room = await call.control.compute(lambda: memory_by_wave(kept, topology, returning=returning))
    shown = {
        "plan": PLAN.of(kept),
        "groups": OUTLOOK.each(groups),
        "room": ROOM.each(room),
        "not_asked": unasked,
    }
    return ApiResponse(shown)


async def _apply_command(call: ApiCall, word: stimuli.PlaneStimulus) -> ApiResponse:
    """Apply an operator's command and return the maintenance afterwards."""
    number = number_of(call)
    await call.control.submit(word, call.actor)
    return one_view(await find_view(call, number))


@Route("POST /v1/maintenances/{id}/start", Permission.OPERATE, form=forms.EMPTY, answer=ONE)
async def start_maintenance(call: ApiCall) -> ApiResponse:
    """Start a draft."""
    return await _apply_command(call, stimuli.StartMaintenance(number_of(call)))


@Route("POST /v1/maintenances/{id}/pause", Permission.OPERATE, form=forms.PAUSE, answer=ONE)
async def pause_maintenance(call: ApiCall) -> ApiResponse:
    """Pause a maintenance: announce no more hosts."""
    form = call.form
    keep = form.get("keep_announced", False)
    word = stimuli.PauseMaintenance(number_of(call), form.get("reason", ""), keep)
    return await _apply_command(call, word)


@Route("POST /v1/maintenances/{id}/resume", Permission.OPERATE, form=forms.EMPTY, answer=ONE)
async def resume_maintenance(call: ApiCall) -> ApiResponse:
    """Resume a paused or stopped maintenance."""
    return await _apply_command(call, stimuli.ResumeMaintenance(number_of(call)))


@Route("POST /v1/maintenances/{id}/cancel", Permission.OPERATE, form=forms.REASON, answer=ONE)
async def cancel_maintenance(call: ApiCall) -> ApiResponse:
    """Cancel a maintenance permanently."""
    word = stimuli.CancelMaintenance(number_of(call), call.form.get("reason", ""))
    return await _apply_command(call, word)


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
    returning = bool(view.maintenance.return_s)
    room = await call.control.compute(lambda: memory_by_wave(plan, topology, returning=returning))
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
    return await call.encode(lambda: _differs(before, after))


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
    return await _apply_command(call, _postponing(call, number_of(call), tuple(call.form["hosts"])))


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


def _select_hosts(topology: Topology, call: ApiCall) -> tuple[str, ...]:
    """Return the hosts selected by a form; O(fleet)."""
    form = call.form
    ways = [name for name in ("hosts", "selector", "all") if form.get(name)]
    domain = form.get("failure_domain", "")
    if "=" in domain and not ways:
        return select(topology.hosts.values(), domain)
    if len(ways) != 1 or "=" in domain:
        raise MaintenanceInvalid(
            problem="give exactly one of hosts, selector, all and failure_domain with a value"
        )
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


async def _read_maintenance(call: ApiCall) -> stimuli.CreateMaintenance:
    """Return the requested maintenance; O(fleet) for a form with a selector."""
    form = call.form
    hosts = await call.control.read(lambda view: _select_hosts(view.state.topology, call))
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
        failure_domain=form.get("failure_domain", "").partition("=")[0],
    )


# --- reading ------------------------------------------------------------------------------------


def one_view(view: MaintenanceView, status: int = 200) -> ApiResponse:
    """Return the response for one maintenance."""
    return ApiResponse({"maintenance": MAINTENANCE.of(view)}, status)


def number_of(call: ApiCall) -> int:
    """Return the number of a maintenance's name: `m-12` or `12`."""
    name = call.path["id"]
    matched = _NUMBER.fullmatch(name)
    if matched is None:
        raise UnknownMaintenance(name=name[:64])
    return int(matched[1])


async def find_view(call: ApiCall, number: int) -> MaintenanceView:
    """Return a live or ended maintenance; O(hosts with work)."""
    now_ms = call.control.clock.now_ms()

    def live(view: StateView) -> MaintenanceView | None:
        maintenance = view.state.maintenances.get(number)
        if maintenance is None:
            return None
        blocker = why_maintenance(view.draft(now_ms), maintenance)
        return MaintenanceView(maintenance, view.state.plans.get(maintenance.plan), blocker)

    def stored(store: Store) -> MaintenanceView | None:
        maintenance = store.maintenances.get(number)
        return MaintenanceView(maintenance) if maintenance is not None else None

    view = await call.control.read(live) or await call.control.look_up(stored)
    if view is None:
        raise UnknownMaintenance(name=f"m-{number}")
    counts = await call.control.look_up(lambda store: store.maintenances.counts(number))
    return replace(view, counts=counts)


@Route(
    "GET /v1/maintenances",
    Permission.READ_FLEET,
    query=(
        Field("live", Boolean(), "Only maintenances that have not ended."),
        Field("before", Integer(1), "Only maintenances with lower numbers."),
        Field("limit", Integer(1, PAGE_MAX), "Maximum number of entries."),
    ),
    answer=page_schema("maintenances", MAINTENANCE.schema(), paged="integer"),
)
async def list_maintenances(call: ApiCall) -> ApiResponse:
    """List maintenances, newest first."""
    limit = call.query.get("limit", PAGE_MAX)
    before = call.query.get("before", 0)
    maintenances = await call.control.look_up(lambda store: store.maintenances.page(before, limit))
    wanted = call.query.get("live", False)
    views = [await find_view(call, each.number) for each in maintenances if each.live or not wanted]
    following = maintenances[-1].number if len(maintenances) == limit else None
    return ApiResponse({"maintenances": MAINTENANCE.each(views), "next": following})


@Route("GET /v1/maintenances/{id}", Permission.READ_FLEET, answer=_FULL)
async def get_maintenance(call: ApiCall) -> ApiResponse:
    """Read one maintenance with its waves and blockers."""
    view = await find_view(call, number_of(call))
    number = view.maintenance.number
    work = await call.control.look_up(lambda store: store.maintenances.work(number))
    now_ms = call.control.clock.now_ms()
    hosts = set(view.maintenance.hosts if view.maintenance.live else ())
    hosts.difference_update(each.host for each in work)

    def consent(state: StateView) -> dict[str, object]:
        answers = APPROVAL.each(approvals(state, number, now_ms))
        return {"approvals": answers, "not_asked": unasked_groups(state, hosts)}

    answers = await call.control.read(consent)
    return await call.encode(lambda: {**_full(view, work), **answers})


def _full(view: MaintenanceView, work: list[HostWork]) -> dict[str, object]:
    plan = view.shown_plan
    blocked = plan.body.blocked if plan else ()
    touched = {each.host for each in work}
    maintenance = MAINTENANCE.of(view)
    return {
        "maintenance": maintenance,
        "waves": WAVE.each(_waves(view, work)),
        "blocked": BLOCKER.each(Waits(name, each) for name, each in blocked if name not in touched),
        "waits_for": maintenance["waits_for"],
    }


def _waves(view: MaintenanceView, work: list[HostWork]) -> list[WaveView]:
    """Return past and future waves; O(hosts)."""
    planned = {wave.number: wave for wave in view.shown_plan.waves} if view.shown_plan else {}
    touched = {each.host for each in work}
    by_wave: dict[int, list[HostWork]] = {}
    for each in work:
        by_wave.setdefault(each.wave, []).append(each)
    waves = []
    for number in sorted({*by_wave, *planned}):
        wave, of_wave = planned.get(number), tuple(by_wave.get(number, ()))
        left = tuple(host for host in wave.hosts if host not in touched) if wave else ()
        states = {each.state for each in of_wave}
        if HostState.RUNNING in states:
            state = "running"
        elif HostState.ANNOUNCED in states:
            state = "announced"
        else:
            begun = number == view.maintenance.wave and left  # remaining hosts are announced next
            state = "over" if of_wave and not begun else "planned"
        wave = wave if state != "over" else None
        waits = wave.waits if wave and not isinstance(view.maintenance.phase, Halted) else None
        waves.append(WaveView(number, state, of_wave, left, wave, waits))
    return waves


@Route(
    "GET /v1/maintenances/{id}/hosts",
    Permission.READ_FLEET,
    query=(
        Field("after", NAME, "Only hosts whose names sort after this name."),
        Field("limit", Integer(1, HOSTS_PAGE_MAX), "Maximum number of entries."),
    ),
    answer=page_schema("hosts", HOST_WORK.schema(), paged="string"),
)
async def list_maintenance_hosts(call: ApiCall) -> ApiResponse:
    """List the hosts of a maintenance by name, with their states.

    It costs O(hosts of the maintenance).
    """
    maintenance = (await find_view(call, number_of(call))).maintenance
    limit, after = call.query.get("limit", HOSTS_PAGE_MAX), call.query.get("after", "")
    host_work = await call.control.look_up(
        lambda store: store.maintenances.work(maintenance.number)
    )
    work = {each.host: each for each in host_work}
    names = [host for host in maintenance.hosts if host > after][: limit + 1]
    known = (await call.control.fleet()).hosts
    hosts = HOST_WORK.each((host, work.get(host), known.get(host)) for host in names[:limit])
    following = names[limit - 1] if len(names) > limit else None
    return ApiResponse({"hosts": hosts, "next": following})
