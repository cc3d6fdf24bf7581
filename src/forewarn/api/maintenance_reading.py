"""Routes that read maintenances: progress, waves, and the work on each host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from forewarn.api.consent import APPROVAL, approvals, unasked_groups
from forewarn.api.maintenance_schemas import (
    BLOCKER,
    HOST_WORK,
    MAINTENANCE,
    WAVE,
    MaintenanceView,
    Waits,
    WaveView,
)
from forewarn.api.responses import encoded
from forewarn.api.routes import ApiCall, ApiResponse, Route
from forewarn.api.schemas import TEXTS, described, list_of, object_schema, page_schema
from forewarn.core.access import Permission
from forewarn.core.refusals import UnknownMaintenance
from forewarn.core.why import why_maintenance
from forewarn.store.maintenances import HostState, HostWork
from forewarn.validation.fields import NAME, Boolean, Integer, Schema
from forewarn.validation.forms import Field
from forewarn.values import replace

if TYPE_CHECKING:
    from forewarn.control.plane import StateView
    from forewarn.store import Store

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
    return ApiResponse(
        await call.control.compute(lambda: encoded({**_full(view, work), **answers}))
    )


def _full(view: MaintenanceView, work: list[HostWork]) -> dict[str, object]:
    plan = view.plan_in_effect
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
    planned = (
        {wave.number: wave for wave in view.plan_in_effect.waves} if view.plan_in_effect else {}
    )
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
        waves.append(WaveView(number, state, of_wave, left, wave if state != "over" else None))
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
    hosts = HOST_WORK.each((host, work.get(host)) for host in names[:limit])
    following = names[limit - 1] if len(names) > limit else None
    return ApiResponse({"hosts": hosts, "next": following})
