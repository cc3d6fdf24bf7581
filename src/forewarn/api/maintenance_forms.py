"""What operators send about maintenances, and the hosts that a form names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.api import request_forms as forms
from forewarn.core import maintenance_stimuli as stimuli
from forewarn.core.impact import DURATION_S_MAX, TRAITS, TargetKind
from forewarn.core.labels import select
from forewarn.core.maintenance import HOSTS_MAX
from forewarn.core.maintenance_refusals import MaintenanceInvalid
from forewarn.core.policy import maintenance_policy
from forewarn.planning.policy import Budget, Scope
from forewarn.validation.durations import read_time_ms
from forewarn.validation.fields import NAME, Boolean, Choice, Duration, Integer, Text, Timestamp
from forewarn.validation.forms import Field, Form, ListOf

if TYPE_CHECKING:
    from forewarn.api.routes import ApiCall
    from forewarn.core.topology import Topology

#: Most failures, highest priority and most hosts at once that may be given.
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
    "Work on many hosts: which, what and how.",
    (
        Field("cause", _CAUSES, "What is done to each host.", required=True),
        Field("hosts", ListOf(NAME, HOSTS_MAX, 1), "Names of hosts."),
        Field("selector", Text(), "In place of names: zone=2."),
        Field("all", Boolean(), "In place of names: every host of the fleet."),
        Field("duration", Duration(1, DURATION_S_MAX), "Time that each host takes.", required=True),
        Field("impact", forms.IMPACTS, "The impact shown to VMs, where the cause allows a choice."),
        Field("reason", Text(forms.REASON_LENGTH_MAX), "Why, for people."),
        Field("description", Text(), "The text VMs are shown in place of the usual one."),
        Field("earliest_start", Timestamp(), "Nothing starts before."),
        Field("deadline", Timestamp(), "The last host is done by then."),
        Field("priority", Integer(0, COUNT_MAX), "Higher ones come first."),
        Field("max_at_once", Integer(1, COUNT_MAX), "Hosts disturbed at a time in the fleet."),
        Field(
            "max_failures",
            Integer(0, COUNT_MAX),
            "Hosts that may fail before it is stopped; else as the policy says.",
        ),
        Field("gate", NAME, "Gate of the settings that is checked after each wave."),
        Field("canary_hosts", ListOf(NAME, HOSTS_MAX), "Hosts of the first wave."),
    ),
)
PAUSE_FORM = Form(
    "PauseForm",
    "Why, and whether what is announced stays so.",
    (
        Field("reason", Text(forms.REASON_LENGTH_MAX), "The reason, in words."),
        Field("keep_announced", Boolean(), "Whether announced hosts stay announced."),
    ),
)
_POSTPONING = (
    Field("until", Timestamp(), "The work does not start before.", required=True),
    Field("reason", Text(forms.REASON_LENGTH_MAX), "Why, for people."),
    Field("by", NAME, "At whose request; the caller's own if not said."),
)
POSTPONE_FORM = Form(
    "PostponeForm",
    "Which hosts are to be done later, until when, and why.",
    (Field("hosts", ListOf(NAME, HOSTS_MAX, 1), "Names of hosts.", required=True), *_POSTPONING),
)
POSTPONE_EVENT_FORM = Form(
    "PostponeEventForm", "Until when an event is to be postponed, and why.", _POSTPONING
)


def postponing_of(call: ApiCall, maintenance: int, hosts: tuple[str, ...]) -> stimuli.PostponeHosts:
    """Return the request for a later start that a form makes."""
    form = call.form
    until_ms = read_time_ms(form["until"], call.control.clock.now_ms())
    by = form.get("by", call.actor)
    return stimuli.PostponeHosts(maintenance, hosts, until_ms, by, form.get("reason", ""))


def _selected(topology: Topology, call: ApiCall) -> tuple[str, ...]:
    """Return the hosts that a form names, one way or another; costs the fleet."""
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
        raise MaintenanceInvalid(problem="no host is selected")
    return hosts


async def asked_of(call: ApiCall) -> stimuli.CreateMaintenance:
    """Return what a form asks for; costs the fleet where it names hosts by a selector."""
    form, now_ms = call.form, call.control.clock.now_ms()
    hosts = await call.control.read(lambda view: _selected(view.state.topology, call))
    policy = await call.control.read(
        lambda view: maintenance_policy(view.state.applied_policy, view.policy)
    )
    at_once = form.get("max_at_once", 0)
    return stimuli.CreateMaintenance(
        cause=form["cause"],
        hosts=hosts,
        duration_s=form["duration"],
        impact=form.get("impact"),
        reason=form.get("reason", ""),
        description=form.get("description", ""),
        earliest_ms=read_time_ms(form["earliest_start"], now_ms) if "earliest_start" in form else 0,
        deadline_ms=read_time_ms(form["deadline"], now_ms) if "deadline" in form else 0,
        priority=form.get("priority", 0),
        budgets=(Budget(Scope.FLEET, at_once),) if at_once else (),
        canary_hosts=tuple(form.get("canary_hosts", ())),
        gate=form.get("gate", ""),
        max_failures=form.get("max_failures", policy.max_failures),
    )
