"""Node job: compares this VM's Kubernetes node with its notice, and writes the difference.

One patch of the node's status has conditions and annotations, so that readers never see one
without the other. A Lease shows that the writer lives while its notice exists. Source: K-1.
"""

from __future__ import annotations

import json

from forewarn.agent.preparations import kubernetes
from forewarn.agent.preparations.http_call import CallUnanswered, expect
from forewarn_base.clock import SystemClock
from forewarn_base.kubernetes.node_notices import KEP_TYPES, NodeNotice, NoticePlan, plan_notice
from forewarn_base.protocol.timestamps import iso8601

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
TRIES = 3  # a node changes every few seconds; three conflicts in a row are unlikely
LEASE_S = 60  # four intervals of the agent's checks


def main(form: dict[str, Any]) -> int:
    """Write the notice in `form`, and print what was left to other writers as JSON."""
    settings: dict[str, object] = form["settings"]
    name = kubernetes.node_name(settings)
    writer = f"agent/{name}"
    notice = _notice(form["notice"])
    change = _write(settings, notice, writer=writer)
    if notice is None:
        _release(settings, name)
    elif not change.other_writer:
        _renew(settings, name, writer=writer)
    print(json.dumps({"foreign": list(change.foreign), "writer": change.other_writer}))  # noqa: T201
    return 0


def _write(settings: dict[str, object], notice: NodeNotice | None, *, writer: str) -> NoticePlan:
    """Patch the node if its notice differs; read the node again after a conflict."""
    path = kubernetes.node_path(settings)
    types: Mapping[str, str] = settings.get("condition_types") or KEP_TYPES  # type: ignore[assignment]
    for _ in range(TRIES):
        response = kubernetes.ask(settings, "GET", path=path)
        if response.status == 404:  # the node was deleted, and its notice with it
            return NoticePlan()
        node: dict[str, Any] = expect(response, "GET", url=path, statuses=(200,)).form()
        now_ms = SystemClock().now_ms()
        change = plan_notice(node, notice, writer=writer, types=types, now_ms=now_ms)
        if change.patch is None:
            return change
        url = f"{path}/status"
        done = kubernetes.ask(settings, "PATCH", path=url, form=change.patch, headers=STRATEGIC)
        if expect(done, "PATCH", url=url, statuses=(200, 409)).status == 200:
            return change
    raise CallUnanswered(method="PATCH", url=path, reason="the node changes too often")


def _renew(settings: dict[str, object], name: str, *, writer: str) -> None:
    """Renew the writer's Lease; create it if it is missing."""
    now_ms = SystemClock().now_ms()
    spec = {
        "holderIdentity": writer,
        "leaseDurationSeconds": LEASE_S,
        "renewTime": f"{iso8601(now_ms - now_ms % 1000)[:-1]}.000000Z",
    }
    path = f"{_leases(settings)}/{_lease(name)}"
    patch = {"spec": spec}
    done = kubernetes.ask(settings, "PATCH", path=path, form=patch, headers=kubernetes.MERGE)
    if expect(done, "PATCH", url=path, statuses=(200, 404)).status == 200:
        return
    form = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": _lease(name)},
        "spec": spec,
    }
    url = _leases(settings)
    done = kubernetes.ask(settings, "POST", path=url, form=form)
    expect(done, "POST", url=url, statuses=(200, 201, 409))


def _release(settings: dict[str, object], name: str) -> None:
    """Delete the Lease of a writer that has removed its notice."""
    path = f"{_leases(settings)}/{_lease(name)}"
    done = kubernetes.ask(settings, "DELETE", path=path)
    expect(done, "DELETE", url=path, statuses=(200, 202, 404))


def _leases(settings: dict[str, object]) -> str:
    namespace = str(settings.get("namespace") or kubernetes.own_namespace())
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def _lease(name: str) -> str:
    return f"forewarn-agent-{name}".lower()


def _notice(form: dict[str, Any] | None) -> NodeNotice | None:
    if form is None:
        return None
    event = form["event"]
    return NodeNotice(
        facts=frozenset(form["facts"]),
        event_id=event["event_id"],
        event_type=event["event_type"],
        status=event["status"],
        source=event["source"],
        not_before_ms=event["not_before_ms"],
        deadline_ms=form["deadline_ms"],
        duration_s=event["duration_s"],
    )
