"""Notices on many nodes: of a real API server, counted by its metrics, and of a simulated one.

`KUBERNETES_NODES=5000 make test-kubernetes ARGS="-s FILE"`, with the path of this file, takes as
many; `WRITERS_MAX=1` writes one node after another.
"""

import http.client
import json
import os
import re
import ssl
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from forewarn.agent.preparations.http_call import call
from forewarn_base.clock import SystemClock
from forewarn_kubernetes import host_notices
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.host_notices import HostNotices
from kubernetes_tests.node_pool import NODES, true_conditions
from kubernetes_tests.test_host_notices import operation
from kubernetes_tests.virtual_nodes import virtual_nodes
from tests.agent.test_prepare_kubernetes import TOKEN, Cluster, serving
from tests.kubernetes.control_plane import control_plane

pytestmark = pytest.mark.slow
COUNT = int(os.environ.get("KUBERNETES_NODES", "60"))
WRITERS = int(os.environ.get("WRITERS_MAX", str(host_notices.WRITERS_MAX)))
WRITES = re.compile(
    r'apiserver_request_total\{[^}]*resource="nodes"[^}]*verb="(?:PATCH|PUT|APPLY)"[^}]*\} (\S+)'
)

PROCESSOR = re.compile(r"^process_cpu_seconds_total (\S+)", re.MULTILINE)


def create(cluster: Cluster, names: list[str]) -> None:
    """Create nodes over one connection."""
    place = urlsplit(cluster.url)
    context = ssl.create_default_context(cafile=cluster.ca_file)
    connection = http.client.HTTPSConnection(place.hostname or "", place.port, context=context)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    for name in names:
        body = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        connection.request("POST", NODES, body, headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        answer.read()
    connection.close()


def writes(cluster: Cluster) -> int:
    """Return how many writes of nodes the API server has counted."""
    text = cluster.ask("GET", "/metrics").body.decode()
    return int(sum(float(number) for number in WRITES.findall(text)))


def processor_s(cluster: Cluster) -> list[float]:
    """Return the processor time of the API server, of etcd and of this process, in seconds."""
    texts = [cluster.ask("GET", "/metrics"), call("GET", f"{cluster.parts.etcd_url}/metrics")]
    used = [sum(map(float, PROCESSOR.findall(each.body.decode()))) for each in texts]
    return [*used, time.process_time()]


def test_each_transition_is_one_write_of_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Announcement, start and end; a turn without a change writes nothing. Source: K-1."""
    monkeypatch.setattr(host_notices, "WRITERS_MAX", WRITERS)
    names = [f"n{number:04}" for number in range(COUNT)]
    with control_plane(tmp_path) as parts:
        cluster = serving(parts, tmp_path)
        cluster.make("/api/v1/namespaces", {"metadata": {"name": "forewarn"}})
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(partial(create, cluster), (names[start::4] for start in range(4))))
        config = KubernetesConfig(cluster.url, str(cluster.token_file), cluster.ca_file)
        notices = HostNotices(config, "kubernetes", SystemClock())
        for state, shown in (
            ("announced", {"MaintenancePlanned"}),
            ("running", {"MaintenanceInProgress"}),
            ("succeeded", set()),
        ):
            live = [operation(name, state) for name in names]
            before, used_s, begun_s = writes(cluster), processor_s(cluster), time.monotonic()
            changed, problems = notices.turn(live)
            seconds = time.monotonic() - begun_s
            used_ms = [
                1000 * (now - then) / COUNT
                for now, then in zip(processor_s(cluster), used_s, strict=True)
            ]
            assert (len(changed), problems) == (COUNT, [])
            assert writes(cluster) - before == COUNT
            assert true_conditions(cluster, names[-1]) == shown
            assert notices.turn(live) == ([], [])
            assert writes(cluster) - before == COUNT
            print(
                f"{state}: {COUNT} nodes, {COUNT} writes, {seconds:.1f} s; a write takes "
                f"{used_ms[0]:.2f} ms of a processor in the API server, {used_ms[1]:.2f} in etcd, "
                f"{used_ms[2]:.2f} here"
            )


def test_each_change_of_a_drained_node_is_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth of the nodes is drained by agents; renewals and turns add no write. Source: K-1."""
    vms = COUNT // 10
    world = virtual_nodes(tmp_path, monkeypatch, 1, hosts=COUNT - vms, vms=vms)
    for node in world.nodes:
        world.begin(node)
    shown = dict.fromkeys(world.nodes, frozenset[str]())
    changes: Counter[str] = Counter()
    while world.work or any(shown.values()):
        world.tick(kills=False, begins=False)
        for node, before in shown.items():
            shown[node] = frozenset(world.shown(node))
            changes[node] += shown[node] != before
    done = Counter(
        path.removesuffix("/status").rpartition("/")[2]
        for verb, _, path in (each.partition(" ") for each in world.cluster.changes)
        if path.startswith(NODES)
    )
    assert done == changes
    print(f"{COUNT} nodes, {done.total()} writes, at most {max(done.values())} of a node")
