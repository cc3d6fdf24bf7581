"""The default fleet of an emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_network
from types import MappingProxyType

from forewarn.core.stimulus import ChangeTopology
from forewarn.core.topology import Group, Host, Vm

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
#: Instance metadata for cloud-init, waagent and ohai, with values of a common image.
IMAGE = (
    ("offer", "debian-12"),
    ("publisher", "Debian"),
    ("sku", "12-gen2"),
    ("version", "0.20251112.2294"),
    ("osProfile.adminUsername", "azureuser"),
)
SUBNET = "10.0.0.0/16"
#: Index of the first VM's address: the public cloud reserves the first four of a subnet.
FIRST_ADDRESS = 4


def default_fleet(
    names: Iterable[str],
    vm_id: Callable[[], str],
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
        vms.append(
            Vm(
                name,
                host=host.name,
                group=DEFAULT_GROUP,
                size="Standard_D2s_v5",
                addresses=addresses.get(name, ()),
                vm_id=vm_id().lower(),
                location="emulated",
                resource_group="emulator",
                subscription="00000000-0000-0000-0000-000000000000",
                instance=(*IMAGE, *_network(index)),
            )
        )
    return ChangeTopology(hosts=tuple(hosts), groups=(Group(DEFAULT_GROUP),), vms=tuple(vms))


def _network(index: int) -> tuple[tuple[str, str], ...]:
    """Return a VM's network interface for instance metadata."""
    network = ip_network(SUBNET)
    place = FIRST_ADDRESS + index % (network.num_addresses - FIRST_ADDRESS - 1)
    return (
        ("macAddress", f"000D3A{place:06X}"),
        ("privateIpAddress", str(network[place])),
        ("subnet", SUBNET),
    )


def is_empty(change: ChangeTopology) -> bool:
    """Whether a change is empty."""
    return not (change.hosts or change.groups or change.vms or change.removed)
