"""A small API server that speaks Kubernetes' documented JSON, and plays kubelet and KubeVirt.

Each reading of an object that something works on brings that work a step further.
"""

import contextlib
import http.server
import io
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

Form = dict[str, Any]
VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
MIGRATIONS = f"{VMIS}".replace("instances", "instancemigrations")
PODS = "/api/v1/namespaces/default/pods"
REBOOT = "example.org/reboot"
#: How long a watch waits until it looks again, at most.
WATCH_S = 5
PHASES = ("Pending", "Scheduling", "TargetReady", "Running", "Succeeded")


class Cluster:
    """Objects by their paths, and what is done with them."""

    def __init__(self) -> None:
        """Hold two nodes."""
        self.objects: dict[str, Form] = {}
        #: Task -> reboots of a node; VM -> restarts.
        self.effects: Counter[str] = Counter()
        #: Answers to the next requests, but those for old records, which have a thread of their
        #: own: (status, message); status 0 hangs up.
        self.faults: list[tuple[int, str]] = []
        #: How many of the next answers are lost after their requests were carried out.
        self.lost = 0
        #: Objects of a page; every reader of more has to go on.
        self.page_objects = 2
        #: The verb and the path of each request that changes something.
        self.changes: list[str] = []
        #: The verb and the path of each request.
        self.requests: list[tuple[str, str]] = []
        #: Pod -> the answer to its eviction.
        self.protected: dict[str, tuple[int, str]] = {}
        self.migrations_go_on = True
        #: Whether controllers and kubelets do something; looking for it costs time for each object.
        self.plays = True
        #: Members of a new object's `spec` that its kind does not know.
        self.pruned: tuple[str, ...] = ()
        #: When objects are said to be made; empty: now.
        self.created = ""
        self.token = "right"
        #: Whether KubeVirt's kinds are there.
        self.has_kubevirt = True
        #: What has changed: version, path, kind of the change, object; and the newest version of
        #: which that is no longer known.
        self.log: list[tuple[int, str, str, Form]] = []
        self.forgotten = 0
        #: How often watches were cut off; whether they have to end.
        self.cuts, self.closed = 0, False
        #: Watches by their path and the version they began at.
        self.watches: list[tuple[str, int]] = []
        #: Lists that were begun.
        self.lists: list[str] = []
        #: Whether every request is hung up on.
        self.away = False
        #: What each write waits for before it is carried out.
        self.before_write: Callable[[], object] = bool
        #: Whether the next page of a list is from a version that is no longer known.
        self.compacts = False
        self._version = 0
        self.lock = threading.Condition(threading.RLock())
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
            kind = "MODIFIED" if path in self.objects else "ADDED"
            self.objects[path] = form
            self.log.append((self._version, path, kind, form))
            self.lock.notify_all()
            return form

    def drop(self, path: str) -> Form | None:
        """Have an object no longer."""
        with self.lock:
            form = self.objects.pop(path, None)
            if form is not None:
                self._version += 1
                gone = {"metadata": {**form["metadata"], "resourceVersion": str(self._version)}}
                self.log.append((self._version, path, "DELETED", gone))
                self.lock.notify_all()
            return form

    def forget(self) -> None:
        """Forget what has changed, as a compaction does; watches are cut off."""
        with self.lock:
            self._version += 1
            self.forgotten = self._version
        self.cut()

    def cut(self, *, close: bool = False) -> None:
        """Cut all watches off; close: accept no more."""
        with self.lock:
            self.cuts += 1
            self.closed = close
            self.lock.notify_all()

    def changes_of(self, path: str, version: int, name: str = "") -> Iterator[Form]:
        """Go through the changes of a list, or of one object; a bookmark ends each look."""
        with self.lock:
            cuts = self.cuts
            self.watches.append((path, version))
            while cuts == self.cuts and not self.closed:
                now = [each for each in self.log if each[0] > version and _is_in(path, each[1])]
                now = [each for each in now if name in ("", each[1].rpartition("/")[2])]
                for number, _, kind, form in now:
                    yield {"type": kind, "object": {**form, "metadata": dict(form["metadata"])}}
                    version = number
                if not now:
                    mark = {"metadata": {"resourceVersion": str(self._version)}}
                    yield {"type": "BOOKMARK", "object": mark}
                    version = self._version
                    self.lock.wait(WATCH_S)

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
        self.requests.append((verb, target))
        if verb == "GET":
            if self.plays:
                self._play()
            return self._list(path, query) if "limit" in query else self._get(path)
        self.changes.append(f"{verb} {path}")
        if path.endswith("/eviction"):
            return self._evict(path.removesuffix("/eviction"))
        if path.startswith("/apis/subresources"):
            return self._act(*path.rsplit("/", 2)[1:])
        if verb == "DELETE":
            return (200, {}) if self.drop(path) else refusal(404)
        if verb == "POST":
            meta = form["metadata"]
            name = meta.get("name") or f"{meta['generateName']}{self._version}"
            place = f"{path}/{name}"
            for unknown in self.pruned:
                form.get("spec", {}).pop(unknown, None)
            return refusal(409) if place in self.objects else (201, self.put(place, **form))
        return self._change(verb, path, form)

    def _get(self, path: str) -> tuple[int, Form]:
        return (200, self.objects[path]) if path in self.objects else refusal(404)

    def _list(self, path: str, query: dict[str, list[str]]) -> tuple[int, Form]:
        """Answer with pages."""
        if "continue" not in query:
            self.lists.append(path)
        if path.startswith("/apis/kubevirt.io") and not self.has_kubevirt:
            return refusal(404)
        found = [form for place, form in self.objects.items() if _is_in(path, place)]
        node = query.get("fieldSelector", ["="])[0].partition("=")[2]
        found = [each for each in found if not node or each["spec"].get("nodeName") == node]
        start = int(query.get("continue", ["0"])[0])
        if start and self.compacts:
            self.compacts = False
            return refusal(410, "The provided continue parameter is too old")
        end = start + self.page_objects
        more = str(end) if end < len(found) else ""
        meta = {"continue": more, "resourceVersion": str(self._version)}
        return 200, {"items": found[start:end], "metadata": meta}

    def _change(self, verb: str, path: str, form: Form) -> tuple[int, Form]:
        status = path.endswith("/status")
        path = path.removesuffix("/status")
        before = self.objects.get(path)
        if before is None:
            return refusal(404)
        version = form.get("metadata", {}).get("resourceVersion")
        if version not in {None, before["metadata"]["resourceVersion"]}:
            return refusal(409)
        if status and "/nodes/" in path:
            return 200, self.put(path, **with_conditions(before, form))
        if status:
            return 200, self.put(path, **merged(before, {"status": form["status"]}))
        return 200, self.put(path, **(merged(before, form) if verb == "PATCH" else form))

    def _evict(self, path: str) -> tuple[int, Form]:
        if path not in self.objects:
            return refusal(404)
        name = path.rpartition("/")[2]
        if name in self.protected:
            return refusal(*self.protected[name])
        self.drop(path)
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
                self.drop(path)
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
        to = self._selected(form["spec"].get("addedNodeSelector", {}))
        if phase == "TargetReady":
            uid = form["metadata"]["uid"]
            machine["status"]["migrationState"] = {"migrationUid": uid, "targetNode": to}
        if phase == "Succeeded":
            machine["status"]["nodeName"] = to

    def _selected(self, selector: dict[str, str]) -> str:
        """Return the node with a host name; the second node without a selector."""
        wanted = selector.get("kubernetes.io/hostname", "h2")
        for name in ("h1", "h2"):
            labels = self.node(name)["metadata"].get("labels", {})
            if labels.get("kubernetes.io/hostname", name) == wanted:
                return name
        raise AssertionError(wanted)


def _is_in(path: str, place: str) -> bool:
    """Whether an object is one of a list, of one namespace or all."""
    folder, plural = path.rsplit("/", 1)
    return place.startswith(folder) and place.split("/")[-2] == plural


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


def with_conditions(before: Form, patch: Form) -> Form:
    """Return a node with a strategic merge patch of its status: conditions merge by their type."""
    by_type = {each["type"]: each for each in before.get("status", {}).get("conditions", [])}
    for each in patch.get("status", {}).get("conditions", []):
        if each.get("$patch") == "delete":
            by_type.pop(each["type"], None)
        else:
            by_type[each["type"]] = {**by_type.get(each["type"], {}), **each}
    after = merged(before, {"metadata": patch.get("metadata", {})})
    return {**after, "status": {**before.get("status", {}), "conditions": list(by_type.values())}}


class Handler(http.server.BaseHTTPRequestHandler):
    """Requests, each answered by the cluster."""

    cluster: Cluster

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        query = parse_qs(urlsplit(self.path).query)
        if self.cluster.away:
            return
        if "watch" in query and not self.cluster.faults:
            self._stream(query)
            return
        if self.command == "PATCH":
            self.cluster.before_write()
        with self.cluster.lock:
            if self.headers["authorization"] != f"Bearer {self.cluster.token}":
                status, said = refusal(401, "Unauthorized")
            elif self.cluster.faults and "labelSelector" not in query:
                status, said = refusal(*self.cluster.faults.pop(0))
            else:
                form = json.loads(body) if body else {}
                status, said = self.cluster.answer(self.command, self.path, form)
                if self.cluster.lost:
                    self.cluster.lost -= 1
                    status = 0
        if status:
            self._answer(status, said)

    def _answer(self, status: int, said: Form) -> None:
        answer = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        if status == 429:
            self.send_header("retry-after", "0")
        self.end_headers()
        self.wfile.write(answer)

    def _stream(self, query: dict[str, list[str]]) -> None:
        version = int(query["resourceVersion"][0])
        if version < self.cluster.forgotten:
            status, said = refusal(410, "too old resource version")
            self._answer(status, said)
            return
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            field = query.get("fieldSelector", [""])[0].removeprefix("metadata.name=")
            for change in self.cluster.changes_of(urlsplit(self.path).path, version, field):
                self.wfile.write(json.dumps(change).encode() + b"\n")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server's

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(cluster: Cluster) -> Iterator[str]:
    """Serve a cluster on a port of the loopback."""
    handler = type("Handler", (Handler,), {"cluster": cluster})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        cluster.cut(close=True)
        server.shutdown()
        server.server_close()
        thread.join()


class DirectHandler(Handler):
    """A request that arrives as bytes instead of over a connection."""

    def setup(self) -> None:
        """Take the files of the request and of the answer."""
        self.rfile, self.wfile = self.request

    def finish(self) -> None:
        """Nothing is to be closed."""


class DirectSocket:
    """A client's socket whose other end is played in the same thread.

    Two threads and a connection over the loopback cost ten times as much, and let the system choose
    the order.
    """

    handler: type[DirectHandler]

    def __init__(self, *_: object) -> None:
        """Hold no request yet."""
        self._request = b""
        self._answer: bytes | None = None

    def sendall(self, data: bytes) -> None:
        """Hold a part of the request."""
        self._request += data

    def recv(self, bytes_max: int) -> bytes:
        """Return a part of the answer."""
        answer = self._whole()
        self._answer = answer[bytes_max:]
        return answer[:bytes_max]

    def makefile(self, *_: object, **__: object) -> io.BytesIO:
        """Return the answer as a file."""
        return io.BytesIO(self._whole())

    def _whole(self) -> bytes:
        """Return the answer; the first time, have the request carried out."""
        if self._answer is None:
            answer = io.BytesIO()
            files: Any = (io.BytesIO(self._request), answer)
            self.handler(files, ("", 0), None)  # type: ignore[arg-type]
            self._answer = answer.getvalue()
        return self._answer

    def _ignore(self, *_: object) -> None:
        """Neither options nor times matter."""

    connect = close = settimeout = setsockopt = _ignore


def direct_socket(cluster: Cluster) -> type[DirectSocket]:
    """Return what replaces `socket.socket` for clients of a cluster."""
    handler = type("Handler", (DirectHandler,), {"cluster": cluster})
    return type("Socket", (DirectSocket,), {"handler": handler})
