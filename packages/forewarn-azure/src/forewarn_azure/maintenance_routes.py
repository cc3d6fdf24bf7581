"""Approval of scheduled events on behalf of VMs, and queries in Resource Graph.

Source: Z-2, A-9.
"""

from __future__ import annotations

from collections.abc import Iterable

from forewarn_azure.cluster_rows import cluster_rows
from forewarn_azure.graph_query import CLUSTER_TABLE, GraphQueryInvalid, answered, table_of
from forewarn_azure.inventory import SCALE_SETS, Inventory, location_of, place_of
from forewarn_azure.json_values import JsonObject, member, text_of
from forewarn_azure.refusals import ArmEventsUnknown
from forewarn_azure.routes import COMPUTE, RESOURCE_GROUP, ArmCall, ArmResponse, ArmRoutes
from forewarn_azure.vm_values import provider_id
from forewarn_base.protocol.documents import ScheduledEvent
from forewarn_base.protocol.timestamps import iso8601, rfc1123
from forewarn_base.protocol.versions import known_in
from forewarn_base.validation.fields import Integer, ValidationFailed
from forewarn_base.values import value
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.document import shown
from forewarn_core.fleet.impact import Impact, Source
from forewarn_core.fleet.lifecycle import Event, EventState, Operation
from forewarn_core.fleet.maintenance import Maintenance
from forewarn_core.fleet.stimulus import Acknowledge
from forewarn_core.fleet.topology import GroupKind, Vm
from forewarn_server.adfs_tokens import TENANT_ID
from forewarn_server.api.responses import encoded_part
from forewarn_server.control.plane import StateView

#: Maximum number of rows of one answer, as in Azure.
ROWS_MAX = 1000
#: Largest answer to a query, in bytes of its rows.
ANSWER_BYTES_MAX = 16 * 1024 * 1024
_TYPE = "microsoft.maintenance/scheduledevents"
#: Maximum number of events that one request may approve.
EVENTS_MAX = 1000
_EVENTS = (
    RESOURCE_GROUP + COMPUTE + "/{kind}/{resource}/providers/Microsoft.Maintenance/scheduledevents"
)
_MAINTENANCE = RESOURCE_GROUP + COMPUTE + "/virtualMachines/{vm}/providers/Microsoft.Maintenance"
ROUTES = ArmRoutes()


@ROUTES.serve(f"POST {_EVENTS}/{{event}}/acknowledge", needs=Permission.APPROVE)
async def _acknowledge(call: ArmCall) -> ArmResponse:
    """Approve an event."""
    event_id = call.path["event"].upper()
    if await _unknown_events(call, (event_id,)):
        kind = "Microsoft.Maintenance/scheduledevents"
        raise await call.resources.unknown(kind, call.path["event"], call.place)
    await call.control.submit(Acknowledge((event_id,)), call.actor)
    return ArmResponse({"value": "Successfully Approved"})


@ROUTES.serve(f"POST {_EVENTS}", needs=Permission.APPROVE)
async def _acknowledge_all(call: ArmCall) -> ArmResponse:
    """Approve events (`{"value": [ids]}`).

    The route approves all or none of the events. Source: Z-5.
    """
    event_ids = call.json.get("value")
    if not isinstance(event_ids, list) or not all(isinstance(each, str) for each in event_ids):
        raise ValidationFailed(where="value", problem="must be a list of event ids")
    if not 0 < len(event_ids) <= EVENTS_MAX:
        raise ValidationFailed(where="value", problem=f"must have 1 to {EVENTS_MAX} event ids")
    ids = tuple(dict.fromkeys(each.upper() for each in event_ids))
    if unknown := await _unknown_events(call, ids):
        raise ArmEventsUnknown(unknown)
    await call.control.submit(Acknowledge(ids), call.actor)
    return ArmResponse({"value": "Successfully Approved"})


async def _unknown_events(call: ArmCall, ids: tuple[str, ...]) -> list[str]:
    """Return the ids that name no live event of the VM or set in the path."""
    inventory = await call.resources.inventory()
    group = inventory.group_at(call.place, call.path["kind"], call.path["resource"])
    events = await call.control.read(lambda plane: [plane.state.events.get(each) for each in ids])
    return [
        name
        for name, event in zip(ids, events, strict=True)
        if event is None or not event.live or group is None or event.group != group.name
    ]


# --- updates: a VM's planned work in Azure's maintenance service ---------------------------------


@ROUTES.serve(f"GET {_MAINTENANCE}/updates")
async def _updates(call: ArmCall) -> ArmResponse:
    """List a VM's planned work.

    Source: Z-7.
    """
    vm = await call.vm()
    return ArmResponse({"value": [_update(call, *each) for each in await _planned(call, vm)]})


@ROUTES.serve(
    f"PUT {_MAINTENANCE}/applyUpdates/default", needs=Permission.APPROVE, needs_body=False
)
async def _apply_updates(call: ArmCall) -> ArmResponse:
    """Approve a VM's planned work, so that the work starts now.

    Source: Z-7.
    """
    vm = await call.vm()
    ids = tuple(each.id for _, each in await _planned(call, vm) if each.state in _UNAPPROVED)
    if ids:
        await call.control.submit(Acknowledge(ids), call.actor)
    return ArmResponse(await _applied(call, vm), 201 if ids else 200)


@ROUTES.serve(f"GET {_MAINTENANCE}/applyUpdates/{{update}}")
async def _apply_update(call: ArmCall) -> ArmResponse:
    """Show the progress of a VM's planned work."""
    return ArmResponse(await _applied(call, await call.vm()))


async def _applied(call: ArmCall, vm: Vm) -> JsonObject:
    statuses = [_UPDATE_STATUS[event.state] for _, event in await _planned(call, vm)]
    status = next((each for each in ("InProgress", "Pending") if each in statuses), "Completed")
    resource = provider_id(call.place, "virtualMachines", vm.name)
    return {
        "id": f"{resource}/providers/Microsoft.Maintenance/applyUpdates/default",
        "name": "default",
        "type": "Microsoft.Maintenance/applyUpdates",
        "properties": {"status": status, "resourceId": resource},
    }


async def _planned(call: ArmCall, vm: Vm) -> list[tuple[Operation, Event]]:
    live = await call.control.read(_live_events)
    return [
        (operation, event)
        for operation, event in live
        if vm.name in event.resources and operation.source is Source.PLATFORM
    ]


def _update(call: ArmCall, operation: Operation, event: Event) -> JsonObject:
    visible = shown(operation, event)
    update: JsonObject = {
        "maintenanceScope": "Host",
        "impactType": _IMPACTS.get(operation.impact, "Restart"),
        "status": _UPDATE_STATUS[event.state],
        "impactDurationInSec": max(operation.duration_s, 0),
        "properties": {"resourceId": provider_id(call.place, "virtualMachines", call.path["vm"])},
    }
    if visible.not_before_ms is not None:
        update["notBefore"] = iso8601(visible.not_before_ms)
    return update


_UNAPPROVED = frozenset({EventState.SCHEDULED})
_UPDATE_STATUS = {
    EventState.SCHEDULED: "Pending",
    EventState.APPROVED: "Pending",
    EventState.STARTED: "InProgress",
}
_IMPACTS = {Impact.FREEZE: "Freeze", Impact.REBOOT: "Restart", Impact.REDEPLOY: "Redeploy"}


# --- Resource Graph -------------------------------------------------------------------------------


@ROUTES.serve("POST /providers/Microsoft.ResourceGraph/resources", needs=Permission.READ)
async def _query(call: ArmCall) -> ArmResponse:
    """Query scheduled events (`maintenanceresources`, `containerserviceeventresources`).

    It costs O(live events of the subscriptions), or O(VMs of declared maintenances).
    Source: Z-2, Z-11.
    """
    query = _read_query(call.json)
    inventory = await call.resources.inventory()
    live: list[tuple[Operation, Event]] = []
    declared: list[Maintenance] = []
    if query.table == CLUSTER_TABLE:
        declared = await call.control.read(_maintenances)
    else:
        live = await call.control.read(_live_events)

    def page() -> JsonObject:
        rows = [_row(inventory, operation, event) for operation, event in live]
        rows += cluster_rows(inventory, declared)
        subscriptions = query.subscriptions or inventory.subscriptions
        return query.page([row for row in rows if row["subscriptionId"] in subscriptions])

    return ArmResponse(await call.control.compute(page))


@value
class _GraphQuery:
    """A query in Resource Graph, with its page."""

    text: str
    #: Ids of subscriptions in lower case; empty: all subscriptions.
    subscriptions: frozenset[str]
    #: Number of skipped rows, and maximum number of rows of the page.
    skip: int
    top: int
    #: Whether the rows are columns and values instead of objects.
    as_table: bool

    @property
    def table(self) -> str:
        """The name of the queried table."""
        return table_of(self.text)

    def page(self, rows: list[JsonObject]) -> JsonObject:
        """Return the body of the answer for the rows of the table."""
        result = answered(self.text, rows)
        page = result[self.skip : self.skip + min(self.top, ROWS_MAX)]
        return {
            "totalRecords": len(result),
            "count": len(page),
            "data": _table(page) if self.as_table else _encoded(page),
            "facets": [],
            "resultTruncated": "false",
        }


def _read_query(body: JsonObject) -> _GraphQuery:
    """Read a query from a request.

    Raises:
        ValidationFailed: a member is wrong or not supported.
    """
    subscriptions = body.get("subscriptions") or ()
    if not isinstance(subscriptions, list | tuple):
        raise ValidationFailed(where="subscriptions", problem="must be a list")
    for name in ("facets", "managementGroups"):
        if body.get(name):
            raise ValidationFailed(where=name, problem="is not supported; omit it")
    if member(body, "options", "$skipToken"):
        raise ValidationFailed(
            where="options.$skipToken", problem="is not a page token of this server; use $skip"
        )
    form = text_of(body, "options", "resultFormat") or "objectArray"
    if form not in {"objectArray", "table"}:
        raise ValidationFailed(where="options.resultFormat", problem="must be objectArray or table")
    return _GraphQuery(
        text=text_of(body, "query"),
        subscriptions=frozenset(str(each).lower() for each in subscriptions),
        skip=_option(body, "$skip", 0),
        top=_option(body, "$top", ROWS_MAX),
        as_table=form == "table",
    )


def _live_events(view: StateView) -> list[tuple[Operation, Event]]:
    operations = view.state.operations
    events = view.state.events.values()
    return [(operations[each.operation], each) for each in events if each.live]


def _maintenances(view: StateView) -> list[Maintenance]:
    """Return the maintenances that a caller may see whole."""
    return [] if view.unscoped is not None else list(view.state.maintenances.values())


def _row(inventory: Inventory, operation: Operation, event: Event) -> JsonObject:
    """Return an event as a row of `maintenanceresources`."""
    vm = inventory.find_vm(event.resources[0])
    group = inventory.find_group(event.group)
    if vm is None or group is None or not group.published:
        return {"subscriptionId": ""}  # the VM was removed, or its events are not published. Z-6
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
            **_fields(visible, group.published),
            "TargetResourceId": provider_id(place, kind, name),
        },
    }


def _fields(event: ScheduledEvent, version: str) -> JsonObject:
    """Return an event's properties in the form of an api-version. Source: Z-6."""
    return known_in(
        version,
        {
            "EventId": event.event_id,
            "EventStatus": event.status,
            "EventType": event.event_type,
            "EventSource": event.source,
            "ResourceType": event.resource_type,
            "Resources": list(event.resources),
            "NotBefore": "" if event.not_before_ms is None else rfc1123(event.not_before_ms),
            "Description": event.description,
            "DurationInSeconds": event.duration_s,
        },
    )


def _encoded(rows: Iterable[object]) -> list[object]:
    """Return rows as parts of the answer.

    Raises:
        GraphQueryInvalid: the answer is too large.
    """
    size = 0
    parts: list[object] = []
    for row in rows:
        part = encoded_part(row)
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise GraphQueryInvalid(reason=f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
    return parts


def _table(rows: list[JsonObject]) -> JsonObject:
    """Return rows in Azure's table form, as columns and values."""
    names = list(rows[0]) if rows else []
    types = {int: "integer", dict: "object", list: "object"}
    columns = [{"name": name, "type": types.get(type(rows[0][name]), "string")} for name in names]
    return {"columns": columns, "rows": _encoded([row[name] for name in names] for row in rows)}


def _option(body: JsonObject, name: str, default: int) -> int:
    """Return a whole number among the options of a query."""
    option = member(body, "options", name)
    return default if option is None else Integer().read(option, f"options.{name}")
