"""What a cluster holds, as a topology: nodes as hosts, KubeVirt's instances as VMs.

Nothing is changed in the cluster from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forewarn.drivers.kubernetes.client import MISSING, KubernetesRefused
from forewarn.drivers.kubernetes.machines import API, ENDED

if TYPE_CHECKING:
    from forewarn.drivers.kubernetes.client import Kubernetes

ZONE = "topology.kubernetes.io/zone"
#: Labels with what Kubernetes has no word for: of a VMI its group, of a node its domains.
GROUP, FAULT_DOMAIN, UPDATE_DOMAIN = (
    "forewarn.dev/group",
    "forewarn.dev/fault-domain",
    "forewarn.dev/update-domain",
)


def discover(kubernetes: Kubernetes, driver: str) -> dict[str, Any]:
    """Return hosts, groups and VMs; costs a request for each 100 of them."""
    found: dict[str, Any] = {"hosts": {}, "groups": {}, "vms": {}}
    for number, node in enumerate(kubernetes.all("/api/v1/nodes")):
        labels = node["metadata"].get("labels") or {}
        form = {
            "fault_domain": _number(labels.get(FAULT_DOMAIN), number),
            "update_domain": _number(labels.get(UPDATE_DOMAIN), number),
            "driver": driver,
        }
        found["hosts"][node["metadata"]["name"]] = form | (
            {"zone": labels[ZONE]} if labels.get(ZONE) else {}
        )
    try:
        for machine in kubernetes.all(f"{API}/virtualmachineinstances"):
            _take(found, machine)
    except KubernetesRefused as error:
        if error.number != MISSING:  # a cluster without KubeVirt has no VMs
            raise
    return found


def _take(found: dict[str, Any], machine: dict[str, Any]) -> None:
    meta, status = machine["metadata"], machine.get("status") or {}
    host = status.get("nodeName")
    if host not in found["hosts"] or status.get("phase") in ENDED:
        return
    form = {"host": host}
    group = (meta.get("labels") or {}).get(GROUP)
    if group:
        form["group"] = group
        found["groups"][group] = {}
    firmware = machine.get("spec", {}).get("domain", {}).get("firmware") or {}
    if firmware.get("uuid"):  # the instance's own id is another after each restart
        form["vm_id"] = form["instance_id"] = firmware["uuid"]
    found["vms"][f"{meta['namespace']}.{meta['name']}"] = form


def _number(label: str | None, otherwise: int) -> int:
    return int(label) if label and label.isascii() and label.isdigit() else otherwise
