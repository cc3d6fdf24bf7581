"""A VM as Azure Resource Manager shows it, and what a request says about one. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.topology import GroupKind
from forewarn.operator_api.arm.event_settings import policy_of, profile_of
from forewarn.operator_api.arm.inventory import Place, location_of, place_of
from forewarn.operator_api.arm.json_values import text_of
from forewarn.validation.fields import ValidationFailed
from forewarn.values import replace

if TYPE_CHECKING:
    from forewarn.core.topology import Group, Host, Vm
    from forewarn.operator_api.arm.json_values import JsonObject

PROVIDER = "Microsoft.Compute"
SUCCEEDED = "Succeeded"
#: Power states as Azure calls them.
_POWER = {"": "running", "stopped": "stopped", "deallocated": "deallocated"}


def provider_id(place: Place, kind: str, name: str) -> str:
    """Return the id of a resource of Microsoft.Compute."""
    return (
        f"/subscriptions/{place.subscription}/resourceGroups/{place.resource_group}"
        f"/providers/{PROVIDER}/{kind}/{name}"
    )


def beside(vm: Vm, kind: str, name: str) -> str:
    """Return the id of a resource in the resource group of a VM."""
    return provider_id(place_of(vm), kind, name)


def shown_vm(vm: Vm, group: Group, host: Host, *, power: str = "") -> JsonObject:
    """Return a VM."""
    properties = shown_properties(vm, group)
    sets = {
        GroupKind.AVAILABILITY_SET: ("availabilitySet", "availabilitySets"),
        GroupKind.SCALE_SET: ("virtualMachineScaleSet", "virtualMachineScaleSets"),
    }
    if group.kind in sets:
        name, kind = sets[group.kind]
        properties[name] = {"id": beside(vm, kind, group.name)}
    shown: JsonObject = {
        "name": vm.name,
        "id": beside(vm, "virtualMachines", vm.name),
        "type": f"{PROVIDER}/virtualMachines",
        "location": location_of(vm),
        "tags": dict(vm.tags),
        "properties": properties,
    }
    if host.zone:
        shown["zones"] = [host.zone]
    properties["instanceView"] = shown_view(vm, host, power)
    return shown


def shown_properties(vm: Vm, group: Group) -> JsonObject:
    """Return what Azure calls the properties of a VM, or of an instance of a scale set."""
    image = dict(vm.instance)
    properties: JsonObject = {
        "vmId": vm.vm_id,
        "provisioningState": SUCCEEDED,
        "hardwareProfile": {"vmSize": vm.size},
        "storageProfile": {
            "imageReference": {
                name: image[name]
                for name in ("publisher", "offer", "sku", "version")
                if name in image
            },
            "osDisk": {
                "osType": vm.os_type,
                "name": f"{vm.name}_OsDisk",
                "createOption": "FromImage",
                "deleteOption": "Delete",
            },
            "dataDisks": [],
        },
        "osProfile": {
            "computerName": vm.name,
            "adminUsername": image.get("osProfile.adminUsername", "azureuser"),
        },
        "networkProfile": {"networkInterfaces": []},
        "priority": "Spot" if vm.spot else "Regular",
    }
    if vm.spot:
        properties["evictionPolicy"] = "Delete"
    properties["scheduledEventsProfile"] = profile_of(group)
    properties["scheduledEventsPolicy"] = policy_of(group)
    return properties


def shown_view(vm: Vm, host: Host, power: str) -> JsonObject:
    """Return the instance view of a VM: where it stands and whether it runs."""
    word = _POWER[power]
    return {
        "computerName": vm.name,
        "osName": vm.os_type.lower(),
        "platformFaultDomain": host.fault_domain,
        "platformUpdateDomain": host.update_domain,
        "statuses": [
            {
                "code": "ProvisioningState/succeeded",
                "level": "Info",
                "displayStatus": "Provisioning succeeded",
            },
            {"code": f"PowerState/{word}", "level": "Info", "displayStatus": f"VM {word}"},
        ],
    }


def with_members(vm: Vm, body: JsonObject) -> Vm:
    """Return a VM with what a request says of it: tags, size, priority, region.

    Raises:
        ValidationFailed: a member is of the wrong kind.
    """
    if body.get("tags") is not None:
        vm = replace(vm, tags=read_tags(body["tags"]))
    size = text_of(body, "properties", "hardwareProfile", "vmSize")
    if size:
        vm = replace(vm, size=size)
    if text_of(body, "location"):
        vm = replace(vm, location=text_of(body, "location"))
    priority = text_of(body, "properties", "priority")
    if priority:
        vm = replace(vm, spot=priority.lower() in {"spot", "low"})
    os_type = text_of(body, "properties", "storageProfile", "osDisk", "osType")
    return replace(vm, os_type=os_type) if os_type else vm


def read_tags(value: object) -> tuple[tuple[str, str], ...]:
    """Return tags.

    Raises:
        ValidationFailed: they are not texts by name.
    """
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValidationFailed(where="tags", problem="must be an object of strings")
    return tuple((str(name), str(text)) for name, text in value.items())
