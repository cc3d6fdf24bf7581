"""Plays what a cluster needs besides its control plane: the scheduler and the kubelets."""

import threading
from collections import Counter
from typing import Any, Self

from tests.agent.test_prepare_kubernetes import Cluster

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"

RUNS = {"image": "played", "imageID": "played", "restartCount": 0, "state": {"running": {}}}

Form = dict[str, Any]


class Kubelets:
    """Binds pods to nodes that take them, starts bound pods, and ends deleted ones."""

    def __init__(self, cluster: Cluster) -> None:
        """Do nothing yet."""
        self._cluster = cluster
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
            except (OSError, ValueError, KeyError, AssertionError):
                continue  # the API server is away; a kubelet tries again as well

    def _round(self) -> None:
        pods = self._items(PODS)
        nodes = [each for each in self._items(NODES) if not each["spec"].get("unschedulable")]
        held = Counter(each["spec"].get("nodeName") for each in pods)
        ready: Counter[str] = Counter()
        for pod in pods:
            meta, spec = pod["metadata"], pod["spec"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            if "deletionTimestamp" in meta:
                self._cluster.ask("DELETE", path, {"gracePeriodSeconds": 0})
            elif not spec.get("nodeName"):
                if nodes:
                    names = [str(each["metadata"]["name"]) for each in nodes]
                    node = min(names, key=lambda name: held[name])
                    held[node] += 1
                    self._bind(path, meta, node)
            elif pod["status"].get("phase") != "Running":
                pod["status"] = {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [
                        {"name": each["name"], "ready": True, **RUNS} for each in spec["containers"]
                    ],
                }
                self._cluster.ask("PUT", f"{path}/status", pod)
            else:
                ready[(meta.get("labels") or {}).get("app", "")] += 1
        for app, count in self.expected.items():
            if app in self.fewest:
                self.fewest[app] = min(self.fewest[app], ready[app])
            elif ready[app] >= count:
                self.fewest[app] = ready[app]

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
    """Return the types of a node's conditions that are true."""
    form: Any = cluster.ask("GET", f"{NODES}/{node}").form()
    conditions = (form.get("status") or {}).get("conditions") or []
    return {each["type"] for each in conditions if each["status"] == "True"}


def annotations_of(cluster: Cluster, node: str) -> dict[str, str]:
    """Return Forewarn's annotations of a node."""
    form: Any = cluster.ask("GET", f"{NODES}/{node}").form()
    known = form["metadata"].get("annotations") or {}
    return {key: each for key, each in known.items() if key.startswith("forewarn.io/")}
