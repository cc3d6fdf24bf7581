"""The how-to's steps to try AKS's node auto-drain, against Kubernetes' own API server."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn_kubernetes.aks import CONFIG, LABEL, TAINT
from kubernetes_tests.node_pool import NODES, Kubelets, add_node, pods_on, true_conditions
from tests.agent.programs import free_port, program, running
from tests.agent.test_prepare_kubernetes import OWNER, Cluster, serving
from tests.e2e.cloud import FOREWARN
from tests.kubernetes.control_plane import control_plane
from tests.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.slow
NODE = "aks-pool-0"
EVENTS = "/api/v1/events"
POD = {"containers": [{"name": "one", "image": "none"}], "nodeName": NODE}


class Trial:
    """A reader of the how-to with a cluster."""

    def __init__(self, cluster: Cluster, operator: int) -> None:
        """Have two pods on the node, of which one has the label."""
        self.cluster = cluster
        self._server = f"http://127.0.0.1:{operator}"
        add_node(cluster, NODE)
        for name, labels in (("plain", {}), ("labelled", {LABEL: "true"})):
            meta = {"name": name, "labels": labels, "ownerReferences": [OWNER]}
            cluster.make("/api/v1/namespaces/default/pods", {"metadata": meta, "spec": POD})

    def run(self, scenario: str) -> None:
        """Run a scenario of the emulator."""
        words = (*FOREWARN, "emulator", "scenario", "run", scenario, "--server", self._server)
        subprocess.run(words, check=True, capture_output=True)

    def node(self) -> dict[str, Any]:
        """Return the spec of the node."""
        form: Any = self.cluster.ask("GET", f"{NODES}/{NODE}").form()
        spec: dict[str, Any] = form["spec"]
        return spec

    def told(self) -> set[str]:
        """Return the reasons of the cluster's events."""
        items: Any = self.cluster.ask("GET", EVENTS).form()["items"]
        return {each["reason"] for each in items}


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    """Run the cluster, the emulator and the command that plays AKS."""
    program("kube-apiserver")
    operator = free_port()
    with control_plane(tmp_path) as parts:
        cluster = serving(parts, tmp_path)
        settings = tmp_path / "forewarn.toml"
        settings.write_text(
            f'[drivers.kubernetes]\nserver = "{cluster.url}"\nca_file = "{cluster.ca_file}"\n'
            f'token_file = "{cluster.token_file}"\n'
        )
        emulate = (
            *(*FOREWARN, "emulate", "--vm", NODE, "--speed", "60"),
            *(f"--listen=127.0.0.1:{free_port()}", f"--operator-listen=127.0.0.1:{operator}"),
        )
        server = f"http://127.0.0.1:{operator}"
        play = ("emulator", "play-aks", "--config", str(settings), "--follow", "--server", server)
        logs = tmp_path / "emulate.log", tmp_path / "play.log"
        with running(*emulate, log=logs[0]):
            wait_until(lambda: "127.0.0.1" in logs[0].read_text(), limit_s=LIMIT_S)
            with running(*FOREWARN, *play, log=logs[1]), Kubelets(cluster):
                yield Trial(cluster, operator)


def test_aks_drains_a_node_before_a_freeze_and_a_redeploy(trial: Trial) -> None:
    """Labelled pods leave before the freeze, all pods before the redeploy. Source: K-6."""
    config = {"Cluster": {"OnFreeze": {"Enabled": True}}}
    form = {"metadata": {"name": "remediator-config"}, "data": {"appConfig": json.dumps(config)}}
    trial.cluster.make(CONFIG.removesuffix("/remediator-config"), form)
    trial.run("aks-evict-on-freeze")
    wait_until(lambda: pods_on(trial.cluster, NODE) == ["plain"], what="the eviction")
    assert TAINT in {each["key"] for each in trial.node()["taints"]}
    assert "VMEventScheduled" in true_conditions(trial.cluster, NODE)
    wait_until(lambda: "NodeUncordonEnd" in trial.told(), what="the end of the freeze")
    assert "unschedulable" not in trial.node()
    assert {"FreezeScheduled", "NodeCordonEnd", "Evicted", "NodeDrainEnd"} <= trial.told()
    trial.run("aks-auto-drain")
    wait_until(lambda: pods_on(trial.cluster, NODE) == [], what="the drain")
    wait_until(lambda: "unschedulable" not in trial.node(), what="the end of the redeploy")
    assert true_conditions(trial.cluster, NODE) == set()
