"""Kubernetes: cordons and drains this node, and later uncordons the node.

The step evicts pods, so that disruption budgets apply, and waits while a budget forbids an
eviction. Mirror pods, pods of daemon sets and finished pods remain. A cordon of another program
remains, too.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from forewarn.agent.preparations import step_state
from forewarn.agent.preparations.http_call import Called, call, expect, local_host, secret
from forewarn.agent.preparations.wait_until import persist, until
from forewarn.errors import PeerError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TAINT = "forewarn.io/scheduled-event"
MARK = "forewarn.io/cordoned-by"
MERGE = {"Content-Type": "application/merge-patch+json"}
TAINT_TRIES = 5  # a node changes every few seconds; five conflicts in a row are unlikely
PODS_MAX = 5000  # a node runs a few hundred pods at most
EVICTION_STATUSES = (200, 201, 404, 429, 500, 503)
"""Expected answers to an eviction.

2xx and 404 mean success. The step retries after the others, such as 429 (a disruption budget
forbids the eviction for now) or 500 (several budgets cover the pod).
"""
MIRROR = "kubernetes.io/config.mirror"


class PodInTheWay(PeerError):
    """A pod has local data, or no controller that starts it elsewhere."""

    code = "pod-in-the-way"
    message = "Pod {pod} {why}."
    advice = "Remove the pod, or allow it in the settings: `force`, `delete_local`."


class NodeUncordoned(PeerError):
    """Somebody has uncordoned the node during its drain."""

    code = "node-uncordoned"
    message = "Node {node} was uncordoned during its drain."
    advice = "Leave the node in use: the event is held. Or drain it by hand and approve the event."


def prepare(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Cordon the node, taint it if configured, and evict its pods."""
    node = _node(settings)
    form = _get(settings, node)
    spec, meta = _part(form, "spec"), _part(form, "metadata")
    mine = MARK in _part(meta, "annotations")
    noted = step_state.read()
    if not spec.get("unschedulable") or mine:
        step_state.write({**noted, "cordoned": True})
        patch = {
            "metadata": {"annotations": {MARK: str(hook.get("name") or "forewarn")}},
            "spec": {"unschedulable": True},
        }
        _patch(settings, node, patch)
    if settings.get("taint"):
        _taint(settings, hook, spec=spec)
    evicted = 0
    if settings.get("evict", True):
        pods = _evictable(settings)
        evicted = len(pods)
        _evict_all(settings, pods)
    return f"{node.rpartition('/')[2]} is cordoned; {evicted} pods were evicted"


def recover(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Remove only the cordon and the taint set by `prepare`."""
    noted = step_state.read()
    node = _node(settings)
    if noted.get("cordoned"):
        patch: dict[str, object] = {
            "metadata": {"annotations": {MARK: None}},
            "spec": {"unschedulable": None},
        }
        _patch(settings, node, patch)
    if noted.get("taint"):
        _change_taints(settings, str(noted["taint"]), taint=None)
    step_state.clear()
    return f"{node.rpartition('/')[2]}: {', '.join(sorted(noted)) or 'nothing'} removed"


def _taint(
    settings: dict[str, object], hook: dict[str, object], *, spec: dict[str, object]
) -> None:
    key = settings["taint"] if isinstance(settings["taint"], str) else TAINT
    event = hook.get("event")
    kind = str(event.get("event_type", "")) if isinstance(event, dict) else ""
    taints = spec.get("taints") or []
    assert isinstance(taints, list)
    if any(taint.get("key") == key for taint in taints):
        return
    step_state.write({**step_state.read(), "taint": key})
    _change_taints(settings, str(key), taint={"key": key, "effect": "NoSchedule", "value": kind})


def _change_taints(
    settings: dict[str, object], key: str, *, taint: dict[str, object] | None
) -> None:
    """Replace or remove the taint of a key; concurrent changes of other taints are preserved.

    A request replaces the complete list of taints and names the version of the node. After a
    conflict, the step reads the list again.
    """
    node = _node(settings)
    done = None
    for _ in range(TAINT_TRIES):
        form = _get(settings, node)
        taints = _part(form, "spec").get("taints") or []
        assert isinstance(taints, list)
        kept = [one for one in taints if one.get("key") != key]
        version = _part(form, "metadata")["resourceVersion"]
        patch = {
            "metadata": {"resourceVersion": version},
            "spec": {"taints": [*kept, taint] if taint else kept or None},
        }
        done = _patch(settings, node, patch, statuses=(200, 409))
        if done.status != 409:
            break
    assert done is not None
    expect(done, "PATCH", url=node, statuses=(200,))


def _evictable(settings: dict[str, object]) -> list[tuple[str, str]]:
    """Return the namespace and name of each pod to evict.

    Raises:
        PodInTheWay: a pod or its data would be lost, and the settings forbid this.
    """
    name = _node(settings).rpartition("/")[2]
    url = f"/api/v1/pods?fieldSelector={quote(f'spec.nodeName={name}')}&limit={PODS_MAX}"
    items = _get(settings, url)["items"]
    assert isinstance(items, list)
    chosen = []
    for pod in items:
        meta, spec = _part(pod, "metadata"), _part(pod, "spec")
        phase = _part(pod, "status").get("phase")
        owners = meta.get("ownerReferences") or []
        assert isinstance(owners, list)
        stays = MIRROR in _part(meta, "annotations") or phase in ("Succeeded", "Failed")
        if stays or any(owner.get("kind") == "DaemonSet" for owner in owners):
            continue
        label = f"{meta['namespace']}/{meta['name']}"
        if not owners and not settings.get("force"):
            raise PodInTheWay(pod=label, why="has no controller that would start the pod elsewhere")
        volumes = spec.get("volumes") or []
        assert isinstance(volumes, list)
        local = any("emptyDir" in volume for volume in volumes)
        if local and not settings.get("delete_local", True):
            raise PodInTheWay(pod=label, why="has local files that would be lost")
        chosen.append((str(meta["namespace"]), str(meta["name"])))
    return chosen


def _evict_all(settings: dict[str, object], pods: list[tuple[str, str]]) -> None:
    """Evict pods, and retry refused evictions, until all pods are gone."""
    left = set(pods)

    def gone() -> bool:
        _check_cordoned(settings)
        for pod in sorted(left):
            if _evict(settings, *pod):
                left.discard(pod)
        return not left

    until(gone, "all pods are gone", seconds=float(str(settings.get("wait_s", 0))))


def _check_cordoned(settings: dict[str, object]) -> None:
    """Refuse to drain a node that somebody has uncordoned since `prepare` began.

    Raises:
        NodeUncordoned: new pods may be scheduled to the node.
        CallUnanswered: the API server does not answer.
    """
    node = _node(settings)
    form = expect(ask(settings, "GET", path=node), "GET", url=node, statuses=(200,)).form()
    if not _part(form, "spec").get("unschedulable"):
        raise NodeUncordoned(node=node.rpartition("/")[2])


def _evict(settings: dict[str, object], namespace: str, name: str) -> bool:
    """Request an eviction; return whether the pod is gone."""
    place = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
    answer = ask(settings, "GET", path=place)
    if answer.status == 404:
        return True
    if _part(answer.form(), "metadata").get("deletionTimestamp"):
        return False
    form: dict[str, object] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    if "grace_s" in settings:
        form["deleteOptions"] = {"gracePeriodSeconds": int(str(settings["grace_s"]))}
    url = f"{place}/eviction"
    expect(ask(settings, "POST", path=url, form=form), "POST", url=url, statuses=EVICTION_STATUSES)
    return False


def _get(settings: dict[str, object], path: str) -> dict[str, object]:
    """Return an object or a list; ask again while the API server does not answer."""
    return persist(
        lambda: expect(ask(settings, "GET", path=path), "GET", url=path, statuses=(200,))
    ).form()


def _patch(
    settings: dict[str, object],
    node: str,
    patch: dict[str, object],
    *,
    statuses: tuple[int, ...] = (200,),
) -> Called:
    """Change a node; a repeated change has no further effect, or is answered 409."""

    def change() -> Called:
        done = ask(settings, "PATCH", path=node, form=patch, headers=MERGE)
        return expect(done, "PATCH", url=node, statuses=statuses)

    return persist(change)


def _node(settings: dict[str, object]) -> str:
    name = settings.get("node") or os.environ.get("NODE_NAME") or local_host()
    return f"/api/v1/nodes/{quote(str(name), safe='')}"


def ask(
    settings: dict[str, object],
    method: str,
    *,
    path: str,
    form: object = None,
    headers: dict[str, str] | None = None,
) -> Called:
    """Send a request to the API server with the token of the settings or the service account."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "6443")
    host = f"[{host}]" if ":" in host else host
    server = str(settings.get("server") or f"https://{host}:{port}").rstrip("/")
    token = secret(settings.get("token_file") or _of_account("token"))
    known = {"Authorization": f"Bearer {token}"} if token else {}
    ca_file = str(settings.get("ca_file") or _of_account("ca.crt"))
    return call(
        method, f"{server}{path}", form=form, headers={**known, **(headers or {})}, ca_file=ca_file
    )


def _of_account(name: str) -> str:
    path = ACCOUNT / name
    return str(path) if path.exists() else ""


def _part(form: dict[str, object], name: str) -> dict[str, object]:
    part = form.get(name)
    return part if isinstance(part, dict) else {}
