"""The table of permissions: one row for every route.

Building the application fails for a route without a row. `core/access.py` defines the
roles. Source: P-2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.core.access import Permission
from forewarn.errors import OurError

if TYPE_CHECKING:
    from collections.abc import Iterator


class RouteUnlisted(OurError):
    """A route has no row in the table of permissions."""

    code = "route-unlisted"
    message = "The route {route} has no row in the table of permissions."
    advice = "Report this bug: the service cannot start."


def permission_of(method: str, path: str) -> Permission:
    """Return the permission that a route requires.

    Raises:
        RouteUnlisted: the route has no row.
    """
    permission = TABLE.get(f"{method} {path}")
    if permission is None:
        raise RouteUnlisted(route=f"{method} {path}")
    return permission


def _rows(text: str) -> Iterator[tuple[str, Permission]]:
    permission = Permission.ADMINISTER
    for line in text.strip().splitlines():
        if line.endswith(":"):
            permission = Permission(line.removesuffix(":"))
            continue
        row = line.strip()
        for short, whole in _SHORT.items():
            row = row.replace(short, whole)
        yield row, permission


#: Abbreviations for paths of Azure Resource Manager.
_SHORT = {
    "{sub}": "/subscriptions/{subscription}",
    "{rg}": "/subscriptions/{subscription}/resourceGroups/{resource_group}",
    "{compute}": "providers/Microsoft.Compute",
    "{vmss}": "virtualMachineScaleSets/{set}",
    "{configurations}": "providers/Microsoft.Maintenance/maintenanceConfigurations",
    "{assignments}": "providers/Microsoft.Maintenance/configurationAssignments",
    "/{event}/": "/providers/Microsoft.Maintenance/scheduledevents/{event}/",
}
#: The page's files are public, because scripts send the caller's token with each request.
_TEXT = """
public:
    GET /live
    GET /ready
    GET /leader
    GET /v1/health
    GET /v1/openapi.json
    GET /v1/docs
    GET /v1/attested-issuer.cer
    GET /v1/outbox/{name}/validate
    POST /v1/driver-reports
    POST /v1/sign-in/begin
    POST /v1/sign-in
    POST /v1/sign-out
    GET /metadata/endpoints
    GET /adfs/.well-known/openid-configuration
    GET /adfs/{tenant}/v2.0/.well-known/openid-configuration
    GET /adfs/discovery/keys
    POST /adfs/oauth2/token
    POST /adfs/{tenant}/oauth2/v2.0/token
signed-in:
    GET /v1/version
    GET /v1/leader
    GET /v1/whoami
    GET /v1/access/can-i
    POST {sub}/providers/{namespace}/register
read:
    GET /v1/hosts
    GET /v1/hosts/{name}
    GET /v1/groups
    GET /v1/groups/{name}
    GET /v1/vms
    GET /v1/vms/{name}
    GET /v1/topology
    GET /v1/operations
    GET /v1/operations/{id}
    GET /v1/why
    GET /v1/events
    GET /v1/events/{id}
    GET /v1/events/{id}/outcome
    GET /v1/outcomes
    GET /v1/documents
    GET /v1/history
    GET /v1/watch
    GET /v1/search
    GET /v1/overview
    GET /v1/overview/hosts
    GET /v1/overview/watch
    GET /tenants
    GET /subscriptions
    GET {sub}
    GET {sub}/locations
    GET /providers
    GET {sub}/providers
    GET {sub}/providers/{namespace}
    GET {sub}/resourceGroups
    GET {rg}
    GET {sub}/{compute}/virtualMachines
    GET {rg}/{compute}/virtualMachines
    GET {rg}/{compute}/virtualMachines/{vm}
    GET {rg}/{compute}/virtualMachines/{vm}/instanceView
    GET {rg}/{compute}/virtualMachines/{vm}/vmSizes
    GET {sub}/{compute}/virtualMachineScaleSets
    GET {rg}/{compute}/virtualMachineScaleSets
    GET {rg}/{compute}/{vmss}
    GET {rg}/{compute}/{vmss}/instanceView
    GET {rg}/{compute}/{vmss}/rollingUpgrades/latest
    GET {rg}/{compute}/{vmss}/virtualMachines
    GET {rg}/{compute}/{vmss}/virtualMachines/{instance}
    GET {rg}/{compute}/{vmss}/virtualMachines/{instance}/instanceView
    GET {sub}/{compute}/availabilitySets
    GET {rg}/{compute}/availabilitySets
    GET {rg}/{compute}/availabilitySets/{set}
    GET {rg}/{compute}/virtualMachines/{vm}/providers/Microsoft.Maintenance/updates
    GET {sub}/{configurations}
    GET {rg}/{configurations}
    GET {rg}/{configurations}/{configuration}
    GET {rg}/{compute}/{kind}/{resource}/{assignments}
    GET {rg}/{compute}/{kind}/{resource}/{assignments}/{assignment}
    GET {rg}/{compute}/virtualMachines/{vm}/providers/Microsoft.Maintenance/applyUpdates/{update}
    POST /providers/Microsoft.ResourceGraph/resources
    GET {sub}/{compute}/locations/{location}/operations/{operation}
    GET /{compute}/operations
    GET /providers/Microsoft.Network/operations
    GET {sub}/{compute}/disks
    GET {sub}/{compute}/snapshots
    GET {sub}/{compute}/images
    GET {sub}/{compute}/sshPublicKeys
    GET {sub}/{compute}/proximityPlacementGroups
    GET {sub}/{compute}/capacityReservationGroups
    GET {sub}/providers/Microsoft.Network/networkInterfaces
    GET {sub}/providers/Microsoft.Network/publicIPAddresses
    GET {sub}/providers/Microsoft.Network/virtualNetworks
    GET {sub}/providers/Microsoft.Network/networkSecurityGroups
    GET {sub}/providers/Microsoft.Network/loadBalancers
    GET {sub}/{compute}/skus
    GET {sub}/{compute}/locations/{location}/usages
    GET {sub}/{compute}/locations/{location}/vmSizes
    GET {sub}/providers/Microsoft.Network/locations/{location}/usages
    GET {rg}/{compute}/disks
    GET {rg}/{compute}/snapshots
    GET {rg}/{compute}/images
    GET {rg}/{compute}/sshPublicKeys
    GET {rg}/{compute}/proximityPlacementGroups
    GET {rg}/{compute}/capacityReservationGroups
    GET {rg}/providers/Microsoft.Network/networkInterfaces
    GET {rg}/providers/Microsoft.Network/publicIPAddresses
    GET {rg}/providers/Microsoft.Network/virtualNetworks
    GET {rg}/providers/Microsoft.Network/networkSecurityGroups
    GET {rg}/providers/Microsoft.Network/loadBalancers
    GET {rg}/{compute}/virtualMachines/{vm}/extensions
    GET {rg}/{compute}/virtualMachines/{vm}/runCommands
    GET {rg}/{compute}/{vmss}/extensions
    GET {rg}/{compute}/{vmss}/skus
    GET {rg}/{compute}/{vmss}/osUpgradeHistory
    GET {rg}/{compute}/{vmss}/networkInterfaces
    GET {rg}/{compute}/{vmss}/publicIPAddresses
    GET {rg}/{compute}/{vmss}/virtualMachines/{instance}/extensions
    GET {rg}/{compute}/{vmss}/virtualMachines/{instance}/runCommands
    GET {rg}/{compute}/{vmss}/virtualMachines/{instance}/networkInterfaces
    GET {sub}/resources
    GET {rg}/resources
read-fleet:
    GET /v1/maintenances/{id}/plan
    GET /v1/maintenances/{id}/diff
    GET /v1/maintenances
    GET /v1/maintenances/{id}
    GET /v1/maintenances/{id}/hosts
    GET /v1/maintenances/{id}/report
    GET /v1/confirmations
    GET /v1/confirmations/{id}
    GET /v1/blockers
    GET /v1/policy
    GET /v1/windows
    GET /v1/outbox
    GET /v1/clock
    GET /v1/scenarios
    GET /v1/scenarios/{name}
    GET /v1/faults
approve:
    POST /v1/operations/{id}/approve
    POST /v1/events/{id}/postpone
    POST {rg}/{compute}/{kind}/{resource}/{event}/acknowledge
    POST {rg}/{compute}/{kind}/{resource}/providers/Microsoft.Maintenance/scheduledevents
    PUT {rg}/{compute}/virtualMachines/{vm}/providers/Microsoft.Maintenance/applyUpdates/default
request:
    POST /v1/vms/{name}/reboot
    POST /v1/vms/{name}/redeploy
    POST /v1/vms/{name}/evict
    POST /v1/vms/{name}/delete
    POST /v1/vms/{name}/reimage
    POST /v1/operations
    DELETE {rg}/{compute}/virtualMachines/{vm}
    POST {rg}/{compute}/virtualMachines/{vm}/simulateEviction
    POST {rg}/{compute}/virtualMachines/{vm}/restart
    POST {rg}/{compute}/virtualMachines/{vm}/redeploy
    POST {rg}/{compute}/virtualMachines/{vm}/performMaintenance
    POST {rg}/{compute}/virtualMachines/{vm}/reimage
    POST {rg}/{compute}/virtualMachines/{vm}/powerOff
    POST {rg}/{compute}/virtualMachines/{vm}/deallocate
    POST {rg}/{compute}/virtualMachines/{vm}/start
    POST {rg}/{compute}/virtualMachines/{vm}/reapply
    POST {rg}/{compute}/{vmss}/manualupgrade
    POST {rg}/{compute}/{vmss}/delete
    DELETE {rg}/{compute}/{vmss}/virtualMachines/{instance}
    POST {rg}/{compute}/{vmss}/virtualMachines/{instance}/simulateEviction
    POST {rg}/{compute}/{vmss}/restart
    POST {rg}/{compute}/{vmss}/redeploy
    POST {rg}/{compute}/{vmss}/performMaintenance
    POST {rg}/{compute}/{vmss}/reimage
    POST {rg}/{compute}/{vmss}/reimageAll
    POST {rg}/{compute}/{vmss}/powerOff
    POST {rg}/{compute}/{vmss}/deallocate
    POST {rg}/{compute}/{vmss}/start
    POST {rg}/{compute}/{vmss}/reapply
    POST {rg}/{compute}/{vmss}/virtualMachines/{instance}/restart
    POST {rg}/{compute}/{vmss}/virtualMachines/{instance}/redeploy
    POST {rg}/{compute}/{vmss}/virtualMachines/{instance}/performMaintenance
    POST {rg}/{compute}/{vmss}/virtualMachines/{instance}/reimage
    POST {rg}/{compute}/{vmss}/virtualMachines/{instance}/reimageAll
    POST {rg}/{compute}/{vmss}/virtualMachines/{instance}/powerOff
    POST {rg}/{compute}/{vmss}/virtualMachines/{instance}/deallocate
    POST {rg}/{compute}/{vmss}/virtualMachines/{instance}/start
    POST {rg}/{compute}/{vmss}/virtualMachines/{instance}/reapply
set-approval:
    PUT /v1/groups/{name}
operate:
    PUT /v1/hosts/{name}
    DELETE /v1/hosts/{name}
    DELETE /v1/hosts
    DELETE /v1/groups/{name}
    DELETE /v1/groups
    PUT /v1/vms/{name}
    DELETE /v1/vms/{name}
    DELETE /v1/vms
    PUT /v1/topology
    POST /v1/hosts/{name}/update
    POST /v1/hosts/{name}/reboot
    POST /v1/hosts/{name}/migrate
    POST /v1/hosts/{name}/degrade
    POST /v1/hosts/{name}/fail
    POST /v1/hosts/{name}/repair
    POST /v1/operations/{id}/cancel
    POST /v1/operations/{id}/complete
    POST /v1/operations/{id}/retry
    POST /v1/maintenances
    POST /v1/maintenances/plan
    POST /v1/maintenances/{id}/start
    POST /v1/maintenances/{id}/pause
    POST /v1/maintenances/{id}/resume
    POST /v1/maintenances/{id}/cancel
    POST /v1/maintenances/{id}/postpone
    PUT /v1/policy
    POST /v1/confirmations/{id}/confirm
    DELETE /v1/confirmations/{id}
    PUT {rg}/{configurations}/{configuration}
    PATCH {rg}/{configurations}/{configuration}
    DELETE {rg}/{configurations}/{configuration}
    PUT {rg}/{compute}/{kind}/{resource}/{assignments}/{assignment}
    DELETE {rg}/{compute}/{kind}/{resource}/{assignments}/{assignment}
    POST /v1/outbox/{name}/retry
    POST /v1/outbox/{name}/skip
    POST /v1/clock/advance
    POST /v1/clock/speed
    POST /v1/clock/start
    POST /v1/clock/stop
    POST /v1/scenarios/{name}/run
    POST /v1/scenarios/{name}/stop
    POST /v1/faults
    DELETE /v1/faults/{kind}
    DELETE /v1/faults
    PUT {rg}
    DELETE {rg}
    PUT {rg}/{compute}/virtualMachines/{vm}
    PATCH {rg}/{compute}/virtualMachines/{vm}
    PUT {rg}/{compute}/{vmss}
    DELETE {rg}/{compute}/{vmss}
    PATCH {rg}/{compute}/{vmss}
    PUT {rg}/{compute}/{vmss}/virtualMachines/{instance}
    POST {rg}/{compute}/{vmss}/osRollingUpgrade
    POST {rg}/{compute}/{vmss}/extensionRollingUpgrade
    POST {rg}/{compute}/{vmss}/rollingUpgrades/cancel
    PUT {rg}/{compute}/availabilitySets/{set}
    PATCH {rg}/{compute}/availabilitySets/{set}
    DELETE {rg}/{compute}/availabilitySets/{set}
follow:
    FEED /
administer:
    POST /v1/reload
    POST /v1/leader/step-down
    GET /v1/audit
    GET /v1/access
    POST /v1/access/grant
    POST /v1/access/revoke
    GET /v1/access/tokens
    POST /v1/access/tokens
    DELETE /v1/access/tokens/{id}
"""
TABLE: dict[str, Permission] = dict(_rows(_TEXT))
