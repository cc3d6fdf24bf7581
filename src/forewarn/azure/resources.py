"""What routes look resources up in, and what only Azure's tools know of them.

What is remembered here beside the fleet (resource groups made by hand, power states) is the
bookkeeping of one process: no promise rests on it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from forewarn.azure.details import check_size, details, put_details, refuse
from forewarn.azure.inventory import Inventory, ResourceScope, place_of
from forewarn.azure.refusals import ArmResourceGroupUnknown, ArmResourceUnknown
from forewarn.azure.vm_values import INSTANCE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from forewarn.api.control_client import ControlClient
    from forewarn.azure.details import Details, Path
    from forewarn.azure.json_values import JsonObject
    from forewarn.core.topology import Group, Vm
    from forewarn.errors import CallerError

#: Resource groups and power states remembered; the oldest go first.
REMEMBERED_MAX = 10_000
#: Resources whose details are remembered; the oldest go first.
DETAILS_MAX = 1_000


@dataclass(slots=True)
class Resources:
    """The fleet as Azure's tools see it; for the event loop only."""

    control: ControlClient
    #: Whether acts that no driver carries out may be booked as done: the emulator says yes.
    bookkeeping: bool
    #: Resource groups made by hand, by their keys.
    resource_groups: OrderedDict[tuple[str, str], JsonObject] = field(default_factory=OrderedDict)
    #: VMs that do not run, by name: `stopped` or `deallocated`.
    power: OrderedDict[str, str] = field(default_factory=OrderedDict)
    #: Names of sets that were deleted; one that has no VM any more is not shown.
    deleted_sets: OrderedDict[str, None] = field(default_factory=OrderedDict)
    #: What was said of VMs and sets beyond what the fleet knows, by type and name.
    details: OrderedDict[tuple[str, str], Details] = field(default_factory=OrderedDict)
    _inventory: Inventory | None = None

    def within(self, control: ControlClient) -> Resources:
        """Return the same for who may see what `control` may.

        Resource groups without a VM belong to nobody, and are for the whole fleet alone.
        """
        return replace(self, control=control, resource_groups=OrderedDict(), _inventory=None)

    async def inventory(self) -> Inventory:
        """Return the fleet as of the last commit; costs the fleet where it has changed."""
        fleet = await self.control.fleet()
        known = self._inventory
        if known is None or known.topology is not fleet:
            known = self._inventory = await self.control.compute(lambda: Inventory(fleet))
        return known

    async def vm(self, place: ResourceScope, name: str) -> Vm:
        """Return a VM; costs nothing but where its name is in another case.

        Raises:
            ArmResourceUnknown, ArmResourceGroupUnknown: it is not there, or elsewhere.
        """
        vm = await self.control.read(lambda plane: plane.state.topology.vms.get(name))
        if vm is None:
            vm = (await self.inventory()).vm(name)
        if vm is None or place_of(vm).key != place.key:
            raise await self.unknown("Microsoft.Compute/virtualMachines", name, place)
        return vm

    async def unknown(self, kind: str, name: str, place: ResourceScope) -> CallerError:
        """Return the refusal of a resource that is not there, or whose resource group is not."""
        try:
            await self.check_place(place)
        except ArmResourceGroupUnknown as error:
            return error
        return ArmResourceUnknown(
            kind=kind, name=name[:128], resource_group=place.resource_group[:128]
        )

    async def check_place(self, place: ResourceScope) -> None:
        """Refuse a resource group that is not there.

        Raises:
            ArmResourceGroupUnknown: it is not.
        """
        exists = place.key in self.resource_groups
        if not exists and place.key not in (await self.inventory()).places:
            raise ArmResourceGroupUnknown(name=place.resource_group[:128])

    async def group_of(self, vm: Vm) -> Group:
        """Return the group of a VM."""
        return await self.control.read(lambda plane: plane.state.topology.groups[vm.group])

    def set_power(self, names: Iterable[str], state: str) -> None:
        """Remember that VMs do not run; empty: that they do."""
        for name in names:
            self.power.pop(name, None)
            if state:
                self.power[name] = state
        _limit(self.power, REMEMBERED_MAX)

    def shown(self, resource: JsonObject) -> JsonObject:
        """Return a resource with what is remembered of it."""
        return put_details(resource, self.details_of(resource["type"], resource["name"]))

    def details_of(self, kind: str, name: str) -> Details:
        """Return what is remembered of a resource."""
        return self.details.get(_key(kind, name), {})

    def forget(self, kind: str, name: str) -> None:
        """Forget what was said of a resource that had this name before a new one."""
        self.details.pop(_key(kind, name), None)
        self.power.pop(name, None)

    def said(self, body: JsonObject, resource: JsonObject, applied: Collection[Path]) -> Details:
        """Return what a body says of a resource that can only be remembered.

        Raises:
            ArmNotSupported: this is a service, which promises nothing it would not do.
            ValidationFailed: it is too much.
        """
        if self.bookkeeping:
            applied = {*applied, *INSTANCE}
        members = details(body, self.shown(resource), applied)
        check_size(self.details_of(resource["type"], resource["name"]) | members)
        if not self.bookkeeping:
            reason = "nothing here carries it out; only the emulator books it"
            refuse(members, resource["name"], reason)
        return members

    def remember(self, resource: JsonObject, more: Details) -> None:
        """Remember what was said of a resource."""
        key = _key(resource["type"], resource["name"])
        if more:
            self.details[key] = self.details.pop(key, {}) | more
        _limit(self.details, DETAILS_MAX)

    def mark_deleted(self, name: str) -> None:
        """Remember that a set is gone as soon as its VMs are."""
        self.deleted_sets[name] = None
        _limit(self.deleted_sets, REMEMBERED_MAX)

    def add_resource_group(self, place: ResourceScope, shown: JsonObject) -> bool:
        """Remember a resource group; returns whether it is new."""
        new = place.key not in self.resource_groups
        self.resource_groups[place.key] = shown
        _limit(self.resource_groups, REMEMBERED_MAX)
        return new


def _key(kind: str, name: str) -> tuple[str, str]:
    return kind.lower(), name.lower()


def _limit(remembered: OrderedDict[Any, Any], most: int) -> None:
    while len(remembered) > most:
        remembered.popitem(last=False)
