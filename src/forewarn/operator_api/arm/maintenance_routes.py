"""Scheduled events from outside their VMs: approved, and queried in Resource Graph.

Source: Z-2, A-9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.document import shown
from forewarn.core.stimulus import Acknowledge
from forewarn.core.topology import GroupKind
from forewarn.operator_api.arm.graph_query import answered
from forewarn.operator_api.arm.inventory import location_of, place_of
from forewarn.operator_api.arm.json_values import member, text_of
from forewarn.operator_api.arm.routes import COMPUTE, RESOURCE_GROUP, ArmResponse, ArmRoute
from forewarn.operator_api.arm.set_values import AVAILABILITY_SETS, SCALE_SETS
from forewarn.operator_api.arm.tokens import TENANT_ID
from forewarn.operator_api.arm.vm_values import provider_id
from forewarn.protocol.timestamps import rfc1123
from forewarn.validation.fields import ValidationFailed

if TYPE_CHECKING:
    from forewarn.control.plane import StateView
    from forewarn.core.lifecycle import Event, Operation
    from forewarn.operator_api.arm.inventory import Inventory
    from forewarn.operator_api.arm.json_values import JsonObject
    from forewarn.operator_api.arm.routes import ArmCall

#: Most rows of one answer, as with Azure.
ROWS_MAX = 1000
_TYPE = "microsoft.maintenance/scheduledevents"
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
    return (
        ArmRoute("POST", f"{_EVENT}/acknowledge", "Approve a scheduled event", _acknowledge),
        ArmRoute(
            "POST",
            "/providers/Microsoft.ResourceGraph/resources",
            "Query the scheduled events (`maintenanceresources`)",
            _query,
        ),
    )


async def _acknowledge(call: ArmCall) -> ArmResponse:
    """Approve an event of the VM or set a path names."""
    event_id = call.path["event"].upper()
    event = await call.control.read(lambda plane: plane.state.events.get(event_id))
    if event is None or not event.live or not await _is_of(call, event):
        kind = "Microsoft.Maintenance/scheduledevents"
        raise await call.resources.unknown(kind, call.path["event"], call.place)
    await call.control.submit(Acknowledge((event_id,)), call.actor)
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


async def _query(call: ArmCall) -> ArmResponse:
    """Answer a query of Resource Graph; costs the live events of its subscriptions. Source: Z-2."""
    query, asked = text_of(call.json, "query"), call.json.get("subscriptions") or ()
    if not isinstance(asked, list | tuple):
        raise ValidationFailed(where="subscriptions", problem="must be a list")
    for name in ("facets", "managementGroups"):
        if call.json.get(name):
            raise ValidationFailed(where=name, problem="is not served; leave it out")
    if member(call.json, "options", "$skipToken"):
        raise ValidationFailed(where="options.$skipToken", problem="is none of ours; give $skip")
    inventory = await call.resources.inventory()
    subscriptions = {str(each).lower() for each in asked} or set(inventory.subscriptions)
    live = await call.control.read(_live_events)

    def found() -> list[JsonObject]:
        rows = [_row(inventory, operation, event) for operation, event in live]
        return answered(query, [row for row in rows if row["subscriptionId"] in subscriptions])

    rows = await call.control.compute(found)
    first = _whole(call.json, "$skip", 0)
    page = rows[first : first + min(_whole(call.json, "$top", ROWS_MAX), ROWS_MAX)]
    form = text_of(call.json, "options", "resultFormat") or "objectArray"
    if form not in {"objectArray", "table"}:
        raise ValidationFailed(where="options.resultFormat", problem="must be objectArray or table")
    answer: JsonObject = {
        "totalRecords": len(rows),
        "count": len(page),
        "data": _table(page) if form == "table" else page,
        "facets": [],
        "resultTruncated": "false",
    }
    return ArmResponse(answer)


def _live_events(view: StateView) -> list[tuple[Operation, Event]]:
    operations = view.state.operations
    events = view.state.events.values()
    return [(operations[each.operation], each) for each in events if each.live]


def _row(inventory: Inventory, operation: Operation, event: Event) -> JsonObject:
    """Return an event as a row of `maintenanceresources`."""
    vm = inventory.vm(event.resources[0])
    group = inventory.group(event.group)
    if vm is None or group is None:
        return {"subscriptionId": ""}  # its VM was removed meanwhile
    place, host = place_of(vm), inventory.topology.hosts.get(vm.host)
    kind, name = "virtualMachines", vm.name
    if group.kind is GroupKind.SCALE_SET:
        kind, name = SCALE_SETS, group.name
    visible = shown(operation, event)
    return {
        "id": f"{provider_id(place, kind, name)}/providers/{_TYPE}/{event.id}",
        "name": event.id,
        "type": _TYPE,
        "tenantId": TENANT_ID,
        "location": location_of(vm),
        "resourceGroup": place.resource_group.lower(),
        "subscriptionId": place.subscription.lower(),
        "zones": [host.zone] if host is not None and host.zone else None,
        "properties": {
            "EventId": event.id,
            "EventStatus": visible.status,
            "EventType": visible.event_type,
            "EventSource": visible.source,
            "ResourceType": visible.resource_type,
            "Resources": list(visible.resources),
            "NotBefore": "" if visible.not_before_ms is None else rfc1123(visible.not_before_ms),
            "Description": visible.description,
            "DurationInSeconds": visible.duration_s,
            "TargetResourceId": provider_id(place, kind, name),
        },
    }


def _table(rows: list[JsonObject]) -> JsonObject:
    """Return rows as columns and values."""
    names = list(rows[0]) if rows else []
    types = {int: "integer", dict: "object", list: "object"}
    columns = [{"name": name, "type": types.get(type(rows[0][name]), "string")} for name in names]
    return {"columns": columns, "rows": [[row[name] for name in names] for row in rows]}


def _whole(body: JsonObject, name: str, default: int) -> int:
    value = member(body, "options", name)
    if value is None:
        return default
    if not isinstance(value, int) or value < 0:
        raise ValidationFailed(where=f"options.{name}", problem="must be a whole number")
    return value
