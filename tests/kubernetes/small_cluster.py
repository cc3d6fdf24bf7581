"""A small API server that speaks Kubernetes' documented JSON, and plays kubelet and KubeVirt.

Each reading of an object that something works on brings that work a step further.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

Form = dict[str, Any]
VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
MIGRATIONS = f"{VMIS}".replace("instances", "instancemigrations")
PODS = "/api/v1/namespaces/default/pods"
REBOOT = "example.org/reboot"
PHASES = ("Pending", "Scheduling", "TargetReady", "Running", "Succeeded")


class Cluster:
    """Objects by their paths, and what is done with them."""

    def __init__(self) -> None:
        """Hold two nodes."""
        self.objects: dict[str, Form] = {}
        #: Task -> reboots of a node; VM -> restarts.
        self.effects: Counter[str] = Counter()
        #: Answers to the next requests: (status, message); status 0 hangs up.
        self.faults: list[tuple[int, str]] = []
        #: The verb and the path of each request that changes something.
        self.changes: list[str] = []
        #: Pod -> the answer to its eviction.
        self.protected: dict[str, tuple[int, str]] = {}
        self.migrations_go_on = True
        #: When objects are said to be made; empty: now.
        self.created = ""
        self.token = "right"
        self._version = 0
        self.lock = threading.RLock()
        for name in ("h1", "h2"):
            self.put(f"/api/v1/nodes/{name}", status=node_status("boot-1"))

    def put(self, path: str, **members: object) -> Form:
        """Have an object, with what every object has."""
        with self.lock:
            self._version += 1
            form: Form = {"metadata": {}}
            form.update(members)
            meta = form["metadata"] = {"name": path.rpartition("/")[2], **form["metadata"]}
            parts = path.split("/")
            if "namespaces" in parts:
                meta["namespace"] = parts[parts.index("namespaces") + 1]
            meta.setdefault("uid", f"uid-{self._version}")
            meta.setdefault("creationTimestamp", self.created or f"{datetime.now(UTC):%FT%TZ}")
            meta["resourceVersion"] = str(self._version)
            self.objects[path] = form
            return form

    def machine(self, name: str, node: str = "h1") -> None:
        """Have a VM run."""
        status = {"phase": "Running", "nodeName": node}
        self.put(f"{VMIS}/{name}", status=status, spec={})

    def pod(self, name: str, node: str = "h1", kind: str = "ReplicaSet") -> None:
        """Have a pod run."""
        owners = [{"kind": kind, "name": "x", "controller": True}] if kind else []
        meta = {"ownerReferences": owners, "labels": {"app": name}}
        self.put(f"{PODS}/{name}", metadata=meta, spec={"nodeName": node})

    def node(self, name: str = "h1") -> Form:
        """Return a node."""
        return self.objects[f"/api/v1/nodes/{name}"]

    def answer(self, verb: str, target: str, form: Form) -> tuple[int, Form]:
        """Carry a request out."""
        url = urlsplit(target)
        path, query = url.path, parse_qs(url.query)
        if verb == "GET":
            self._play()
            return self._list(path, query) if "limit" in query else self._get(path)
        self.changes.append(f"{verb} {path}")
        if path.endswith("/eviction"):
            return self._evict(path.removesuffix("/eviction"))
        if path.startswith("/apis/subresources"):
            return self._act(*path.rsplit("/", 2)[1:])
        if verb == "DELETE":
            return (200, {}) if self.objects.pop(path, None) else refusal(404)
        if verb == "POST":
            place = f"{path}/{form['metadata']['name']}"
            return refusal(409) if place in self.objects else (201, self.put(place, **form))
        return self._change(verb, path, form)

    def _get(self, path: str) -> tuple[int, Form]:
        return (200, self.objects[path]) if path in self.objects else refusal(404)

    def _list(self, path: str, query: dict[str, list[str]]) -> tuple[int, Form]:
        """Answer with pages of two, so that every reader has to go on."""
        folder, plural = path.rsplit("/", 1)
        found = [
            form
            for place, form in self.objects.items()
            if place.startswith(folder) and place.split("/")[-2] == plural
        ]
        node = query.get("fieldSelector", ["="])[0].partition("=")[2]
        found = [each for each in found if not node or each["spec"].get("nodeName") == node]
        start = int(query.get("continue", ["0"])[0])
        more = str(start + 2) if start + 2 < len(found) else ""
        return 200, {"items": found[start : start + 2], "metadata": {"continue": more}}

    def _change(self, verb: str, path: str, form: Form) -> tuple[int, Form]:
        before = self.objects.get(path)
        if before is None:
            return refusal(404)
        version = form["metadata"].get("resourceVersion")
        if version not in {None, before["metadata"]["resourceVersion"]}:
            return refusal(409)
        return 200, self.put(path, **(merged(before, form) if verb == "PATCH" else form))

    def _evict(self, path: str) -> tuple[int, Form]:
        if path not in self.objects:
            return refusal(404)
        name = path.rpartition("/")[2]
        if name in self.protected:
            return refusal(*self.protected[name])
        del self.objects[path]
        return 201, {}

    def _act(self, name: str, verb: str) -> tuple[int, Form]:
        machine = self.objects.get(f"{VMIS}/{name}")
        if machine is None:
            return refusal(404)
        if "deletionTimestamp" in machine["metadata"] or machine.get("asked"):
            return refusal(409)
        machine["asked"] = verb
        self.effects[f"{verb} {name}"] += 1
        return 202, {}

    def _play(self) -> None:
        """Do what controllers and kubelets do, a step of it."""
        for path, form in list(self.objects.items()):
            asked = form.get("asked")
            if asked:
                del self.objects[path]
            if asked == "restart":
                free = [n for n in ("h1", "h2") if not self.node(n).get("spec")]
                self.machine(path.rpartition("/")[2], free[0])
            if path.startswith(MIGRATIONS) and self.migrations_go_on:
                self._migrate(form)
            task = form["metadata"].get("annotations", {}).get(REBOOT)
            if task and not self.effects[task]:
                self.effects[task] += 1
                form["status"] = node_status(f"boot of {task}")

    def _migrate(self, form: Form) -> None:
        phase = form.get("status", {}).get("phase", "")
        if phase in {"Succeeded", "Failed"}:
            return
        phase = PHASES[PHASES.index(phase) + 1] if phase else PHASES[0]
        form["status"] = {"phase": phase}
        machine = self.objects[f"{VMIS}/{form['spec']['vmiName']}"]
        if phase == "Succeeded":
            machine["status"]["nodeName"] = "h2"


def node_status(boot: str) -> Form:
    """Return the status of a node that is ready."""
    conditions = [{"type": "Ready", "status": "True"}]
    return {"conditions": conditions, "nodeInfo": {"bootID": boot}}


def refusal(status: int, message: str = "refused") -> tuple[int, Form]:
    """Return a refusal as Kubernetes words it."""
    return status, {"kind": "Status", "message": message, "code": status}


def merged(before: Form, patch: Form) -> Form:
    """Return an object with a JSON merge patch applied. Source: RFC 7396."""
    after = dict(before)
    for key, each in patch.items():
        if each is None:
            after.pop(key, None)
        elif isinstance(each, dict):
            after[key] = merged(after.get(key) or {}, each)
        else:
            after[key] = each
    return after


@contextmanager
def served(cluster: Cluster) -> Iterator[str]:
    """Serve a cluster on a port of the loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            with cluster.lock:
                if self.headers["authorization"] != f"Bearer {cluster.token}":
                    status, said = refusal(401, "Unauthorized")
                elif cluster.faults:
                    status, said = refusal(*cluster.faults.pop(0))
                else:
                    form = json.loads(body) if body else {}
                    status, said = cluster.answer(self.command, self.path, form)
                answer = json.dumps(said).encode()
            if not status:
                return
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server's

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
