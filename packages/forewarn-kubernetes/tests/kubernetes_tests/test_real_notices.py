"""Notices, requests and drains on a real API server, with the rights of the manifests alone.

kube-controller-manager counts the budgets and gives the cluster's roles their rules.
"""

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from forewarn.agent import node_job
from forewarn.agent.core.records import event_form
from forewarn.agent.preparations.http_call import Called, call
from forewarn_kubernetes import discovery
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.host_notices import HostNotices
from forewarn_kubernetes.namespace_writer import GROUP
from forewarn_kubernetes.resources import TenantResources
from forewarn_server.cli.tenant_resources import ResourceAnswerer
from kubernetes_tests.node_pool import (
    NODES,
    PODS,
    Kubelets,
    annotations_of,
    deploy,
    is_protected,
    pods_on,
    true_conditions,
)
from kubernetes_tests.test_host_notices import operation
from tests.agent.making import event
from tests.agent.programs import done, program
from tests.agent.test_prepare_kubernetes import Cluster, serving
from tests.api.live import Live
from tests.kubernetes.control_plane import control_plane
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
DIST = Path(__file__).parents[4] / "dist"
MANIFESTS = ("helm/forewarn.yaml", "forewarn-resources.yaml", "forewarn-driver-rbac.yaml")
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
FOLDERS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ClusterRole": f"{RIGHTS}/clusterroles",
    "ClusterRoleBinding": f"{RIGHTS}/clusterrolebindings",
    "Role": RIGHTS + "/namespaces/forewarn/roles",
    "RoleBinding": RIGHTS + "/namespaces/forewarn/rolebindings",
    "ServiceAccount": "/api/v1/namespaces/forewarn/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/forewarn/configmaps",
    "Service": "/api/v1/namespaces/forewarn/services",
    "DaemonSet": "/apis/apps/v1/namespaces/forewarn/daemonsets",
    "StatefulSet": "/apis/apps/v1/namespaces/forewarn/statefulsets",
    "Deployment": "/apis/apps/v1/namespaces/forewarn/deployments",
}
STRICT = "?fieldValidation=Strict"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"


def _is_served(cluster: Cluster, path: str) -> bool:
    return cluster.ask("GET", path).status == 200


class Pool:
    """A cluster with the manifests, two nodes and the namespaces of two tenants."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        """Apply everything."""
        self.cluster = cluster
        self._directory = directory
        self._tokens: dict[str, str] = {}
        for name in ("forewarn", "team-a", "team-b"):
            cluster.make("/api/v1/namespaces", {"metadata": {"name": name}})
        for manifest in MANIFESTS:
            for form in yaml.safe_load_all((DIST / manifest).read_text("utf-8")):
                if form:
                    cluster.make(FOLDERS[form["kind"]] + STRICT, form)
        for name in ("node-1", "node-2"):
            cluster.make(NODES, {"metadata": {"name": name}})
        for plural in ("maintenancenotices", "maintenances"):
            wait_until(partial(_is_served, cluster, f"{GROUP}/{plural}"), what=plural)
        # The controller manager adds rules with this label to the role.
        wait_until(
            lambda: "forewarn.io" in str(cluster.ask("GET", f"{RIGHTS}/clusterroles/edit").form())
        )
        for role in ("view", "edit"):
            for namespace in ("team-a", "team-b"):
                self._bind(namespace, role)

    def _bind(self, namespace: str, role: str) -> None:
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.cluster.make(account, {"metadata": {"name": role}})
        form = {
            "metadata": {"name": role},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role,
            },
            "subjects": [{"kind": "ServiceAccount", "name": role, "namespace": namespace}],
        }
        self.cluster.make(f"{RIGHTS}/namespaces/{namespace}/rolebindings", form)

    def token(self, account: str, namespace: str = "forewarn") -> str:
        """Return a token of a service account."""
        key = f"{namespace}-{account}"
        if key not in self._tokens:
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
            answer: Any = self.cluster.ask("POST", path, {"spec": {}}).form()
            self._tokens[key] = answer["status"]["token"]
        return self._tokens[key]

    def token_file(self, account: str, namespace: str = "forewarn") -> str:
        """Return the file with a token of a service account."""
        path = self._directory / f"{namespace}-{account}.token"
        path.write_text(self.token(account, namespace))
        return str(path)

    def config(self, account: str) -> KubernetesConfig:
        """Return a driver's settings with the token of an account."""
        return KubernetesConfig(
            self.cluster.url, self.token_file(account), self.cluster.ca_file, timeout_s=5
        )

    def settings(self, **more: object) -> dict[str, object]:
        """Return the settings of the agent of the first node, with its own token."""
        return {
            "server": self.cluster.url,
            "token_file": self.token_file("forewarn-agent"),
            "ca_file": self.cluster.ca_file,
            "node": "node-1",
            **more,
        }

    def ask_as(
        self, token: str, method: str, path: str, form: object = None, *, kind: str = MERGE
    ) -> Called:
        """Send a request with a token."""
        headers = {"Authorization": f"Bearer {token}"}
        headers |= {"Content-Type": kind} if method == "PATCH" else {}
        url, ca_file = self.cluster.url + path, self.cluster.ca_file
        return call(method, url, form=form, headers=headers, ca_file=ca_file)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Run the control plane, and apply the manifests."""
    program("kube-controller-manager")
    directory = tmp_path_factory.mktemp("pool")
    with control_plane(directory) as parts:
        cluster = serving(parts, directory)
        parts.start_controllers()
        yield Pool(cluster, directory)


class Tenants:
    """A service whose two owners have the two namespaces, and the controller."""

    def __init__(self, pool: Pool, live: Live, directory: Path) -> None:
        """Bind the namespaces to the owners."""
        self.pool, self.live = pool, live
        self._tokens = directory / "tokens"
        self._tokens.mkdir()
        live.fleet(
            hosts={"h1": {"driver": "manual"}, "h2": {"driver": "manual"}},
            groups={"web": {"owner": "a"}, "db": {"owner": "b"}},
            vms={"w1": {"host": "h1", "group": "web"}, "d1": {"host": "h2", "group": "db"}},
        )
        live.enable("w1", "d1")
        for owner in "ab":
            self.bind(f"team-{owner}", role="owner", owner=owner)
        self.resources = TenantResources(pool.config("forewarn-resources"), "c1", live.clock)
        self.answerer = ResourceAnswerer(live.url, self._tokens, self.resources)

    def bind(self, namespace: str, **rights: str) -> None:
        """Give the controller a token for a namespace."""
        form = {"principal": f"kubernetes:c1:{namespace}", **rights}
        token = self.live.call("POST", "/v1/access/tokens", form).json["token"]
        (self._tokens / namespace).write_text(token)

    def turn(self) -> None:
        """Let the controller work once, without a problem."""
        assert self.answerer.once()[1] == []

    def notices(self, namespace: str = "team-a") -> list[dict[str, Any]]:
        """Return the notices that have not ended."""
        path = f"{GROUP}/namespaces/{namespace}/maintenancenotices"
        items: Any = self.pool.cluster.ask("GET", path).form()["items"]
        return [each for each in items if "endedAt" not in each.get("status", {})]

    def notice(self) -> dict[str, Any]:
        """Return the only notice."""
        [notice] = self.notices()
        return notice

    def patch(self, form: object, *, who: str = "edit", kind: str = MERGE) -> Called:
        """Answer the only notice as somebody in the namespace."""
        meta = self.notice()["metadata"]
        path = f"{GROUP}/namespaces/team-a/maintenancenotices/{meta['name']}"
        token = self.pool.token(who, "team-a")
        return self.pool.ask_as(token, "PATCH", path, form, kind=kind)


@pytest.fixture
def tenants(pool: Pool, tmp_path: Path) -> Iterator[Tenants]:
    """Run the service."""
    with Live() as live:
        yield Tenants(pool, live, tmp_path)
        for namespace in ("team-a", "team-b"):
            for plural in ("maintenancenotices", "maintenances"):
                pool.cluster.ask("DELETE", f"{GROUP}/namespaces/{namespace}/{plural}")


def test_tenant_approves_under_the_rights_of_its_namespace(tenants: Tenants) -> None:
    """`edit` may approve, `view` may read, and nobody outside sees anything. Source: K-4."""
    tenants.live.post("/v1/operations", cause="host-reboot", targets=["h1"])
    tenants.turn()
    approve = [{"op": "add", "path": "/spec/approve", "value": True}]
    assert tenants.patch(approve, who="view", kind=JSON_PATCH).status == 403
    path = f"{GROUP}/namespaces/team-a/maintenancenotices"
    other = tenants.pool.token("edit", "team-b")
    assert tenants.pool.ask_as(other, "GET", path).status == 403
    assert tenants.patch(approve, kind=JSON_PATCH).status == 200
    tenants.turn()
    assert tenants.notice()["status"]["state"] == "started"
    taken_back = tenants.patch({"spec": {"approve": False}})
    assert (taken_back.status, b"cannot be taken back" in taken_back.body) == (422, True)
    assert tenants.patch({"status": {"state": "done"}}).status == 200
    assert tenants.notice()["status"]["state"] == "started", "a tenant cannot write the status"
    tenants.live.post("/v1/operations/op-1/complete")
    tenants.turn()
    events = "/api/v1/namespaces/team-a/events"
    told: Any = tenants.pool.cluster.ask("GET", events).form()["items"]
    assert {"Announced", "Started", "Completed"} <= {each["reason"] for each in told}


def test_tenant_chooses_a_start_of_declared_work(tenants: Tenants) -> None:
    """The API server refuses a malformed choice, and the service an impossible one. K-4, T-2."""
    form = {"cause": "host-reboot", "hosts": ["h1"], "duration": 600, "reason": "kernel"}
    number = tenants.live.call("POST", "/v1/maintenances", form).json["maintenance"]["id"]
    tenants.live.post(f"/v1/maintenances/{number}/declare")
    tenants.live.settle()
    tenants.turn()
    assert tenants.notice()["status"]["state"] == "open"
    assert tenants.notice()["status"]["hosts"][0]["openings"][0]["start"]
    for wish in ({"vm": "w1"}, {"until": "+30d", "reason": "a release"}):
        assert tenants.patch({"spec": {"deferrals": [wish]}}).status == 422
    wish = {"vm": "w1", "until": "2027-02-10T00:00:00Z", "reason": "a release"}
    assert tenants.patch({"spec": {"deferrals": [wish]}}).status == 200
    tenants.turn()
    assert tenants.notice()["status"]["hosts"][0]["deferral"]["state"] == "asked"
    for choice in ({"vm": "w1"}, {"now": True}, {"vm": "w1", "host": "h1", "now": True}):
        assert tenants.patch({"spec": {"choices": [choice]}}).status == 422
    assert tenants.patch({"spec": {"approve": True}}).status == 422
    choice = {"vm": "w1", "at": "2027-01-20T02:00:00Z"}
    assert tenants.patch({"spec": {"choices": [choice]}}).status == 200
    tenants.turn()
    tenants.live.settle()
    tenants.turn()
    status = tenants.notice()["status"]
    assert (status["state"], status["hosts"][0]["chosenStart"]) == ("chosen", choice["at"])


def test_request_keeps_its_schema(tenants: Tenants) -> None:
    """A request cannot change, and a member that nobody knows is refused. Source: K-4."""
    path = f"{GROUP}/namespaces/team-a/maintenances"
    token = tenants.pool.token("edit", "team-a")

    def ask(method: str, place: str, **spec: object) -> int:
        form = {"apiVersion": "forewarn.io/v1alpha1", "kind": "Maintenance", "spec": spec}
        form["metadata"] = {"name": "again"}
        return tenants.pool.ask_as(token, method, place, form).status

    spec = {"cause": "reboot", "targets": ["w1"]}
    assert ask("POST", path + STRICT, **spec, urgent=True) == 400
    assert ask("POST", path, cause="reboot", targets=[]) == 422
    assert ask("POST", path + STRICT, **spec) == 201
    tenants.turn()
    request: Any = tenants.pool.cluster.ask("GET", f"{path}/again").form()
    assert (request["status"]["state"], request["status"]["operations"]) == ("announced", ["op-1"])
    assert ask("PATCH", f"{path}/again", cause="redeploy") in (403, 422)
    assert tenants.pool.ask_as(token, "DELETE", f"{path}/again").status == 200
    tenants.turn()
    assert tenants.pool.cluster.ask("GET", f"{path}/again").status == 404


def test_declared_request_shows_what_the_owner_sees(tenants: Tenants) -> None:
    """Hosts with openings, none of which the API server drops; its deletion ends it. K-4, T-1."""
    cluster, path = tenants.pool.cluster, f"{GROUP}/namespaces/ops/maintenances"
    cluster.make("/api/v1/namespaces", {"metadata": {"name": "ops"}})
    tenants.bind("ops", role="operator")
    spec = {"cause": "host-reboot", "targets": ["h1"], "declare": {"severity": "routine"}}
    form = {"apiVersion": "forewarn.io/v1alpha1", "kind": "Maintenance", "spec": spec}
    form["metadata"] = {"name": "firmware"}
    assert cluster.ask("POST", path, form).status == 422, "without a duration"
    spec["duration"] = "10m"
    cluster.make(path + STRICT, form)
    tenants.turn()
    tenants.live.settle()
    tenants.turn()
    request: Any = cluster.ask("GET", f"{path}/firmware").form()
    assert (request["status"]["maintenance"], request["status"]["state"]) == ("m-1", "open")
    assert request["status"]["hosts"][0]["openings"]
    assert request["status"]["hosts"] == tenants.notice()["status"]["hosts"]
    assert cluster.ask("DELETE", f"{path}/firmware").status == 200
    tenants.turn()
    assert cluster.ask("GET", f"{path}/firmware").status == 404
    assert tenants.live.get("/v1/maintenances/m-1")["maintenance"]["state"] == "cancelled"


def test_request_deleted_without_a_status_is_cancelled(tenants: Tenants) -> None:
    """As if the controller had crashed before it could write the status. Source: K-4."""
    cluster, path = tenants.pool.cluster, f"{GROUP}/namespaces/crashed/maintenances"
    cluster.make("/api/v1/namespaces", {"metadata": {"name": "crashed"}})
    tenants.bind("crashed", role="operator")
    spec = {"cause": "host-reboot", "targets": ["h1"], "duration": "10m", "declare": {}}
    form = {"apiVersion": "forewarn.io/v1alpha1", "kind": "Maintenance", "spec": spec}
    cluster.make(path, {**form, "metadata": {"name": "firmware"}})
    tenants.turn()
    request = cluster.ask("GET", f"{path}/firmware").form()
    request.pop("status")
    assert cluster.ask("PUT", f"{path}/firmware/status", request).status == 200
    assert cluster.ask("DELETE", f"{path}/firmware").status == 200
    assert "status" not in cluster.ask("GET", f"{path}/firmware").form()
    tenants.turn()
    assert cluster.ask("GET", f"{path}/firmware").status == 404
    assert tenants.live.get("/v1/maintenances/m-1")["maintenance"]["state"] == "cancelled"


def test_kubectl_shows_a_notice_in_its_columns(tenants: Tenants) -> None:
    """What the how-to prints. Source: K-4."""
    kubectl = program("kubectl")
    tenants.live.post("/v1/operations", cause="host-reboot", targets=["h1"])
    tenants.turn()
    token = tenants.pool.token("view", "team-a")
    kubeconfig = tenants.pool.cluster.parts.kubeconfig(token, "tenant")
    words = (kubectl, f"--kubeconfig={kubeconfig}", "-n", "team-a", "get", "mnotice")
    shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    columns = ["NAME", "TYPE", "STATE", "NOT BEFORE", "CHOOSE UNTIL", "RESOURCES", "MESSAGE"]
    assert [each.strip() for each in shown[0].split("  ") if each.strip()] == columns
    assert '["w1"]' in shown[1]


@pytest.mark.parametrize(
    ("account", "method", "path", "form"),
    [
        ("forewarn-agent", "DELETE", "/api/v1/namespaces/default/pods/none", None),
        ("forewarn-agent", "GET", "/api/v1/namespaces/forewarn/secrets", None),
        ("forewarn-agent", "DELETE", f"{NODES}/node-1", None),
        (
            "forewarn-agent",
            "PATCH",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x",
            {"spec": {"holderIdentity": "x"}},
        ),
        ("forewarn-resources", "GET", "/api/v1/namespaces/team-a/secrets", None),
        (
            "forewarn-resources",
            "PATCH",
            f"{GROUP}/namespaces/team-a/maintenancenotices/none",
            {"spec": {"approve": True}},
        ),
        ("forewarn-resources", "PATCH", f"{NODES}/node-1/status", {"status": {}}),
        ("forewarn-driver", "DELETE", f"{NODES}/node-1", None),
        ("forewarn-driver", "DELETE", "/api/v1/namespaces/default/pods/none", None),
        ("forewarn-driver", "GET", "/api/v1/namespaces/forewarn/secrets", None),
    ],
)
def test_call_beyond_the_rights_is_refused(
    pool: Pool, account: str, method: str, path: str, form: object
) -> None:
    """Who takes over an account cannot do what the account never does. Source: K-1, K-4."""
    assert pool.ask_as(pool.token(account), method, path, form).status == 403


def test_agent_marks_its_node_with_its_rights(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Conditions, annotations and Lease, written and removed again. Source: K-1."""
    monkeypatch.setenv("FOREWARN_STATE", str(tmp_path))
    settings = pool.settings(namespace="forewarn")
    lease = "/apis/coordination.k8s.io/v1/namespaces/forewarn/leases/forewarn-agent-node-1"
    notice = {"facts": ["planned"], "event": event_form(event()), "deadline_ms": None}
    written = json.loads(json.dumps(notice))
    node_job.main({"settings": settings, "notice": written})
    assert true_conditions(pool.cluster, "node-1") == {"MaintenancePlanned"}
    assert annotations_of(pool.cluster, "node-1")["forewarn.io/event-id"] == "E1"
    assert pool.cluster.ask("GET", lease).status == 200
    version = pool.cluster.node()["metadata"]["resourceVersion"]
    node_job.main({"settings": settings, "notice": written})
    assert pool.cluster.node()["metadata"]["resourceVersion"] == version
    node_job.main({"settings": settings, "notice": None})
    assert true_conditions(pool.cluster, "node-1") == set()
    assert annotations_of(pool.cluster, "node-1") == {}
    assert pool.cluster.ask("GET", lease).status == 404


def test_drain_keeps_a_budget_that_the_controllers_count(pool: Pool, tmp_path: Path) -> None:
    """Four pods leave a node two at a time at most; none is missing meanwhile. Source: K-3."""
    cluster = pool.cluster
    with Kubelets(cluster) as kubelets:
        kubelets.expected["web"] = 6
        deploy(cluster, "web", 6, available=4)
        wait_until(lambda: "web" in kubelets.fewest and is_protected(cluster, "web"))
        wait_until(lambda: pods_on(cluster, "node-1"))
        done("kubernetes", "prepare", pool.settings(wait_s=50), tmp_path / "state")
        assert pods_on(cluster, "node-1") == []
        assert kubelets.fewest["web"] >= 4
        done("kubernetes", "recover", pool.settings(), tmp_path / "state")
        assert "unschedulable" not in cluster.node()["spec"]
        cluster.ask("DELETE", "/apis/apps/v1/namespaces/default/deployments/web")
        cluster.ask("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web")
        cluster.ask("DELETE", "/apis/apps/v1/namespaces/default/replicasets")
        cluster.ask("DELETE", "/api/v1/namespaces/default/pods")
        wait_until(lambda: not cluster.ask("GET", PODS).form()["items"])


def test_followers_go_on_after_the_api_server_was_killed(
    pool: Pool, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new API server does not know the versions of old watches. Source: K-1, K-4."""
    monkeypatch.setattr(discovery, "RETRY_S", 0.05)
    notices = HostNotices(pool.config("forewarn-driver"), "kubernetes", tenants.live.clock)
    marked, answered = notices.watch(), tenants.resources.watch()

    def write(live: list[dict[str, Any]], types: set[str]) -> None:
        def is_right() -> bool:
            marked.wait(0.1)
            marked.clear()
            try:
                return (
                    notices.turn(live)[1] == [] and true_conditions(pool.cluster, "node-1") == types
                )
            except Exception:  # noqa: BLE001 - the API server is away
                return False

        wait_until(is_right, what=str(types))

    try:
        write([operation("node-1")], {"MaintenancePlanned"})
        tenants.live.post("/v1/operations", cause="host-reboot", targets=["h1"])
        tenants.turn()
        pool.cluster.parts.api.end()
        tenants.live.advance(3600)
        pool.cluster.parts.api.start()
        wait_until(lambda: _is_ready(pool.cluster), what="the API server")
        write([operation("node-1", "running")], {"MaintenanceInProgress"})
        write([], set())

        def started() -> bool:
            answered.wait(0.1)
            answered.clear()
            tenants.answerer.turn()
            return bool(tenants.notice()["status"]["state"] == "started")

        wait_until(started)
        assert tenants.patch({"spec": {"approve": True}}).status == 200
        wait_until(lambda: _observed(tenants) == 2)
    finally:
        notices.close()
        tenants.resources.close()


def _observed(tenants: Tenants) -> int:
    tenants.answerer.turn()
    return int(tenants.notice()["status"]["observedGeneration"])


def _is_ready(cluster: Cluster) -> bool:
    try:
        return cluster.ask("GET", "/readyz").status == 200
    except Exception:  # noqa: BLE001 - it does not listen yet
        return False
