"""Maintenance configurations and their assignments: windows of the maintenance policy. Source: Z-7.

A configuration is a window of the policy with the name `SUBSCRIPTION..RESOURCE-GROUP..NAME`. The
window applies to each host with a VM of an assigned group. Settings that a window cannot
express are refused.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from forewarn.azure.details import details, refuse
from forewarn.azure.json_values import JsonObject, member, text_of
from forewarn.azure.refusals import ArmNotSupported, ArmResourceUnknown
from forewarn.azure.routes import (
    COMPUTE,
    RESOURCE_GROUP,
    SUBSCRIPTION,
    ArmCall,
    ArmResponse,
    ArmRoutes,
    missing_is_deleted,
)
from forewarn.azure.vm_values import provider_id
from forewarn.core.access import Permission
from forewarn.core.stimulus import ApplyPolicy
from forewarn.core.topology import Group
from forewarn.planning.policy import MaintenancePolicy
from forewarn.planning.windows import Window, WindowInvalid
from forewarn.validation.fields import NAME, ValidationFailed
from forewarn.values import replace

_MAINTENANCE = "/providers/Microsoft.Maintenance"
_CONFIGURATIONS = f"{_MAINTENANCE}/maintenanceConfigurations"
_CONFIGURATION = f"{RESOURCE_GROUP}{_CONFIGURATIONS}/{{configuration}}"
_ASSIGNMENTS = f"{_MAINTENANCE}/configurationAssignments"
_OF_RESOURCE = f"{RESOURCE_GROUP}{COMPUTE}/{{kind}}/{{resource}}{_ASSIGNMENTS}"
_ONE = f"{_OF_RESOURCE}/{{assignment}}"
_ID = re.compile(
    f"/subscriptions/([^/]+)/resourceGroups/([^/]+){_CONFIGURATIONS}/([^/]+)".replace(".", r"\."),
    re.IGNORECASE,
)
ROUTES = ArmRoutes()
#: Separator of the parts of a window's name; no part contains it.
_SEPARATOR = ".."
_WINDOW = ("properties", "maintenanceWindow")
#: Members of a configuration that define the window. Other members must repeat the shown value.
_APPLIED = frozenset(
    (*_WINDOW, name)
    for name in ("startDateTime", "expirationDateTime", "duration", "timeZone", "recurEvery")
)
_FOREVER = "9999-12-31"
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_RECURRENCE = re.compile(r"1?\s*(Day|Week)s?\s*([A-Za-z, ]*)", re.IGNORECASE)
_DURATION = re.compile(r"([0-9]{1,2}):([0-5][0-9])")
_DAY_MIN = 24 * 60
#: Names of time zones in Windows and Azure -> IANA names, which requests may also use.
_ZONES = {
    "UTC": "UTC",
    "GMT Standard Time": "Europe/London",
    "W. Europe Standard Time": "Europe/Berlin",
    "Romance Standard Time": "Europe/Paris",
    "Central Europe Standard Time": "Europe/Budapest",
    "Central European Standard Time": "Europe/Warsaw",
    "E. Europe Standard Time": "Europe/Chisinau",
    "FLE Standard Time": "Europe/Kyiv",
    "GTB Standard Time": "Europe/Bucharest",
    "Russian Standard Time": "Europe/Moscow",
    "Turkey Standard Time": "Europe/Istanbul",
    "Israel Standard Time": "Asia/Jerusalem",
    "Arab Standard Time": "Asia/Riyadh",
    "Arabian Standard Time": "Asia/Dubai",
    "South Africa Standard Time": "Africa/Johannesburg",
    "India Standard Time": "Asia/Kolkata",
    "SE Asia Standard Time": "Asia/Bangkok",
    "Singapore Standard Time": "Asia/Singapore",
    "China Standard Time": "Asia/Shanghai",
    "Korea Standard Time": "Asia/Seoul",
    "Tokyo Standard Time": "Asia/Tokyo",
    "AUS Eastern Standard Time": "Australia/Sydney",
    "New Zealand Standard Time": "Pacific/Auckland",
    "Eastern Standard Time": "America/New_York",
    "Central Standard Time": "America/Chicago",
    "Mountain Standard Time": "America/Denver",
    "US Mountain Standard Time": "America/Phoenix",
    "Pacific Standard Time": "America/Los_Angeles",
    "E. South America Standard Time": "America/Sao_Paulo",
}


def _alone(act: Callable[[ArmCall], Awaitable[ArmResponse]]) -> Callable[..., Any]:
    """Return a handler that locks the policy while it runs."""

    @wraps(act)
    async def alone(call: ArmCall) -> ArmResponse:
        async with call.resources.policy_lock:
            return await act(call)

    return alone


# --- configurations -------------------------------------------------------------------------------


@ROUTES.serve(f"GET {RESOURCE_GROUP}{_CONFIGURATIONS}")
@ROUTES.serve(f"GET {SUBSCRIPTION}{_CONFIGURATIONS}")
async def _list(call: ArmCall) -> ArmResponse:
    """List maintenance configurations (policy windows)."""
    subscription, group = await call.scope()
    place = _SEPARATOR.join((subscription, group.lower())) if group else subscription
    begin = (place + _SEPARATOR).lower()
    windows = (each for each in (await _policy(call)).windows if each.groups is not None)
    here = [each for each in windows if each.name.startswith(begin)]
    return ArmResponse({"value": [await _shown(call, each) for each in here]})


@ROUTES.serve(f"GET {_CONFIGURATION}")
async def _get(call: ArmCall) -> ArmResponse:
    """Read a maintenance configuration."""
    return ArmResponse(await _shown(call, await _window(call, _name(call))))


@ROUTES.serve(f"PUT {_CONFIGURATION}", needs=Permission.OPERATE)
@_alone
async def _put(call: ArmCall) -> ArmResponse:
    """Create or change a configuration (a policy window)."""
    await call.resources.check_place(call.place)
    name = NAME.read(_name(call), "The name")
    known = next((each for each in (await _policy(call)).windows if each.name == name), None)
    call.check_condition(present=known is not None)
    before = known or Window(name, groups=(), first_date="2000-01-01")
    return ArmResponse(await _changed(call, before), 200 if known else 201)


@ROUTES.serve(f"PATCH {_CONFIGURATION}", needs=Permission.OPERATE)
@_alone
async def _patch(call: ArmCall) -> ArmResponse:
    """Change one."""
    return ArmResponse(await _changed(call, await _window(call, _name(call))))


async def _changed(call: ArmCall, before: Window) -> JsonObject:
    shown = await _shown(call, before)
    reason = "Forewarn has no such setting"
    refuse(details(call.json, shown, _APPLIED), call.path["configuration"], reason)
    given = {**member(shown, *_WINDOW), **(member(call.json, *_WINDOW) or {})}
    window = _window_of(before, given)
    await _apply(call, before.name, window)
    return await _shown(call, window)


@ROUTES.serve(f"DELETE {_CONFIGURATION}", needs=Permission.OPERATE)
@_alone
@missing_is_deleted
async def _delete(call: ArmCall) -> ArmResponse:
    """Delete a configuration and its assignments."""
    window = await _window(call, _name(call))
    await _apply(call, window.name, None)
    return ArmResponse()


def _window_of(before: Window, given: JsonObject) -> Window:
    """Return a window with the times of a configuration.

    The window opens for the last time before the configuration expires.

    Raises:
        ValidationFailed: a member is malformed, or a window cannot express the member.
    """
    starts = _moment(text_of(given, "startDateTime"), "startDateTime")
    ends = _moment(text_of(given, "expirationDateTime") or _FOREVER, "expirationDateTime")
    zone = text_of(given, "timeZone") or "UTC"
    from_min = starts.hour * 60 + starts.minute
    to_min = from_min + _length_min(text_of(given, "duration"))
    if to_min > _DAY_MIN:
        to_min -= _DAY_MIN
    last_day = ends.date() - dt.timedelta(days=ends.time() <= starts.time())
    last = last_day.isoformat()
    try:
        return replace(
            before,
            time_zone=_ZONES.get(zone, zone),
            weekdays=_weekdays(text_of(given, "recurEvery"), starts.weekday()),
            from_min=from_min,
            to_min=to_min,
            first_date=starts.date().isoformat(),
            last_date="" if ends.date().isoformat() == _FOREVER else last,
        )
    except WindowInvalid as error:
        where = ".".join(_WINDOW)
        raise ValidationFailed(
            where=where, problem=f"is wrong: {error.facts['problem']}"
        ) from error


def _moment(text: str, where: str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is not None:
        problem = "must be local time such as 2030-01-31 22:00"
        raise ValidationFailed(where=where, problem=problem)
    return moment


def _length_min(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    minutes = int(match[1]) * 60 + int(match[2]) if match else 0
    if not 0 < minutes <= _DAY_MIN:
        problem = "must be hours and minutes, at most 24:00, such as 05:00"
        raise ValidationFailed(where="duration", problem=problem)
    return minutes


def _weekdays(text: str, first: int) -> tuple[int, ...]:
    """Return the weekdays of a recurrence that begins on the weekday `first`."""
    match = _RECURRENCE.fullmatch(text.strip())
    names = [each.strip().title() for each in match[2].split(",") if each.strip()] if match else []
    daily = match is not None and match[1].title() == "Day"
    if match is None or not set(names) <= set(_DAYS) or (daily and names):
        problem = "must be Day, or Week with weekdays such as Week Saturday,Sunday"
        raise ValidationFailed(where="recurEvery", problem=problem)
    if daily:
        return tuple(range(7))
    return tuple(sorted({_DAYS.index(each) for each in names})) or (first,)


async def _shown(call: ArmCall, window: Window) -> JsonObject:
    subscription, group, name = window.name.split(_SEPARATOR, 2)
    inventory = await call.resources.inventory()
    locations = [vm.location for vm in inventory.vms(subscription) if vm.location]
    every = "Day"
    if len(window.weekdays) < len(_DAYS):
        every = "Week " + ",".join(_DAYS[each] for each in window.weekdays)
    zones = {iana: windows for windows, iana in _ZONES.items()}
    return {
        "id": f"/subscriptions/{subscription}/resourceGroups/{group}{_CONFIGURATIONS}/{name}",
        "name": name,
        "type": "Microsoft.Maintenance/maintenanceConfigurations",
        "location": locations[0] if locations else member(call.json, "location") or "",
        "properties": {
            "namespace": "Microsoft.Maintenance",
            "maintenanceScope": "Host",
            "visibility": "Custom",
            "maintenanceWindow": {
                "startDateTime": f"{window.first_date} {_time(window.from_min)}",
                "expirationDateTime": f"{window.last_date or _FOREVER} 23:59",
                "duration": _time(window.length_min),
                "timeZone": zones.get(window.time_zone, window.time_zone),
                "recurEvery": every,
            },
        },
    }


def _time(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _name(call: ArmCall) -> str:
    place = call.place
    parts = (place.subscription, place.resource_group, call.path["configuration"])
    return _joined(*parts)


def _joined(*parts: str) -> str:
    if any(_SEPARATOR in each for each in parts):
        raise ValidationFailed(where="The name", problem="must not contain two dots in a row")
    return _SEPARATOR.join(parts).lower()


async def _window(call: ArmCall, name: str) -> Window:
    """Return the window of a configuration; raises ArmResourceUnknown if it does not exist."""
    for window in (await _policy(call)).windows:
        if window.name == name and window.groups is not None:
            return window
    kind, known = "Microsoft.Maintenance/maintenanceConfigurations", name.split(_SEPARATOR)
    raise ArmResourceUnknown(kind=kind, name=known[-1][:128], resource_group=known[1][:128])


async def _policy(call: ArmCall) -> MaintenancePolicy:
    return await call.control.read(lambda view: view.maintenance_policy)


async def _apply(call: ArmCall, name: str, window: Window | None) -> None:
    """Replace or remove a window of the policy."""
    policy = await _policy(call)
    windows = [each for each in policy.windows if each.name != name]
    windows += [window] if window else []
    await call.control.submit(ApplyPolicy(replace(policy, windows=tuple(windows))), call.actor)


# --- assignments ----------------------------------------------------------------------------------


@ROUTES.serve(f"GET {_OF_RESOURCE}")
async def _assignments(call: ArmCall) -> ArmResponse:
    """List the assignments of a VM or set."""
    group = await _group(call)
    policy = await _policy(call)
    windows = [each for each in policy.windows if group.name in (each.groups or ())]
    return ArmResponse({"value": [_assignment(call, each) for each in windows]})


@ROUTES.serve(f"GET {_ONE}")
async def _assigned(call: ArmCall) -> ArmResponse:
    """Read an assignment."""
    return ArmResponse(_assignment(call, await _assigned_window(call)))


@ROUTES.serve(f"PUT {_ONE}", needs=Permission.OPERATE)
@_alone
async def _assign(call: ArmCall) -> ArmResponse:
    """Assign a configuration to a VM's group or a set.

    The window of the configuration opens for the hosts with VMs of the group.
    """
    group = await _group(call)
    match = _ID.fullmatch(text_of(call.json, "properties", "maintenanceConfigurationId"))
    if match is None:
        where = "properties.maintenanceConfigurationId"
        raise ValidationFailed(where=where, problem="must be the id of a maintenance configuration")
    window = await _window(call, _joined(*match.groups()))
    shown = _assignment(call, window)
    if call.path["assignment"].lower() != shown["name"]:
        reason = f"an assignment has the name of its configuration, {shown['name']}"
        raise ArmNotSupported(action="Assignment", name=call.path["assignment"], reason=reason)
    applied = (("location",), ("properties", "maintenanceConfigurationId"))
    refuse(details(call.json, shown, applied), shown["name"], "Forewarn has no such setting")
    groups = window.groups or ()
    if group.name not in groups:
        await _apply(call, window.name, replace(window, groups=(*groups, group.name)))
    return ArmResponse(shown, 200 if group.name in groups else 201)


@ROUTES.serve(f"DELETE {_ONE}", needs=Permission.OPERATE)
@_alone
@missing_is_deleted
async def _unassign(call: ArmCall) -> ArmResponse:
    """Delete an assignment."""
    group, window = await _group(call), await _assigned_window(call)
    left = tuple(each for each in window.groups or () if each != group.name)
    await _apply(call, window.name, replace(window, groups=left))
    return ArmResponse(_assignment(call, window))


async def _assigned_window(call: ArmCall) -> Window:
    group, name = await _group(call), call.path["assignment"].lower()
    for window in (await _policy(call)).windows:
        if group.name in (window.groups or ()) and window.name.endswith(_SEPARATOR + name):
            return window
    kind = "Microsoft.Maintenance/configurationAssignments"
    raise await call.resources.unknown(kind, call.path["assignment"], call.place)


def _assignment(call: ArmCall, window: Window) -> JsonObject:
    subscription, group, name = window.name.split(_SEPARATOR, 2)
    resource = provider_id(call.place, call.path["kind"], call.path["resource"])
    place = f"/subscriptions/{subscription}/resourceGroups/{group}"
    return {
        "id": f"{resource}{_ASSIGNMENTS}/{name}",
        "name": name,
        "type": "Microsoft.Maintenance/configurationAssignments",
        "properties": {
            "maintenanceConfigurationId": f"{place}{_CONFIGURATIONS}/{name}",
            "resourceId": resource,
        },
    }


async def _group(call: ArmCall) -> Group:
    """Return the group of the VM or set in the path."""
    kind, name = call.path["kind"].lower(), call.path["resource"]
    group = (await call.resources.inventory()).group_at(call.place, kind, name)
    if group is None:
        raise await call.resources.unknown(f"Microsoft.Compute/{kind}", name, call.place)
    return group
