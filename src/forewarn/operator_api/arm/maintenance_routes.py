"""Routes of Microsoft.Maintenance: approving an event from outside its VM. Source: Z-2, A-9."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.stimulus import Acknowledge
from forewarn.core.topology import GroupKind
from forewarn.operator_api.arm.inventory import place_of
from forewarn.operator_api.arm.resources import unknown
from forewarn.operator_api.arm.routes import COMPUTE, RESOURCE_GROUP, ArmResponse, ArmRoute
from forewarn.operator_api.arm.set_values import AVAILABILITY_SETS, SCALE_SETS

if TYPE_CHECKING:
    from forewarn.core.lifecycle import Event
    from forewarn.operator_api.arm.routes import ArmCall

_EVENT = (
    RESOURCE_GROUP
    + COMPUTE
    + "/{kind}/{resource}/providers/Microsoft.Maintenance/scheduledevents/{event}"
)
_KINDS = {
    SCALE_SETS.lower(): GroupKind.SCALE_SET,
    AVAILABILITY_SETS.lower(): GroupKind.AVAILABILITY_SET,
}


def routes() -> tuple[ArmRoute, ...]:
    """Return the routes of scheduled events."""
    return (ArmRoute("POST", f"{_EVENT}/acknowledge", "Approve a scheduled event", _acknowledge),)


async def _acknowledge(call: ArmCall) -> ArmResponse:
    """Approve an event of the VM or set a path names."""
    event_id = call.path["event"].upper()
    event = await call.desk.read(lambda plane: plane.state.events.get(event_id))
    if event is None or not event.live or not await _is_of(call, event):
        raise unknown("Microsoft.Maintenance/scheduledevents", call.path["event"], call.place)
    await call.desk.submit(Acknowledge((event_id,)), call.actor)
    return ArmResponse({"value": "Successfully Approved"})


async def _is_of(call: ArmCall, event: Event) -> bool:
    """Whether an event is one of the VM or set a path names. Source: S-4."""
    inventory = await call.resources.inventory()
    kind, name = call.path["kind"].lower(), call.path["resource"]
    if kind == "virtualmachines":
        vm = inventory.vm(name)
        return vm is not None and vm.group == event.group and place_of(vm).key == call.place.key
    group = inventory.group(name)
    if group is None or group.kind is not _KINDS.get(kind) or group.name != event.group:
        return False
    return any(place_of(vm).key == call.place.key for vm in inventory.members(group))
