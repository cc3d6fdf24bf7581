"""Routes of subscriptions, tenants, providers and resource groups. Source: Z-3.

A subscription or resource group exists if a VM names it. Resource groups from requests exist only
in memory.
"""

from __future__ import annotations

from forewarn_azure import operations
from forewarn_azure.details import check_size, details, put_details
from forewarn_azure.filters import filtered
from forewarn_azure.inventory import DEFAULT_LOCATION, ResourceScope, location_of
from forewarn_azure.json_values import JsonObject, text_of
from forewarn_azure.refusals import ArmResourceGroupUnknown
from forewarn_azure.routes import RESOURCE_GROUP, SUBSCRIPTION, ArmCall, ArmResponse, ArmRoutes
from forewarn_azure.vm_values import SUCCEEDED, read_tags
from forewarn_core.access.roles import Permission
from forewarn_core.fleet.impact import Cause
from forewarn_server.adfs_tokens import TENANT_ID

#: Supported providers and their resource types.
_PROVIDERS = {
    "Microsoft.Compute": (
        "virtualMachines",
        "virtualMachineScaleSets",
        "virtualMachineScaleSets/virtualMachines",
        "availabilitySets",
        "locations/operations",
    ),
    "Microsoft.Maintenance": (
        "scheduledevents",
        "updates",
        "applyUpdates",
        "maintenanceConfigurations",
        "configurationAssignments",
    ),
    "Microsoft.ResourceGraph": ("resources",),
    "Microsoft.Resources": ("resourceGroups", "subscriptions"),
}

ROUTES = ArmRoutes()
_PROVIDER = SUBSCRIPTION + "/providers/{namespace}"
_LOCATIONS, _GROUPS = f"{SUBSCRIPTION}/locations", f"{SUBSCRIPTION}/resourceGroups"
#: Ignored parameters: no region has extended locations; forced deletion has no special effect.
_NOT_EXTENDED, _FORCE = "includeextendedlocations", "forcedeletiontypes"


@ROUTES.serve("GET /tenants")
async def _tenants(_call: ArmCall) -> ArmResponse:
    """List the only tenant."""
    tenant = {
        "id": f"/tenants/{TENANT_ID}",
        "tenantId": TENANT_ID,
        "displayName": "Forewarn",
        "tenantCategory": "Home",
    }
    return ArmResponse({"value": [tenant]})


@ROUTES.serve("GET /subscriptions")
async def _subscriptions(call: ArmCall) -> ArmResponse:
    """List the subscriptions of VMs."""
    inventory = await call.resources.inventory()
    return ArmResponse({"value": [_subscription(name) for name in inventory.subscriptions]})


@ROUTES.serve(f"GET {SUBSCRIPTION}")
async def _get_subscription(call: ArmCall) -> ArmResponse:
    """Read a subscription."""
    return ArmResponse(_subscription(await call.subscription()))


def _subscription(name: str) -> JsonObject:
    return {
        "id": f"/subscriptions/{name}",
        "subscriptionId": name,
        "tenantId": TENANT_ID,
        "displayName": f"Forewarn {name[:8]}",
        "state": "Enabled",
        "subscriptionPolicies": {"quotaId": "Internal", "spendingLimit": "Off"},
        "authorizationSource": "RoleBased",
    }


@ROUTES.serve(f"GET {_LOCATIONS}", _NOT_EXTENDED)
async def _locations(call: ArmCall) -> ArmResponse:
    """List the regions of VMs."""
    subscription = await call.subscription()
    inventory = await call.resources.inventory()
    names = {location_of(vm) for vm in inventory.vms(subscription)} or {DEFAULT_LOCATION}
    shown = [
        {
            "id": f"/subscriptions/{subscription}/locations/{name}",
            "name": name,
            "displayName": name,
            "regionalDisplayName": name,
            "type": "Region",
            "metadata": {"regionType": "Physical"},
        }
        for name in sorted(names)
    ]
    return ArmResponse({"value": shown})


@ROUTES.serve(f"GET {SUBSCRIPTION}/providers")
@ROUTES.serve("GET /providers")
async def _providers(call: ArmCall) -> ArmResponse:
    """List providers."""
    return ArmResponse({"value": [_provider(call, name) for name in _PROVIDERS]})


@ROUTES.serve(
    f"POST {_PROVIDER}/register",
    needs=Permission.SIGNED_IN,
    summary="Register a provider (no effect)",
)
@ROUTES.serve(f"GET {_PROVIDER}")
async def _get_provider(call: ArmCall) -> ArmResponse:
    """Read a provider."""
    return ArmResponse(_provider(call, call.path["namespace"]))


def _provider(call: ArmCall, name: str) -> JsonObject:
    """Return a provider, even an unsupported provider, as registered."""
    known = {each.lower(): each for each in _PROVIDERS}
    types = _PROVIDERS.get(known.get(name.lower(), ""), ())
    shown: JsonObject = {
        "namespace": known.get(name.lower(), name[:128]),
        "registrationState": "Registered" if types else "NotRegistered",
        "resourceTypes": [
            {
                "resourceType": each,
                "locations": [DEFAULT_LOCATION],
                "apiVersions": [call.api_version],
            }
            for each in types
        ],
    }
    if "subscription" in call.path:
        path = f"/subscriptions/{call.path['subscription']}/providers/{shown['namespace']}"
        shown["id"] = path
    return shown


@ROUTES.serve(f"GET {_GROUPS}", "$filter", "$top")
async def _resource_groups(call: ArmCall) -> ArmResponse:
    """List resource groups."""
    subscription = await call.subscription()
    inventory = await call.resources.inventory()
    groups = {key: _shown_group(place) for key, place in inventory.places.items()}
    groups.update(call.resources.resource_groups)
    listed = [groups[key] for key in sorted(groups) if key[0] == subscription]
    columns = {"name": "name", "location": "location"}
    return ArmResponse({"value": filtered(call.query, listed, columns)})


@ROUTES.serve(f"GET {RESOURCE_GROUP}")
async def _get_group(call: ArmCall) -> ArmResponse:
    """Read a resource group."""
    return ArmResponse(await _group(call))


async def _group(call: ArmCall) -> JsonObject:
    place = call.place
    created = call.resources.resource_groups.get(place.key)
    if created is not None:
        return created
    scope = (await call.resources.inventory()).places.get(place.key)
    if scope is None:
        raise ArmResourceGroupUnknown(name=place.resource_group[:128])
    return _shown_group(scope)


@ROUTES.serve(f"PUT {RESOURCE_GROUP}", needs=Permission.OPERATE)
async def _put_group(call: ArmCall) -> ArmResponse:
    """Create a resource group (record only)."""
    await call.subscription()
    place = call.place
    shown = _shown_group(place, text_of(call.json, "location") or DEFAULT_LOCATION)
    if call.json.get("tags") is not None:
        shown["tags"] = dict(read_tags(call.json["tags"]))
    more = details(call.json, shown, {("location",), ("tags",)})
    check_size(more)
    places = (await call.resources.inventory()).places
    present = place.key in places or place.key in call.resources.resource_groups
    call.check_condition(present=present)
    new = call.resources.add_resource_group(place, put_details(shown, more))
    return ArmResponse(shown, 201 if new else 200)


@ROUTES.serve(f"DELETE {RESOURCE_GROUP}", _FORCE, needs=Permission.OPERATE)
async def _delete_group(call: ArmCall) -> ArmResponse:
    """Request the deletion of a resource group's VMs."""
    await call.resources.check_place(call.place)
    inventory = await call.resources.inventory()
    vms = tuple(inventory.vms(*call.place.key))
    response = await operations.begin(call, Cause.DELETION, vms) if vms else ArmResponse()
    call.resources.resource_groups.pop(call.place.key, None)
    for name in {vm.group for vm in vms}:
        call.resources.mark_deleted(name)
    return response


def _shown_group(place: ResourceScope, location: str = DEFAULT_LOCATION) -> JsonObject:
    return {
        "id": f"/subscriptions/{place.subscription}/resourceGroups/{place.resource_group}",
        "name": place.resource_group,
        "type": "Microsoft.Resources/resourceGroups",
        "location": location,
        "tags": {},
        "properties": {"provisioningState": SUCCEEDED},
    }
