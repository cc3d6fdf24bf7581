"""The fleet by subscription and resource group, as Azure structures it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from forewarn_base.values import value
from forewarn_core.fleet.topology import Group, GroupKind, Topology, Vm
from forewarn_metadata.endpoint.instance_fields import DEFAULT_RESOURCE_GROUP, DEFAULT_SUBSCRIPTION

#: Default region of a VM.
DEFAULT_LOCATION = "local"
#: Names of sets in Azure's paths.
SCALE_SETS, AVAILABILITY_SETS = "virtualMachineScaleSets", "availabilitySets"
SETS = {GroupKind.SCALE_SET: SCALE_SETS, GroupKind.AVAILABILITY_SET: AVAILABILITY_SETS}


def location_of(vm: Vm) -> str:
    """Return the region of a VM."""
    return vm.location or DEFAULT_LOCATION


@value
class ResourceScope:
    """A subscription and a resource group."""

    subscription: str
    resource_group: str

    @property
    def key(self) -> tuple[str, str]:
        """The key for lookups in lower case, because Azure ignores the case of names."""
        return self.subscription.lower(), self.resource_group.lower()


class Inventory:
    """An index of one state of the fleet; a build costs O(fleet).

    Forewarn rebuilds the index on the first use after a change.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._vm_names: dict[str, str] = {}
        self._group_names = {name.lower(): name for name in topology.groups}
        self._at: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self.places: dict[tuple[str, str], ResourceScope] = {}
        for name in sorted(topology.vms):
            vm = topology.vms[name]
            place = place_of(vm)
            self._vm_names[name.lower()] = name
            self._at[place.key].append(name)
            self.places.setdefault(place.key, place)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """All subscriptions with a VM, sorted; for an empty fleet, the default subscription."""
        names_of_subscriptions = {place.subscription.lower() for place in self.places.values()}
        return tuple(sorted(names_of_subscriptions)) or (DEFAULT_SUBSCRIPTION,)

    def find_vm(self, name: str) -> Vm | None:
        """Return a VM by its name, ignoring case."""
        exact = self._vm_names.get(name.lower())
        return None if exact is None else self.topology.vms[exact]

    def find_group(self, name: str) -> Group | None:
        """Return a group by its name, ignoring case."""
        exact = self._group_names.get(name.lower())
        return None if exact is None else self.topology.groups[exact]

    def group_at(self, place: ResourceScope, kind: str, name: str) -> Group | None:
        """Return the group of a VM, or the set, in a resource group. Source: S-4.

        `kind` is the resource type in the path, in any case.
        """
        vm = self.find_vm(name) if kind.lower() == "virtualmachines" else None
        group = self.topology.groups[vm.group] if vm else self.find_group(name)
        if group is None or (vm is None and SETS.get(group.kind, "").lower() != kind.lower()):
            return None
        members = [vm] if vm else self.members(group)
        return group if any(place_of(each).key == place.key for each in members) else None

    def vms(self, subscription: str, resource_group: str = "") -> Iterator[Vm]:
        """Yield the VMs of a subscription, or of one resource group, sorted by name."""
        for (of, group), names in self._at.items():
            if of == subscription.lower() and resource_group.lower() in {"", group}:
                for name in names:
                    yield self.topology.vms[name]

    def groups(self, kind: GroupKind, subscription: str, resource_group: str = "") -> list[Group]:
        """Return the groups of a kind with a VM in a subscription or resource group, by name."""
        names = {vm.group for vm in self.vms(subscription, resource_group)}
        groups = [self.topology.groups[name] for name in sorted(names)]
        return [group for group in groups if group.kind is kind]

    def members(self, group: Group) -> list[Vm]:
        """Return the VMs of a group, sorted by name."""
        return [self.topology.vms[name] for name in self.topology.vms_in(group.name)]


def place_of(vm: Vm) -> ResourceScope:
    """Return the subscription and resource group of a VM, in their original case."""
    return ResourceScope(
        vm.subscription or DEFAULT_SUBSCRIPTION, vm.resource_group or DEFAULT_RESOURCE_GROUP
    )
