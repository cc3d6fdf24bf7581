"""Lookup of resources, and of details that only Azure's tools use.

Only this process's memory contains resource groups without VMs, and power states.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from forewarn_azure.details import Details, Path, check_size, details, put_details, refuse
from forewarn_azure.inventory import Inventory, ResourceScope, place_of
from forewarn_azure.json_values import JsonObject
from forewarn_azure.refusals import ArmResourceGroupUnknown, ArmResourceUnknown
from forewarn_azure.vm_values import INSTANCE
from forewarn_base.errors import CallerError
from forewarn_core.fleet.lifecycle import EventState
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import Acknowledge
from forewarn_core.fleet.topology import Group, Vm
from forewarn_server.api.control_client import ControlClient
from forewarn_server.control.plane import StateView

#: Maximum number of resource groups and of power states in memory; the oldest are dropped first.
REMEMBERED_MAX = 10_000
#: Maximum number of resources with details in memory; the oldest are dropped first.
DETAILS_MAX = 1_000


@dataclass(slots=True)
class Resources:
    """The fleet as Azure's tools see it; used only on the event loop."""

    control: ControlClient
    #: Whether Forewarn only records actions without a driver; true in the emulator.
    bookkeeping: bool
    #: Resource groups that a request created, by key.
    resource_groups: OrderedDict[tuple[str, str], JsonObject] = field(default_factory=OrderedDict)
    #: Stopped VMs by name: `stopped` or `deallocated`.
    power: OrderedDict[str, str] = field(default_factory=OrderedDict)
    #: Lock for changes of the policy's windows.
    policy_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: Names of deleted sets; a deleted set without VMs is hidden.
    deleted_sets: OrderedDict[str, None] = field(default_factory=OrderedDict)
    #: Details of VMs and sets by type and name.
    details: OrderedDict[tuple[str, str], Details] = field(default_factory=OrderedDict)
    _inventory: Inventory | None = None

    def within(self, control: ControlClient) -> Resources:
        """Return a view that shows the objects visible to `control`.

        Resource groups without a VM have no owner, so only principals of the whole fleet see them.
        """
        return replace(self, control=control, resource_groups=OrderedDict(), _inventory=None)

    async def inventory(self) -> Inventory:
        """Return the fleet as of the last commit; O(fleet) if it has changed."""
        fleet = await self.control.fleet()
        known = self._inventory
        if known is None or known.topology is not fleet:
            known = self._inventory = await self.control.compute(lambda: Inventory(fleet))
        return known

    async def vm(self, place: ResourceScope, name: str) -> Vm:
        """Return a VM by name; O(fleet) only if the case of the name differs.

        Raises:
            ArmResourceUnknown, ArmResourceGroupUnknown: the VM or its resource group does not
                exist.
        """
        vm = await self.control.read(lambda plane: plane.state.topology.vms.get(name))
        if vm is None:
            vm = (await self.inventory()).find_vm(name)
        if vm is None or place_of(vm).key != place.key:
            raise await self.unknown("Microsoft.Compute/virtualMachines", name, place)
        return vm

    async def unknown(self, kind: str, name: str, place: ResourceScope) -> CallerError:
        """Return the error for a missing resource or a missing resource group."""
        try:
            await self.check_place(place)
        except ArmResourceGroupUnknown as error:
            return error
        return ArmResourceUnknown(
            kind=kind, name=name[:128], resource_group=place.resource_group[:128]
        )

    async def check_place(self, place: ResourceScope) -> None:
        """Refuse an unknown resource group.

        Raises:
            ArmResourceGroupUnknown: the resource group does not exist.
        """
        exists = place.key in self.resource_groups
        if not exists and place.key not in (await self.inventory()).places:
            raise ArmResourceGroupUnknown(name=place.resource_group[:128])

    async def group_of(self, vm: Vm) -> Group:
        """Return the group of a VM."""
        return await self.control.read(lambda plane: plane.state.topology.groups[vm.group])

    def committed(self, committed: StepResult) -> None:
        """Check a commit for events of stopped VMs; runs on the control loop's thread. Z-6."""
        if self.power and any(e.action == "operation.announced" for e in committed.entries):
            self._approve_down()

    def _approve_down(self) -> None:
        """Approve events of groups with `approves_when_down` whose VMs are all off. Z-6."""
        loop, down = self.control.writer, frozenset(self.power)

        def approve(events: Future[tuple[str, ...]]) -> None:
            if not events.cancelled() and not events.exception() and events.result():
                loop.submit(Acknowledge(events.result()), "policy allInstancesDown")

        loop.read(lambda view: _events_of_down(view, down)).add_done_callback(approve)

    def set_power(self, names: Iterable[str], state: str) -> None:
        """Store the power state of VMs; an empty state means running."""
        names = tuple(names)
        for name in names:
            self.power.pop(name, None)
            if state:
                self.power[name] = state
        _limit(self.power, REMEMBERED_MAX)
        if state:
            self._approve_down()

    def shown(self, resource: JsonObject) -> JsonObject:
        """Return a resource with its stored details."""
        return put_details(resource, self.details_of(resource["type"], resource["name"]))

    def details_of(self, kind: str, name: str) -> Details:
        """Return the stored details of a resource."""
        return self.details.get(_key(kind, name), {})

    def forget(self, kind: str, name: str) -> None:
        """Delete the details of a deleted resource with the same name."""
        self.details.pop(_key(kind, name), None)
        self.power.pop(name, None)

    def read_details(
        self, body: JsonObject, resource: JsonObject, applied: Collection[Path]
    ) -> Details:
        """Return the details in a request body.

        Raises:
            ArmNotSupported: the process is a service, which supports no details.
            ValidationFailed: the details are too large.
        """
        if self.bookkeeping:
            applied = {*applied, *INSTANCE}
        members = details(body, self.shown(resource), applied)
        check_size(self.details_of(resource["type"], resource["name"]) | members)
        if not self.bookkeeping:
            reason = "Forewarn does not apply this member; only the emulator records it"
            refuse(members, resource["name"], reason)
        return members

    def remember(self, resource: JsonObject, more: Details) -> None:
        """Store the details of a resource."""
        key = _key(resource["type"], resource["name"])
        if more:
            self.details[key] = self.details.pop(key, {}) | more
        _limit(self.details, DETAILS_MAX)

    def mark_deleted(self, name: str) -> None:
        """Hide a set once its VMs are gone."""
        self.deleted_sets[name] = None
        _limit(self.deleted_sets, REMEMBERED_MAX)

    def add_resource_group(self, place: ResourceScope, shown: JsonObject) -> bool:
        """Store a resource group; return whether it is new."""
        new = place.key not in self.resource_groups
        self.resource_groups[place.key] = shown
        _limit(self.resource_groups, REMEMBERED_MAX)
        return new


def _events_of_down(view: StateView, down: frozenset[str]) -> tuple[str, ...]:
    """Return unapproved events of groups with `approves_when_down` whose VMs are all off."""
    topology = view.state.topology
    groups = {topology.vms[vm].group for vm in down if vm in topology.vms}
    off = {
        group
        for group in groups
        if topology.groups[group].approves_when_down and down.issuperset(topology.vms_in(group))
    }
    events = view.state.events.values()
    return tuple(e.id for e in events if e.state is EventState.SCHEDULED and e.group in off)


def _key(kind: str, name: str) -> tuple[str, str]:
    return kind.lower(), name.lower()


def _limit(remembered: OrderedDict[Any, Any], most: int) -> None:
    while len(remembered) > most:
        remembered.popitem(last=False)
