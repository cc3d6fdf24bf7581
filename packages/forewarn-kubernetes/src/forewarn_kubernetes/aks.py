"""Plays AKS's node auto-drain and evict-on-freeze against a cluster whose nodes are emulated VMs.

AKS marks a node with the conditions `VMEventScheduled` and `PreemptionScheduled`. Before a
Redeploy, Preempt or Terminate it cordons, taints and drains the node. Before a Freeze it does so
only where the ConfigMap `remediator-config` asks for it, five minutes ahead, and evicts only
labelled pods. It records each part as a Kubernetes event. Each turn compares the nodes with the
emulator's events. Source: K-6.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from forewarn_base.kubernetes.node_notices import (
    AKS_EVENT,
    AKS_PREEMPTION,
    NodeNotice,
    plan_notice,
)
from forewarn_base.protocol.timestamps import iso8601, parse
from forewarn_kubernetes.client import (
    BUDGET,
    CONFLICT,
    MISSING,
    Kubernetes,
    KubernetesRefused,
)
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.host_notices import STRATEGIC
from forewarn_kubernetes.nodes import annotations_of, is_drained_from

NODES = "/api/v1/nodes"
CONFIG = "/api/v1/namespaces/kube-system/configmaps/remediator-config"
LABEL = "remediator.kubernetes.azure.com/onFreeze"
TAINT = "remediator.kubernetes.azure.com/unschedulable"
WRITER = "emulator/aks"
#: Annotation of a node with the event for which it was cordoned.
CORDONED = "emulator.forewarn.io/aks-cordoned-for"
TYPES = {"VMEventScheduled": AKS_EVENT, "PreemptionScheduled": AKS_PREEMPTION}
DRAINED_TYPES = frozenset({"Redeploy", "Preempt", "Terminate"})
#: How long before a freeze AKS cordons the node, in ms.
FREEZE_AHEAD_MS = 300_000


class AksRemediator:
    """Plays AKS for one cluster."""

    #: Interval of turns, in seconds.
    every_s = 2.0

    def __init__(self, config: KubernetesConfig) -> None:
        self._kubernetes = Kubernetes(config)
        self._now_ms = 0
        #: Node -> the event for which it was drained.
        self._drained: dict[str, str] = {}
        #: Pods with a recorded failure, by uid, and pairs of node and announced event.
        self._failed: set[str] = set()
        self._announced: set[tuple[str, str]] = set()

    def watch(self) -> threading.Event:
        """Return an event that nothing sets: nodes are compared at intervals."""
        return threading.Event()

    def close(self) -> None:
        """Do nothing; no watch was begun."""

    def turn(self, events: Iterable[Mapping[str, Any]], now_ms: int) -> list[str]:
        """Do what AKS would do now; return what was done, in words.

        `events` have the form of `GET /v1/events`; `now_ms` is the emulator's time, ms UTC.

        Raises:
            ForewarnError: the API server does not answer, or refuses.
        """
        self._now_ms = now_ms
        by_node: dict[str, Mapping[str, Any]] = {}
        for each in sorted(events, key=lambda each: str(each["not_before"]), reverse=True):
            by_node |= dict.fromkeys(each["resources"], each)
        done: list[str] = []
        for node in list(self._kubernetes.all(NODES)):
            name = node["metadata"]["name"]
            event = by_node.get(name)
            done += self._mark(node, event)
            if event is not None and self._acts(event):
                done += self._drain(name, event)
            elif event is None and CORDONED in annotations_of(node):
                done += self._uncordon(name)
        return done

    def _mark(self, node: dict[str, Any], event: Mapping[str, Any] | None) -> list[str]:
        """Set or remove the conditions of a node."""
        name = node["metadata"]["name"]
        notice = None if event is None else _notice(event)
        change = plan_notice(node, notice, writer=WRITER, types=TYPES, now_ms=self._now_ms)
        if change.patch is None:
            return []
        if not self._patch_node(f"{NODES}/{name}/status", change.patch, kind=STRATEGIC):
            return []
        if event is None:
            self._tell(name, "NoVMEventScheduled", "No scheduled events are found.")
            return [f"{name}: no event is scheduled"]
        if (name, event["id"]) not in self._announced:
            self._announced.add((name, event["id"]))
            text = f"{event['type']} is scheduled, not before {event['not_before']}"
            self._tell(name, "VMEventScheduled", text)
            self._tell(name, f"{event['type']}Scheduled", text)
        return [f"{name}: {event['type']} is {event['state']}"]

    def _acts(self, event: Mapping[str, Any]) -> bool:
        """Return whether AKS cordons the node of an event now."""
        if event["type"] in DRAINED_TYPES:
            return True
        if event["type"] != "Freeze" or not self._evicts_on_freeze():
            return False
        begins_ms = parse(event["not_before"]) if event["not_before"] else 0
        return event["state"] == "started" or self._now_ms >= begins_ms - FREEZE_AHEAD_MS

    def _evicts_on_freeze(self) -> bool:
        """Return whether the ConfigMap asks for it; AKS reads it every 30 minutes, this at once."""
        data = (self._kubernetes.find(CONFIG) or {}).get("data") or {}
        try:
            form = json.loads(data.get("appConfig", "{}"))
            return form["Cluster"]["OnFreeze"]["Enabled"] is True
        except (ValueError, LookupError, TypeError):
            return False

    def _drain(self, name: str, event: Mapping[str, Any]) -> list[str]:
        """Cordon the node once; evict pods until all have left."""
        done: list[str] = []
        node = self._kubernetes.find(f"{NODES}/{name}")
        if node is None or self._drained.get(name) == event["id"]:
            return done
        if CORDONED not in annotations_of(node):
            if not self._cordon(node, event):
                return done
            done.append(f"{name}: cordoned")
            self._tell(name, "NodeDrainStart", f"The node is drained for {event['type']}.")
        left = self._pods(name, labelled=event["type"] == "Freeze")
        done += [f"{name}: evicted {pod}" for pod in filter(None, map(self._evict, left))]
        if not self._pods(name, labelled=event["type"] == "Freeze"):
            self._drained[name] = event["id"]
            self._tell(name, "NodeDrainEnd", "The node is drained.")
            done.append(f"{name}: drained")
        return done

    def _cordon(self, node: dict[str, Any], event: Mapping[str, Any]) -> bool:
        name, spec = node["metadata"]["name"], node.get("spec") or {}
        self._tell(name, "NodeCordonStart", f"The node is cordoned for {event['type']}.")
        taint = {"key": TAINT, "effect": "NoSchedule"}
        patch = {
            "metadata": {
                "annotations": {CORDONED: event["id"]},
                "resourceVersion": node["metadata"]["resourceVersion"],
            },
            "spec": {"unschedulable": True, "taints": [*_other_taints(spec), taint]},
        }
        cordoned = self._patch_node(f"{NODES}/{name}", patch)
        if cordoned:
            self._tell(name, "NodeCordonEnd", "The node is cordoned.")
        return cordoned

    def _uncordon(self, name: str) -> list[str]:
        node = self._kubernetes.find(f"{NODES}/{name}")
        if node is None:
            return []
        self._tell(name, "NodeUncordonStart", "The event is over.")
        patch = {
            "metadata": {
                "annotations": {CORDONED: None},
                "resourceVersion": node["metadata"]["resourceVersion"],
            },
            "spec": {
                "unschedulable": None,
                "taints": _other_taints(node.get("spec") or {}) or None,
            },
        }
        if not self._patch_node(f"{NODES}/{name}", patch):
            return []
        self._drained.pop(name, None)
        self._tell(name, "NodeUncordonEnd", "The node is schedulable again.")
        return [f"{name}: uncordoned"]

    def _pods(self, node: str, *, labelled: bool) -> list[dict[str, Any]]:
        """Return the pods that a drain of a node evicts; before a freeze only labelled ones."""
        pods = self._kubernetes.all("/api/v1/pods", f"&fieldSelector=spec.nodeName={node}")
        return [
            pod
            for pod in pods
            if is_drained_from(pod)
            and (not labelled or LABEL in (pod["metadata"].get("labels") or {}))
        ]

    def _evict(self, pod: dict[str, Any]) -> str:
        """Evict a pod; return its name, or an empty text if it stays."""
        meta = pod["metadata"]
        name = f"{meta['namespace']}/{meta['name']}"
        form = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        }
        place = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
        try:
            self._kubernetes.ask("POST", place, form)
        except KubernetesRefused as error:
            if error.number not in {MISSING, CONFLICT, BUDGET, 500}:
                raise
            if meta["uid"] not in self._failed and error.number != MISSING:
                self._failed.add(meta["uid"])
                self._tell(meta["name"], "FailedToEvict", str(error), namespace=meta["namespace"])
            return ""
        self._tell(meta["name"], "Evicted", "The pod is evicted.", namespace=meta["namespace"])
        return name

    def _patch_node(self, path: str, patch: object, *, kind: str = "") -> bool:
        """Patch a node; return False if another program has changed it meanwhile."""
        try:
            if kind:
                self._kubernetes.ask("PATCH", path, patch, kind=kind)
            else:
                self._kubernetes.patch(path, patch)
        except KubernetesRefused as error:
            if error.number not in {CONFLICT, MISSING}:
                raise
            return False
        return True

    def _tell(self, name: str, reason: str, text: str, *, namespace: str = "") -> None:
        """Record a Kubernetes event about a node, or about a pod of a namespace."""
        now = iso8601(self._now_ms - self._now_ms % 1000)
        form = {
            "metadata": {"generateName": f"{name}."},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod" if namespace else "Node",
                "name": name,
                "namespace": namespace,
            },
            "reason": reason,
            "message": text,
            "type": "Warning" if reason == "FailedToEvict" else "Normal",
            "source": {"component": "aks-node-auto-drain"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._kubernetes.ask("POST", f"/api/v1/namespaces/{namespace or 'default'}/events", form)


def _notice(event: Mapping[str, Any]) -> NodeNotice:
    started = event["state"] == "started"
    not_before_ms = parse(event["not_before"]) if event["not_before"] and not started else None
    return NodeNotice(
        facts=frozenset(),
        event_id=event["id"],
        event_type=event["type"],
        status="Started" if started else "Scheduled",
        source=event["source"],
        not_before_ms=not_before_ms,
        deadline_ms=not_before_ms,
        duration_s=event["duration_s"],
    )


def _other_taints(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [each for each in spec.get("taints") or () if each.get("key") != TAINT]
