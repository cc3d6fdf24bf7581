"""Nodes: cordons, drains through the Eviction API, and uncordons nodes."""

from __future__ import annotations

from typing import Any

from forewarn_base.errors import PeerError
from forewarn_kubernetes.client import (
    BUDGET,
    CONFLICT,
    MISSING,
    Kubernetes,
    KubernetesRefused,
)

#: Annotation of a node with the operation that has cordoned the node.
MARK = "forewarn.dev/cordoned-by"
#: Label that selects one node; on some clouds it differs from the node's name.
HOSTNAME = "kubernetes.io/hostname"
#: Annotation of pods that the kubelet starts from a file, and that cannot be evicted.
MIRROR = "kubernetes.io/config.mirror"
ENDED = frozenset({"Succeeded", "Failed"})
#: Maximum number of evictions in one call, and of waits in one report.
EVICTIONS_MAX, TOLD_MAX = 20, 5


class NodeMissing(PeerError):
    """A host is missing among the nodes of the cluster."""

    code = "kubernetes-node-missing"
    message = "The cluster has no node {host}."
    advice = "Check `kubectl get nodes`; then complete or fail the operation."


class PodUnmanaged(PeerError):
    """No controller would start a pod again."""

    code = "kubernetes-pod-unmanaged"
    message = "Pod {pod} on {host} has no controller that would start the pod elsewhere."
    advice = "Delete the pod, or set evict_unmanaged; then retry the operation."


class Nodes:
    """The nodes of a cluster, changed for one operation."""

    def __init__(self, kubernetes: Kubernetes, operation: str) -> None:
        self._kubernetes = kubernetes
        self._operation = operation

    def get(self, host: str) -> dict[str, Any]:
        """Return a node.

        Raises:
            NodeMissing: the node does not exist.
        """
        node = self._kubernetes.find(f"/api/v1/nodes/{host}")
        if node is None:
            raise NodeMissing(host=host)
        return node

    def selector(self, host: str) -> dict[str, str]:
        """Return the label that selects a node.

        Raises:
            NodeMissing: the node does not exist.
        """
        labels: dict[str, str] = self.get(host)["metadata"].get("labels") or {}
        return {HOSTNAME: labels.get(HOSTNAME, host)}

    def cordon(self, host: str, *, begun: bool) -> str:
        """Cordon a node; return who must act first, as a phrase for people, or ''.

        A node that somebody has uncordoned stays so until that person cordons it again, because
        the node may be in use.

        Args:
            host: The name of the node.
            begun: Whether the node was cordoned for this attempt before.
        """
        node = self.get(host)
        owner = annotations_of(node).get(MARK, "")
        if owner not in ("", self._operation):
            return f"{owner}, which has cordoned {host}"
        if is_cordoned(node):  # by this operation, or by another program
            return ""
        if begun:
            return uncordoned(host)
        self._change(node, {MARK: self._operation}, cordoned=True)
        return ""

    def free(self, host: str, task: str, annotation: str) -> None:
        """Undo this operation's changes to a node."""
        node = self._kubernetes.find(f"/api/v1/nodes/{host}")
        if node is None:
            return
        known = annotations_of(node)
        if annotation and known.get(annotation, "").partition("/")[0] == task.partition("/")[0]:
            self._change(node, {annotation: None})
        if known.get(MARK) == self._operation:
            self._change(self.get(host), {MARK: None}, cordoned=False)

    def annotate(self, node: dict[str, Any], annotation: str, task: str) -> None:
        """Set an annotation of a node to the task, if the node is unchanged since it was read."""
        self._change(node, {annotation: task})

    def _change(
        self, node: dict[str, Any], marks: dict[str, str | None], *, cordoned: bool | None = None
    ) -> None:
        """Change a node if its version is unchanged; after a conflict, the next call retries."""
        meta = node["metadata"]
        form: dict[str, Any] = {
            "metadata": {"annotations": marks, "resourceVersion": meta["resourceVersion"]}
        }
        if cordoned is not None:
            form["spec"] = {"unschedulable": cordoned or None}
        self._kubernetes.patch(f"/api/v1/nodes/{meta['name']}", form)

    def drain(self, host: str, *, unmanaged: bool) -> tuple[int, list[str]]:
        """Evict pods; return the number of remaining pods, and the waits of some pods.

        Raises:
            PodUnmanaged: a pod would be lost; no pods were evicted.
        """
        query = f"&fieldSelector=spec.nodeName={host}"
        left = [
            each for each in self._kubernetes.all("/api/v1/pods", query) if is_drained_from(each)
        ]
        for pod in left:
            if not unmanaged and _controller(pod) is None:
                raise PodUnmanaged(pod=_name(pod), host=host)
        waits: list[str] = []
        going = [each for each in left if "deletionTimestamp" not in each["metadata"]]
        for pod in going[:EVICTIONS_MAX]:
            answer = self._evict(pod)
            if answer and len(waits) < TOLD_MAX:
                waits.append(answer)
        return len(left), waits

    def _evict(self, pod: dict[str, Any]) -> str:
        """Evict a pod; return the reason of a wait, or ''."""
        meta = pod["metadata"]
        form = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
        }
        place = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
        try:
            self._kubernetes.ask("POST", place, form)
        except KubernetesRefused as error:
            if error.number in {MISSING, CONFLICT}:  # the pod is gone or replaced
                return ""
            if error.number == BUDGET:
                return f"{_name(pod)} waits for {self._budgets(pod) or error.facts['reason']}"
            if error.number == 500:
                return f"{_name(pod)} cannot be evicted: {error.facts['reason']}"
            raise
        return ""

    def _budgets(self, pod: dict[str, Any]) -> str:
        """Return the names of the budgets that forbid evicting a pod with these labels."""
        meta = pod["metadata"]
        place = f"/apis/policy/v1/namespaces/{meta['namespace']}/poddisruptionbudgets"
        named = [
            each["metadata"]["name"]
            for each in self._kubernetes.all(place)
            if not each.get("status", {}).get("disruptionsAllowed")
            and _selects(each.get("spec", {}).get("selector") or {}, meta.get("labels") or {})
        ]
        return f"budget {', '.join(named)}" if named else ""


def annotations_of(form: dict[str, Any]) -> dict[str, str]:
    """Return the annotations of an object."""
    annotations: dict[str, str] = form["metadata"].get("annotations") or {}
    return annotations


def is_cordoned(node: dict[str, Any]) -> bool:
    """Whether no pods are scheduled to a node."""
    return bool(node.get("spec", {}).get("unschedulable"))


def uncordoned(host: str) -> str:
    """Return whom work on an uncordoned node waits for, as a phrase for people."""
    return f"somebody to cordon {host} again or to cancel the operation, since it was uncordoned"


def is_ready(node: dict[str, Any]) -> bool:
    """Whether the kubelet of a node reports it as ready."""
    conditions = node.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def boot_id(node: dict[str, Any]) -> str:
    """Return the boot id of a node, which changes with each boot."""
    boot_id = node.get("status", {}).get("nodeInfo", {}).get("bootID", "")
    return str(boot_id)


def address(node: dict[str, Any]) -> str:
    """Return the internal address of a node, or else the node's name."""
    addresses = node.get("status", {}).get("addresses") or []
    internal = [each["address"] for each in addresses if each["type"] == "InternalIP"]
    return str(internal[0] if internal else node["metadata"]["name"])


def is_drained_from(pod: dict[str, Any]) -> bool:
    """Whether a drain evicts a pod: not one of a daemon set, a mirror pod or a finished pod."""
    if pod.get("status", {}).get("phase") in ENDED or MIRROR in annotations_of(pod):
        return False
    controller = _controller(pod)
    return controller is None or controller["kind"] != "DaemonSet"


def _controller(pod: dict[str, Any]) -> dict[str, Any] | None:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((each for each in owners if each.get("controller")), None)


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Return whether a selector may match labels; always true for selectors with expressions."""
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == text for key, text in wanted.items())


def _name(pod: dict[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
