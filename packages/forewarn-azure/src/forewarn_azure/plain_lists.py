"""Empty lists that Azure's tools request, and the list of all resources.

To serve another empty list, add its path to the table.
"""

from __future__ import annotations

from forewarn_azure.filters import filtered
from forewarn_azure.routes import (
    ANY_QUERY,
    COMPUTE,
    RESOURCE_GROUP,
    SUBSCRIPTION,
    ArmCall,
    ArmResponse,
    ArmRoutes,
)
from forewarn_azure.set_routes import SCALE_SET, named_set, shown_sets
from forewarn_azure.vm_routes import VM, shown_vms
from forewarn_azure.vm_values import SUCCEEDED
from forewarn_base.values import replace
from forewarn_core.fleet.topology import GroupKind

_NETWORK = "/providers/Microsoft.Network"
_AT_BOTH = (
    *(f"{COMPUTE}/{kind}" for kind in ("disks", "snapshots", "images", "sshPublicKeys")),
    *(f"{COMPUTE}/{kind}" for kind in ("proximityPlacementGroups", "capacityReservationGroups")),
    *(f"{_NETWORK}/{kind}" for kind in ("networkInterfaces", "publicIPAddresses")),
    *(f"{_NETWORK}/{kind}" for kind in ("virtualNetworks", "networkSecurityGroups")),
    f"{_NETWORK}/loadBalancers",
)
_INSTANCE = SCALE_SET + "/virtualMachines/{instance}"
#: Prefix of a path -> paths of empty lists.
EMPTY: dict[str, tuple[str, ...]] = {
    "": (f"{COMPUTE}/operations", f"{_NETWORK}/operations"),
    SUBSCRIPTION: (
        *_AT_BOTH,
        f"{COMPUTE}/skus",
        f"{COMPUTE}/locations/{{location}}/usages",
        f"{COMPUTE}/locations/{{location}}/vmSizes",
        f"{_NETWORK}/locations/{{location}}/usages",
    ),
    RESOURCE_GROUP: _AT_BOTH,
    VM: ("/extensions", "/runCommands"),
    SCALE_SET: (
        *("/extensions", "/skus", "/osUpgradeHistory"),
        *("/networkInterfaces", "/publicIPAddresses"),
    ),
    _INSTANCE: ("/extensions", "/runCommands", "/networkInterfaces"),
}


ROUTES = ArmRoutes()


async def _empty(call: ArmCall) -> ArmResponse:
    """Return an empty list if the resource group or parent exists."""
    if "vm" in call.path:
        await call.vm()
    elif "set" in call.path:
        await named_set(call)
    elif "subscription" in call.path:
        await call.scope()
    return ArmResponse({"value": []})


for _before, _paths in EMPTY.items():
    for _path in _paths:
        ROUTES.serve(f"GET {_before}{_path}", *ANY_QUERY, summary="Empty list")(_empty)

_RESOURCES = ("$filter", "$top", "$expand")
#: Member of a row of all resources -> name for filters.
_SHOWN = ("id", "name", "type", "location", "tags", "zones", "sku")
_COLUMNS = {
    "resourcetype": "type",
    "resourcegroup": "resourceGroup",
    "name": "name",
    "location": "location",
}


@ROUTES.serve(f"GET {RESOURCE_GROUP}/resources", *_RESOURCES)
@ROUTES.serve(f"GET {SUBSCRIPTION}/resources", *_RESOURCES)
async def _resources(call: ArmCall) -> ArmResponse:
    """List VMs and sets.

    The answer has the form of Azure's generic resource list.
    """
    bare = replace(call, query={})
    rows = await shown_vms(bare)
    for kind in (GroupKind.SCALE_SET, GroupKind.AVAILABILITY_SET):
        rows += await shown_sets(bare, kind)
    shown = []
    for row in rows:
        more = {"resourceGroup": row["id"].split("/")[4], "provisioningState": SUCCEEDED}
        shown.append({name: row[name] for name in _SHOWN if name in row} | more)
    return ArmResponse({"value": filtered(call.query, shown, _COLUMNS)})
