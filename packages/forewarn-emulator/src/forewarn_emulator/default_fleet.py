"""The default fleet of an emulator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from types import MappingProxyType

from forewarn_base.values import replace
from forewarn_core.fleet.stimulus import ChangeTopology
from forewarn_core.fleet.topology import Group, Host, Vm

#: Actor of the fleet's creation in history.
ACTOR = "emulator"
#: Prefix of a scenario's actor in history, followed by the scenario's name.
SCENARIO = "scenario "
#: Actors whose deleted VMs remain deleted: scenarios, and callers of Azure's API.
KEEPS_AWAY = (SCENARIO, "azure ")
DEFAULT_VM = "vm-1"
DEFAULT_GROUP = "group-1"
#: Default number of fault domains of an availability set in the public cloud.
FAULT_DOMAINS = 3
UPDATE_DOMAINS = 5
SIZE, LOCATION, RESOURCE_GROUP = "Standard_D2s_v5", "emulated", "emulator"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
#: Instance metadata for cloud-init, waagent and ohai, with values of a common image.
IMAGE = {
    "offer": "debian-12",
    "publisher": "Debian",
    "sku": "12-gen2",
    "version": "0.20251112.2294",
}
USER = {"osProfile.adminUsername": "azureuser"}
#: Attributes that describe a network interface.
NETWORK = frozenset({"macAddress", "privateIpAddress", "subnet"})
SUBNET = "10.0.0.0/16"
#: Index of the first VM's address: the public cloud reserves the first four of a subnet.
FIRST_ADDRESS = 4


def default_fleet(
    names: Iterable[str],
    *,
    addresses: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> ChangeTopology:
    """Return a fleet with one group, and each VM on its own host."""
    hosts, vms = [], []
    for index, name in enumerate(names):
        host = Host(
            f"host-{index + 1}",
            fault_domain=index % FAULT_DOMAINS,
            update_domain=index % UPDATE_DOMAINS,
        )
        hosts.append(host)
        vm = Vm(
            name,
            host=host.name,
            group=DEFAULT_GROUP,
            addresses=addresses.get(name, ()),
            instance=tuple(_network(index).items()),
        )
        vms.append(vm)
    fleet = ChangeTopology(hosts=tuple(hosts), groups=(Group(DEFAULT_GROUP),), vms=tuple(vms))
    return completed(fleet, {})


def completed(fleet: ChangeTopology, known: Mapping[str, Vm]) -> ChangeTopology:
    """Return a fleet whose new VMs have all members by which clients recognise the public cloud.

    Given members remain, and known VMs keep theirs; a VM without an address and an interface has
    one of the subnet. O(VMs). See I-5.
    """
    vms = [
        vm if vm.name in known else _complete(vm, len(known) + n) for n, vm in enumerate(fleet.vms)
    ]
    return replace(fleet, vms=tuple(vms))


def _complete(vm: Vm, index: int) -> Vm:
    facts = dict(vm.instance)
    if not facts.keys() & IMAGE.keys():
        facts |= IMAGE
    if not (vm.addresses or facts.keys() & NETWORK):
        facts |= _network(index)
    return replace(
        vm,
        size=vm.size or SIZE,
        location=vm.location or LOCATION,
        resource_group=vm.resource_group or RESOURCE_GROUP,
        subscription=vm.subscription or SUBSCRIPTION,
        instance=tuple((USER | facts).items()),
    )


def _network(index: int) -> dict[str, str]:
    """Return a VM's network interface for instance metadata."""
    network = ip_network(SUBNET)
    place = FIRST_ADDRESS + index % (network.num_addresses - FIRST_ADDRESS - 1)
    return {
        "macAddress": f"000D3A{place:06X}",
        "privateIpAddress": str(network[place]),
        "subnet": SUBNET,
    }


def is_empty(change: ChangeTopology) -> bool:
    """Whether a change is empty."""
    return not (change.hosts or change.groups or change.vms or change.removed)
