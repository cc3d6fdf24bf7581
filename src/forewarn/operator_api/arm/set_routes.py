"""Routes of scale sets, their instances and availability sets. Source: Z-1.

What becomes of an act is decided in the core.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from forewarn.core.impact import Cause
from forewarn.core.stimulus import ChangeTopology
from forewarn.core.topology import Group, GroupKind
from forewarn.operator_api.arm import operations
from forewarn.operator_api.arm.creation import check_allowed, scaled_out
from forewarn.operator_api.arm.event_settings import with_settings
from forewarn.operator_api.arm.inventory import Place, place_of
from forewarn.operator_api.arm.json_values import member
from forewarn.operator_api.arm.routes import (
    COMPUTE,
    RESOURCE_GROUP,
    SUBSCRIPTION,
    ArmResponse,
    ArmRoute,
)
from forewarn.operator_api.arm.set_values import (
    AVAILABILITY_SETS,
    SCALE_SETS,
    instance_id,
    shown_availability_set,
    shown_instance,
    shown_scale_set,
    shown_set_view,
)
from forewarn.operator_api.arm.vm_routes import POWER, WORK, set_power
from forewarn.operator_api.arm.vm_values import shown_view, with_members
from forewarn.validation.fields import ValidationFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forewarn.core.topology import Vm
    from forewarn.operator_api.arm.inventory import Inventory
    from forewarn.operator_api.arm.json_values import JsonObject
    from forewarn.operator_api.arm.routes import ArmCall

_SETS = RESOURCE_GROUP + COMPUTE + f"/{SCALE_SETS}"
_SET = _SETS + "/{set}"
_INSTANCE = _SET + "/virtualMachines/{instance}"
_AVAILABILITY = RESOURCE_GROUP + COMPUTE + f"/{AVAILABILITY_SETS}"
#: Instances one scale set may be asked to have.
CAPACITY_MAX = 1000


def routes() -> tuple[ArmRoute, ...]:
    """Return the routes of sets."""
    work = dict(WORK) | {"reimageAll": Cause.REIMAGE}
    found = []
    for place, whose in ((_SET, "instances, or all"), (_INSTANCE, "an instance")):
        found += [
            ArmRoute("POST", f"{place}/{action}", f"Work on {whose}: {cause.value}", _work(cause))
            for action, cause in work.items()
        ]
        found += [
            ArmRoute("POST", f"{place}/{action}", "Booked at once, not announced", _power(action))
            for action in POWER
        ]
    return (*_ROUTES, *found)


def _work(cause: Cause) -> Callable[[ArmCall], Awaitable[ArmResponse]]:
    async def act(call: ArmCall) -> ArmResponse:
        _, _, vms = await _targets(call)
        if not vms:
            return ArmResponse()
        answer = await operations.begin(call, cause, vms)
        call.resources.set_power((vm.name for vm in vms), "")
        return answer

    return act


def _power(action: str) -> Callable[[ArmCall], Awaitable[ArmResponse]]:
    async def act(call: ArmCall) -> ArmResponse:
        _, _, vms = await _targets(call)
        set_power(call, action, vms)
        return ArmResponse()

    return act


async def _set(call: ArmCall, kind: GroupKind = GroupKind.SCALE_SET) -> tuple[Inventory, Group]:
    """Return the set a path names; a set without VMs is wherever it is looked for."""
    inventory = await call.resources.inventory()
    group = inventory.group(call.path["set"])
    if group is None or group.kind is not kind or not _is_at(inventory, group, call.place):
        word = SCALE_SETS if kind is GroupKind.SCALE_SET else AVAILABILITY_SETS
        raise await call.resources.unknown(
            f"Microsoft.Compute/{word}", call.path["set"], call.place
        )
    return inventory, group


def _is_at(inventory: Inventory, group: Group, place: Place) -> bool:
    vms = inventory.members(group)
    return not vms or place_of(vms[0]).key == place.key


async def _targets(call: ArmCall) -> tuple[Inventory, Group, tuple[Vm, ...]]:
    """Return the instances that a path or a body names; all where neither does.

    Raises:
        ArmResourceUnknown: one is not there.
    """
    inventory, group = await _set(call)
    by_id = {instance_id(group.name, vm.name).lower(): vm for vm in inventory.members(group)}
    wanted = _wanted(call)
    if wanted is None:
        return inventory, group, tuple(by_id.values())
    for each in wanted:
        if each.lower() not in by_id:
            kind = f"Microsoft.Compute/{SCALE_SETS}/virtualMachines"
            raise await call.resources.unknown(kind, f"{group.name}/{each}", call.place)
    return inventory, group, tuple(by_id[each.lower()] for each in dict.fromkeys(wanted))


def _wanted(call: ArmCall) -> list[str] | None:
    """Return the ids a request names; None: all."""
    if "instance" in call.path:
        return [call.path["instance"]]
    given = call.json.get("instanceIds")
    if given is None or given == ["*"]:
        return None
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ValidationFailed(where="instanceIds", problem="must be a list of strings")
    return given


async def _list_sets(call: ArmCall) -> ArmResponse:
    inventory = await call.resources.inventory()
    found = inventory.groups(GroupKind.SCALE_SET, *await call.scope())
    return ArmResponse({"value": [_shown(inventory, group) for group in found]})


def _shown(inventory: Inventory, group: Group, place: Place | None = None) -> JsonObject:
    vms = inventory.members(group)
    return shown_scale_set(group, vms, place_of(vms[0]) if vms else place or Place("", ""))


async def _get_set(call: ArmCall) -> ArmResponse:
    inventory, group = await _set(call)
    return ArmResponse(_shown(inventory, group, call.place))


async def _view_set(call: ArmCall) -> ArmResponse:
    inventory, group = await _set(call)
    return ArmResponse(shown_set_view(inventory.members(group), call.resources.power))


async def _change_set(call: ArmCall) -> ArmResponse:
    """Change how a set wants to be asked, and how many instances it has."""
    inventory, group = await _set(call)
    profile = member(call.json, "properties", "virtualMachineProfile", "scheduledEventsProfile")
    policy = member(call.json, "properties", "scheduledEventsPolicy")
    changed = with_settings(group, profile, policy)
    if changed != group:
        await call.control.submit(ChangeTopology(groups=(changed,)), call.actor)
    vms = inventory.members(group)
    wanted = _capacity(call.json, len(vms))
    if wanted > len(vms):
        await scaled_out(call, changed, vms, count=wanted - len(vms))
    if wanted < len(vms):
        vms.sort(key=lambda vm: (len(vm.name), vm.name))  # the newest have the highest numbers
        begun = await operations.begin(call, Cause.DELETION, tuple(vms[wanted:]))
        shown = _shown(inventory, changed, call.place)
        shown["properties"]["provisioningState"] = "Updating"
        return ArmResponse(shown, 200, begun.headers)
    inventory, group = await _set(call)
    return ArmResponse(_shown(inventory, group, call.place))


async def _put_set(call: ArmCall) -> ArmResponse:
    """Change a scale set, or book a new one."""
    new = await _made(call, GroupKind.SCALE_SET)
    answer = await _change_set(call)
    return replace(answer, status=201) if new else answer


async def _made(call: ArmCall, kind: GroupKind) -> bool:
    """See that a set is there; returns whether it is new."""
    inventory = await call.resources.inventory()
    name = call.path["set"]
    await call.resources.check_place(call.place)
    present = inventory.group(name) is not None
    call.check_condition(present=present)
    if present:
        return False
    check_allowed(call, name)
    group = Group(name, kind=kind)
    await call.control.submit(
        ChangeTopology(groups=(group,), absent=(("group", name),)), call.actor
    )
    return True


def _capacity(body: JsonObject, now: int) -> int:
    wanted = member(body, "sku", "capacity")
    if wanted is None:
        return now
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 0 <= wanted <= CAPACITY_MAX:
        raise ValidationFailed(where="sku.capacity", problem=f"must be 0 to {CAPACITY_MAX}")
    return wanted


async def _delete_instances(call: ArmCall) -> ArmResponse:
    _, _, vms = await _targets(call)
    if not vms:
        return ArmResponse()
    return await operations.begin(call, Cause.DELETION, vms)


async def _evict(call: ArmCall) -> ArmResponse:
    _, _, vms = await _targets(call)
    await operations.begin(call, Cause.EVICTION, vms)
    return ArmResponse(None, 204)


async def _list_instances(call: ArmCall) -> ArmResponse:
    inventory, group = await _set(call)
    expand = call.query.get("$expand", "").lower()
    shown = [_instance(call, inventory, vm, expand) for vm in inventory.members(group)]
    return ArmResponse({"value": shown})


async def _get_instance(call: ArmCall) -> ArmResponse:
    inventory, _, (vm,) = await _targets(call)
    return ArmResponse(_instance(call, inventory, vm, call.query.get("$expand", "").lower()))


def _instance(call: ArmCall, inventory: Inventory, vm: Vm, expand: str) -> JsonObject:
    topology = inventory.topology
    host = topology.hosts[vm.host]
    shown = shown_instance(topology.groups[vm.group], vm, place_of(vm), host=host)
    if "instanceview" in expand:
        view = shown_view(vm, host, call.resources.power.get(vm.name, ""))
        shown["properties"]["instanceView"] = view
    return shown


async def _view_instance(call: ArmCall) -> ArmResponse:
    inventory, _, (vm,) = await _targets(call)
    host = inventory.topology.hosts[vm.host]
    return ArmResponse(shown_view(vm, host, call.resources.power.get(vm.name, "")))


async def _change_instance(call: ArmCall) -> ArmResponse:
    inventory, _, (vm,) = await _targets(call)
    call.check_condition(present=True)
    changed = with_members(vm, call.json)
    if changed != vm:
        await call.control.submit(ChangeTopology(vms=(changed,)), call.actor)
    return ArmResponse(_instance(call, inventory, changed, ""))


async def _list_availability(call: ArmCall) -> ArmResponse:
    inventory = await call.resources.inventory()
    found = inventory.groups(GroupKind.AVAILABILITY_SET, *await call.scope())
    return ArmResponse({"value": [_availability(inventory, each, None) for each in found]})


def _availability(inventory: Inventory, group: Group, place: Place | None) -> JsonObject:
    vms, hosts = inventory.members(group), inventory.topology.hosts
    at = place_of(vms[0]) if vms else place or Place("", "")
    return shown_availability_set(group, vms, at, hosts=hosts)


async def _get_availability(call: ArmCall) -> ArmResponse:
    inventory, group = await _set(call, GroupKind.AVAILABILITY_SET)
    return ArmResponse(_availability(inventory, group, call.place))


async def _change_availability(call: ArmCall) -> ArmResponse:
    inventory, group = await _set(call, GroupKind.AVAILABILITY_SET)
    policy = member(call.json, "properties", "scheduledEventsPolicy")
    changed = with_settings(group, None, policy)
    if changed != group:
        await call.control.submit(ChangeTopology(groups=(changed,)), call.actor)
    return ArmResponse(_availability(inventory, changed, call.place))


async def _put_availability(call: ArmCall) -> ArmResponse:
    """Change an availability set, or book a new one."""
    await _made(call, GroupKind.AVAILABILITY_SET)
    return await _change_availability(call)


_ROUTES = (
    ArmRoute("GET", f"{SUBSCRIPTION}{COMPUTE}/{SCALE_SETS}", "List all scale sets", _list_sets),
    ArmRoute("GET", _SETS, "List the scale sets of a resource group", _list_sets),
    ArmRoute("GET", _SET, "Read a scale set", _get_set),
    ArmRoute("GET", f"{_SET}/instanceView", "Count its VMs by state", _view_set),
    ArmRoute("PUT", _SET, "Create a scale set (bookkeeping only), or change it", _put_set),
    ArmRoute("PATCH", _SET, "Change capacity, scheduledEventsProfile and -Policy", _change_set),
    ArmRoute("POST", f"{_SET}/delete", "Work on instances: deletion", _delete_instances),
    ArmRoute("GET", f"{_SET}/virtualMachines", "List instances", _list_instances),
    ArmRoute("GET", _INSTANCE, "Read an instance", _get_instance),
    ArmRoute("GET", f"{_INSTANCE}/instanceView", "Read the state of an instance", _view_instance),
    ArmRoute("PUT", _INSTANCE, "Change the tags of an instance", _change_instance),
    ArmRoute("DELETE", _INSTANCE, "Work on an instance: deletion", _delete_instances),
    ArmRoute("POST", f"{_INSTANCE}/simulateEviction", "Work: eviction of a Spot VM", _evict),
    ArmRoute(
        "GET",
        f"{SUBSCRIPTION}{COMPUTE}/{AVAILABILITY_SETS}",
        "List all availability sets",
        _list_availability,
    ),
    ArmRoute("GET", _AVAILABILITY, "List availability sets", _list_availability),
    ArmRoute("GET", _AVAILABILITY + "/{set}", "Read an availability set", _get_availability),
    ArmRoute("PUT", _AVAILABILITY + "/{set}", "Create one (bookkeeping only)", _put_availability),
    ArmRoute(
        "PATCH", _AVAILABILITY + "/{set}", "Change scheduledEventsPolicy", _change_availability
    ),
)
