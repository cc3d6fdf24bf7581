"""Versions that etcd has compacted: watches and lists begin again, and lose nothing.

The API server has no watch cache here, which would know the newest changes for a while longer.
"""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from forewarn_kubernetes import client, discovery
from forewarn_kubernetes.client import Kubernetes, KubernetesUnreachable, VersionExpired
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.discovery import ZONE, NodeFacts, Watched, node_facts
from kubernetes_tests.real_cluster import NODES, Relay
from tests.agent.test_prepare_kubernetes import Cluster, serving
from tests.kubernetes.control_plane import control_plane
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def uncached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run etcd, and an API server that reads each version from it."""
    directory = tmp_path_factory.mktemp("compaction")
    with control_plane(directory, "--watch-cache=false") as parts:
        yield serving(parts, directory)


@pytest.fixture
def cluster(uncached: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Give three nodes, in pages of two, to a client that is quick to try again."""
    monkeypatch.setattr(discovery, "RETRY_S", 0.01)
    monkeypatch.setattr(client, "PAGE_MAX", 2)
    for name in ("a", "b", "c"):
        add_node(uncached, name)
    yield uncached
    uncached.ask("DELETE", NODES)


def add_node(cluster: Cluster, name: str, zone: str = "1") -> None:
    """Add a node in a zone."""
    cluster.make(NODES, {"metadata": {"name": name, "labels": {ZONE: zone}}})


def config_of(cluster: Cluster, url: str = "") -> KubernetesConfig:
    """Return the settings of a client, here or at another address of the cluster."""
    return KubernetesConfig(url or cluster.url, str(cluster.token_file), cluster.ca_file)


class Compacting(Kubernetes):
    """A client that is slow once: before its second page the cluster changes and is compacted."""

    def __init__(self, cluster: Cluster) -> None:
        """Be slow at the next list of more than one page."""
        super().__init__(config_of(cluster))
        self._cluster = cluster
        self.waits = True

    def ask(
        self, verb: str, path: str, form: object = None, *, kind: str = "application/json"
    ) -> dict[str, Any]:
        """Ask, perhaps too late."""
        if self.waits and "&continue=" in path:
            self.waits = False
            add_node(self._cluster, "d")
            self._cluster.parts.compact()
        return super().ask(verb, path, form, kind=kind)


@contextmanager
def following(kubernetes: Kubernetes) -> Iterator[Watched[NodeFacts]]:
    """Follow the nodes."""
    watched = Watched(kubernetes, NODES, node_facts, changed=threading.Event())
    watched.start()
    try:
        yield watched
    finally:
        watched.close()


def zones(watched: Watched[NodeFacts]) -> dict[str, str]:
    """Return the zone of each node that a follower knows; none while it is cut off."""
    try:
        return {each.name: each.form["zone"] for each in watched.facts()}
    except KubernetesUnreachable:
        return {}


def test_follower_lists_again_after_a_compaction(cluster: Cluster) -> None:
    """What was added, changed and removed before a compaction is known after it. Source: K-1."""
    direct = Kubernetes(config_of(cluster))
    old = direct.ask("GET", NODES)["metadata"]["resourceVersion"]
    relay = Relay(urlsplit(cluster.url).port or 0)
    behind = Kubernetes(config_of(cluster, f"https://127.0.0.1:{relay.port}"))
    with closing(relay), following(behind) as watched:
        wait_until(lambda: zones(watched) == {"a": "1", "b": "1", "c": "1"})
        with relay.held():
            cluster.ask("DELETE", f"{NODES}/a")
            direct.patch(f"{NODES}/b", {"metadata": {"labels": {ZONE: "2"}}})
            add_node(cluster, "d")
            cluster.parts.compact()
            with pytest.raises(VersionExpired):
                list(direct.watch(NODES, old))
        wait_until(lambda: zones(watched) == {"b": "2", "c": "1", "d": "1"})
        add_node(cluster, "e")
        wait_until(lambda: "e" in zones(watched))


def test_list_begins_again_after_a_compaction(cluster: Cluster) -> None:
    """A list whose next page is gone begins again, and is of one version. Source: K-1."""
    slow = Compacting(cluster)
    with pytest.raises(VersionExpired):
        list(slow.pages(NODES))
    cluster.ask("DELETE", f"{NODES}/d")
    slow.waits = True
    assert [each["metadata"]["name"] for each in slow.all(NODES)] == ["a", "b", "c", "d"]
    assert not slow.waits


def test_first_list_of_a_follower_survives_a_compaction(cluster: Cluster) -> None:
    """A follower that reads its first list too slowly begins again. Source: K-1."""
    slow = Compacting(cluster)
    with following(slow) as watched:
        wait_until(lambda: set(zones(watched)) == {"a", "b", "c", "d"})
        assert not slow.waits
        cluster.ask("DELETE", f"{NODES}/c")
        wait_until(lambda: set(zones(watched)) == {"a", "b", "d"})
