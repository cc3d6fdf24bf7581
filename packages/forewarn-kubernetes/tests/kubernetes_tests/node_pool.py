"""Plays what a cluster needs besides its control plane: the scheduler and the kubelets."""

import threading
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any, Self

from forewarn_base.errors import ForewarnError
from tests.agent.test_prepare_kubernetes import Cluster

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"

RUNS = {"image": "played", "imageID": "played", "restartCount": 0, "state": {"running": {}}}

#: Interval of reports about nodes, in seconds.
REPORT_S = 1.0

Form = dict[str, Any]


class Kubelets:
    """Binds pods to nodes that take them, starts bound pods, and ends deleted ones."""

    def __init__(self, cluster: Cluster, *, reports: bool = False) -> None:
        """Do nothing yet; with `reports`, also report the state of each node every second."""
        self._cluster = cluster
        self._reports = reports
        self._reported_s = 0.0
        #: Fewest ready pods of each app, from the first time that it had `expected` of them.
        self.fewest: dict[str, int] = {}
        self.expected: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(0.1):
            try:
                self._round()
            except (ForewarnError, OSError, ValueError, KeyError, AssertionError):
                continue  # the API server is away; a kubelet tries again as well

    def _round(self) -> None:
        pods = self._items(PODS)
        nodes = [each for each in self._items(NODES) if not each["spec"].get("unschedulable")]
        names = [str(each["metadata"]["name"]) for each in nodes]
        held = Counter(each["spec"].get("nodeName") for each in pods)
        ready: Counter[str] = Counter()
        for pod in pods:
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            bound, ends = pod["spec"].get("nodeName"), "deletionTimestamp" in meta
            if not bound and not ends and names:
                node = min(names, key=lambda name: held[name])
                held[node] += 1
                self._bind(path, meta, node)
            elif bound and not ends and pod["status"].get("phase") == "Running":
                ready[(meta.get("labels") or {}).get("app", "")] += 1
            elif bound or ends:
                self._go_on(path, pod)
        self._report()
        for app, count in self.expected.items():
            if app in self.fewest:
                self.fewest[app] = min(self.fewest[app], ready[app])
            elif ready[app] >= count:
                self.fewest[app] = ready[app]

    def _report(self) -> None:
        """Report that each node is ready, which changes its version."""
        now_s = time.monotonic()
        if not self._reports or now_s < self._reported_s + REPORT_S:
            return
        self._reported_s = now_s
        now = f"{datetime.now(UTC):%FT%TZ}"
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now}
        for node in self._items(NODES):
            node["status"]["conditions"] = [
                *(e for e in node["status"].get("conditions", ()) if e["type"] != "Ready"),
                ready,
            ]
            # A version that has changed meanwhile is refused, and reported a second later.
            self._cluster.ask("PUT", f"{NODES}/{node['metadata']['name']}/status", node)

    def _go_on(self, path: str, pod: Form) -> None:
        """Start a bound pod, or end a deleted one."""
        if "deletionTimestamp" in pod["metadata"]:
            self._cluster.ask("DELETE", path, {"gracePeriodSeconds": 0})
            return
        containers = pod["spec"]["containers"]
        pod["status"] = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": each["name"], "ready": True, **RUNS} for each in containers
            ],
        }
        self._cluster.ask("PUT", f"{path}/status", pod)

    def _bind(self, path: str, meta: Form, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        form = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "target": target,
        }
        self._cluster.ask("POST", f"{path}/binding", form)

    def _items(self, path: str) -> list[Form]:
        items: list[Form] = self._cluster.ask("GET", path).form()["items"]  # type: ignore[assignment]
        return items


def add_node(cluster: Cluster, name: str) -> None:
    """Create a node that is ready."""
    cluster.make(NODES, {"metadata": {"name": name}})
    node: Any = cluster.ask("GET", f"{NODES}/{name}").form()
    node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert cluster.ask("PUT", f"{NODES}/{name}/status", node).status == 200


def deploy(
    cluster: Cluster, app: str, replicas: int, *, available: int, namespace: str = "default"
) -> None:
    """Create a deployment, and a budget that keeps some of its pods available."""
    labels = {"app": app}
    container = {"name": "one", "image": "none"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    cluster.make(DEPLOYMENTS.format(namespace), {"metadata": {"name": app}, "spec": spec})
    budget = {"minAvailable": available, "selector": {"matchLabels": labels}}
    cluster.make(BUDGETS.format(namespace), {"metadata": {"name": app}, "spec": budget})


def pods_on(cluster: Cluster, node: str) -> list[str]:
    """Return the pods that are bound to a node."""
    items: Any = cluster.ask("GET", f"{PODS}?fieldSelector=spec.nodeName%3D{node}").form()["items"]
    return sorted(each["metadata"]["name"] for each in items)


def is_protected(cluster: Cluster, app: str, namespace: str = "default") -> bool:
    """Return whether the controllers have counted the pods of a budget."""
    budget: Any = cluster.ask("GET", f"{BUDGETS.format(namespace)}/{app}").form()
    return int((budget.get("status") or {}).get("disruptionsAllowed", 0)) > 0


def true_conditions(cluster: Cluster, node: str) -> set[str]:
    """Return the types of a node's conditions that are true, without Ready."""
    return true_types(cluster.ask("GET", f"{NODES}/{node}").form())


def true_types(node: Form) -> set[str]:
    """Return the types of conditions that are true, without Ready."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return {each["type"] for each in conditions if each["status"] == "True"} - {"Ready"}


def annotations_of(cluster: Cluster, node: str) -> dict[str, str]:
    """Return Forewarn's annotations of a node."""
    return own_annotations(cluster.ask("GET", f"{NODES}/{node}").form())


def own_annotations(node: Form) -> dict[str, str]:
    """Return Forewarn's annotations."""
    known = node["metadata"].get("annotations") or {}
    return {key: each for key, each in known.items() if key.startswith("forewarn.io/")}
