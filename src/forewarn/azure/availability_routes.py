"""Routes of availability sets. Source: Z-1."""

from __future__ import annotations

from forewarn.azure.event_settings import with_settings
from forewarn.azure.inventory import Inventory, ResourceScope, place_of
from forewarn.azure.json_values import JsonObject, member
from forewarn.azure.refusals import ArmNotSupported, ArmResourceUnknown
from forewarn.azure.routes import (
    COMPUTE,
    RESOURCE_GROUP,
    SUBSCRIPTION,
    ArmCall,
    ArmResponse,
    ArmRoute,
)
from forewarn.azure.set_routes import made_set, named_set
from forewarn.azure.set_values import AVAILABILITY_SETS, shown_availability_set
from forewarn.azure.vm_values import APPLIED
from forewarn.core.access import Permission
from forewarn.core.stimulus import ChangeTopology
from forewarn.core.topology import Group, GroupKind


def routes() -> tuple[ArmRoute, ...]:
    """Return the routes of availability sets."""
    every = f"{COMPUTE}/{AVAILABILITY_SETS}"
    one = f"{RESOURCE_GROUP}{every}/{{set}}"
    return (
        ArmRoute("GET", SUBSCRIPTION + every, "List all availability sets", _list),
        ArmRoute("GET", RESOURCE_GROUP + every, "List availability sets", _list),
        ArmRoute("GET", one, "Read an availability set", _get),
        ArmRoute(
            "PUT",
            one,
            "Create (emulator only) or change an availability set",
            _put,
            needs=Permission.OPERATE,
        ),
        ArmRoute("PATCH", one, "Change scheduledEventsPolicy", _change, needs=Permission.OPERATE),
        ArmRoute(
            "DELETE",
            one,
            "Delete an availability set without VMs",
            _delete,
            needs=Permission.OPERATE,
        ),
    )


async def shown_availability_sets(call: ArmCall) -> list[JsonObject]:
    """Return the availability sets of a subscription or resource group."""
    inventory = await call.resources.inventory()
    groups = inventory.groups(GroupKind.AVAILABILITY_SET, *await call.scope())
    return [_shown(call, inventory, each, ResourceScope("", "")) for each in groups]


async def _list(call: ArmCall) -> ArmResponse:
    return ArmResponse({"value": await shown_availability_sets(call)})


def _shown(call: ArmCall, inventory: Inventory, group: Group, place: ResourceScope) -> JsonObject:
    vms, hosts = inventory.members(group), inventory.topology.hosts
    at = place_of(vms[0]) if vms else place
    return call.resources.shown(shown_availability_set(group, vms, at, hosts=hosts))


async def _get(call: ArmCall) -> ArmResponse:
    inventory, group = await named_set(call, GroupKind.AVAILABILITY_SET)
    return ArmResponse(_shown(call, inventory, group, call.place))


async def _change(call: ArmCall) -> ArmResponse:
    inventory, group = await named_set(call, GroupKind.AVAILABILITY_SET)
    policy = member(call.json, "properties", "scheduledEventsPolicy")
    changed = with_settings(group, None, policy, patch=call.method == "PATCH")
    shown = _shown(call, inventory, group, call.place)
    more = call.resources.read_details(call.json, shown, APPLIED)
    if changed != group:
        await call.control.submit(ChangeTopology(groups=(changed,)), call.actor)
    call.resources.remember(shown, more)
    return ArmResponse(_shown(call, inventory, changed, call.place))


async def _put(call: ArmCall) -> ArmResponse:
    """Change an availability set, or create one."""
    await made_set(call, GroupKind.AVAILABILITY_SET)
    return await _change(call)


async def _delete(call: ArmCall) -> ArmResponse:
    try:
        inventory, group = await named_set(call, GroupKind.AVAILABILITY_SET)
    except ArmResourceUnknown:
        return ArmResponse(None, 204)
    if inventory.members(group):
        reason = "the set has VMs; delete the VMs first"
        raise ArmNotSupported(action="Deletion", name=group.name, reason=reason)
    call.resources.mark_deleted(group.name)
    return ArmResponse()
