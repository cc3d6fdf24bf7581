"""The kubernetes driver on a real API server, with the rights of its manifest and no others."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import pytest
import yaml

from forewarn.conformance.driver_checks import run_driver_checks
from forewarn.conformance.driver_trial import Subject
from forewarn.drivers.kubernetes.driver import KubernetesDriver, create
from tests.agent.test_prepare_kubernetes import Cluster, server
from tests.kubernetes.small_cluster import REBOOT, node_status

__all__ = ["server"]
pytestmark = pytest.mark.slow

MANIFEST = Path(__file__).parents[2] / "dist" / "forewarn-driver-rbac.yaml"
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
PLACES = {
    "ServiceAccount": "/api/v1/namespaces/forewarn/serviceaccounts",
    "Role": f"{RIGHTS}/namespaces/forewarn/roles",
    "RoleBinding": f"{RIGHTS}/namespaces/forewarn/rolebindings",
    "ClusterRole": f"{RIGHTS}/clusterroles",
    "ClusterRoleBinding": f"{RIGHTS}/clusterrolebindings",
}


def play_kubelet(cluster: Cluster, effects: Counter[str], over: threading.Event) -> None:
    """Reboot the node once for each task that its annotation names."""
    path = "/api/v1/nodes/node-1"
    while not over.wait(0.02):
        node = json.loads(cluster.ask("GET", path).body)
        name = node["metadata"].get("annotations", {}).get(REBOOT, "first boot")
        if not effects[name]:
            node["status"] |= node_status(f"boot of {name}")
            effects[name] += cluster.ask("PUT", f"{path}/status", node).status == 200


def test_driver_passes_with_its_rights_alone(server: Cluster, tmp_path: Path) -> None:
    """Nodes are emptied and rebooted once for each task. Source: R-2, R-6."""
    server.make("/api/v1/namespaces", {"metadata": {"name": "forewarn"}})
    for form in yaml.safe_load_all(MANIFEST.read_text("utf-8")):
        server.make(PLACES[form["kind"]], form)
    server.make("/api/v1/nodes", {"metadata": {"name": "node-1"}})
    account = f"{PLACES['ServiceAccount']}/forewarn-driver/token"
    answer = json.loads(server.ask("POST", account, {"spec": {}}).body)
    (tmp_path / "token").write_text(answer["status"]["token"])
    options = {
        "server": server.url,
        "ca_file": server.ca_file,
        "token_file": str(tmp_path / "token"),
        "reboot_annotation": REBOOT,
        "poll_s": 0.02,
    }

    def make() -> KubernetesDriver:
        return create("kubernetes", options)

    effects: Counter[str] = Counter()
    over = threading.Event()
    kubelet = threading.Thread(target=play_kubelet, args=(server, effects, over))
    kubelet.start()
    try:
        subject = Subject(make, "node-1", effects=lambda name: effects[name])
        results = list(run_driver_checks(subject))
    finally:
        over.set()
        kubelet.join()
    assert [each for each in results if each.verdict.value == "failed"] == []
    assert sum(each.verdict.value == "passed" for each in results) >= 13, results
