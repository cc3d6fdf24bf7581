"""Azure's form of a VM, and changes of a VM by requests. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn_azure.details import Path
from forewarn_azure.event_settings import SETTINGS, policy_of, profile_of
from forewarn_azure.inventory import ResourceScope, location_of, place_of
from forewarn_azure.json_values import JsonObject, text_of
from forewarn_base.validation.fields import ValidationFailed
from forewarn_base.values import replace
from forewarn_core.fleet.topology import Group, GroupKind, Host, Vm
from forewarn_metadata.endpoint.instance import derived_vm_id, resource_id

PROVIDER = "Microsoft.Compute"
SUCCEEDED = "Succeeded"
_IMAGE = ("properties", "storageProfile", "imageReference")
#: Azure's names of power states.
_POWER = {"": "running", "stopped": "stopped", "deallocated": "deallocated"}


#: Members shared with instance metadata: path in a VM -> metadata attribute. Source: I-1.
INSTANCE: Mapping[Path, str] = {
    ("properties", "licenseType"): "licenseType",
    ("properties", "evictionPolicy"): "evictionPolicy",
    ("properties", "userData"): "userData",
    ("properties", "osProfile", "computerName"): "osProfile.computerName",
    ("properties", "osProfile", "adminUsername"): "osProfile.adminUsername",
    ("properties", "osProfile", "customData"): "customData",
    (*_IMAGE, "id"): "storageProfile.imageReference.id",
    **{(*_IMAGE, name): name for name in ("publisher", "offer", "sku", "version")},
}
#: Members of a request that change the VM's record in the fleet.
_KNOWN: Mapping[Path, str] = {
    ("location",): "location",
    ("properties", "hardwareProfile", "vmSize"): "size",
    ("properties", "storageProfile", "osDisk", "osType"): "os_type",
}
#: Members that `with_members` and `with_settings` change, in the emulator and in the service.
APPLIED: frozenset[Path] = frozenset(_KNOWN) | {
    ("tags",),
    ("properties", "priority"),
    *(("properties", *path) for path in SETTINGS),
}


def provider_id(place: ResourceScope, kind: str, name: str) -> str:
    """Return the id of a resource of Microsoft.Compute."""
    return (
        f"/subscriptions/{place.subscription}/resourceGroups/{place.resource_group}"
        f"/providers/{PROVIDER}/{kind}/{name}"
    )


def vm_id_of(vm: Vm, group: Group) -> str:
    """Return the resource id of a VM, as in its instance metadata."""
    place = place_of(vm)
    return resource_id(
        vm.name,
        subscription=place.subscription,
        resource_group=place.resource_group,
        scale_set=group.name if group.kind is GroupKind.SCALE_SET else "",
    )


def shown_vm(vm: Vm, group: Group, host: Host, *, power: str = "") -> JsonObject:
    """Return a VM in Azure's form."""
    properties = shown_properties(vm, group)
    sets = {
        GroupKind.AVAILABILITY_SET: ("availabilitySet", "availabilitySets"),
        GroupKind.SCALE_SET: ("virtualMachineScaleSet", "virtualMachineScaleSets"),
    }
    if group.kind in sets:
        name, kind = sets[group.kind]
        properties[name] = {"id": provider_id(place_of(vm), kind, group.name)}
    shown: JsonObject = {
        "name": vm.name,
        "id": vm_id_of(vm, group),
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
    """Return Azure's `properties` of a VM or of a scale set's instance."""
    facts = _facts(vm)
    properties: JsonObject = {
        "vmId": vm.vm_id or derived_vm_id(vm.name),
        "provisioningState": SUCCEEDED,
        "hardwareProfile": {"vmSize": vm.size},
        "storageProfile": {
            "imageReference": {
                path[-1]: facts[name]
                for path, name in INSTANCE.items()
                if path[:-1] == _IMAGE and name in facts
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
            "computerName": facts["osProfile.computerName"],
            "adminUsername": facts["osProfile.adminUsername"],
        },
        "networkProfile": {"networkInterfaces": []},
        "priority": "Spot" if vm.spot else "Regular",
    }
    for name in ("evictionPolicy", "licenseType"):
        if name in facts:
            properties[name] = facts[name]
    properties["scheduledEventsProfile"] = profile_of(group)
    properties["scheduledEventsPolicy"] = policy_of(group)
    return properties


def _facts(vm: Vm) -> dict[str, str]:
    """Return a VM's instance metadata, with defaults for Azure's required attributes."""
    facts = {"osProfile.computerName": vm.name, "osProfile.adminUsername": "azureuser"}
    if vm.spot:
        facts["evictionPolicy"] = "Deallocate"
    return facts | dict(vm.instance)


def shown_view(vm: Vm, host: Host, power: str) -> JsonObject:
    """Return the instance view of a VM: its placement and power state."""
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
    """Return a VM with the members of a request that the fleet or its metadata models.

    Raises:
        ValidationFailed: a member has the wrong type.
    """
    if body.get("tags") is not None:
        vm = replace(vm, tags=read_tags(body["tags"]))
    texts = {name: text_of(body, *path) for path, name in _KNOWN.items()}
    vm = replace(vm, **{name: text for name, text in texts.items() if text})
    priority = text_of(body, "properties", "priority")
    if priority:
        vm = replace(vm, spot=priority.lower() in {"spot", "low"})
    facts, instance = _facts(vm), dict(vm.instance)
    for path, name in INSTANCE.items():
        text = text_of(body, *path)
        if text and text != facts.get(name):
            instance[name] = text
    return replace(vm, instance=tuple(instance.items()))


def read_tags(value: object) -> tuple[tuple[str, str], ...]:
    """Return the tags of a request body.

    Raises:
        ValidationFailed: a tag is not a string.
    """
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValidationFailed(where="tags", problem="must be an object of strings")
    return tuple((str(name), str(text)) for name, text in value.items())
