"""Creation of VMs: the emulator adds records; Forewarn itself creates no machines. Source: Z-1."""

from __future__ import annotations

from forewarn_azure.event_settings import with_settings
from forewarn_azure.inventory import SCALE_SETS
from forewarn_azure.json_values import JsonObject, member, text_of
from forewarn_azure.refusals import ArmNotSupported
from forewarn_azure.routes import ArmCall
from forewarn_azure.set_values import instance_id
from forewarn_azure.vm_values import APPLIED, shown_vm, with_members
from forewarn_base.ids import Ids
from forewarn_base.validation.fields import ValidationFailed
from forewarn_base.values import replace
from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import Group, GroupKind, Health, Host, Topology, Vm


async def created_vm(call: ArmCall, name: str) -> Vm:
    """Add a VM on the host with the fewest VMs, in the named set or in its own group.

    Raises:
        ArmNotSupported: the process is a service, no host is available, or the name is in use.
    """
    check_allowed(call, name)
    inventory = await call.resources.inventory()
    if inventory.find_vm(name) is not None:
        raise ArmNotSupported(
            action="Create", name=name, reason="another resource group has a VM with this name"
        )
    group = _named_set(inventory.topology, call.json) or Group(name, kind=GroupKind.LONE)
    host = emptiest(inventory.topology, 1, call.json.get("zones"))[0]
    vm = new_vm(call, name, group=group, host=host)
    profile = member(call.json, "properties", "scheduledEventsProfile")
    policy = member(call.json, "properties", "scheduledEventsPolicy")
    group = with_settings(group, profile, policy, patch=False)
    shown = shown_vm(vm, group, host)
    more = call.resources.read_details(call.json, shown, APPLIED)
    await call.control.submit(
        ChangeTopology(groups=(group,), vms=(vm,), absent=(("vm", name),)), call.actor
    )
    call.resources.forget(shown["type"], name)
    call.resources.remember(shown, more)
    return vm


def new_vm(call: ArmCall, name: str, *, group: Group, host: Host) -> Vm:
    """Return the VM from a request."""
    place = call.place
    vm = Vm(
        name,
        host=host.name,
        group=group.name,
        vm_id=Ids().guid("vm").lower(),
        resource_group=place.resource_group,
        subscription=place.subscription,
    )
    return with_members(vm, call.json)


def check_allowed(call: ArmCall, name: str) -> None:
    """Refuse to create resources, except in the emulator.

    Raises:
        ArmNotSupported: this is a service.
    """
    if not call.resources.bookkeeping:
        reason = "Forewarn creates no machines; only the emulator records them"
        raise ArmNotSupported(action="Create", name=name, reason=reason)


def emptiest(topology: Topology, count: int, zones: object) -> list[Host]:
    """Return hosts for this many new VMs, those with the fewest VMs first; O(hosts).

    Raises:
        ArmNotSupported: no host in these zones is available.
    """
    if zones is not None and not isinstance(zones, list):
        raise ValidationFailed(where="zones", problem="must be a list")
    hosts = [host for host in topology.hosts.values() if host.health is Health.HEALTHY]
    if zones:
        hosts = [host for host in hosts if host.zone in zones]
    if not hosts:
        where = f" in zones {zones}"[:200] if zones else ""
        raise ArmNotSupported(action="Create", name="a VM", reason=f"no host{where} is healthy")
    hosts.sort(key=lambda host: (len(topology.vms_on(host.name)), host.name))
    return [hosts[index % len(hosts)] for index in range(count)]


def _named_set(topology: Topology, body: JsonObject) -> Group | None:
    """Return the set of a new VM, created if missing; None if the VM names no set."""
    for name, kind in (
        ("availabilitySet", GroupKind.AVAILABILITY_SET),
        ("virtualMachineScaleSet", GroupKind.SCALE_SET),
    ):
        resource = text_of(body, "properties", name, "id")
        if resource:
            wanted = resource.rpartition("/")[2]
            known = {each.lower(): each for each in topology.groups}.get(wanted.lower())
            return topology.groups[known] if known else Group(wanted, kind=kind)
    return None


async def scale_out(
    call: ArmCall, group: Group, vms: list[Vm], *, count: int, shown: JsonObject
) -> None:
    """Add instances to a scale set, like its first instance, with the next higher numbers.

    Args:
        call: the request.
        group: the set.
        vms: its instances.
        count: number of new instances.
        shown: the set in Azure's form, the model of a set without instances.

    Raises:
        ArmNotSupported: this is a service, or no host is available.
    """
    check_allowed(call, group.name)
    topology = (await call.resources.inventory()).topology
    numbers = [int(n) for vm in vms if (n := instance_id(group.name, vm.name)) != vm.name]
    first = max(numbers, default=-1) + 1
    model = vms[0] if vms else _model_of(group, shown)
    added = tuple(
        replace(
            model,
            name=f"{group.name}_{first + index}",
            host=host.name,
            vm_id=Ids().guid("vm").lower(),
            resource_group=call.place.resource_group,
            subscription=call.place.subscription,
            addresses=(),
            instance_id="",
            interface="",
        )
        for index, host in enumerate(emptiest(topology, count, shown.get("zones")))
    )
    for vm in added:
        call.resources.forget(f"Microsoft.Compute/{SCALE_SETS}/virtualMachines", vm.name)
    names = tuple(("vm", vm.name) for vm in added)
    await call.control.submit(ChangeTopology(vms=added, absent=names), call.actor)


def _model_of(group: Group, shown: JsonObject) -> Vm:
    """Return a VM as the profile of a set without instances describes it.

    Raises:
        ArmNotSupported: the instances of the set are created one by one.
    """
    if member(shown, "properties", "orchestrationMode") == "Flexible":
        reason = "the set uses Flexible orchestration; create VMs that name the set"
        raise ArmNotSupported(action="Scaling out", name=group.name, reason=reason)
    model = Vm("model", host="", group=group.name, size=text_of(shown, "sku", "name"))
    profile = member(shown, "properties", "virtualMachineProfile")
    return with_members(model, {"location": shown["location"], "properties": profile})
