"""The fleet an emulator starts with. No file is read in here and no scenario is known."""

from __future__ import annotations

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
DEFAULT_VM = "vm-1"
DEFAULT_GROUP = "group-1"
#: The public cloud spreads an availability set over so many domains unless told otherwise.
FAULT_DOMAINS = 3
UPDATE_DOMAINS = 5


def default_fleet(
    names: Iterable[str],
    vm_id: Callable[[], str],
    *,
    addresses: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> ChangeTopology:
    """Return the fleet of so many VMs: one group, each VM on a host of its own.

    Args:
        names: of the VMs.
        vm_id: gives the id each tells in its instance metadata.
        addresses: what each asks from, by name; whoever has none is known otherwise.
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
            )
        )
    return ChangeTopology(hosts=tuple(hosts), groups=(Group(DEFAULT_GROUP),), vms=tuple(vms))


def is_empty(change: ChangeTopology) -> bool:
    """Whether a change changes nothing."""
    return not (change.hosts or change.groups or change.vms or change.removed)
