"""The control plane on the nodes of its hosts: what they show, through failures of both sides."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn_base.kubernetes.node_notices import VALID_MS, NoticePlan
from forewarn_kubernetes import discovery
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.host_notices import WRITERS_MAX, HostNotices, notices_of
from forewarn_kubernetes.work import DRAINING_TEXT, REBOOTING_TEXT
from forewarn_server.cli.main import main
from forewarn_server.cli.node_notices import NodeMarker
from kubernetes_tests.real_cluster import MANIFEST
from tests.agent.test_kubernetes_rights import right_of, rights_in
from tests.api.live import NOW_MS, Live
from tests.clock import VirtualClock
from tests.kubernetes.small_cluster import Cluster, served
from tests.waiting import LIMIT_S, wait_until

NODES = "/api/v1/nodes"
MARKS = "forewarn.io/"


@pytest.fixture
def cluster() -> Cluster:
    """Give two nodes."""
    return Cluster()


@pytest.fixture
def config(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesConfig]:
    """Serve the cluster; give the settings of a driver that is quick to try again."""
    monkeypatch.setattr(discovery, "RETRY_S", 0.01)
    (tmp_path / "token").write_text("right\n")
    with served(cluster) as url:
        yield KubernetesConfig(url, str(tmp_path / "token"), "")


def operation(host: str, state: str = "announced", **changes: object) -> dict[str, Any]:
    """Return a reboot of a host in the form of the operator API."""
    known: dict[str, Any] = {
        "id": "op-1",
        "target_kind": "host",
        "host": host,
        "state": state,
        "impact": "Reboot",
        "source": "Platform",
        "not_before": "2027-01-15T08:15:00Z",
        "duration_s": 120,
        "progress": "",
    }
    return {**known, **changes}


def true_types(cluster: Cluster, node: str) -> set[str]:
    """Return the types of the conditions that are true, without Ready."""
    with cluster.lock:
        conditions = cluster.node(node)["status"]["conditions"]
        return {each["type"] for each in conditions if each["status"] == "True"} - {"Ready"}


def marked(cluster: Cluster, node: str) -> dict[str, str]:
    """Return the annotations of a node."""
    with cluster.lock:
        return dict(cluster.node(node)["metadata"].get("annotations") or {})


def test_nodes_show_the_work_on_their_hosts(
    cluster: Cluster, config: KubernetesConfig, tmp_path: Path
) -> None:
    """From the announcement to the end, with the command of the how-to. Source: K-1."""
    settings = tmp_path / "forewarn.toml"
    settings.write_text(
        f'[drivers.kubernetes]\nserver = "{config.server}"\nca_file = ""\n'
        f'token_file = "{config.token_file}"\n'
    )
    with Live() as live:
        words = ["driver", "mark-nodes", "--config", str(settings), "--server", live.url]
        live.fleet(hosts={"h1": {"driver": "manual"}, "h2": {}}, vms={"a": {"host": "h1"}})
        live.enable("a")
        live.post("/v1/operations", cause="host-reboot", targets=["h1"])
        assert main(words) == 0
        assert true_types(cluster, "h1") == {"MaintenancePlanned"}
        live.advance(3600)
        assert main(words) == 0
        assert true_types(cluster, "h1") == {"MaintenanceInProgress"}
        assert marked(cluster, "h1")[f"{MARKS}writer"] == "control/kubernetes"
        assert not marked(cluster, "h2")
        writes = len(cluster.log)
        assert main(words) == 0
        assert not [each for each in cluster.log[writes:] if NODES in each[1]]
    rights = rights_in(MANIFEST, "forewarn-driver")
    assert {right_of(*request) for request in cluster.requests} <= rights


def test_drain_of_a_host_is_what_its_driver_reports() -> None:
    """Draining while pods leave, drained until the node is back. Source: K-1."""
    facts = [
        notices_of([operation("h1", state, progress=text)])["h1"].facts
        for state, text in (
            ("announced", ""),
            ("running", f"{DRAINING_TEXT}h1: 3 pods left"),
            ("running", f"{REBOOTING_TEXT}h1 to reboot and be ready"),
        )
    ]
    assert facts == [{"planned"}, {"draining", "in-progress"}, {"drained", "in-progress"}]
    assert notices_of([operation("h1", "planned"), operation("h2", target_kind="vm")]) == {}


def test_running_work_is_named_before_announced_work() -> None:
    """A node has one notice, about the event that concerns it most."""
    later = operation("h1", id="op-2", not_before="2027-01-15T09:00:00Z")
    sooner = operation("h1", id="op-3")
    assert notices_of([later, sooner])["h1"].event_id == "op-3"
    running = operation("h1", "running", id="op-4")
    notice = notices_of([later, sooner, running])["h1"]
    assert notice.event_id == "op-4"
    assert notice.facts == {"in-progress", "planned"}


def test_follower_repairs_nodes_after_failures_of_both_sides(
    cluster: Cluster, config: KubernetesConfig
) -> None:
    """Work that ends while nobody is there leaves nothing behind. Source: K-1."""
    clock = VirtualClock(NOW_MS)
    first = HostNotices(config, "a", clock)
    assert first.turn([operation("h1")]) == (["h1"], [])
    cluster.away = True
    notices = HostNotices(config, "a", clock)
    changed = notices.watch()
    marker = NodeMarker(Ops([]), notices)  # type: ignore[arg-type]
    marker.turn()
    assert true_types(cluster, "h1") == {"MaintenancePlanned"}
    cluster.away = False

    def clean() -> bool:
        changed.wait(0.05)
        changed.clear()
        marker.turn()
        return not true_types(cluster, "h1") and not marked(cluster, "h1")

    wait_until(clean)
    notices.close()


class Ops:
    """An operator API with these live operations."""

    def __init__(self, operations: list[dict[str, Any]]) -> None:
        """Know the operations."""
        self.operations = operations

    def get(self, _path: str, **_query: object) -> dict[str, Any]:
        """Return the only page."""
        return {"operations": list(self.operations), "next": None}


def test_orphaned_notice_is_removed_once_it_has_expired(
    cluster: Cluster, config: KubernetesConfig
) -> None:
    """An agent that will never return leaves its notice; its node may be gone for good. K-1."""
    clock = VirtualClock(NOW_MS)
    HostNotices(config, "gone", clock).turn([operation("h1", not_before=None)])
    other = HostNotices(config, "a", clock)
    assert other.turn([]) == ([], [])
    _, problems = other.turn([operation("h1")])
    assert problems == ["control/gone has marked node h1"]
    clock.advance(VALID_MS + 121_000)
    assert other.turn([]) == (["h1"], [])
    assert not marked(cluster, "h1")


def test_writer_shows_that_it_lives(cluster: Cluster, config: KubernetesConfig) -> None:
    """One Lease for each writer, renewed while it has a notice. Source: K-1."""
    clock = VirtualClock(NOW_MS)
    notices = HostNotices(config, "a", clock)
    notices.turn([])
    place = "/apis/coordination.k8s.io/v1/namespaces/forewarn/leases/forewarn-control-a"
    assert place not in cluster.objects
    notices.turn([operation("h1")])
    before = cluster.objects[place]["spec"]["renewTime"]
    clock.advance(20_000)
    notices.turn([operation("h1")])
    assert cluster.objects[place]["spec"]["renewTime"] > before


def test_random_work_with_kills_leaves_no_node_wrong(
    cluster: Cluster, config: KubernetesConfig
) -> None:
    """After any lost answer or restart, the next turn makes every node right. Source: K-1."""
    dice, clock = random.Random(7), VirtualClock(NOW_MS)
    notices = HostNotices(config, "a", clock)
    states = ("planned", "announced", "running", "succeeded")
    at = {"h1": 0, "h2": 0}
    for _ in range(150):
        clock.advance(dice.randrange(1, 600_000))
        host = dice.choice(("h1", "h2"))
        at[host] = (at[host] + 1) % len(states)
        live = [operation(name, states[place]) for name, place in at.items()]
        if dice.random() < 0.3:  # the next answers are lost, also of requests that had an effect
            cluster.faults += [(dice.choice((0, 409, 503)), "")] * dice.randrange(1, 4)
            NodeMarker(Ops(live), notices).turn()  # type: ignore[arg-type]
            cluster.faults.clear()
        if dice.random() < 0.3:
            notices = HostNotices(config, "a", clock)
        _, problems = notices.turn(live)
        assert problems == []
        shown = {"announced": {"MaintenancePlanned"}, "running": {"MaintenanceInProgress"}}
        for name, place in at.items():
            assert true_types(cluster, name) == shown.get(states[place], set())


def test_following_ends_when_asked(config: KubernetesConfig) -> None:
    """A stopped follower stops its watch."""
    ended = threading.Event()
    ended.set()
    notices = HostNotices(config, "a", VirtualClock(NOW_MS))
    assert NodeMarker(Ops([]), notices).follow(ended) == 0  # type: ignore[arg-type]


def many(cluster: Cluster, count: int) -> list[dict[str, Any]]:
    """Have more nodes, each with announced work; return the work."""
    names = [f"n{number}" for number in range(count)]
    for name in names:
        cluster.put(f"{NODES}/{name}", status={"conditions": []})
    return [operation(name) for name in names]


def test_nodes_are_written_several_at_a_time(cluster: Cluster, config: KubernetesConfig) -> None:
    """As many as there are writers, and no more. Source: K-1."""
    together, lock = threading.Barrier(WRITERS_MAX), threading.Lock()
    running = [0, 0]

    def meet() -> None:
        with lock:
            running[0] += 1
            running[1] = max(running)
        together.wait(LIMIT_S)
        with lock:
            running[0] -= 1

    live = many(cluster, 2 * WRITERS_MAX)
    cluster.before_write = meet
    notices = HostNotices(config, "k", VirtualClock(NOW_MS))
    wanted = notices_of(live)
    plans = {name: notices._plan(cluster.node(name), wanted[name]) for name in wanted}
    written = notices._write_all(plans, wanted)
    assert all(plan.patch for _, plan in written if isinstance(plan, NoticePlan))
    assert (len(written), running[1]) == (2 * WRITERS_MAX, WRITERS_MAX)


def test_only_a_node_that_has_changed_is_read_before_its_write(
    cluster: Cluster, config: KubernetesConfig
) -> None:
    """A patch names the version that was listed; after a conflict the node is read. Source: K-1."""
    live, path = many(cluster, 2), f"{NODES}/n0"

    def report() -> None:
        with cluster.lock:
            if cluster.node("n0")["status"] == {"conditions": []}:
                cluster.put(path, status={"conditions": [{"type": "Ready", "status": "True"}]})

    cluster.before_write = report
    changed, problems = HostNotices(config, "k", VirtualClock(NOW_MS)).turn(live)
    assert (sorted(changed), problems) == (["n0", "n1"], [])
    assert true_types(cluster, "n0") == {"MaintenancePlanned"}
    assert [path for verb, path in cluster.requests if verb == "GET" and "?" not in path] == [path]


def test_busy_api_server_is_asked_again(cluster: Cluster, config: KubernetesConfig) -> None:
    """What API Priority and Fairness rejects is written in the same turn. Source: K-1."""
    live, left = many(cluster, 4), [(429, "too many requests")] * 6

    def reject() -> None:
        if left:
            cluster.faults.append(left.pop())

    cluster.before_write = reject
    changed, problems = HostNotices(config, "k", VirtualClock(NOW_MS)).turn(live)
    assert (len(changed), problems, left, cluster.faults) == (4, [], [], [])


def test_list_begins_again_after_a_compaction(cluster: Cluster, config: KubernetesConfig) -> None:
    """A page of an old version is no reason to miss a node, or to take one twice. Source: K-1."""
    live = many(cluster, 5)
    cluster.compacts = True
    changed, problems = HostNotices(config, "k", VirtualClock(NOW_MS)).turn(live)
    assert (sorted(changed), problems) == ([f"n{number}" for number in range(5)], [])
    assert cluster.lists.count(NODES) == 2
