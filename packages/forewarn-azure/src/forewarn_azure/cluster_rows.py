"""Rows of `containerserviceeventresources`: declared maintenances of managed clusters. Pure.

A VM is a node of the cluster that its tags name, as AKS tags what it manages. Source: Z-11.
"""

from __future__ import annotations

from collections.abc import Iterable

from forewarn_azure.inventory import Inventory, location_of, place_of
from forewarn_azure.json_values import JsonObject
from forewarn_base.protocol.timestamps import iso8601
from forewarn_core.fleet.maintenance import (
    Announcing,
    Checking,
    Halted,
    Maintenance,
    MaintenanceState,
    Working,
)
from forewarn_core.fleet.topology import Vm
from forewarn_server.adfs_tokens import TENANT_ID
from forewarn_server.outbox.cluster_events import (
    FAILED,
    RESOURCE_TYPE,
    SCHEDULED,
    STARTED,
    ClusterEvent,
    details_of,
)

#: Tags of a VM with the name and the resource group of its cluster.
CLUSTER_NAME, CLUSTER_GROUP = "aks-managed-cluster-name", "aks-managed-cluster-rg"


def cluster_rows(inventory: Inventory, maintenances: Iterable[Maintenance]) -> list[JsonObject]:
    """Return a row for each live declared maintenance and cluster; O(VMs on its hosts)."""
    rows = []
    for maintenance in maintenances:
        if maintenance.declaration is None or not maintenance.live:
            continue
        nodes: dict[str, list[Vm]] = {}
        for host in maintenance.hosts:
            for name in inventory.topology.vms_on(host):
                vm = inventory.topology.vms[name]
                cluster = _cluster_of(vm)
                if cluster:
                    nodes.setdefault(cluster, []).append(vm)
        rows += [_row(maintenance, cluster, vms) for cluster, vms in sorted(nodes.items())]
    return rows


def _cluster_of(vm: Vm) -> str:
    """Return Resource Manager's id of the cluster of a VM; empty: none."""
    tags = dict(vm.tags)
    name = tags.get(CLUSTER_NAME, "")
    if not name:
        return ""
    place = place_of(vm)
    group = tags.get(CLUSTER_GROUP) or place.resource_group
    scope = f"/subscriptions/{place.subscription}/resourceGroups/{group}"
    return f"{scope}/providers/Microsoft.ContainerService/managedClusters/{name}"


def _row(maintenance: Maintenance, cluster: str, vms: list[Vm]) -> JsonObject:
    assert maintenance.declaration is not None
    hosts = len({vm.host for vm in vms})
    event = ClusterEvent(
        cluster=cluster,
        maintenance=maintenance.id,
        status=_status(maintenance),
        details=details_of(maintenance.cause.value, hosts, maintenance.reason),
        scheduled=iso8601(maintenance.declaration.deadline_ms),
        updated=iso8601(maintenance.moved_ms) if maintenance.moved_ms else "",
    )
    scope = cluster.split("/")
    return {
        "id": event.id,
        "name": event.name,
        "type": RESOURCE_TYPE.lower(),
        "tenantId": TENANT_ID,
        "location": location_of(vms[0]),
        "resourceGroup": scope[4].lower(),
        "subscriptionId": scope[2].lower(),
        "properties": event.properties(),
    }


def _status(maintenance: Maintenance) -> str:
    """Return `Scheduled` until a wave begins, and while the next wave is planned."""
    phase = maintenance.phase
    if maintenance.state is MaintenanceState.STOPPED:
        return FAILED
    works = isinstance(phase, (Announcing, Working, Checking))
    halted = isinstance(phase, Halted) and phase.wave is not None
    return STARTED if works or halted else SCHEDULED
