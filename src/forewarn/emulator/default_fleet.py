"""The fleet an emulator starts with. No file is read in here and no scenario is known."""

from __future__ import annotations

from ipaddress import ip_network
from types import MappingProxyType
from typing import TYPE_CHECKING

from forewarn.core.stimulus import ChangeTopology
from forewarn.core.topology import Group, Host, Vm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

#: Who lays the fleet out, as history calls him.
ACTOR = "emulator"
#: Who acts for a scenario is called so, its name behind it.
SCENARIO = "scenario "
#: Actors whose deleted VMs do not come back: scenarios, and users of Azure's tools.
KEEPS_AWAY = (SCENARIO, "azure ")
DEFAULT_VM = "vm-1"
DEFAULT_GROUP = "group-1"
#: The public cloud spreads an availability set over this many domains by default.
FAULT_DOMAINS = 3
UPDATE_DOMAINS = 5
#: What cloud-init, waagent and ohai read; the values are those of a common image.
IMAGE = (
    ("offer", "debian-12"),
    ("publisher", "Debian"),
    ("sku", "12-gen2"),
    ("version", "0.20251112.2294"),
    ("osProfile.adminUsername", "azureuser"),
)
SUBNET = "10.0.0.0/16"
#: The public cloud keeps the first four addresses of a subnet for itself.
FIRST_ADDRESS = 4


def default_fleet(
    names: Iterable[str],
    vm_id: Callable[[], str],
    *,
    addresses: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> ChangeTopology:
    """Return the fleet of this many VMs: one group, each VM on a host of its own.

    Args:
        names: of the VMs.
        vm_id: gives the id each has in its instance metadata.
        addresses: what each asks from, by name; a VM without one is known otherwise.
    """
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
    """Return what a VM is shown of its network interface; requests may come from elsewhere."""
    network = ip_network(SUBNET)
    place = FIRST_ADDRESS + index % (network.num_addresses - FIRST_ADDRESS - 1)
    return (
        ("macAddress", f"000D3A{place:06X}"),
        ("privateIpAddress", str(network[place])),
        ("subnet", SUBNET),
    )


def is_empty(change: ChangeTopology) -> bool:
    """Whether a change changes nothing."""
    return not (change.hosts or change.groups or change.vms or change.removed)
