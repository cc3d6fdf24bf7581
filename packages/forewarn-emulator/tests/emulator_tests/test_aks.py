"""AKS's node auto-drain and evict-on-freeze, played against a small cluster."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator_tests.conftest import Stage
from forewarn_emulator.scenario_files import find_scenario, unlisted
from forewarn_server.cli.main import main
from tests.agent.agents import Agent
from tests.agent.programs import running
from tests.agent.test_node_events import Relay
from tests.kubernetes.small_cluster import Cluster, Form, served

LABEL = "remediator.kubernetes.azure.com/onFreeze"
TAINT = "remediator.kubernetes.azure.com/unschedulable"
CONFIG = "/api/v1/namespaces/kube-system/configmaps/remediator-config"
PODS = "/api/v1/namespaces/default/pods"


class AksStage:
    """An emulator whose VM is a node of a cluster, and the command that plays AKS."""

    def __init__(self, stage: Stage, cluster: Cluster, url: str, directory: Path) -> None:
        """Run two pods on the node, of which one has the label."""
        self.stage = stage
        self.cluster = cluster
        self.vm = stage.api.get("/v1/vms")["vms"][0]["name"]
        cluster.put(f"/api/v1/nodes/{self.vm}", status={"conditions": []}, spec={})
        cluster.pod("plain", self.vm)
        cluster.pod("labelled", self.vm)
        pod = cluster.objects[f"{PODS}/labelled"]
        pod["metadata"]["labels"] = {LABEL: ""}
        (directory / "token").write_text("right")
        settings = directory / "forewarn.toml"
        settings.write_text(
            f'[drivers.kubernetes]\nserver = "{url}"\nca_file = ""\n'
            f'token_file = "{directory / "token"}"\n'
        )
        server = ("--server", stage.emulator.operator_url)
        self.words = ["emulator", "play-aks", "--config", str(settings), *server]

    def configure(self, *, enabled: bool) -> None:
        """Apply the ConfigMap of the cluster."""
        config = {"Cluster": {"OnFreeze": {"Enabled": enabled}}}
        self.cluster.put(CONFIG, data={"appConfig": json.dumps(config)})

    def after(self, by: str) -> tuple[bool, set[str], set[str]]:
        """Let time pass; return cordon, true conditions and the pods that are left."""
        self.stage.advance(by)
        assert main(self.words) == 0
        node = self.cluster.node(self.vm)
        cordoned = bool(node["spec"].get("unschedulable"))
        assert cordoned == (TAINT in {each["key"] for each in node["spec"].get("taints") or ()})
        conditions = {each["type"] for each in node["status"]["conditions"]}
        pods = {path.rpartition("/")[2] for path in self.cluster.objects if path.startswith(PODS)}
        return cordoned, conditions, pods

    def told(self) -> list[str]:
        """Return the reasons of the cluster's events."""
        objects: list[tuple[str, Form]] = list(self.cluster.objects.items())
        return [form["reason"] for path, form in objects if path.startswith(EVENTS)]


EVENTS = "/api/v1/namespaces/default/events/"


@pytest.fixture
def aks(stage: Stage, tmp_path: Path) -> Iterator[AksStage]:
    """Run the cluster."""
    cluster = Cluster()
    with served(cluster) as url:
        yield AksStage(stage, cluster, url, tmp_path)


BOTH = {"plain", "labelled"}
SCHEDULED = {"VMEventScheduled"}


def test_labelled_pods_are_evicted_five_minutes_before_a_freeze(aks: AksStage) -> None:
    """The other pods stay on the cordoned node, which is uncordoned afterwards. Source: K-6."""
    aks.configure(enabled=True)
    aks.stage.run("aks-evict-on-freeze")
    assert aks.after("9m") == (False, SCHEDULED, BOTH)
    assert aks.after("2m") == (True, SCHEDULED, {"plain"})
    assert aks.after("10m") == (False, set(), {"plain"})
    assert aks.told() == [
        *("VMEventScheduled", "FreezeScheduled", "NodeCordonStart", "NodeCordonEnd"),
        *("NodeDrainStart", "Evicted", "NodeDrainEnd", "NoVMEventScheduled"),
        *("NodeUncordonStart", "NodeUncordonEnd"),
    ]


@pytest.mark.parametrize("enabled", [None, False])
def test_freeze_cordons_nothing_unless_configured(aks: AksStage, enabled: bool | None) -> None:
    """The label alone has no effect. Source: K-6."""
    if enabled is not None:
        aks.configure(enabled=enabled)
    aks.stage.run("aks-evict-on-freeze")
    assert aks.after("11m") == (False, SCHEDULED, BOTH)


def test_budget_keeps_a_pod_and_is_recorded_once(aks: AksStage) -> None:
    """The eviction fails; the freeze comes all the same. Source: K-6."""
    aks.configure(enabled=True)
    aks.cluster.protected["labelled"] = (429, "the budget needs 1 healthy pod")
    aks.stage.run("aks-evict-on-freeze")
    assert aks.after("11m") == (True, SCHEDULED, BOTH)
    aks.after("1m")
    assert "FailedToEvict" in aks.told()
    assert "NodeDrainEnd" not in aks.told()


def test_node_is_drained_before_its_vm_is_redeployed(aks: AksStage) -> None:
    """All pods leave at once, with or without the ConfigMap. Source: K-6."""
    aks.stage.run("aks-auto-drain")
    assert aks.after("0s") == (True, SCHEDULED, set())
    assert aks.after("30m") == (False, set(), set())


def test_cordon_of_another_person_stays(aks: AksStage) -> None:
    """Only our own cordon is undone. Source: K-6."""
    aks.configure(enabled=True)
    aks.stage.run("aks-evict-on-freeze")
    aks.after("1m")
    path = f"/api/v1/nodes/{aks.vm}"
    node = aks.cluster.objects[path]
    aks.cluster.put(path, **{**node, "spec": {"unschedulable": True}})
    aks.stage.advance("1h")
    assert main(aks.words) == 0
    assert aks.cluster.node(aks.vm)["spec"]["unschedulable"] is True


def test_agent_prepares_for_what_aks_reports(stage: Stage, tmp_path: Path) -> None:
    """The emulator plays AKS, and the agent needs no metadata service. Source: K-5, K-6."""
    cluster = Cluster()
    with served(cluster) as url:
        aks = AksStage(stage, cluster, url, tmp_path)
        relay = Relay(tmp_path, url, node=aks.vm)
        agent = Agent(tmp_path, relay.endpoint, then="hold")
        with running(*relay.command, log=relay.log), agent:
            aks.stage.run("aks-auto-drain")
            aks.after("0s")
            agent.until_acts("prepare")
            aks.after("11m")
            agent.until_said("started")
            aks.after("30m")
            agent.until_acts("prepare", "recover")


def test_scenarios_of_aks_are_not_listed(stage: Stage) -> None:
    """They need another program, so the page does not offer them."""
    listed = {each["name"] for each in stage.api.get("/v1/scenarios")["scenarios"]}
    assert {"aks-auto-drain", "aks-evict-on-freeze"} <= set(unlisted())
    assert not listed & set(unlisted())
    assert all(find_scenario(name).title[0].isupper() for name in unlisted())
