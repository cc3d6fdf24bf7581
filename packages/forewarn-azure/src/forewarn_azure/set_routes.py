"""Routes of scale sets, their instances, and availability sets. Source: Z-1."""

from __future__ import annotations

from dataclasses import replace

from forewarn_azure import operations
from forewarn_azure.creation import check_allowed, scale_out
from forewarn_azure.details import Details, put_details, refuse
from forewarn_azure.event_settings import SETTINGS, with_settings
from forewarn_azure.inventory import (
    AVAILABILITY_SETS,
    SCALE_SETS,
    SETS,
    Inventory,
    ResourceScope,
    place_of,
)
from forewarn_azure.json_values import JsonObject, member
from forewarn_azure.refusals import ArmNotSupported
from forewarn_azure.routes import (
    COMPUTE,
    RESOURCE_GROUP,
    SUBSCRIPTION,
    ArmCall,
    ArmResponse,
    ArmRoutes,
    missing_is_deleted,
)
from forewarn_azure.set_values import (
    instance_id,
    shown_availability_set,
    shown_instance,
    shown_scale_set,
    shown_set_view,
)
from forewarn_azure.vm_routes import FIXED, WORK, action_routes, expansions
from forewarn_azure.vm_values import APPLIED, shown_view, with_members
from forewarn_base.validation.fields import ValidationFailed
from forewarn_base.values import value
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.impact import Cause
from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import Group, GroupKind, Vm

_SETS = RESOURCE_GROUP + COMPUTE + f"/{SCALE_SETS}"
SCALE_SET = _SETS + "/{set}"
_INSTANCE = SCALE_SET + "/virtualMachines/{instance}"
_AVAILABILITY = f"{COMPUTE}/{AVAILABILITY_SETS}"
_ONE = f"{RESOURCE_GROUP}{_AVAILABILITY}/{{set}}"
_INSTANCE_TYPE = f"Microsoft.Compute/{SCALE_SETS}/virtualMachines"
#: Members of a set that a request can change, in the emulator and in the service.
_APPLIED = {
    ("sku", "capacity"),
    *(("properties", *path) for path in SETTINGS),
    *(("properties", "virtualMachineProfile", *path) for path in SETTINGS),
}
#: Members that requests cannot change while instances exist.
_MODEL = (
    *(("zones",), ("location",), ("sku",), ("properties", "orchestrationMode")),
    ("properties", "virtualMachineProfile"),
)
_OPERATE, _REQUEST = Permission.OPERATE, Permission.REQUEST
_EXPAND, _FORCE = "$expand", "forcedeletion"
#: Actions that begin a rolling upgrade, which Forewarn refuses.
_ROLLING = ("extensionRollingUpgrade", "rollingUpgrades/cancel")
#: Description of an image upgrade, as in the emulator's scenario.
IMAGE_UPGRADE = "Guest OS image is being upgraded."
ROUTES = ArmRoutes()
#: Maximum number of instances of a scale set.
CAPACITY_MAX = 1000


async def named_set(
    call: ArmCall, kind: GroupKind = GroupKind.SCALE_SET
) -> tuple[Inventory, Group]:
    """Return the set in the path. A set without VMs belongs to every resource group."""
    inventory = await call.resources.inventory()
    group = inventory.find_group(call.path["set"])
    if group is None or group.kind is not kind or not _is_at(call, inventory, group):
        raise await call.resources.unknown(
            f"Microsoft.Compute/{SETS[kind]}", call.path["set"], call.place
        )
    return inventory, group


def _is_at(call: ArmCall, inventory: Inventory, group: Group) -> bool:
    vms = inventory.members(group)
    if not vms:
        return group.name not in call.resources.deleted_sets
    return place_of(vms[0]).key == call.place.key


async def _vms(call: ArmCall) -> tuple[Vm, ...]:
    return (await _targets(call))[2]


async def _targets(call: ArmCall) -> tuple[Inventory, Group, tuple[Vm, ...]]:
    """Return the instances in the path or body; all instances if the request names none.

    Raises:
        ArmResourceUnknown: an instance does not exist.
    """
    inventory, group = await named_set(call)
    by_id = {instance_id(group.name, vm.name).lower(): vm for vm in inventory.members(group)}
    wanted = _wanted(call)
    if wanted is None:
        name = "protectFromScaleSetActions"
        open_to_all = [vm for vm in by_id.values() if not _protected(call, vm, name)]
        return inventory, group, tuple(open_to_all)
    for each in wanted:
        if each.lower() not in by_id:
            kind = f"Microsoft.Compute/{SCALE_SETS}/virtualMachines"
            raise await call.resources.unknown(kind, f"{group.name}/{each}", call.place)
    return inventory, group, tuple(by_id[each.lower()] for each in dict.fromkeys(wanted))


def _wanted(call: ArmCall) -> list[str] | None:
    """Return the instance ids in a request; None for all instances."""
    if "instance" in call.path:
        return [call.path["instance"]]
    given = call.json.get("instanceIds")
    if given is None or given == ["*"]:
        return None
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ValidationFailed(where="instanceIds", problem="must be a list of strings")
    return given


@ROUTES.serve(f"GET {_SETS}", summary="List the scale sets of a resource group")
@ROUTES.serve(f"GET {SUBSCRIPTION}{COMPUTE}/{SCALE_SETS}")
async def _list_sets(call: ArmCall) -> ArmResponse:
    """List all scale sets."""
    return ArmResponse({"value": await shown_sets(call, GroupKind.SCALE_SET)})


async def shown_sets(call: ArmCall, kind: GroupKind) -> list[JsonObject]:
    """Return the sets of a kind in a subscription or resource group."""
    inventory = await call.resources.inventory()
    groups = inventory.groups(kind, *await call.scope())
    return [_shown(call, inventory, each, ResourceScope("", "")) for each in groups]


def _shown(call: ArmCall, inventory: Inventory, group: Group, place: ResourceScope) -> JsonObject:
    vms = inventory.members(group)
    at = place_of(vms[0]) if vms else place
    if group.kind is GroupKind.SCALE_SET:
        return call.resources.shown(shown_scale_set(group, vms, at))
    hosts = inventory.topology.hosts
    return call.resources.shown(shown_availability_set(group, vms, at, hosts=hosts))


@ROUTES.serve(f"GET {SCALE_SET}")
async def _get_set(call: ArmCall) -> ArmResponse:
    """Read a scale set."""
    inventory, group = await named_set(call)
    return ArmResponse(_shown(call, inventory, group, call.place))


@ROUTES.serve(f"GET {SCALE_SET}/instanceView")
async def _view_set(call: ArmCall) -> ArmResponse:
    """Count the VMs by state."""
    inventory, group = await named_set(call)
    return ArmResponse(shown_set_view(inventory.members(group), call.resources.power))


@ROUTES.serve(f"PUT {SCALE_SET}", needs=_OPERATE)
async def _put_set(call: ArmCall) -> ArmResponse:
    """Create (emulator only) or change a scale set."""
    new = await _create(call, GroupKind.SCALE_SET)
    response = await _change_set(call)
    return replace(response, status=201) if new else response


async def _create(call: ArmCall, kind: GroupKind) -> bool:
    """Create the set in the path unless it exists; return whether the set is new."""
    inventory = await call.resources.inventory()
    name = call.path["set"]
    await call.resources.check_place(call.place)
    known = inventory.find_group(name)
    gone = known is not None and known.name in call.resources.deleted_sets
    present = known is not None and not (gone and not inventory.members(known))
    call.check_condition(present=present)
    if present:
        return False
    check_allowed(call, name)
    group = Group(known.name if known else name, kind=kind)
    absent = () if known else (("group", name),)
    await call.control.submit(ChangeTopology(groups=(group,), absent=absent), call.actor)
    call.resources.deleted_sets.pop(group.name, None)
    call.resources.forget(f"Microsoft.Compute/{SETS[kind]}", group.name)
    return True


@ROUTES.serve(f"DELETE {SCALE_SET}", _FORCE, needs=_OPERATE)
@missing_is_deleted
async def _delete_set(call: ArmCall) -> ArmResponse:
    """Request the deletion of a set's instances."""
    inventory, group = await named_set(call)
    vms = tuple(inventory.members(group))
    response = await operations.begin(call, Cause.DELETION, vms) if vms else ArmResponse()
    call.resources.mark_deleted(group.name)
    return response


@ROUTES.serve(f"POST {SCALE_SET}/manualupgrade", needs=_REQUEST)
async def _upgrade(call: ArmCall) -> ArmResponse:
    """No effect.

    Instances always have the set's model.
    """
    await _targets(call)
    return ArmResponse()


@ROUTES.serve(f"POST {SCALE_SET}/osRollingUpgrade", needs=_REQUEST)
async def _upgrade_image(call: ArmCall) -> ArmResponse:
    """Reimage the instances, one fault domain after the other. Source: O-2."""
    inventory, group = await named_set(call)
    vms = tuple(inventory.members(group))
    if not vms:
        return ArmResponse()
    return await operations.begin(call, Cause.REIMAGE, vms, routine=IMAGE_UPGRADE)


@ROUTES.serve(f"GET {SCALE_SET}/rollingUpgrades/latest")
async def _latest_rolling(call: ArmCall) -> ArmResponse:
    """Always 404."""
    _, group = await named_set(call)
    kind = f"Microsoft.Compute/{SCALE_SETS}/rollingUpgrades"
    raise await call.resources.unknown(kind, f"{group.name}/latest", call.place)


@ROUTES.serve(f"PATCH {SCALE_SET}", needs=_OPERATE)
async def _change_set(call: ArmCall) -> ArmResponse:
    """Change capacity, scheduledEventsProfile and -Policy.

    New instances exist when the answer is sent. Instances to delete get their notice first, so the
    answer shows the set as it still is, and how to follow the deletion.
    """
    inventory, group = await named_set(call)
    change = _read_change(call, inventory, group)
    if change.group != group:
        await call.control.submit(ChangeTopology(groups=(change.group,)), call.actor)
    if change.added:
        instances = inventory.members(group)
        await scale_out(call, change.group, instances, count=change.added, shown=change.model)
    call.resources.remember(change.model, change.details)
    if change.removed:
        deletion = await operations.begin(call, Cause.DELETION, change.removed)
        shown = _shown(call, inventory, change.group, call.place)
        shown["properties"]["provisioningState"] = "Updating"
        return ArmResponse(shown, 200, deletion.headers)
    return await _get_set(call)


@value
class _SetChange:
    """A request to change a scale set."""

    #: The set with its new settings.
    group: Group
    #: Number of instances to add.
    added: int
    #: Instances to delete.
    removed: tuple[Vm, ...]
    #: Members that only the emulator stores.
    details: Details
    #: The set in Azure's form, with `details`: the model of new instances.
    model: JsonObject


def _read_change(call: ArmCall, inventory: Inventory, group: Group) -> _SetChange:
    """Read the requested change of a set.

    Raises:
        ArmNotSupported: a value cannot change, or too many instances are protected.
        ValidationFailed: a value is not one.
    """
    vms = inventory.members(group)
    shown = _shown(call, inventory, group, call.place)
    details = call.resources.read_details(call.json, shown, _APPLIED)
    if vms:
        refuse(details, group.name, "the value cannot change while instances exist", only=_MODEL)
    profile = member(call.json, "properties", "virtualMachineProfile", "scheduledEventsProfile")
    policy = member(call.json, "properties", "scheduledEventsPolicy")
    growth = _capacity(call.json, len(vms)) - len(vms)
    return _SetChange(
        group=with_settings(group, profile, policy, patch=call.method == "PATCH"),
        added=max(growth, 0),
        removed=_scaled_in(call, vms, -growth) if growth < 0 else (),
        details=details,
        model=put_details(shown, details),
    )


def _scaled_in(call: ArmCall, vms: list[Vm], count: int) -> tuple[Vm, ...]:
    """Return the instances to delete: unprotected, with the highest numbers.

    Raises:
        ArmNotSupported: too many instances are protected.
    """
    newest = sorted(vms, key=lambda vm: (len(vm.name), vm.name), reverse=True)
    going = [vm for vm in newest if not _protected(call, vm, "protectFromScaleIn")]
    if len(going) < count:
        reason = f"only {len(going)} instances of the set are unprotected"
        raise ArmNotSupported(action="A smaller capacity", name=call.path["set"], reason=reason)
    return tuple(sorted(going[:count], key=lambda vm: (len(vm.name), vm.name)))


def _protected(call: ArmCall, vm: Vm, name: str) -> bool:
    details = call.resources.details_of(_INSTANCE_TYPE, vm.name)
    return details.get(("properties", "protectionPolicy", name)) is True


def _capacity(body: JsonObject, now: int) -> int:
    wanted = member(body, "sku", "capacity")
    if wanted is None:
        return now
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 0 <= wanted <= CAPACITY_MAX:
        raise ValidationFailed(where="sku.capacity", problem=f"must be 0 to {CAPACITY_MAX}")
    return wanted


@ROUTES.serve(
    f"DELETE {_INSTANCE}", _FORCE, needs=_REQUEST, summary="Request the deletion of an instance"
)
@ROUTES.serve(f"POST {SCALE_SET}/delete", _FORCE, needs=_REQUEST)
async def _delete_instances(call: ArmCall) -> ArmResponse:
    """Request the deletion of several instances."""
    vms = await _vms(call)
    return await operations.begin(call, Cause.DELETION, vms) if vms else ArmResponse()


@ROUTES.serve(f"GET {SCALE_SET}/virtualMachines", _EXPAND)
async def _list_instances(call: ArmCall) -> ArmResponse:
    """List instances."""
    inventory, group = await named_set(call)
    return ArmResponse(
        {"value": [_instance(call, inventory, vm) for vm in inventory.members(group)]}
    )


@ROUTES.serve(f"GET {_INSTANCE}", _EXPAND)
async def _get_instance(call: ArmCall) -> ArmResponse:
    """Read an instance."""
    inventory, _, (vm,) = await _targets(call)
    return ArmResponse(_instance(call, inventory, vm))


def _instance(call: ArmCall, inventory: Inventory, vm: Vm) -> JsonObject:
    topology = inventory.topology
    host = topology.hosts[vm.host]
    shown = shown_instance(topology.groups[vm.group], vm, host=host)
    expanded = expansions(call)
    if "userdata" in expanded:
        shown["properties"]["userData"] = dict(vm.instance).get("userData", "")
    if "instanceview" in expanded:
        view = shown_view(vm, host, call.resources.power.get(vm.name, ""))
        shown["properties"]["instanceView"] = view
    return call.resources.shown(shown)


@ROUTES.serve(f"GET {_INSTANCE}/instanceView")
async def _view_instance(call: ArmCall) -> ArmResponse:
    """Read the state of an instance."""
    inventory, _, (vm,) = await _targets(call)
    host = inventory.topology.hosts[vm.host]
    return ArmResponse(shown_view(vm, host, call.resources.power.get(vm.name, "")))


@ROUTES.serve(f"PUT {_INSTANCE}", needs=_OPERATE)
async def _change_instance(call: ArmCall) -> ArmResponse:
    """Change the tags of an instance."""
    inventory, _, (vm,) = await _targets(call)
    call.check_condition(present=True)
    changed = with_members(vm, call.json)
    shown = _instance(call, inventory, vm)
    more = call.resources.read_details(call.json, shown, APPLIED)
    refuse(
        more, vm.name, "the value of an existing instance cannot change", only=(*FIXED, ("sku",))
    )
    if changed != vm:
        await call.control.submit(ChangeTopology(vms=(changed,)), call.actor)
    call.resources.remember(shown, more)
    return ArmResponse(_instance(call, inventory, changed))


@ROUTES.serve(f"POST {_INSTANCE}/simulateEviction", needs=_REQUEST)
async def _evict(call: ArmCall) -> ArmResponse:
    """Request the eviction of a Spot VM."""
    await operations.begin(call, Cause.EVICTION, await _vms(call))
    return ArmResponse(None, 204)


# --- availability sets ----------------------------------------------------------------------------


@ROUTES.serve(f"GET {RESOURCE_GROUP}{_AVAILABILITY}", summary="List availability sets")
@ROUTES.serve(f"GET {SUBSCRIPTION}{_AVAILABILITY}")
async def _list_availability(call: ArmCall) -> ArmResponse:
    """List all availability sets."""
    return ArmResponse({"value": await shown_sets(call, GroupKind.AVAILABILITY_SET)})


@ROUTES.serve(f"GET {_ONE}")
async def _get_availability(call: ArmCall) -> ArmResponse:
    """Read an availability set."""
    inventory, group = await named_set(call, GroupKind.AVAILABILITY_SET)
    return ArmResponse(_shown(call, inventory, group, call.place))


@ROUTES.serve(f"PUT {_ONE}", needs=_OPERATE)
async def _put_availability(call: ArmCall) -> ArmResponse:
    """Create (emulator only) or change an availability set."""
    await _create(call, GroupKind.AVAILABILITY_SET)
    return await _change_availability(call)


@ROUTES.serve(f"PATCH {_ONE}", needs=_OPERATE)
async def _change_availability(call: ArmCall) -> ArmResponse:
    """Change scheduledEventsPolicy."""
    inventory, group = await named_set(call, GroupKind.AVAILABILITY_SET)
    policy = member(call.json, "properties", "scheduledEventsPolicy")
    changed = with_settings(group, None, policy, patch=call.method == "PATCH")
    shown = _shown(call, inventory, group, call.place)
    more = call.resources.read_details(call.json, shown, APPLIED)
    if changed != group:
        await call.control.submit(ChangeTopology(groups=(changed,)), call.actor)
    call.resources.remember(shown, more)
    return ArmResponse(_shown(call, inventory, changed, call.place))


@ROUTES.serve(f"DELETE {_ONE}", needs=_OPERATE)
@missing_is_deleted
async def _delete_availability(call: ArmCall) -> ArmResponse:
    """Delete an availability set without VMs."""
    inventory, group = await named_set(call, GroupKind.AVAILABILITY_SET)
    if inventory.members(group):
        reason = "the set has VMs; delete the VMs first"
        raise ArmNotSupported(action="Deletion", name=group.name, reason=reason)
    call.resources.mark_deleted(group.name)
    return ArmResponse()


async def _refuse_rolling(call: ArmCall) -> ArmResponse:
    """Refused with 409."""
    _, group = await named_set(call)
    reason = "Forewarn supports no rolling upgrades; reimage the instances"
    raise ArmNotSupported(action="A rolling upgrade", name=group.name, reason=reason)


_WORK = {**WORK, "reimageAll": Cause.REIMAGE}
ROUTES.rows += action_routes(SCALE_SET, _vms, _WORK, summary="Work on some or all instances")
ROUTES.rows += action_routes(_INSTANCE, _vms, _WORK, summary="Work on an instance")
for _action in _ROLLING:
    ROUTES.serve(f"POST {SCALE_SET}/{_action}", needs=_OPERATE)(_refuse_rolling)
