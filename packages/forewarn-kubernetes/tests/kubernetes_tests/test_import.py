"""The topology is taken over from a cluster, and kept in step with it."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from forewarn_cli.topology_import import Importer
from forewarn_kubernetes import discovery
from forewarn_kubernetes.client import Kubernetes
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.discovery import (
    KubernetesSource,
    ListUnknown,
    Watched,
    machine_facts,
    node_facts,
)
from forewarn_server.cli.api_client import ApiClient
from forewarn_server.cli.main import main
from tests.api.live import Live
from tests.clock import VirtualClock
from tests.kubernetes.small_cluster import VMIS, Cluster, node_status, served
from tests.waiting import LIMIT_S, wait_until

LOST_AFTER_S = 60
NODES = "/api/v1/nodes"


@pytest.fixture
def live() -> Iterator[Live]:
    """A service that knows nothing."""
    with Live() as service:
        yield service


@pytest.fixture
def cluster() -> Cluster:
    """Two nodes, and a VM on the first."""
    made = Cluster()
    made.machine("a")
    return made


@pytest.fixture
def url(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """Serve the cluster."""
    (tmp_path / "token").write_text("right\n")
    with served(cluster) as found:
        yield found


@pytest.fixture
def source(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesSource]:
    """A source that is quick to try again."""
    monkeypatch.setattr(discovery, "RETRY_S", 0.01)
    token = str(tmp_path / "token")
    config = KubernetesConfig(url, token, "", lost_after_s=LOST_AFTER_S)
    made = KubernetesSource(config, "manual")
    yield made
    made.close()


def topology(live: Live) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what the service knows."""
    found: dict[str, dict[str, dict[str, Any]]] = live.get("/v1/topology?format=json")
    return found


class FeedClient:
    """An importer that takes a turn whenever its source says that something has changed."""

    def __init__(self, live: Live, source: KubernetesSource) -> None:
        """Begin to follow."""
        self._live = live
        self.clock = VirtualClock(1)
        self.importer = Importer(ApiClient(live.url), source, clock=self.clock)
        self.changed: threading.Event = source.watch()

    def sees(self, hosts_of_vms: dict[str, str]) -> bool:
        """Take turns until the service knows these VMs on these hosts."""

        def known() -> bool:
            self.changed.wait(0.05)
            self.changed.clear()
            self.importer.turn()
            vms = topology(self._live)["vms"]
            return {name: each["host"] for name, each in vms.items()} == hosts_of_vms

        wait_until(known)
        return True


def test_import_takes_over_nodes_and_vms(
    live: Live, cluster: Cluster, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Zones and labels of nodes; groups and addresses of VMs; once more changes nothing. R-4."""
    labels = {"topology.kubernetes.io/zone": "z1", "rack": "r7", "forewarn.dev/fault-domain": "4"}
    cluster.put(f"{NODES}/h1", metadata={"labels": labels}, status=node_status("b"))
    settings = tmp_path / "forewarn.toml"
    settings.write_text(
        f'[drivers.manual]\nkind = "kubernetes"\nserver = "{url}"\nca_file = ""\n'
        f'token_file = "{tmp_path}/token"\n'
    )
    words = ["topology", "import", "kubernetes", "manual", "--config", str(settings)]
    words += ["--server", live.url]
    assert main(words) == 0
    known = topology(live)
    host = known["hosts"]["h1"]
    assert (host["zone"], host["labels"], host["fault_domain"]) == ("z1", {"rack": "r7"}, 4)
    assert known["hosts"]["h2"]["driver"] == "manual"
    assert known["vms"]["default.a"]["host"] == "h1"
    capsys.readouterr()
    assert main(words) == 0
    assert capsys.readouterr().err == ""


def test_following_resumes_where_a_watch_ended(
    live: Live, cluster: Cluster, source: KubernetesSource
) -> None:
    """What changed between two watches is seen by the second; nothing is listed again. R-4."""
    follower = FeedClient(live, source)
    assert follower.sees({"default.a": "h1"})
    cluster.machine("a", "h2")
    assert follower.sees({"default.a": "h2"})
    cluster.cut()
    cluster.machine("b", "h1")
    cluster.drop(f"{VMIS}/a")
    assert follower.sees({"default.b": "h1"})
    begun = [version for path, version in cluster.watches if path.endswith("instances")]
    assert len(begun) >= 2
    assert begun == sorted(begun)
    assert len(cluster.lists) == 2  # one of each kind: pages that follow do not count


def test_following_lists_again_after_gone(
    live: Live, cluster: Cluster, source: KubernetesSource
) -> None:
    """Where the API server no longer has the version, what is gone meanwhile is found out. R-4."""
    follower = FeedClient(live, source)
    assert follower.sees({"default.a": "h1"})
    with cluster.lock:
        cluster.drop(f"{VMIS}/a")
        cluster.machine("c", "h2")
        cluster.forget()
    assert follower.sees({"default.c": "h2"})
    cluster.machine("d", "h2")
    assert follower.sees({"default.c": "h2", "default.d": "h2"})


class Held(Kubernetes):
    """A client whose lists wait."""

    def __init__(self, config: KubernetesConfig) -> None:
        """Let the first list pass."""
        super().__init__(config)
        self.begun, self.passes = threading.Semaphore(0), threading.Semaphore(1)

    def pages(self, path: str, query: str = "") -> Iterator[dict[str, Any]]:
        """Give the pages of a list once it passes."""
        self.begun.release()
        assert self.passes.acquire(timeout=LIMIT_S)
        return super().pages(path, query)


def test_facts_are_not_old_while_a_new_list_is_read(
    cluster: Cluster, url: str, tmp_path: Path
) -> None:
    """After a compaction nobody is given what the lost changes may have made wrong. R-1."""
    held = Held(KubernetesConfig(url, str(tmp_path / "token"), ""))
    watched = Watched(held, NODES, node_facts, changed=threading.Event())
    watched.start()
    assert held.begun.acquire(timeout=LIMIT_S)
    assert {each.name for each in watched.facts()} == {"h1", "h2"}
    with cluster.lock:
        cluster.drop(f"{NODES}/h2")
        cluster.forget()
    assert held.begun.acquire(timeout=LIMIT_S)
    with ThreadPoolExecutor(1) as other:
        facts = other.submit(watched.facts)
        watched.close()
        held.passes.release()
        assert {each.name for each in facts.result(LIMIT_S)} == {"h1"}


def test_closed_watch_knows_nothing_before_its_first_list(url: str, tmp_path: Path) -> None:
    """An empty list would have every host removed. Source: R-1."""
    kubernetes = Kubernetes(KubernetesConfig(url, str(tmp_path / "token"), ""))
    watched = Watched(kubernetes, NODES, node_facts, changed=threading.Event())
    watched.close()
    watched.start()
    with pytest.raises(ListUnknown):
        watched.facts()


def test_following_outlives_the_api_server(
    live: Live, cluster: Cluster, source: KubernetesSource, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is removed while it is away, which is said once. Source: R-1."""
    follower = FeedClient(live, source)
    assert follower.sees({"default.a": "h1"})
    cluster.away = True
    cluster.cut()

    def noticed() -> bool:
        follower.importer.turn()
        return "does not answer" in capsys.readouterr().err

    wait_until(noticed)
    follower.importer.turn()
    assert "does not answer" not in capsys.readouterr().err
    assert topology(live)["vms"].keys() == {"default.a"}
    cluster.away = False
    cluster.machine("b", "h2")
    assert follower.sees({"default.a": "h1", "default.b": "h2"})


def test_node_without_kubevirt_is_its_own_vm(
    live: Live, cluster: Cluster, source: KubernetesSource
) -> None:
    """Agents on the nodes are asked; once KubeVirt is there its VMs take their place. R-4."""
    cluster.has_kubevirt = False
    status = {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}
    cluster.put(f"{NODES}/h1", metadata={"labels": {"forewarn.dev/group": "db"}}, status=status)
    follower = FeedClient(live, source)
    assert follower.sees({"h1": "h1", "h2": "h2"})
    known = topology(live)["vms"]["h1"]
    assert (known["group"], known["addresses"]) == ("db", ["10.0.0.1"])
    cluster.has_kubevirt = True
    assert follower.sees({"default.a": "h1"})
    cluster.has_kubevirt = False  # its API is away: VMs stay
    cluster.forget()
    cluster.machine("h", "h2")
    follower.importer.turn()
    assert topology(live)["vms"].keys() == {"default.a"}


def test_silent_node_is_reported_lost(
    live: Live, cluster: Cluster, source: KubernetesSource
) -> None:
    """One whose kubelet no longer reports, once. Source: L-4."""
    follower = FeedClient(live, source)
    assert follower.sees({"default.a": "h1"})
    conditions = [{"type": "Ready", "status": "Unknown"}]
    cluster.put(f"{NODES}/h2", status={"conditions": conditions})

    def lost() -> list[str]:
        follower.importer.turn()
        follower.clock.advance(LOST_AFTER_S * 1000)
        found = live.get("/v1/operations")["operations"]
        return [each["host"] for each in found if each["cause"] == "host-lost"]

    wait_until(lambda: bool(lost()))
    assert [lost(), lost()][-1] == ["h2"]


def test_addresses_are_those_a_guest_cannot_choose() -> None:
    """What an agent inside a guest reports makes it nobody else. Source: S-1."""
    interfaces = [{"name": "default", "masquerade": {}}, {"name": "lan", "bridge": {}}]
    said = [
        {"name": "default", "ipAddress": "10.1.0.5", "ipAddresses": ["10.1.0.5", "fd00::5"]},
        {"name": "lan", "ipAddress": "192.0.2.9"},
        {"interfaceName": "eth9", "ipAddress": "10.1.0.6"},
    ]
    form = {
        "metadata": {"namespace": "shop", "name": "web-0", "uid": "u-1"},
        "spec": {"domain": {"devices": {"interfaces": interfaces}}},
        "status": {"phase": "Running", "nodeName": "h1", "interfaces": said},
    }
    assert machine_facts(form).form["addresses"] == ["10.1.0.5", "fd00::5"]


@pytest.mark.parametrize(
    ("owner", "uid"),
    [
        ({"kind": "VirtualMachine", "name": "web-0", "uid": "u-2", "controller": True}, "u-2"),
        ({"kind": "VirtualMachine", "name": "web-1", "uid": "u-2", "controller": True}, "u-1"),
        ({"kind": "VirtualMachine", "name": "web-0", "uid": "u-2"}, "u-1"),
    ],
    ids=["its-own", "another", "no-controller"],
)
def test_vm_is_who_the_api_server_says(owner: dict[str, Any], uid: str) -> None:
    """Not its firmware's UUID: a tenant chooses that, and names in two namespaces share it."""
    meta = {"namespace": "shop", "name": "web-0", "uid": "u-1", "ownerReferences": [owner]}
    spec = {"domain": {"firmware": {"uuid": "chosen"}}}
    form = machine_facts({"metadata": meta, "spec": spec}).form
    assert form["vm_id"] == form["instance_id"] == uid


@pytest.mark.parametrize(
    ("meta", "group"),
    [
        ({"labels": {"forewarn.dev/group": "web"}}, "shop.web"),
        ({"annotations": {"forewarn.dev/group": "web"}}, "shop.web"),
        ({"labels": {"kubevirt.io/vmpool": "pool"}}, "shop.pool"),
        ({"ownerReferences": [{"kind": "VirtualMachine", "name": "x", "controller": True}]}, None),
        (
            {
                "ownerReferences": [
                    {
                        "kind": "VirtualMachineInstanceReplicaSet",
                        "name": "set",
                        "controller": True,
                    }
                ]
            },
            "shop.set",
        ),
    ],
    ids=["label", "annotation", "pool", "machine", "set"],
)
def test_group_is_one_of_a_namespace(meta: dict[str, Any], group: str | None) -> None:
    """Nobody gets into a group of another namespace by a label. Source: S-1."""
    form = {"metadata": {"namespace": "shop", "name": "web-0", "uid": "u-1", **meta}}
    assert machine_facts(form).form.get("group") == group


def test_labels_of_people_come_first() -> None:
    """Of the hundreds that a node may have; one without a value gets one."""
    labels = {f"cpu-feature.node.kubevirt.io/f{number}": "true" for number in range(200)}
    labels |= {f"node.kubernetes.io/n{number:02}": "x" for number in range(20)}
    labels |= {"tier": "", "zone": "no"}
    kept = node_facts({"metadata": {"name": "h1", "labels": labels}}).form["labels"]
    assert len(kept) == 16
    assert kept["tier"] == "true"
    assert {each for each in kept if not each.startswith("node.kubernetes.io/n")} == {"tier"}


def test_vm_that_is_refused_is_reported_to_operators(
    live: Live, cluster: Cluster, source: KubernetesSource
) -> None:
    """The others are taken over; one that was known before keeps its record."""
    follower = FeedClient(live, source)
    assert follower.sees({"default.a": "h1"})
    for name in ("a", "b"):
        meta = {"annotations": {"forewarn.dev/group": "no group"}}
        cluster.put(f"{VMIS}/{name}", metadata=meta, status={"nodeName": "h2"}, spec={})
    cluster.machine("c")
    assert follower.sees({"default.a": "h2", "default.c": "h1"})
    assert any("default.no group" in each for each in live.get("/v1/overview")["refused"])
