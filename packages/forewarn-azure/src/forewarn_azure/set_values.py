"""Azure's form of scale sets, instances and availability sets. Pure.

The instance id of VM `web_3` in set `web` is 3. For other names, the instance id is the VM's name,
as in sets of flexible orchestration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forewarn_azure.event_settings import policy_of, profile_of
from forewarn_azure.inventory import AVAILABILITY_SETS, SCALE_SETS, ResourceScope, location_of
from forewarn_azure.json_values import JsonObject
from forewarn_azure.vm_values import PROVIDER, SUCCEEDED, provider_id, shown_properties, vm_id_of
from forewarn_core.fleet.topology import Group, Host, Vm
from forewarn_metadata.endpoint.instance import instance_number

#: Properties of a set's first VM that the set shows as its model.
_MODEL = ("storageProfile", "osProfile", "priority", "evictionPolicy")
#: The network interface of every instance; the SDK for Java requires one for scaling.
_ADDRESS = {"name": "address", "properties": {"primary": True}}
_INTERFACE = {"name": "nic", "properties": {"primary": True, "ipConfigurations": [_ADDRESS]}}


def instance_id(group: str, vm: str) -> str:
    """Return the id of an instance of a set."""
    return instance_number(group, vm) or vm


def shown_scale_set(group: Group, vms: Sequence[Vm], place: ResourceScope) -> JsonObject:
    """Return a scale set; its first VM is the model."""
    uniform = all(instance_id(group.name, vm.name) != vm.name for vm in vms)
    properties: JsonObject = {
        "provisioningState": SUCCEEDED,
        "orchestrationMode": "Uniform" if uniform else "Flexible",
        "uniqueId": group.name,
        "singlePlacementGroup": True,
        "overprovision": False,
        "upgradePolicy": {"mode": "Manual"},
        "scheduledEventsPolicy": policy_of(group),
        "virtualMachineProfile": {"scheduledEventsProfile": profile_of(group)},
    }
    if group.fault_domain_count:
        properties["platformFaultDomainCount"] = group.fault_domain_count
    shown = _shown(group, vms, place, kind=SCALE_SETS)
    shown["sku"] = {"capacity": len(vms)}
    if vms:
        model = shown_properties(vms[0], group)
        profile = {name: model[name] for name in _MODEL if name in model}
        profile["networkProfile"] = {"networkInterfaceConfigurations": [_INTERFACE]}
        properties["virtualMachineProfile"].update(profile)
        shown["sku"] |= {"name": vms[0].size, "tier": "Standard"}
    return shown | {"properties": properties}


def shown_instance(group: Group, vm: Vm, *, host: Host) -> JsonObject:
    """Return an instance of a scale set."""
    number = instance_id(group.name, vm.name)
    return {
        "name": vm.name,
        "id": vm_id_of(vm, group),
        "type": f"{PROVIDER}/{SCALE_SETS}/virtualMachines",
        "instanceId": number,
        "location": location_of(vm),
        "tags": dict(vm.tags),
        "sku": {"name": vm.size, "tier": "Standard"},
        "zones": [host.zone] if host.zone else [],
        "properties": shown_properties(vm, group) | {"latestModelApplied": True},
    }


def shown_set_view(vms: Sequence[Vm], power: Mapping[str, str]) -> JsonObject:
    """Return the instance view of a scale set, with the number of running VMs."""
    stopped = [power[vm.name] for vm in vms if vm.name in power]
    counts = {"running": len(vms) - len(stopped)}
    counts |= {word: stopped.count(word) for word in sorted(set(stopped))}
    summary = [{"code": f"PowerState/{word}", "count": count} for word, count in counts.items()]
    summary.append({"code": "ProvisioningState/succeeded", "count": len(vms)})
    return {
        "virtualMachine": {"statusesSummary": summary},
        "statuses": [
            {
                "code": "ProvisioningState/succeeded",
                "level": "Info",
                "displayStatus": "Provisioning succeeded",
            }
        ],
    }


def shown_availability_set(
    group: Group, vms: Sequence[Vm], place: ResourceScope, *, hosts: Mapping[str, Host]
) -> JsonObject:
    """Return an availability set with its VMs."""
    its = [hosts[vm.host] for vm in vms]
    return _shown(group, vms, place, kind=AVAILABILITY_SETS) | {
        "sku": {"name": "Aligned"},
        "properties": {
            "platformFaultDomainCount": len({host.fault_domain for host in its}) or 1,
            "platformUpdateDomainCount": len({host.update_domain for host in its}) or 1,
            "virtualMachines": [
                {"id": provider_id(place, "virtualMachines", vm.name)} for vm in vms
            ],
            "scheduledEventsPolicy": policy_of(group),
        },
    }


def _shown(group: Group, vms: Sequence[Vm], place: ResourceScope, *, kind: str) -> JsonObject:
    return {
        "name": group.name,
        "id": provider_id(place, kind, group.name),
        "type": f"{PROVIDER}/{kind}",
        "location": location_of(vms[0]) if vms else "local",
        "tags": {},
    }
