"""The Kubernetes preparation against a real API server with a real etcd, without kubelets."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.agent.preparations.http_call import Called, call
from forewarn.agent.preparations.kubernetes import MARK
from tests.agent.programs import do, done, until
from tests.agent.test_peers import ask_peers
from tests.kubernetes.control_plane import ADMIN_TOKEN, START_S, ControlPlane, control_plane

pytestmark = pytest.mark.slow

MANIFEST = Path(__file__).parents[2] / "dist" / "agent" / "daemonset.yaml"
TOKEN = ADMIN_TOKEN
POD = {"containers": [{"name": "one", "image": "none"}], "nodeName": "node-1"}
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "1",
    "controller": True,
}


class Cluster:
    """An API server, asked as its administrator."""

    def __init__(self, directory: Path, parts: ControlPlane) -> None:
        """Know where it is."""
        self.parts = parts
        self.url, self.ca_file = parts.url, parts.ca_file
        self.token_file = directory / "token"
        self.token_file.write_text(TOKEN)
        self.settings: dict[str, object] = {
            "server": self.url,
            "token_file": str(self.token_file),
            "ca_file": self.ca_file,
            "node": "node-1",
            "wait_s": 2,
        }

    def ask(self, method: str, path: str, form: object = None) -> Called:
        """Send a request as the administrator."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return call(method, self.url + path, form=form, headers=headers, ca_file=self.ca_file)

    def make(self, path: str, form: object) -> None:
        """Create something that must be accepted."""
        answer = self.ask("POST", path, form)
        assert answer.status in (200, 201), answer.body

    def node(self) -> dict[str, dict[str, object]]:
        """Return the node."""
        found: dict[str, dict[str, object]] = json.loads(
            self.ask("GET", "/api/v1/nodes/node-1").body
        )
        return found

    def pod(self, name: str, **meta: object) -> None:
        """Create a pod on the node, running."""
        form = {"metadata": {"name": name, **meta}, "spec": POD}
        self.make("/api/v1/namespaces/default/pods", form)
        place = f"/api/v1/namespaces/default/pods/{name}/status"
        found = json.loads(self.ask("GET", place).body)
        found["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        assert self.ask("PUT", place, found).status == 200

    def pods(self) -> dict[str, bool]:
        """Return the pods, and whether each is being deleted (no kubelet ends them here)."""
        items = self.ask("GET", "/api/v1/namespaces/default/pods").form()["items"]
        assert isinstance(items, list)
        return {p["metadata"]["name"]: "deletionTimestamp" in p["metadata"] for p in items}


def serving(parts: ControlPlane, directory: Path) -> Cluster:
    """Return a cluster once it is ready."""
    cluster = Cluster(directory, parts)
    until(lambda: cluster.ask("GET", "/readyz").status == 200, "it is ready", seconds=START_S)
    namespace = "/api/v1/namespaces/default"
    until(lambda: cluster.ask("GET", namespace).status == 200, "a namespace", seconds=START_S)
    return cluster


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run etcd and kube-apiserver."""
    directory = tmp_path_factory.mktemp("kubernetes")
    with control_plane(directory) as parts:
        yield serving(parts, directory)


@pytest.fixture
def cluster(server: Cluster) -> Iterator[Cluster]:
    """Give a cluster with one node and nothing else."""
    server.make("/api/v1/nodes", {"metadata": {"name": "node-1"}})
    yield server
    server.ask("DELETE", "/api/v1/nodes/node-1")
    for name in server.pods():
        place = f"/api/v1/namespaces/default/pods/{name}"
        server.ask("DELETE", place, {"gracePeriodSeconds": 0})
    server.ask("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web")


def test_node_is_cordoned_tainted_and_freed(cluster: Cluster, tmp_path: Path) -> None:
    """No new pod comes during the event; afterwards all is as before. Source: C-3."""
    settings = {**cluster.settings, "taint": True}
    before = cluster.node()
    before["spec"]["taints"] = [{"key": "of-others", "effect": "NoSchedule"}]
    assert cluster.ask("PUT", "/api/v1/nodes/node-1", before).status == 200
    done("kubernetes", "prepare", settings, tmp_path / "state")
    node = cluster.node()
    assert node["spec"]["unschedulable"] is True
    assert MARK in node["metadata"]["annotations"]  # type: ignore[operator]
    taints = node["spec"]["taints"]
    assert isinstance(taints, list)
    keys = {taint["key"] for taint in taints}
    assert {"of-others", "forewarn.io/scheduled-event"} <= keys
    done("kubernetes", "prepare", settings, tmp_path / "state")
    done("kubernetes", "recover", settings, tmp_path / "state")
    node = cluster.node()
    assert "unschedulable" not in node["spec"]
    assert MARK not in node["metadata"].get("annotations", {})  # type: ignore[operator]
    left = node["spec"].get("taints") or []
    assert isinstance(left, list)
    assert [taint["key"] for taint in left] == ["of-others"]


def test_node_an_operator_has_cordoned_stays_cordoned(cluster: Cluster, tmp_path: Path) -> None:
    """Only what was done is undone."""
    node = cluster.node()
    node["spec"]["unschedulable"] = True
    assert cluster.ask("PUT", "/api/v1/nodes/node-1", node).status == 200
    done("kubernetes", "prepare", cluster.settings, tmp_path / "state")
    done("kubernetes", "recover", cluster.settings, tmp_path / "state")
    assert cluster.node()["spec"]["unschedulable"] is True


def test_pods_are_evicted_with_their_grace(cluster: Cluster, tmp_path: Path) -> None:
    """Pods of controllers go; those of daemon sets and mirrors stay."""
    daemon = {**OWNER, "kind": "DaemonSet"}
    cluster.pod("web", ownerReferences=[OWNER])
    cluster.pod("agent", ownerReferences=[daemon])
    settings = {**cluster.settings, "grace_s": 0}
    done("kubernetes", "prepare", settings, tmp_path / "state")
    assert cluster.pods() == {"agent": False}


def test_pod_without_a_controller_is_in_the_way(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody would start it again, so it is not evicted unless the settings say so."""
    cluster.pod("lonely")
    failed = do("kubernetes", "prepare", cluster.settings, tmp_path / "state")
    assert failed.returncode == 1
    assert "default/lonely" in failed.stderr
    forced = {**cluster.settings, "force": True, "grace_s": 0}
    done("kubernetes", "prepare", forced, tmp_path / "state")
    assert cluster.pods() == {}


def test_disruption_budget_is_respected(cluster: Cluster, tmp_path: Path) -> None:
    """What a budget protects is never deleted; the preparation fails in its time."""
    cluster.pod("web", ownerReferences=[OWNER], labels={"app": "web"})
    budget = {
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    cluster.make("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    failed = do("kubernetes", "prepare", cluster.settings, tmp_path / "state")
    assert failed.returncode == 1
    assert cluster.pods() == {"web": False}
    done("kubernetes", "recover", cluster.settings, tmp_path / "state")
    assert "unschedulable" not in cluster.node()["spec"]


def test_peers_meet_at_leases(cluster: Cluster) -> None:
    """VMs of one event tell one another through leases. Source: C-5."""
    ask_peers({**cluster.settings, "via": "kubernetes"})


def test_manifest_is_accepted(cluster: Cluster) -> None:
    """What dist/agent ships is what an API server understands."""
    import yaml

    places = {
        "Namespace": "/api/v1/namespaces",
        "ServiceAccount": "/api/v1/namespaces/default/serviceaccounts",
        "ConfigMap": "/api/v1/namespaces/default/configmaps",
        "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
        "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        "DaemonSet": "/apis/apps/v1/namespaces/default/daemonsets",
    }
    for form in yaml.safe_load_all(MANIFEST.read_text("utf-8")):
        form["metadata"].pop("namespace", None)
        strict = "?dryRun=All&fieldValidation=Strict"
        answer = cluster.ask("POST", places[form["kind"]] + strict, form)
        assert answer.status == 201, answer.body
