"""The kubernetes driver on a real API server, with the rights of its manifest and no others.

KubeVirt's kinds are served there; its controllers and the kubelets are played.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from forewarn_cli.topology_import import Importer
from forewarn_conformance.driver_checks import run_driver_checks
from forewarn_conformance.driver_trial import Subject
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_kubernetes import discovery
from forewarn_kubernetes.client import Kubernetes, VersionExpired
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.discovery import KubernetesSource
from forewarn_kubernetes.driver import KubernetesDriver, create
from forewarn_kubernetes.records import KEPT_MS, KubernetesRecords
from forewarn_server.cli.api_client import ApiClient
from kubernetes_tests import real_cluster
from kubernetes_tests.real_cluster import KUBEVIRT, NODES, Controllers, Relay, add_machine
from tests.agent.programs import free_port, program, running
from tests.agent.test_prepare_kubernetes import OWNER, TOKEN, Cluster, server
from tests.api.live import Live
from tests.drivers.tasks import ended, now_ms, task
from tests.kubernetes.small_cluster import REBOOT
from tests.waiting import LIMIT_S, wait_until

__all__ = ["server"]
pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[4]
PAGE = REPOSITORY / "docs" / "howto" / "kubevirt.md"
MACHINES = f"{KUBEVIRT}/namespaces/default/virtualmachineinstances"


@pytest.fixture(scope="module")
def kubevirt(server: Cluster) -> Cluster:
    """Three nodes, and KubeVirt's kinds."""
    real_cluster.install_kubevirt(server, wait_until)
    for name in ("h1", "h2", "h9"):
        server.make(NODES, {"metadata": {"name": name}})
    return server


@pytest.fixture(scope="module")
def rights(kubevirt: Cluster) -> str:
    """The token of an account that has the driver's rights."""
    real_cluster.give_rights(kubevirt)
    return real_cluster.token(kubevirt)


@pytest.fixture
def options(kubevirt: Cluster, rights: str, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Options of a driver; its VMs are gone afterwards."""
    (tmp_path / "token").write_text(rights)
    yield {
        "server": kubevirt.url,
        "ca_file": kubevirt.ca_file,
        "token_file": str(tmp_path / "token"),
        "reboot_annotation": REBOOT,
        "poll_s": 0.02,
    }
    kubevirt.ask("DELETE", MACHINES)


def test_driver_passes_with_its_rights_alone(kubevirt: Cluster, options: dict[str, Any]) -> None:
    """Nodes are emptied and rebooted once for each task. Source: R-2, R-6."""

    def make() -> KubernetesDriver:
        return create("trial", options)

    with Controllers(kubevirt) as controllers:
        subject = Subject(make, "h9", effects=lambda name: controllers.effects[name])
        results = list(run_driver_checks(subject))
    assert [each for each in results if each.verdict.value == "failed"] == []
    assert sum(each.verdict.value == "passed" for each in results) >= 13, results


def test_vms_are_migrated_by_kubevirts_kinds(kubevirt: Cluster, options: dict[str, Any]) -> None:
    """What is asked for is what the kinds understand; the destination is told. Source: R-5, M-1."""
    add_machine(kubevirt, "a", "h1")
    driver = create("moves", options)
    move: dict[str, Any] = {"cause": Cause.LIVE_MIGRATION, "impact": Impact.FREEZE}
    move |= {"vms": ("default.a",), "destination": "h9"}
    given = task(101, **move)
    with Controllers(kubevirt) as controllers:
        controllers.migrations_go_on = False
        driver.begin(given)
        assert "migrating default.a" in driver.progress(given, now_ms()).text
        driver.abort(given)
        path = f"{KUBEVIRT}/virtualmachineinstancemigrations"
        assert kubevirt.ask("GET", path).form()["items"] == []
        again = task(102, **move)
        driver.begin(again)
        controllers.migrations_go_on = True
        said = ended(driver, again)
    assert (said.done, said.failed) == (True, "")
    assert said.placements == {"default.a": "h9"}
    machine: Any = kubevirt.ask("GET", f"{MACHINES}/a").form()
    assert machine["status"]["nodeName"] == "h9"
    node: Any = kubevirt.ask("GET", f"{NODES}/h1").form()
    assert "unschedulable" not in node["spec"]


def test_records_are_pruned_with_the_rights_of_the_manifest(
    kubevirt: Cluster, options: dict[str, Any]
) -> None:
    """A record is deleted only as it was read. Source: R-2."""
    create("old", options).abort(task(103))
    config = KubernetesConfig(options["server"], options["token_file"], options["ca_file"])
    records = KubernetesRecords(Kubernetes(config), "forewarn", "old")
    place = "/api/v1/namespaces/forewarn/configmaps"

    def kept() -> bool:
        items: Any = kubevirt.ask("GET", place).form()["items"]
        return any("-op-103-" in each["metadata"]["name"] for each in items)

    records.prune(now_ms())
    assert kept()
    records.prune(now_ms() + KEPT_MS + 60_000)
    assert not kept()


def test_cluster_is_followed_over_cut_lines(
    kubevirt: Cluster, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch resumes at its version, and one that is too old is told. Source: R-4, R-5."""
    monkeypatch.setattr(discovery, "RETRY_S", 0.01)
    relay = Relay(urlsplit(kubevirt.url).port or 0)
    url = f"https://127.0.0.1:{relay.port}"
    config = KubernetesConfig(url, options["token_file"], options["ca_file"])
    with pytest.raises(VersionExpired):
        list(Kubernetes(config).watch(f"{KUBEVIRT}/virtualmachineinstances", "1"))
    live, source = Live(), KubernetesSource(config, "manual")
    changed = source.watch()
    importer = Importer(ApiClient(live.url), source)

    def sees(vms: dict[str, str]) -> None:
        def known() -> bool:
            changed.wait(0.05)
            changed.clear()
            importer.turn()
            found = live.get("/v1/topology?format=json")["vms"]
            return {name: each["host"] for name, each in found.items()} == vms

        wait_until(known, what=str(vms))

    try:
        add_machine(kubevirt, "a", "h1")
        sees({"default.a": "h1"})
        relay.cut()
        kubevirt.ask("DELETE", f"{MACHINES}/a")
        add_machine(kubevirt, "b", "h2")
        sees({"default.b": "h2"})
    finally:
        source.close()
        relay.close()
        live.stop()


def blocks(language: str = "") -> list[str]:
    """Return the page's fenced blocks of a language, without their margins."""
    found: list[str] = []
    inside = None
    for line in PAGE.read_text("utf-8").splitlines():
        if line.strip().startswith("```"):
            inside = line.strip()[3:] if inside is None else None
            found += [""] if inside == language else []
        elif inside == language:
            found[-1] += f"{line.strip()}\n"
    return found


class Reader:
    """Somebody who does what the page says."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        """Have the files that the page takes for granted."""
        self.directory = directory
        self._cluster = cluster
        (directory / "kubernetes-ca.crt").write_bytes(Path(cluster.ca_file).read_bytes())
        cluster_entry = {"server": cluster.url, "certificate-authority": cluster.ca_file}
        kubeconfig = {
            "clusters": [{"name": "c", "cluster": cluster_entry}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (directory / "kubeconfig").write_text(json.dumps(kubeconfig))
        self._operator = f"127.0.0.1:{free_port()}"
        self.env = {
            **os.environ,
            "KUBECONFIG": str(directory / "kubeconfig"),
            "FOREWARN_SERVER": f"http://{self._operator}",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def settings(self) -> None:
        """Write the page's settings, and what a service on a loopback needs."""
        [text] = blocks("toml")
        text = self.here(text).replace("https://api.cluster.example:6443", self._cluster.url)
        more = f'[listen]\nmetadata = ["127.0.0.1:0"]\noperator = "{self._operator}"\n'
        more += f'[operator]\nopen_on_loopback = true\n[store]\nurl = "sqlite:{self.directory}/s"\n'
        quick = "poll_s = 0.05\n"  # in the page's last table, which is the driver's
        (self.directory / "forewarn.toml").write_text(f"{text}{quick}{more}")

    def here(self, text: str) -> str:
        """Return a text with the reader's own paths."""
        return text.replace("/etc/forewarn", str(self.directory))

    def runs(self, line: str) -> str:
        """Run a command to its end, which must be good."""
        done = subprocess.run(
            ("bash", "-c", self.here(line)),
            cwd=REPOSITORY,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if "create namespace" not in line:  # another test may have made it
            assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout


def test_howto_maintains_a_node(kubevirt: Cluster, tmp_path: Path) -> None:
    """Every command of the page, one after another, with kubectl and a service. Source: R-5."""
    program("kubectl")
    kubevirt.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    add_machine(kubevirt, "web-0", "h1", "shop")
    place = f"{KUBEVIRT}/namespaces/shop/virtualmachineinstances/web-0"
    reader = Reader(kubevirt, tmp_path)
    reader.settings()
    lines = [line for block in blocks() for line in block.splitlines()]
    follow = next(line for line in lines if line.endswith("--follow"))
    before, after = lines[: lines.index(follow)], lines[lines.index(follow) + 1 :]
    for line in before:
        reader.runs(line)

    def on(node: str) -> bool:
        vms = ApiClient(reader.env["FOREWARN_SERVER"]).get("/v1/vms")["vms"]
        found = [(each["name"], each["host"], each["group"]) for each in vms]
        return found == [("shop.web-0", node, "shop.web")]

    serve = ("forewarn", "serve", "--config", str(tmp_path / "forewarn.toml"))
    words = reader.here(follow).split()
    with contextlib.ExitStack() as stack:
        stack.enter_context(Controllers(kubevirt))
        stack.enter_context(running(*serve, log=tmp_path / "serve.log", env=reader.env))
        wait_until(lambda: "serving operators" in (tmp_path / "serve.log").read_text())
        stack.enter_context(running(*words, log=tmp_path / "follow.log", env=reader.env))
        wait_until(lambda: on("h1"), every_s=0.05)
        for line in after:
            reader.runs(line)
        assert on("h2")
    machine: Any = kubevirt.ask("GET", place).form()
    assert machine["status"]["nodeName"] == "h2"
    kubevirt.ask("DELETE", place)


def test_pods_are_evicted_as_their_budget_allows(
    kubevirt: Cluster, options: dict[str, Any]
) -> None:
    """A budget without room holds the node's reboot up; nothing it protects is deleted. R-5."""
    labels = {"app": "web"}
    pods = "/api/v1/namespaces/default/pods"
    spec = {"nodeName": "h2", "containers": [{"name": "web", "image": "web"}]}
    meta = {"name": "web-1", "labels": labels, "ownerReferences": [OWNER]}
    kubevirt.make(pods, {"metadata": meta, "spec": spec})
    pod: Any = kubevirt.ask("GET", f"{pods}/web-1").form()
    pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert kubevirt.ask("PUT", f"{pods}/web-1/status", pod).status == 200
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    rule = {"minAvailable": 0, "selector": {"matchLabels": labels}}
    kubevirt.make(budgets, {"metadata": {"name": "web"}, "spec": rule})
    driver, given = create("evicts", options), task(104, host="h2")
    with Controllers(kubevirt):
        driver.begin(given)
        wait_until(
            lambda: "web-1 waits for budget web" in driver.progress(given, now_ms()).waits,
            what="the budget to be named",
        )
        pod = kubevirt.ask("GET", f"{pods}/web-1").form()
        assert "deletionTimestamp" not in pod["metadata"]
        budget: Any = kubevirt.ask("GET", f"{budgets}/web").form()
        counts = {"currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1}
        budget["status"] = {"observedGeneration": 1, "disruptionsAllowed": 1, **counts}
        assert kubevirt.ask("PUT", f"{budgets}/web/status", budget).status == 200
        said = ended(driver, given)
    assert (said.done, said.failed) == (True, "")
    assert kubevirt.ask("GET", f"{pods}/web-1").status == 404
