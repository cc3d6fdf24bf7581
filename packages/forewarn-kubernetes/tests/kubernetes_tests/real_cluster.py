"""What a real API server needs besides itself: KubeVirt's kinds, and who does what they ask for.

The kinds have the members that the driver reads and writes, and prune all others.
"""

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import yaml

from tests.agent.test_prepare_kubernetes import Cluster
from tests.kubernetes.small_cluster import PHASES, REBOOT, node_status

MANIFEST = Path(__file__).parents[4] / "dist" / "forewarn-driver-rbac.yaml"
_RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/forewarn/serviceaccounts"
_PLACES = {
    "ServiceAccount": ACCOUNTS,
    "Role": f"{_RIGHTS}/namespaces/forewarn/roles",
    "RoleBinding": f"{_RIGHTS}/namespaces/forewarn/rolebindings",
    "ClusterRole": f"{_RIGHTS}/clusterroles",
    "ClusterRoleBinding": f"{_RIGHTS}/clusterrolebindings",
}
KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KUBEVIRT = "/apis/kubevirt.io/v1"
NODES = "/api/v1/nodes"

_TEXT: dict[str, Any] = {"type": "string"}
_LEFT_OPEN: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": _TEXT}


def _members(**members: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": members}


_STATE = _members(migrationUid=_TEXT, targetNode=_TEXT, sourceNode=_TEXT, failureReason=_TEXT)
_INTERFACES = {
    "type": "array",
    "items": _members(
        name=_TEXT, ipAddress=_TEXT, ipAddresses={"type": "array", "items": _TEXT}, infoSource=_TEXT
    ),
}
_INSTANCE = _members(
    spec=_members(domain=_LEFT_OPEN, networks={"type": "array", "items": _LEFT_OPEN}),
    status=_members(phase=_TEXT, nodeName=_TEXT, migrationState=_STATE, interfaces=_INTERFACES),
)
_MIGRATION = _members(
    spec=_members(vmiName=_TEXT, addedNodeSelector=_TEXTS),
    status=_members(phase=_TEXT, migrationState=_STATE),
)


def kind(name: str, short: str, schema: dict[str, Any], *, subresources: bool) -> dict[str, Any]:
    """Return the definition of one of KubeVirt's kinds."""
    plural = f"{name.lower()}s"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}} if subresources else {},
    }
    names = {"kind": name, "plural": plural, "singular": name.lower(), "shortNames": [short]}
    spec = {
        "group": "kubevirt.io",
        "scope": "Namespaced",
        "names": names,
        "versions": [version],
    }
    return {"metadata": {"name": f"{plural}.kubevirt.io"}, "spec": spec}


def install_kubevirt(cluster: Cluster, wait_until: Callable[..., None]) -> None:
    """Have the API server serve KubeVirt's kinds."""
    migration = kind("VirtualMachineInstanceMigration", "vmim", _MIGRATION, subresources=True)
    cluster.make(KINDS, migration)
    cluster.make(KINDS, kind("VirtualMachineInstance", "vmi", _INSTANCE, subresources=False))
    for each in ("instances", "instancemigrations"):
        path = f"{KUBEVIRT}/virtualmachine{each}"
        wait_until(lambda path=path: cluster.ask("GET", path).status == 200)


def give_rights(cluster: Cluster) -> None:
    """Apply the driver's manifest."""
    cluster.make("/api/v1/namespaces", {"metadata": {"name": "forewarn"}})
    for form in yaml.safe_load_all(MANIFEST.read_text("utf-8")):
        cluster.make(_PLACES[form["kind"]], form)


def token(cluster: Cluster) -> str:
    """Return a token of the driver's account."""
    said = cluster.ask("POST", f"{ACCOUNTS}/forewarn-driver/token", {"spec": {}})
    return str(json.loads(said.body)["status"]["token"])


def add_machine(cluster: Cluster, name: str, node: str, namespace: str = "default") -> None:
    """Have a VM run on a node."""
    cluster.make(
        f"{KUBEVIRT}/namespaces/{namespace}/virtualmachineinstances",
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": name},
            "spec": {"domain": {"devices": {"interfaces": [{"name": "pod", "masquerade": {}}]}}},
            "status": {"phase": "Running", "nodeName": node},
        },
    )


class Controllers:
    """Plays kubelets and KubeVirt's controller, a step of each migration at a time."""

    def __init__(self, cluster: Cluster) -> None:
        """Do nothing yet."""
        self._cluster = cluster
        #: Task -> reboots.
        self.effects: Counter[str] = Counter()
        self.migrations_go_on = True
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
        while not self._over.wait(0.05):
            for node in self._items(NODES):
                self._boot(node)
            for pod in self._items("/api/v1/pods"):
                self._end(pod)
            if not self.migrations_go_on:
                continue
            for migration in self._items(f"{KUBEVIRT}/virtualmachineinstancemigrations"):
                self._migrate(migration)

    def _items(self, path: str) -> list[dict[str, Any]]:
        said = json.loads(self._cluster.ask("GET", path).body)
        found: list[dict[str, Any]] = said.get("items", [])
        return found

    def _boot(self, node: dict[str, Any]) -> None:
        """Reboot a node once for each task that its annotation names."""
        name = node["metadata"].get("annotations", {}).get(REBOOT, "first boot")
        of_all = name if name != "first boot" else f"{name} of {node['metadata']['name']}"
        if not self.effects[of_all]:
            node["status"] |= node_status(f"boot of {name}")
            path = f"{NODES}/{node['metadata']['name']}/status"
            self.effects[of_all] += self._cluster.ask("PUT", path, node).status == 200

    def _end(self, pod: dict[str, Any]) -> None:
        """Have a pod end that is to be deleted."""
        meta = pod["metadata"]
        if "deletionTimestamp" in meta:
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            self._cluster.ask("DELETE", path, {"gracePeriodSeconds": 0})

    def _migrate(self, migration: dict[str, Any]) -> None:
        phase = migration.get("status", {}).get("phase", "")
        if phase in {"Succeeded", "Failed"}:
            return
        phase = PHASES[PHASES.index(phase) + 1] if phase else PHASES[0]
        meta, spec = migration["metadata"], migration["spec"]
        folder = f"{KUBEVIRT}/namespaces/{meta['namespace']}"
        place = f"{folder}/virtualmachineinstances/{spec['vmiName']}"
        machine = json.loads(self._cluster.ask("GET", place).body)
        target = spec.get("addedNodeSelector", {}).get("kubernetes.io/hostname", "h2")
        if phase == "TargetReady":
            state = {"migrationUid": meta["uid"], "targetNode": target}
            machine["status"]["migrationState"] = state
        if phase == "Succeeded":
            machine["status"]["nodeName"] = target
        if self._cluster.ask("PUT", place, machine).status == 200:
            migration["status"] = {"phase": phase}
            mark = f"{folder}/virtualmachineinstancemigrations/{meta['name']}/status"
            self._cluster.ask("PUT", mark, migration)


class Relay:
    """A port before a server whose lines can be cut."""

    def __init__(self, behind: int, source: str = "127.0.0.1") -> None:
        """Listen; the server sees requests come from the source."""
        self._behind, self._source = behind, source
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lines: list[socket.socket] = []
        self._gate = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Cut all that are open."""
        lines, self._lines = self._lines, []
        for each in lines:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Cut all that are open, and let new ones wait meanwhile."""
        with self._gate:
            self.cut()
            yield

    def close(self) -> None:
        """Cut all, and take no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                front = self._listener.accept()[0]
                with self._gate:
                    try:
                        back = socket.create_connection(
                            ("127.0.0.1", self._behind), source_address=(self._source, 0)
                        )
                    except ConnectionError:  # the server is away
                        front.close()
                        continue
                    self._lines += [front, back]
                for ends in ((front, back), (back, front)):
                    threading.Thread(target=_carry, args=ends, daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while words := source.recv(65536):
            sink.sendall(words)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
    source.close()
