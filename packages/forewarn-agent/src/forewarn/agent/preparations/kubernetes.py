"""Kubernetes: cordons and drains this node, and later uncordons the node.

One write of the node cordons it, and taints and labels it if configured. The step then evicts pods,
so that disruption budgets apply, until the event's deadline; the setting `at_deadline` says what
follows. Pods of jobs are last. Mirror pods, pods of daemon sets and finished pods remain.

The step undoes only its own changes. A person who uncordons the node during the drain has decided:
the step neither cordons the node again nor lets the event be approved. Source: K-3.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import quote

from forewarn.agent.preparations import step_state
from forewarn.agent.preparations.http_call import Called, call, expect, local_host, secret
from forewarn.agent.preparations.wait_until import Unanswered, pause, persist, seconds_left
from forewarn_base.clock import SystemClock
from forewarn_base.errors import AskedToHold, PeerError

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TAINT = "forewarn.io/scheduled-event"
MARK = "forewarn.io/cordoned-by"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
MERGE = {"Content-Type": "application/merge-patch+json"}
EDIT_TRIES = 5  # a node changes every few seconds; five conflicts in a row are unlikely
PODS_MAX = 5000  # a node runs a few hundred pods at most
PAGE_PODS = 500  # pods of one answer
ROUND_S = 1.0  # pause between two rounds of evictions
RESERVE_S = 30.0  # time before the deadline from which `at_deadline` applies
WAITS_MAX = 5  # most pods named in one line of progress
#: Expected answers to an eviction.
#:
#: 2xx and 404 mean success. The step retries after the others, such as 429 (a disruption budget
#: forbids the eviction for now) or 500 (several budgets cover the pod).
EVICTION_STATUSES = (200, 201, 404, 429, 500, 503)
MIRROR = "kubernetes.io/config.mirror"


class PodInTheWay(PeerError):
    """A pod has local data, or no controller that starts it elsewhere."""

    code = "pod-in-the-way"
    message = "Pod {pod} {why}."
    advice = "Remove the pod, or allow it in the settings: `force`, `delete_local`."


class PodsLeft(PeerError):
    """Pods are left at the deadline of a drain."""

    code = "pods-left"
    message = "After {seconds:.0f} s, pods are left on node {node}: {left} ({waits})."
    advice = "Loosen the budget, start more replicas, or set `at_deadline`."


class NodeUncordoned(AskedToHold):
    """Somebody has uncordoned the node during its drain."""

    code = "node-uncordoned"
    message = "Node {node} was uncordoned during its drain."
    advice = "Leave the node in use: the event is held. Or drain it by hand and approve the event."


def prepare(settings: dict[str, object], hook: dict[str, object]) -> str:
    """Cordon the node, taint and label it if configured, and evict its pods."""
    if _is_tolerated(settings, hook):
        return "the freeze is short: the node is not drained"
    name = node_name(settings)
    owner = str(settings.get("owner") or hook.get("name") or "forewarn")
    noted = step_state.read()
    step_state.write({"owner": owner, **noted, "began": True})
    _edit(settings, lambda node: _cordon(settings, hook, node))
    if not settings.get("evict", True):
        return f"{name} is cordoned"
    step_state.write({**step_state.read(), "draining": True})
    evicted = Drain(settings).run()
    return f"{name} is cordoned; {evicted} pods were evicted"


def approve(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Refuse an approval if somebody has uncordoned the node since its drain.

    Raises:
        NodeUncordoned: new pods may have been scheduled to the node.
    """
    if not step_state.read().get("draining"):
        return "nothing was drained"
    _check_cordoned(settings)
    return f"{node_name(settings)} is cordoned"


def recover(settings: dict[str, object], _hook: dict[str, object]) -> str:
    """Remove only the cordon, the taint and the label set by `prepare`."""
    noted = step_state.read()
    removed: list[str] = []

    def free(node: dict[str, object]) -> dict[str, object] | None:
        removed.clear()
        return _undo_patch(node, noted, removed)

    if noted:
        _edit(settings, free)
    step_state.clear()
    return f"{node_name(settings)}: {', '.join(removed) or 'nothing'} removed"


# ---- the node ----------------------------------------------------------------------------------


def _cordon(
    settings: dict[str, object], hook: dict[str, object], node: dict[str, object]
) -> dict[str, object] | None:
    """Return the patch that cordons, taints and labels a node; note each change before it is made.

    Raises:
        NodeUncordoned: somebody has uncordoned the node during an earlier run of this step.
    """
    spec, meta = _part(node, "spec"), _part(node, "metadata")
    marks: dict[str, object] = {}
    labels: dict[str, object] = {}
    changed: dict[str, object] = {}
    noted = step_state.read()
    if not spec.get("unschedulable"):
        if noted.get("draining"):
            step_state.write({**noted, "cordoned": False})
            raise NodeUncordoned(node=node_name(settings))
        noted["cordoned"] = True
        marks[MARK] = noted["owner"]
        changed["unschedulable"] = True
    taint = _taint(settings, hook)
    taints = _taints(spec)
    if taint and not any(one.get("key") == taint["key"] for one in taints):
        noted["taint"] = taint["key"]
        changed["taints"] = [*taints, taint]
    if settings.get("exclude_from_load_balancers") and EXCLUDED not in _part(meta, "labels"):
        noted["label"] = True
        labels[EXCLUDED] = ""
    if not changed and not labels:
        return None
    step_state.write(noted)
    return {"metadata": {"annotations": marks, "labels": labels}, "spec": changed}


def _undo_patch(
    node: dict[str, object], noted: dict[str, object], removed: list[str]
) -> dict[str, object] | None:
    """Return the patch that undoes this step's changes; a cordon of somebody else remains."""
    spec, meta = _part(node, "spec"), _part(node, "metadata")
    mark = _part(meta, "annotations").get(MARK)
    marks: dict[str, object] = {}
    labels: dict[str, object] = {}
    changed: dict[str, object] = {}
    if mark is not None and mark == noted.get("owner", mark):
        marks[MARK] = None
        removed.append("cordon")
        if noted.get("cordoned") and spec.get("unschedulable"):
            changed["unschedulable"] = None
    kept = [one for one in _taints(spec) if one.get("key") != noted.get("taint")]
    if noted.get("taint") and len(kept) < len(_taints(spec)):
        changed["taints"] = kept or None
        removed.append("taint")
    if noted.get("label") and EXCLUDED in _part(meta, "labels"):
        labels[EXCLUDED] = None
        removed.append("label")
    if not removed:
        return None
    return {"metadata": {"annotations": marks, "labels": labels}, "spec": changed}


def _edit(
    settings: dict[str, object],
    change: Callable[[dict[str, object]], dict[str, object] | None],
) -> None:
    """Change the node as read; read it again if another program has changed it meanwhile.

    A patch names the version of the node, and is repeated only with a new one.
    """
    path = node_path(settings)
    done = None
    for _ in range(EDIT_TRIES):
        node = _get(settings, path)
        patch = change(node)
        if patch is None:
            return
        _part(patch, "metadata")["resourceVersion"] = _part(node, "metadata")["resourceVersion"]
        done = _patch(settings, path, patch, statuses=(200, 409))
        if done.status != 409:
            return
    assert done is not None
    expect(done, "PATCH", url=path, statuses=(200,))


def _taint(settings: dict[str, object], hook: dict[str, object]) -> dict[str, object] | None:
    if not settings.get("taint"):
        return None
    key = settings["taint"] if isinstance(settings["taint"], str) else TAINT
    return {"key": key, "effect": "NoSchedule", "value": str(_event(hook).get("event_type", ""))}


def _taints(spec: dict[str, object]) -> list[dict[str, object]]:
    taints = spec.get("taints") or []
    assert isinstance(taints, list)
    return taints


def _is_tolerated(settings: dict[str, object], hook: dict[str, object]) -> bool:
    """Return whether an event is a freeze below the configured length."""
    event = _event(hook)
    duration_s, limit_s = event.get("duration_s"), settings.get("freeze_tolerated_s", 0)
    known = isinstance(duration_s, int) and isinstance(limit_s, (int, float))
    return event.get("event_type") == "Freeze" and known and 0 <= duration_s < limit_s  # type: ignore[operator]


# ---- the pods ----------------------------------------------------------------------------------


class Drain:
    """Evicts the pods of a node in rounds, until no pod is left or the deadline has come."""

    def __init__(self, settings: dict[str, object]) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._begun_ms = self._clock.now_ms()
        self._seen: set[str] = set()
        self._waits: dict[str, str] = {}
        self._said = ""

    def run(self) -> int:
        """Return the number of pods that had to leave, once they have left.

        Raises:
            PodInTheWay: a pod or its data would be lost, and the settings forbid this.
            PodsLeft: pods are left at the deadline.
            NodeUncordoned: somebody has uncordoned the node.
        """
        left = 0
        while True:
            try:
                left = self._round()
                if not left:
                    return len(self._seen)
            except Unanswered as error:
                self._waits = {"": error.clause}
            self._report(left)
            if self._left_s() <= 0:
                seconds = (self._clock.now_ms() - self._begun_ms) / 1000
                node, waits = node_name(self._settings), self._waits_text()
                raise PodsLeft(seconds=seconds, left=left, node=node, waits=waits)
            pause(ROUND_S)

    def _round(self) -> int:
        """Evict the pods whose turn it is; return the number of pods left."""
        _check_cordoned(self._settings)
        pods = list(_evictable(self._settings))
        self._seen |= {pod.uid for pod in pods}
        self._waits = {}
        late = self._left_s() <= float(str(self._settings.get("reserve_s", RESERVE_S)))
        others = [pod for pod in pods if not pod.is_job]
        for pod in pods:
            if pod.is_job and not late and (others or self._settings.get("jobs") == "wait"):
                self._waits[pod.label] = "is a job, and last"
            elif late and self._settings.get("at_deadline") == "delete":
                self._delete(pod)
            elif pod.is_leaving:
                self._waits[pod.label] = "is shutting down"
            else:
                self._evict(pod)
        return len(pods)

    def _evict(self, pod: Pod) -> None:
        """Request an eviction; note what forbids it."""
        form: dict[str, object] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
        }
        options: dict[str, object] = {"preconditions": {"uid": pod.uid}} if pod.uid else {}
        if "grace_s" in self._settings:
            options["gracePeriodSeconds"] = int(str(self._settings["grace_s"]))
        if options:
            form["deleteOptions"] = options
        url = f"{pod.path}/eviction"
        response = ask(self._settings, "POST", path=url, form=form)
        expect(response, "POST", url=url, statuses=(*EVICTION_STATUSES, 409))  # 409: a new pod
        refused = response.status in (429, 500, 503)
        self._waits[pod.label] = _budget(response) if refused else "is shutting down"

    def _delete(self, pod: Pod) -> None:
        """Delete a pod at the deadline, whatever its budget says, within the time left."""
        grace_s = max(1, int(self._left_s()))
        form: dict[str, object] = {"gracePeriodSeconds": min(grace_s, pod.grace_s)}
        if pod.uid:
            form["preconditions"] = {"uid": pod.uid}
        response = ask(self._settings, "DELETE", path=pod.path, form=form)
        expect(response, "DELETE", url=pod.path, statuses=(200, 202, 404, 409))
        self._waits[pod.label] = "is deleted at the deadline"

    def _left_s(self) -> float:
        """Return the seconds until the drain must end."""
        limit_s = float(str(self._settings.get("wait_s", 0)))
        own_s = limit_s - (self._clock.now_ms() - self._begun_ms) / 1000
        return min(seconds_left(), own_s) if limit_s else seconds_left()

    def _report(self, left: int) -> None:
        """Print the progress if it has changed; the agent shows the last line."""
        text = f"pods left: {left} ({self._waits_text()})"
        if text != self._said:
            self._said = text
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    def _waits_text(self) -> str:
        named = [f"{label} {why}".strip() for label, why in sorted(self._waits.items())]
        more = len(named) - WAITS_MAX
        return "; ".join(named[:WAITS_MAX] + ([f"{more} more"] if more > 0 else []))


class Pod:
    """A pod that must leave the node."""

    def __init__(self, form: dict[str, object]) -> None:
        meta, spec = _part(form, "metadata"), _part(form, "spec")
        self.namespace, self.name = str(meta["namespace"]), str(meta["name"])
        self.uid = str(meta.get("uid") or "")
        self.label = f"{self.namespace}/{self.name}"
        self.is_job = any(owner.get("kind") == "Job" for owner in _owners(meta))
        self.is_leaving = "deletionTimestamp" in meta
        grace_s = spec.get("terminationGracePeriodSeconds")
        self.grace_s = grace_s if isinstance(grace_s, int) else 30

    @property
    def path(self) -> str:
        """The pod's path at the API server."""
        namespace, name = quote(self.namespace, safe=""), quote(self.name, safe="")
        return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _evictable(settings: dict[str, object]) -> Iterator[Pod]:
    """Yield the pods to evict.

    Raises:
        PodInTheWay: a pod or its data would be lost, and the settings forbid this.
    """
    for form in _pods(settings):
        meta, spec = _part(form, "metadata"), _part(form, "spec")
        phase = _part(form, "status").get("phase")
        stays = MIRROR in _part(meta, "annotations") or phase in ("Succeeded", "Failed")
        if stays or any(owner.get("kind") == "DaemonSet" for owner in _owners(meta)):
            continue
        pod = Pod(form)
        if not pod.is_leaving and not _owners(meta) and not settings.get("force"):
            why = "has no controller that would start the pod elsewhere"
            raise PodInTheWay(pod=pod.label, why=why)
        volumes = spec.get("volumes") or []
        assert isinstance(volumes, list)
        local = any("emptyDir" in volume for volume in volumes)
        if local and not settings.get("delete_local", True):
            raise PodInTheWay(pod=pod.label, why="has local files that would be lost")
        yield pod


def _pods(settings: dict[str, object]) -> list[dict[str, object]]:
    """Return all pods on the node, page by page."""
    selector = quote(f"spec.nodeName={node_name(settings)}")
    first = url = f"/api/v1/pods?fieldSelector={selector}&limit={PAGE_PODS}"
    pods: list[dict[str, object]] = []
    while len(pods) <= PODS_MAX:
        page = expect(ask(settings, "GET", path=url), "GET", url=url, statuses=(200,)).form()
        items = page["items"] or []
        assert isinstance(items, list)
        pods += items
        token = _part(page, "metadata").get("continue")
        if not token:
            break
        url = f"{first}&continue={quote(str(token), safe='')}"
    return pods


def _owners(meta: dict[str, object]) -> list[dict[str, object]]:
    owners = meta.get("ownerReferences") or []
    assert isinstance(owners, list)
    return owners


def _budget(response: Called) -> str:
    """Return what forbids an eviction, in the API server's words, which name the budget."""
    form = response.form()
    causes = _part(form, "details").get("causes")
    named = [str(one.get("message", "")) for one in causes] if isinstance(causes, list) else []
    return f"waits: {'; '.join(filter(None, named)) or form.get('message') or response.status}"


def _check_cordoned(settings: dict[str, object]) -> None:
    """Refuse to go on with a node that somebody has uncordoned since its drain began.

    Raises:
        NodeUncordoned: new pods may be scheduled to the node.
        CallUnanswered: the API server does not answer.
    """
    path = node_path(settings)
    form = expect(ask(settings, "GET", path=path), "GET", url=path, statuses=(200,)).form()
    if not _part(form, "spec").get("unschedulable"):
        # From now on, a cordon is somebody else's, and remains.
        step_state.write({**step_state.read(), "cordoned": False})
        raise NodeUncordoned(node=node_name(settings))


# ---- the API server ----------------------------------------------------------------------------


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


def node_name(settings: dict[str, object]) -> str:
    """Return the name of this VM's node."""
    return str(settings.get("node") or os.environ.get("NODE_NAME") or local_host())


def node_path(settings: dict[str, object]) -> str:
    """Return the path of this VM's node at the API server."""
    return f"/api/v1/nodes/{quote(node_name(settings), safe='')}"


def own_namespace() -> str:
    """Return the namespace of this pod; `default` outside a cluster."""
    place = _of_account("namespace")
    return Path(place).read_text("utf-8").strip() if place else "default"


def ask(
    settings: dict[str, object],
    method: str,
    *,
    path: str,
    form: object = None,
    headers: dict[str, str] | None = None,
) -> Called:
    """Send a request to the API server with the token of the settings or the service account."""
    server, known, ca_file = api_server(settings)
    return call(
        method, f"{server}{path}", form=form, headers={**known, **(headers or {})}, ca_file=ca_file
    )


def api_server(settings: dict[str, object]) -> tuple[str, dict[str, str], str]:
    """Return the address of the API server, the headers of a request, and the CA file."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "6443")
    host = f"[{host}]" if ":" in host else host
    server = str(settings.get("server") or f"https://{host}:{port}").rstrip("/")
    token = secret(settings.get("token_file") or _of_account("token"))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return server, headers, str(settings.get("ca_file") or _of_account("ca.crt"))


def _of_account(name: str) -> str:
    path = ACCOUNT / name
    return str(path) if path.exists() else ""


def _event(hook: dict[str, object]) -> dict[str, object]:
    return _part(hook, "event")


def _part(form: dict[str, object], name: str) -> dict[str, object]:
    part = form.get(name)
    return part if isinstance(part, dict) else {}
