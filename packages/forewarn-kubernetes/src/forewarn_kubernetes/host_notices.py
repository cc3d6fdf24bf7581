"""Notices on the nodes that are hosts: planned and running work, as the control plane knows it.

Each turn compares every node with the live operations of its host, and writes the differences. It
needs no state of its own, so it is right again after a crash. Expired notices of other writers are
removed. Several connections write at a time, so that of thousands of nodes that change at once none
waits for all others. A patch names the version of the node that was compared, so only a node that
has changed meanwhile is read once more. Source: K-1.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any

from forewarn_base.clock import Clock
from forewarn_base.errors import ForewarnError
from forewarn_base.kubernetes.node_notices import (
    ANNOTATIONS,
    DRAINED,
    DRAINING,
    IN_PROGRESS,
    KEP_TYPES,
    PLANNED,
    NodeNotice,
    NoticePlan,
    plan_notice,
)
from forewarn_base.protocol.timestamps import iso8601, parse
from forewarn_base.values import value
from forewarn_kubernetes.client import (
    CONFLICT,
    MISSING,
    KeptKubernetes,
    Kubernetes,
    KubernetesBusy,
    KubernetesRefused,
)
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.discovery import NODES, Watched
from forewarn_kubernetes.work import DRAINING_TEXT, REBOOTING_TEXT

STRATEGIC = "application/strategic-merge-patch+json"
LEASE_S = 60
#: Maximum number of nodes that are written at a time, each over its own connection.
WRITERS_MAX = 16
#: Attempts to write a node while the API server sheds load; then the next turn retries.
BUSY_TRIES = 5
#: States of an operation that its node shows.
SHOWN = {"announced": PLANNED, "running": IN_PROGRESS}


@value
class SeenNode:
    """A node as the cluster has last shown it."""

    #: The parts that its notice depends on.
    form: dict[str, Any]
    #: Version of the whole node; heartbeats change it as well.
    version: str = field(compare=False)


class HostNotices:
    """The notices of one control plane on the nodes of one cluster."""

    #: Interval of turns without a change in the cluster, in seconds.
    every_s = 10.0

    def __init__(self, config: KubernetesConfig, name: str, clock: Clock) -> None:
        self.writer = f"control/{name}"
        self._lease = f"forewarn-control-{name}".lower()
        self._config = config
        self._clock = clock
        self._kubernetes = Kubernetes(config)
        self._types = dict(config.condition_types) or KEP_TYPES
        self._watched: Watched[SeenNode] | None = None
        self._closed = threading.Event()

    def watch(self) -> threading.Event:
        """Follow the cluster; return an event that is set when a notice on a node changes."""
        changed = threading.Event()
        self._watched = Watched(Kubernetes(self._config), NODES, _seen, changed=changed)
        self._watched.start()
        return changed

    def close(self) -> None:
        """Stop following the cluster."""
        self._closed.set()
        if self._watched is not None:
            self._watched.close()

    def turn(self, operations: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
        """Write the notices of live operations; return the changed nodes, and the problems.

        Raises:
            ForewarnError: the nodes are unknown, or the writer's Lease cannot be renewed.
        """
        wanted = notices_of(operations)
        nodes = self._nodes()
        problems: list[str] = []
        plans: dict[str, NoticePlan] = {}
        for node in nodes:
            name = node.form["metadata"]["name"]
            change = self._plan(node.form, wanted.get(name))
            if change.patch is not None:
                change.patch["metadata"]["resourceVersion"] = node.version
                plans[name] = change
            else:
                problems += _left_alone(name, change, wanted)
        changed: list[str] = []
        for name, written in self._write_all(plans, wanted):
            if isinstance(written, ForewarnError):
                problems.append(f"node {name}: {written}")
                continue
            changed += [name] if written.patch is not None else []
            problems += _left_alone(name, written, wanted)
        if any(each.form["metadata"]["name"] in wanted for each in nodes):
            self._renew()
        return changed, problems

    def _write_all(
        self, plans: Mapping[str, NoticePlan], wanted: Mapping[str, NodeNotice]
    ) -> list[tuple[str, NoticePlan | ForewarnError]]:
        """Write nodes, several at a time; return what was written, or why not."""
        names = list(plans)
        writers = min(WRITERS_MAX, len(names))
        if not writers:
            return []

        def write(start: int) -> list[tuple[str, NoticePlan | ForewarnError]]:
            # Writes name the node's version, and are safe to repeat.
            with contextlib.closing(KeptKubernetes(self._config)) as kept:
                return [
                    (name, self._written(kept, name, wanted.get(name), plans[name]))
                    for name in names[start::writers]
                ]

        with ThreadPoolExecutor(writers, thread_name_prefix="node writer") as pool:
            return [each for part in pool.map(write, range(writers)) for each in part]

    def _written(
        self, kept: Kubernetes, name: str, notice: NodeNotice | None, change: NoticePlan
    ) -> NoticePlan | ForewarnError:
        """Write one node, and wait as long as a busy API server asks for."""
        left = BUSY_TRIES
        while True:  # ends after `BUSY_TRIES` attempts
            left -= 1
            try:
                return self._write(kept, name, notice, change)
            except KubernetesBusy as error:
                if not left:
                    return error
                self._closed.wait(error.retry_after_s)
            except ForewarnError as error:
                return error

    def _nodes(self) -> list[SeenNode]:
        if self._watched is not None:
            return self._watched.facts()
        return [_seen(each) for each in self._kubernetes.all(NODES)]

    def _plan(self, node: Mapping[str, Any], notice: NodeNotice | None) -> NoticePlan:
        now_ms = self._clock.now_ms()
        return plan_notice(node, notice, writer=self.writer, types=self._types, now_ms=now_ms)

    def _write(
        self, kept: Kubernetes, name: str, notice: NodeNotice | None, change: NoticePlan
    ) -> NoticePlan:
        """Patch a node; if it has changed since it was seen, compare the present node once.

        Returns the plan that was carried out. After another conflict the next turn retries.
        """
        path = f"{NODES}/{name}"
        if _is_patched(kept, path, change):
            return change
        node = kept.find(path)
        if node is None:
            return NoticePlan()
        change = self._plan(node, notice)
        return change if change.patch is None or _is_patched(kept, path, change) else NoticePlan()

    def _renew(self) -> None:
        """Renew the writer's Lease, which shows that the writer lives; create it if missing."""
        now_ms = self._clock.now_ms()
        spec = {
            "holderIdentity": self.writer,
            "leaseDurationSeconds": LEASE_S,
            "renewTime": f"{iso8601(now_ms - now_ms % 1000)[:-1]}.000000Z",
        }
        place = f"/apis/coordination.k8s.io/v1/namespaces/{self._config.namespace}/leases"
        try:
            self._kubernetes.patch(f"{place}/{self._lease}", {"spec": spec})
        except KubernetesRefused as error:
            if error.number != MISSING:
                raise
            form = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._lease},
                "spec": spec,
            }
            self._kubernetes.ask("POST", place, form)


def _is_patched(kept: Kubernetes, path: str, change: NoticePlan) -> bool:
    """Patch a node; return whether it still was the one that was compared."""
    try:
        kept.ask("PATCH", f"{path}/status", change.patch, kind=STRATEGIC)
    except KubernetesRefused as error:
        if error.number not in {CONFLICT, MISSING}:
            raise
        return False
    return True


def _left_alone(name: str, change: NoticePlan, wanted: Mapping[str, NodeNotice]) -> list[str]:
    """Return what a plan leaves to other writers of a node, in words."""
    if change.other_writer and name in wanted:
        return [f"{change.other_writer} has marked node {name}"]
    if change.foreign:
        kinds = ", ".join(change.foreign)
        return [f"another program writes {kinds} on node {name}"]
    return []


def notices_of(operations: Iterable[Mapping[str, Any]]) -> dict[str, NodeNotice]:
    """Return the notice of each host with announced or running work, by host.

    `operations` have the form of `GET /v1/operations`. Of several operations, the running one is
    named, or else the one with the earliest NotBefore.
    """
    by_host: dict[str, list[Mapping[str, Any]]] = {}
    for operation in operations:
        if operation["target_kind"] == "host" and operation["state"] in SHOWN:
            by_host.setdefault(operation["host"], []).append(operation)
    return {host: _notice(several) for host, several in by_host.items()}


def _notice(operations: list[Mapping[str, Any]]) -> NodeNotice:
    first = min(operations, key=lambda each: (each["state"] != "running", each["not_before"] or ""))
    facts = {SHOWN[each["state"]] for each in operations}
    running = first["state"] == "running"
    if running and str(first["progress"]).startswith(DRAINING_TEXT):
        facts.add(DRAINING)
    if running and str(first["progress"]).startswith(REBOOTING_TEXT):
        facts.add(DRAINED)
    not_before_ms = parse(first["not_before"]) if first["not_before"] and not running else None
    return NodeNotice(
        facts=frozenset(facts),
        event_id=first["id"],
        event_type=first["impact"],
        status="Started" if running else "Scheduled",
        source=first["source"],
        not_before_ms=not_before_ms,
        deadline_ms=not_before_ms,
        duration_s=first["duration_s"],
    )


def _seen(node: dict[str, Any]) -> SeenNode:
    """Return the parts of a node that its notice depends on, without heartbeats."""
    meta = node["metadata"]
    annotations = meta.get("annotations") or {}
    conditions = (node.get("status") or {}).get("conditions") or []
    known = ("type", "status", "reason", "message", "lastTransitionTime")
    form = {
        "metadata": {
            "name": meta["name"],
            "annotations": {key: annotations[key] for key in ANNOTATIONS if key in annotations},
        },
        "spec": {"unschedulable": bool((node.get("spec") or {}).get("unschedulable"))},
        "status": {"conditions": [{key: each.get(key) for key in known} for each in conditions]},
    }
    return SeenNode(form, meta["resourceVersion"])
