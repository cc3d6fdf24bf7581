"""Routes of the maintenance policy and its windows' open times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import partial

from forewarn_base.errors import ForewarnError
from forewarn_base.protocol import timestamps
from forewarn_base.time_zones import zone_of
from forewarn_base.validation.durations import written
from forewarn_base.validation.fields import NAME, Boolean, Choice, Integer
from forewarn_base.validation.forms import Field
from forewarn_base.validation.json_reader import JSON
from forewarn_base.values import replace
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.maintenance import Maintenance, MaintenancePlan, MaintenanceState
from forewarn_core.fleet.refusals import Unknown
from forewarn_core.fleet.stimulus import ApplyPolicy
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.local_time import Span, Window, open_spans, without
from forewarn_server.api.file_process import POLICY_FILE, read_file
from forewarn_server.api.maintenance_schemas import MaintenanceView
from forewarn_server.api.policy_file import POLICY, policy_form, policy_of, written_policy
from forewarn_server.api.routes import ApiCall, ApiResponse, Route
from forewarn_server.api.schemas import FLAG, TEXT, TIME, WHOLE, described, list_of, object_schema
from forewarn_server.api.topology_file import READERS
from forewarn_server.control.plane import StateView
from forewarn_server.control.planning import PlannerTask, task_under

#: Maximum number of maintenances that a dry run plans by the new policy, the oldest first.
PLANNED_MAX = 10
#: Maximum and default number of days of open time in a response.
DAYS_MAX, DAYS = 366, 7
DAY_MS = 86_400_000

_MEMBERS = {
    "window": "Name of the window; empty if no window applies.",
    "hosts": "Selector of the window's hosts; empty: every host.",
    "time_zone": "IANA name of the window's time zone.",
    "opens": "Start of the open time in UTC.",
    "closes": "End of the open time in UTC.",
    "local_opens": "Start of the open time, in the window's time zone.",
    "local_closes": "End of the open time, in the window's time zone.",
}
_SPAN = object_schema(**{name: described(TEXT, text) for name, text in _MEMBERS.items()})
_NEW_PLAN = object_schema(
    id=TEXT,
    expected_end=described(TIME, "Latest end of the plan in force; null: unknown."),
    new_end=described(TIME, "Latest end of a plan by the new policy; null: no host can be done."),
    new_blocked=described(WHOLE, "Hosts that cannot be done by the new policy."),
)


@Route(
    "PUT /v1/policy",
    Permission.OPERATE,
    query=(Field("dry_run", Boolean(), "Return the changes without applying them."),),
    takes=tuple(READERS),
    taken=POLICY.schema(),
    answer=object_schema(
        changed=list_of(TEXT), applied=FLAG, policy=POLICY.schema(), maintenances=list_of(_NEW_PLAN)
    ),
)
async def apply_policy(call: ApiCall) -> ApiResponse:
    """Replace the maintenance policy. A dry run also plans live maintenances by the new policy."""
    policy = await call.control.read_file(partial(_read, call))
    before = await call.control.read(_in_force)
    applied = not call.query.get("dry_run", False)
    planned: list[dict[str, object]] = []
    if applied:
        await call.control.submit(ApplyPolicy(policy), call.actor)
    elif policy != before:
        planned = await _plan_effects(call, policy)
    was, form = policy_form(before), policy_form(policy)
    changed = [name for name in dict.fromkeys((*was, *form)) if was.get(name) != form.get(name)]
    return ApiResponse(
        {"changed": changed, "applied": applied, "policy": form, "maintenances": planned}
    )


def _read(call: ApiCall) -> MaintenancePolicy:
    return policy_of(read_file(POLICY_FILE, call.body, call.media))


async def _plan_effects(call: ApiCall, policy: MaintenancePolicy) -> list[dict[str, object]]:
    """Return the effect of a policy on live maintenances, until planning takes too long."""
    now_ms = call.control.clock.now_ms()

    def live(view: StateView) -> list[Maintenance]:
        maintenances = view.state.maintenances.values()
        return [
            each for each in maintenances if each.running or each.state is MaintenanceState.DRAFT
        ]

    planned: list[dict[str, object]] = []
    for maintenance in (await call.control.read(live))[:PLANNED_MAX]:

        def take(
            view: StateView, maintenance: Maintenance = maintenance
        ) -> tuple[PlannerTask, MaintenancePlan | None]:
            task = task_under(view.state, maintenance, policy, policy=view.policy, now_ms=now_ms)
            return task, view.state.plans.get(maintenance.plan)

        try:
            task, in_force = await call.control.read(take)
            task = replace(task, patience_s=call.control.answer_timeout_s)
            make = partial(call.control.writer.planner.make, task)
            body = (await call.control.compute(make)).body
        except ForewarnError:  # it took too long, or planning failed
            break
        planned.append(
            {
                "id": maintenance.id,
                "expected_end": written(MaintenanceView(maintenance, in_force).expected_end_ms),
                "new_end": written(body.waves[-1].latest_end_ms if body.waves else 0),
                "new_blocked": len(body.blocked),
            }
        )
    return planned


@Route(
    "GET /v1/policy",
    Permission.READ_FLEET,
    query=(
        Field(
            "format",
            Choice({name: media for media, name in READERS.items()}),
            "Format of the file (default: json).",
        ),
    ),
    answer=POLICY.schema(),
    gives=(JSON, *(media for media in READERS if media != JSON)),
)
async def export_policy(call: ApiCall) -> ApiResponse:
    """Export the maintenance policy in force in the format that `PUT` accepts."""
    media = call.query.get("format", JSON)
    policy = await call.control.read(_in_force)
    return ApiResponse(written_policy(policy, media), media=media)


@Route(
    "GET /v1/windows",
    Permission.READ_FLEET,
    query=(
        Field("days", Integer(1, DAYS_MAX), "Number of days (default: 7)."),
        Field("host", NAME, "Only open times of this host."),
    ),
    answer=object_schema(**{"from": TEXT, "to": TEXT, "spans": list_of(_SPAN)}),
)
async def list_open_time(call: ApiCall) -> ApiResponse:
    """List the open times of maintenance windows in the coming days.

    Source: F-7.
    """
    name, days = call.query.get("host", ""), call.query.get("days", DAYS)
    start_ms = call.control.clock.now_ms()
    span = (start_ms, start_ms + days * DAY_MS)
    policy = await call.control.read(_in_force)
    words = await call.control.read(lambda view: _words(view, name)) if name else None
    spans = await call.control.compute(lambda: open_time(policy, span, words=words))
    ends = {"from": timestamps.iso8601(span[0]), "to": timestamps.iso8601(span[1])}
    return ApiResponse({**ends, "spans": spans})


def open_time(
    policy: MaintenancePolicy, span: Span, *, words: frozenset[str] | None = None
) -> list[dict[str, str]]:
    """Return the open spans, without freezes, of each window or of one host's windows.

    Args:
        policy: the policy with its windows and freezes.
        span: ms since the epoch UTC.
        words: zone, labels and groups of a host; None: return all windows.
    """
    windows: Sequence[Window | None] = policy.windows if words is None else policy.windows_of(words)
    spans = []
    for window in windows or (None,):
        opened = open_spans([window] if window else [], *span)
        for opens_ms, closes_ms in without(opened, policy.freezes):
            zone = window.time_zone if window else "UTC"
            spans.append(
                (
                    opens_ms,
                    {
                        "window": window.name if window else "",
                        "hosts": ",".join(window.hosts) if window else "",
                        "time_zone": zone,
                        "opens": timestamps.iso8601(opens_ms),
                        "closes": timestamps.iso8601(closes_ms),
                        "local_opens": _local(opens_ms, zone),
                        "local_closes": _local(closes_ms, zone),
                    },
                )
            )
    spans.sort(key=lambda each: (each[0], each[1]["window"]))
    return [form for _, form in spans]


def _local(at_ms: int, zone: str) -> str:
    return dt.datetime.fromtimestamp(at_ms // 1000, zone_of(zone)).isoformat()


def _in_force(view: StateView) -> MaintenancePolicy:
    return view.maintenance_policy


def _words(view: StateView, name: str) -> frozenset[str]:
    if name not in view.state.topology.hosts:
        raise Unknown(kind="host", name=name)
    return view.state.topology.words_on(name)
