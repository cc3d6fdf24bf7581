"""Request forms of maintenances, and the hosts that a form selects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.api import request_forms as forms
from forewarn.core import stimulus as stimuli
from forewarn.core.impact import DURATION_S_MAX, TRAITS, TargetKind
from forewarn.core.maintenance import HOSTS_MAX
from forewarn.core.naming import select
from forewarn.core.refusals import MaintenanceInvalid
from forewarn.planning.policy import Budget, Scope
from forewarn.validation.durations import read_time_ms
from forewarn.validation.fields import NAME, Boolean, Choice, Duration, Integer, Text, Timestamp
from forewarn.validation.forms import Field, Form, ListOf

if TYPE_CHECKING:
    from forewarn.api.routes import ApiCall
    from forewarn.core.topology import Topology

#: Maximum failures, priority and hosts at once in a form.
COUNT_MAX = 1_000_000

_CAUSES = Choice(
    {
        cause.value: cause
        for cause, traits in TRAITS.items()
        if traits.routine and traits.target is TargetKind.HOST
    }
)
MAINTENANCE_FORM = Form(
    "MaintenanceForm",
    "A maintenance: its hosts, its cause and its options.",
    (
        Field("cause", _CAUSES, "Cause of the work on each host.", required=True),
        Field("hosts", ListOf(NAME, HOSTS_MAX, 1), "Names of hosts."),
        Field("selector", Text(), "Selector of hosts, such as zone=2, instead of names."),
        Field("all", Boolean(), "Whether to select every host of the fleet, instead of names."),
        Field(
            "duration",
            Duration(1, DURATION_S_MAX),
            "Duration of the work on each host.",
            required=True,
        ),
        Field(
            "move_vms",
            Duration(1, DURATION_S_MAX),
            "Time in which VMs leave a host before its work starts.",
        ),
        Field(
            "return_vms",
            Boolean(),
            "Whether VMs that left a host return to it after its work (default: they stay away).",
        ),
        Field("impact", forms.IMPACTS, "Impact shown to VMs, if the cause allows several impacts."),
        Field("reason", Text(forms.REASON_LENGTH_MAX), "Reason, for operators."),
        Field("description", Text(), "Description shown to VMs instead of the default."),
        Field("earliest_start", Timestamp(), "Earliest start."),
        Field("deadline", Timestamp(), "Time at which the last host must be done."),
        Field("priority", Integer(0, COUNT_MAX), "Maintenances with a higher number come first."),
        Field("max_at_once", Integer(1, COUNT_MAX), "Maximum number of hosts disturbed at a time."),
        Field(
            "max_failures",
            Integer(0, COUNT_MAX),
            "Hosts that may fail before the maintenance stops (default: the policy's number).",
        ),
        Field("gate", NAME, "Gate from the settings, checked after each wave."),
        Field("canary_hosts", ListOf(NAME, HOSTS_MAX), "Number of hosts in the first wave."),
    ),
)
PAUSE_FORM = Form(
    "PauseForm",
    "Reason of the pause, and whether announced hosts stay announced.",
    (
        Field("reason", Text(forms.REASON_LENGTH_MAX), "Reason of the pause, as text."),
        Field("keep_announced", Boolean(), "Whether announced hosts stay announced."),
    ),
)
_POSTPONING = (
    Field("until", Timestamp(), "New earliest start of the hosts.", required=True),
    Field("reason", Text(forms.REASON_LENGTH_MAX), "Reason, for operators."),
    Field("by", NAME, "The requesting principal (default: the caller)."),
)
POSTPONE_FORM = Form(
    "PostponeForm",
    "The hosts to postpone, the new earliest start, and the reason.",
    (Field("hosts", ListOf(NAME, HOSTS_MAX, 1), "Names of hosts.", required=True), *_POSTPONING),
)
POSTPONE_EVENT_FORM = Form(
    "PostponeEventForm", "The new earliest start of the event's host, and the reason.", _POSTPONING
)


def postponing_of(call: ApiCall, maintenance: int, hosts: tuple[str, ...]) -> stimuli.PostponeHosts:
    """Convert a form to a request for a later start."""
    form = call.form
    until_ms = read_time_ms(form["until"], call.control.clock.now_ms())
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


async def asked_of(call: ApiCall) -> stimuli.CreateMaintenance:
    """Return the requested maintenance; O(fleet) for a form with a selector."""
    form, now_ms = call.form, call.control.clock.now_ms()
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
        earliest_ms=read_time_ms(form["earliest_start"], now_ms)
        if "earliest_start" in form
        else None,
        deadline_ms=read_time_ms(form["deadline"], now_ms) if "deadline" in form else None,
        priority=form.get("priority", 0),
        budgets=(Budget(Scope.FLEET, at_once),) if at_once else (),
        canary_hosts=tuple(form.get("canary_hosts", ())),
        gate=form.get("gate", ""),
        max_failures=form.get("max_failures", policy.max_failures),
        move_s=form.get("move_vms", 0),
        return_vms=form.get("return_vms", False),
    )
