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

from tzlocal.windows_tz import win_tz

from forewarn_azure.details import details, refuse
from forewarn_azure.json_values import JsonObject, member, text_of
from forewarn_azure.refusals import ArmNotSupported, ArmResourceUnknown
from forewarn_azure.routes import (
    COMPUTE,
    RESOURCE_GROUP,
    SUBSCRIPTION,
    ArmCall,
    ArmResponse,
    ArmRoutes,
    missing_is_deleted,
)
from forewarn_azure.vm_values import provider_id, read_tags
from forewarn_base.errors import CallerError
from forewarn_base.time_zones import zone_of
from forewarn_base.validation.fields import NAME, ValidationFailed
from forewarn_base.values import replace
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.stimulus import ApplyPolicy
from forewarn_core.fleet.topology import Group
from forewarn_core.planning.policy import MaintenancePolicy
from forewarn_core.rules.local_time import (
    EVERY_MAX,
    PLACES,
    WEEKDAYS,
    Unit,
    Window,
    WindowInvalid,
    is_month_day,
)

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
) | {("tags",)}
_FOREVER = "9999-12-31 23:59"
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DURATION = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
#: Duration of a configuration that names none.
_DURATION_DEFAULT = "05:00"
_DAY_MIN = 24 * 60
_MINUTE = dt.timedelta(minutes=1)
_FOREVER_TIME = dt.datetime.fromisoformat(_FOREVER)
#: Names of time zones in Windows and Azure, in small letters -> IANA names, which requests may use
#: too; and the other way round.
_IANA = {windows.lower(): iana for windows, iana in win_tz.items()} | {"utc": "UTC"}
_WINDOWS_NAMES = {iana: windows for windows, iana in win_tz.items()} | {"UTC": "UTC"}


class MaintenanceWindowInvalid(CallerError):
    """The maintenance window of a configuration cannot be. Source: Z-7."""

    code = "arm-window-invalid"
    message = "{where} {problem}."
    advice = "Correct the maintenanceWindow of the configuration."


def _wrong(where: str, problem: str) -> MaintenanceWindowInvalid:
    return MaintenanceWindowInvalid(where=f"maintenanceWindow.{where}", problem=problem)


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
    groups = known.groups if known else ()
    before = Window(name, groups=groups, first_date="2000-01-01")
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
    window = before
    given = member(call.json, *_WINDOW)
    if given is not None:
        default = {"duration": _DURATION_DEFAULT} if call.method == "PUT" else {}
        window = window_of(before, {**member(shown, *_WINDOW), **default, **given})
    if (tags := member(call.json, "tags")) is not None:
        window = replace(window, tags=read_tags(tags))
    await _replace_window(call, before.name, window)
    return await _shown(call, window)


@ROUTES.serve(f"DELETE {_CONFIGURATION}", needs=Permission.OPERATE)
@_alone
@missing_is_deleted
async def _delete(call: ArmCall) -> ArmResponse:
    """Delete a configuration and its assignments."""
    window = await _window(call, _name(call))
    await _replace_window(call, window.name, None)
    return ArmResponse()


def window_of(before: Window, given: JsonObject) -> Window:
    """Return a window with the times of a configuration; it opens before the expiry only.

    Raises:
        MaintenanceWindowInvalid: a member is malformed, or the times contradict one another.
    """
    starts = _moment(given, "startDateTime")
    ends = _moment({"expirationDateTime": _FOREVER, **given}, "expirationDateTime")
    if ends <= starts:
        raise _wrong("expirationDateTime", "must be after startDateTime")
    zone_name = text_of(given, "timeZone") or "UTC"
    zone = _IANA.get(zone_name.lower(), zone_name)
    from_min = starts.hour * 60 + starts.minute
    to_min = from_min + _length_min(text_of(given, "duration"))
    try:
        window = replace(
            before,
            time_zone=zone,
            from_min=from_min,
            to_min=to_min - _DAY_MIN if to_min > _DAY_MIN else to_min,
            first_date=starts.date().isoformat(),
            last_date=""
            if ends.date() == _FOREVER_TIME.date()
            else f"{ends - _MINUTE:%Y-%m-%d %H:%M}",
            **_recurrence(text_of(given, "recurEvery"), starts.weekday()),
        )
    except WindowInvalid as error:
        raise _wrong("timeZone", f"is wrong: {error.facts['problem']}") from error
    if problem := window.contradiction():
        wrong = "recurEvery" if window.is_readable else "timeZone"
        raise _wrong(wrong, f"is wrong: {problem}")
    if not _exists(starts, zone):
        raise _wrong("startDateTime", f"does not exist in {zone_name}: clocks are set forward then")
    return window


def _exists(time: dt.datetime, zone: str) -> bool:
    """Whether a local time exists, unlike those that clocks skip in spring."""
    local = time.replace(tzinfo=zone_of(zone))
    return local.astimezone(dt.UTC).astimezone(local.tzinfo).replace(tzinfo=None) == time


def _moment(given: JsonObject, name: str) -> dt.datetime:
    """Return a local time in whole minutes; seconds have no effect."""
    try:
        moment = dt.datetime.fromisoformat(text_of(given, name).strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is not None:
        raise _wrong(name, "must be local time such as 2030-01-31 22:00")
    return moment.replace(second=0, microsecond=0)


def _length_min(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    minutes = int(match[1]) * 60 + int(match[2]) if match else 0
    if not minutes:
        raise _wrong("duration", "must be hours and minutes, 00:01 to 23:59, such as 05:00")
    return minutes


def _recurrence(text: str, first: int) -> dict[str, object]:
    """Return the period of a window from `Day`, `3Weeks Monday` or `Month Last Sunday Offset-3`.

    `first`: the weekday of the first opening.
    """
    head, *rest = text.replace(",", " ").lower().split() or [""]
    unit = head.lstrip("0123456789")
    number = head.removesuffix(unit) if unit else head
    if not unit and rest:
        unit, *rest = rest
    unit = unit.removesuffix("s")
    problem = (
        "must be Day, 3Days, Week Saturday,Sunday, Month day1,day15, or Month Last Sunday Offset-3"
    )
    if unit not in {each.value for each in Unit} or len(number) > len(str(EVERY_MAX)):
        raise _wrong("recurEvery", problem)
    every, days = int(number or 1), tuple(range(7))
    month_days: tuple[str, ...] = ()
    if unit == "week":
        names = {each.title() for each in rest}
        if not names <= set(_DAYS):
            raise _wrong("recurEvery", problem)
        days = tuple(sorted(map(_DAYS.index, names))) or (first,)
    elif unit == "month":
        month_days = _month_days(rest)
        if not all(map(is_month_day, month_days)):
            raise _wrong("recurEvery", problem)
    elif rest:
        raise _wrong("recurEvery", problem)
    if unit == "day" and every == 1:  # as every weekday
        unit = "week"
    return {"every": every, "unit": Unit(unit), "weekdays": days, "month_days": month_days}


def _month_days(words: list[str]) -> tuple[str, ...]:
    """Return `day1 day15` or `last sunday offset-3` as days of a window; may be malformed."""
    if not words or words[0] not in PLACES:
        return tuple(each.removeprefix("day") for each in words)
    place, weekday, offset = (*words, "", "")[:3]
    known = len(words) <= 3 and weekday.title() in _DAYS and offset[:6] in {"", "offset"}
    distance = offset[6:]
    signed = f"+{distance}" if distance.isdecimal() and distance != "0" else distance
    return (f"{place} {weekday[:3]}{signed.replace('0', '')}" if known else "",)


def _recur_every(window: Window) -> str:
    """Return the period of a window in Azure's words."""
    number = str(window.every) if window.every > 1 else ""
    name = f"{number}{window.unit.value.title()}{'s' if number else ''}"
    if window.unit is Unit.WEEK and len(window.weekdays) == len(_DAYS) and not number:
        return "Day"
    if window.unit is Unit.WEEK:
        return f"{name} {','.join(_DAYS[each] for each in window.weekdays)}"
    return f"{name} {_azure_month_days(window.month_days)}".strip()


def _azure_month_days(words: tuple[str, ...]) -> str:
    numbers = [f"day{each}" for each in words if " " not in each]
    if numbers or not words:
        return ",".join(numbers)
    place, _, weekday = words[0].partition(" ")
    name = _DAYS[WEEKDAYS.index(weekday[:3])]
    offset = f" Offset{weekday[3:].removeprefix('+')}" if weekday[3:] else ""
    return f"{place.title()} {name}{offset}"


async def _shown(call: ArmCall, window: Window) -> JsonObject:
    subscription, group, name = window.name.split(_SEPARATOR, 2)
    inventory = await call.resources.inventory()
    locations = [vm.location for vm in inventory.vms(subscription) if vm.location]
    return {
        "id": f"/subscriptions/{subscription}/resourceGroups/{group}{_CONFIGURATIONS}/{name}",
        "name": name,
        "type": "Microsoft.Maintenance/maintenanceConfigurations",
        "location": locations[0] if locations else member(call.json, "location") or "",
        "tags": dict(window.tags),
        "properties": {
            "namespace": "Microsoft.Maintenance",
            "maintenanceScope": "Host",
            "visibility": "Custom",
            "maintenanceWindow": times_of(window),
        },
    }


def times_of(window: Window) -> JsonObject:
    """Return the `maintenanceWindow` of a configuration."""
    return {
        "startDateTime": f"{window.first_date} {_time(window.from_min)}",
        "expirationDateTime": _expiry(window.last_date),
        "duration": _time(window.length_min),
        "timeZone": _WINDOWS_NAMES.get(window.time_zone, window.time_zone),
        "recurEvery": _recur_every(window),
    }


def _expiry(last: str) -> str:
    """Return the first minute in which a window no longer opens; `last`: its last opening."""
    if not last:
        return _FOREVER
    last_time = dt.datetime.fromisoformat(last if " " in last else f"{last} 23:59")
    return f"{last_time + _MINUTE:%Y-%m-%d %H:%M}"


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


async def _replace_window(call: ArmCall, name: str, window: Window | None) -> None:
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
        await _replace_window(call, window.name, replace(window, groups=(*groups, group.name)))
    return ArmResponse(shown, 200 if group.name in groups else 201)


@ROUTES.serve(f"DELETE {_ONE}", needs=Permission.OPERATE)
@_alone
@missing_is_deleted
async def _unassign(call: ArmCall) -> ArmResponse:
    """Delete an assignment."""
    group, window = await _group(call), await _assigned_window(call)
    left = tuple(each for each in window.groups or () if each != group.name)
    await _replace_window(call, window.name, replace(window, groups=left))
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
