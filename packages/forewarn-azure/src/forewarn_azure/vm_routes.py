"""Routes of virtual machines for their users. Source: Z-1."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from forewarn_azure import operations
from forewarn_azure.creation import created_vm
from forewarn_azure.details import refuse
from forewarn_azure.event_settings import with_settings
from forewarn_azure.filters import filtered
from forewarn_azure.json_values import JsonObject, member
from forewarn_azure.refusals import ArmNotSupported, ArmResourceUnknown
from forewarn_azure.routes import (
    COMPUTE,
    RESOURCE_GROUP,
    SUBSCRIPTION,
    ArmCall,
    ArmResponse,
    ArmRoute,
    ArmRoutes,
    missing_is_deleted,
)
from forewarn_azure.vm_values import APPLIED, shown_view, shown_vm, vm_id_of, with_members
from forewarn_base.validation.fields import ValidationFailed
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import Group, Host, Vm

#: Function that returns the VMs of a request.
Targets: TypeAlias = Callable[[ArmCall], Awaitable[tuple[Vm, ...]]]

_VMS = RESOURCE_GROUP + COMPUTE + "/virtualMachines"
VM = _VMS + "/{vm}"

#: Action with announced work -> cause. Source: O-2.
WORK: Mapping[str, Cause] = {
    "restart": Cause.REBOOT,
    "redeploy": Cause.REDEPLOY,
    "performMaintenance": Cause.REDEPLOY,
    "reimage": Cause.REIMAGE,
}
#: Action without announcement -> the VM's new power state; empty: running.
POWER: Mapping[str, str] = {
    "powerOff": "stopped",
    "deallocate": "deallocated",
    "start": "",
    "reapply": "",
}
#: Members that a request cannot change.
FIXED = (("zones",), ("properties", "availabilitySet"), ("properties", "virtualMachineScaleSet"))
BOOKED = "Recorded immediately, not announced"
#: Ignored parameters of actions: Forewarn does not shut guests down and has no disks.
QUERY: Mapping[str, tuple[str, ...]] = {"powerOff": ("skipshutdown",)}
ROUTES = ArmRoutes()
_LISTED = ("$filter", "$top", "$expand", "statusonly")


def action_routes(
    place: str, targets: Targets, work: Mapping[str, Cause], *, summary: str
) -> Iterator[ArmRoute]:
    """Yield the routes of actions on VMs: announced work, and changes of power.

    Args:
        place: path of the VM or set.
        targets: returns the VMs of a request.
        work: cause of each action with announced work.
        summary: begins the summary of work.
    """
    needs = Permission.REQUEST
    for action, cause in work.items():
        act, text = partial(_work, targets, cause), f"{summary}: {cause.value}"
        yield ArmRoute("POST", f"{place}/{action}", text, act, needs=needs)
    for action in POWER:
        act = partial(_power, targets, action)
        yield ArmRoute("POST", f"{place}/{action}", BOOKED, act, QUERY.get(action, ()), needs=needs)


async def _work(targets: Targets, cause: Cause, call: ArmCall) -> ArmResponse:
    vms = await targets(call)
    if not vms:
        return ArmResponse()
    response = await operations.begin(call, cause, vms)
    call.resources.set_power((vm.name for vm in vms), "")
    return response


async def _power(targets: Targets, action: str, call: ArmCall) -> ArmResponse:
    """Record the power state after an action that no driver can carry out.

    Raises:
        ArmNotSupported: the process is a service, which does not record such actions.
    """
    vms = await targets(call)
    if not call.resources.bookkeeping:
        reason = "no driver carries out this action; only the emulator records it"
        raise ArmNotSupported(action=action, name=vms[0].name if vms else "", reason=reason)
    if action != "reapply":
        call.resources.set_power((vm.name for vm in vms), POWER[action])
    return ArmResponse()


async def _target(call: ArmCall) -> tuple[Vm, ...]:
    return (await call.vm(),)


@ROUTES.serve(f"GET {_VMS}", *_LISTED, summary="List the VMs of a resource group")
@ROUTES.serve(f"GET {SUBSCRIPTION}{COMPUTE}/virtualMachines", *_LISTED)
async def _list(call: ArmCall) -> ArmResponse:
    """List all VMs."""
    column = {"virtualmachinescaleset/id": "properties.virtualMachineScaleSet.id"}
    return ArmResponse({"value": filtered(call.query, await shown_vms(call), column)})


async def shown_vms(call: ArmCall) -> list[JsonObject]:
    """Return the VMs of a subscription or resource group.

    As in Azure, this list omits numbered instances of a scale set.
    """
    inventory = await call.resources.inventory()
    topology = inventory.topology
    return [
        _shown(call, vm, topology.groups[vm.group], topology.hosts[vm.host])
        for vm in inventory.vms(*await call.scope())
        if "/virtualMachineScaleSets/" not in vm_id_of(vm, topology.groups[vm.group])
    ]


def _shown(call: ArmCall, vm: Vm, group: Group, host: Host) -> JsonObject:
    shown = shown_vm(vm, group, host, power=call.resources.power.get(vm.name, ""))
    expanded = expansions(call)
    if call.query.get("statusonly", "").lower() != "true" and "instanceview" not in expanded:
        del shown["properties"]["instanceView"]
    if "userdata" in expanded:
        shown["properties"]["userData"] = dict(vm.instance).get("userData", "")
    return call.resources.shown(shown)


def expansions(call: ArmCall) -> set[str]:
    """Return the parts named in `$expand`, in lower case.

    Raises:
        ValidationFailed: a part is unknown.
    """
    names = set(filter(None, call.query.get("$expand", "").lower().split(",")))
    if not names <= {"instanceview", "userdata"}:
        raise ValidationFailed(where="$expand", problem="must be instanceView or userData")
    return names


@ROUTES.serve(f"GET {VM}", "$expand")
async def _get(call: ArmCall) -> ArmResponse:
    """Read a VM."""
    return ArmResponse(await _shown_now(call, await call.vm()))


async def _shown_now(call: ArmCall, vm: Vm) -> JsonObject:
    return _shown(call, vm, *await _around(call, vm))


async def _around(call: ArmCall, vm: Vm) -> tuple[Group, Host]:
    return await call.control.read(
        lambda plane: (plane.state.topology.groups[vm.group], plane.state.topology.hosts[vm.host])
    )


@ROUTES.serve(f"GET {VM}/instanceView")
async def _view(call: ArmCall) -> ArmResponse:
    """Read the state of a VM."""
    vm = await call.vm()
    _, host = await _around(call, vm)
    return ArmResponse(shown_view(vm, host, call.resources.power.get(vm.name, "")))


@ROUTES.serve(f"GET {VM}/vmSizes")
async def _sizes(call: ArmCall) -> ArmResponse:
    """List the only size of a VM."""
    vm = await call.vm()
    return ArmResponse({"value": [{"name": vm.size}]})


@ROUTES.serve(f"PUT {VM}", needs=Permission.OPERATE)
async def _put(call: ArmCall) -> ArmResponse:
    """Create (emulator only) or change a VM."""
    try:
        vm = await call.vm()
    except ArmResourceUnknown:
        call.check_condition(present=False)
        vm = await created_vm(call, call.path["vm"])
        return ArmResponse(await _shown_now(call, vm), 201)
    call.check_condition(present=True)
    return await _changed(call, vm)


@ROUTES.serve(f"PATCH {VM}", needs=Permission.OPERATE)
async def _patch(call: ArmCall) -> ArmResponse:
    """Change tags, size, scheduledEventsProfile and -Policy."""
    return await _changed(call, await call.vm())


async def _changed(call: ArmCall, vm: Vm) -> ArmResponse:
    group = await call.resources.group_of(vm)
    changed = with_members(vm, call.json)
    shown = await _shown_now(call, vm)
    more = call.resources.read_details(call.json, shown, APPLIED)
    refuse(more, vm.name, "the value of an existing VM cannot change", only=FIXED)
    settings = with_settings(
        group,
        member(call.json, "properties", "scheduledEventsProfile"),
        member(call.json, "properties", "scheduledEventsPolicy"),
        patch=call.method == "PATCH",
    )
    groups = (settings,) if settings != group else ()
    vms = (changed,) if changed != vm else ()
    if groups or vms:
        await call.control.submit(ChangeTopology(groups=groups, vms=vms), call.actor)
    call.resources.remember(shown, more)
    return ArmResponse(await _shown_now(call, changed))


@ROUTES.serve(f"DELETE {VM}", "forcedeletion", needs=Permission.REQUEST)
@missing_is_deleted
async def _delete(call: ArmCall) -> ArmResponse:
    """Request the deletion of a VM."""
    return await operations.begin(call, Cause.DELETION, await _target(call))


@ROUTES.serve(f"POST {VM}/simulateEviction", needs=Permission.REQUEST)
async def _evict(call: ArmCall) -> ArmResponse:
    """Request the eviction of a Spot VM."""
    await operations.begin(call, Cause.EVICTION, await _target(call))
    return ArmResponse(None, 204)


ROUTES.rows += action_routes(VM, _target, WORK, summary="Request work")
