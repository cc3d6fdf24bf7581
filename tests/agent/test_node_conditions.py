"""The agent on a Kubernetes node: conditions, cordon and drain, through failures of both sides."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.agent import node_job
from forewarn.agent.core.identity import Identity
from forewarn.agent.core.rules import PreparationStep
from forewarn.agent.core.values import ApprovalEnded, HookEnded, Resumed
from forewarn.agent.node_conditions import CHECK_MS, RETRY_MS, NodeConditions, notice_of
from forewarn.agent.preparations.http_call import CallUnanswered
from tests.agent.agents import Agent
from tests.agent.making import NOW, core, event, polled, restarted
from tests.agent.service import Service
from tests.kubernetes.small_cluster import Cluster, Form, served
from tests.waiting import wait_until

NODE = "/api/v1/nodes/h1"
TABLES = """
[kubernetes]
conditions = true
node = "h1"
server = "{url}"
token_file = "{token}"

[step.node]
use = "kubernetes"
node = "h1"
server = "{url}"
token_file = "{token}"
"""


@pytest.fixture
def cluster() -> Cluster:
    """Give a cluster with a pod on the node."""
    made = Cluster()
    made.pod("web")
    return made


@pytest.fixture
def url(cluster: Cluster) -> Iterator[str]:
    """Serve the cluster."""
    with served(cluster) as address:
        yield address


def agent_of(directory: Path, service: Service, url: str, **changes: object) -> Agent:
    """Return an agent with a notice on its node and the drain as a step."""
    (directory / "token").write_text("right")
    tables = TABLES.format(url=url, token=directory / "token")
    made = Agent(directory, service.endpoint, **changes)
    made.config.write_text(tables + made.config.read_text())
    return made


def true_types(cluster: Cluster) -> set[str]:
    """Return the types of the conditions that are true, without Ready."""
    with cluster.lock:
        conditions = cluster.node()["status"]["conditions"]
        return {each["type"] for each in conditions if each["status"] == "True"} - {"Ready"}


def until_true(cluster: Cluster, *types: str) -> None:
    """Wait until exactly these conditions are true."""
    wait_until(lambda: true_types(cluster) == set(types), what=lambda: f"{true_types(cluster)}")


def versions(cluster: Cluster) -> list[Form]:
    """Return the node after each write."""
    return [form for _, path, _, form in cluster.log if path == NODE]


def cordons(before: Form, after: Form) -> bool:
    """Return whether a write cordons or uncordons the node."""
    return before.get("spec") != after.get("spec")


def marked(cluster: Cluster) -> dict[str, str]:
    """Return the annotations of the node."""
    with cluster.lock:
        return dict(cluster.node()["metadata"].get("annotations") or {})


FAR = event(not_before_ms=4_000_000_000_000)
STARTED = event(status="Started")
DRAIN_SPEC = '{"use":"kubernetes","settings":{}}'
DRAIN = PreparationStep("node", repeatable=True, spec=DRAIN_SPEC)
ME = Identity("vm_0")


@pytest.mark.slow
def test_node_says_what_happens_to_its_vm(
    cluster: Cluster, url: str, service: Service, tmp_path: Path
) -> None:
    """One write for each transition beside the cordon, and at the end nothing is left. K-1, K-3."""
    with agent_of(tmp_path, service, url):
        service.show(FAR)
        service.until(lambda: service.approvals, "approval")
        until_true(cluster, "MaintenancePlanned", "Drained")
        assert cluster.node()["spec"]["unschedulable"]
        assert marked(cluster)["forewarn.io/event-id"] == "E1"
        service.show(STARTED)
        until_true(cluster, "MaintenanceInProgress", "Drained")
        service.show()
        until_true(cluster)
        wait_until(lambda: not marked(cluster) and not cluster.node()["spec"])
        wait_until(lambda: not [path for path in cluster.objects if "leases" in path])
    kinds = [cordons(before, after) for before, after in itertools.pairwise(versions(cluster))]
    assert kinds.count(True) == 2
    assert kinds.count(False) <= 5


@pytest.mark.slow
def test_node_is_right_again_after_failures_of_both_sides(
    cluster: Cluster, url: str, service: Service, tmp_path: Path
) -> None:
    """An event that ends while neither is there leaves nothing behind. Source: K-1."""
    with agent_of(tmp_path, service, url, then="hold") as agent:
        service.show(FAR)
        until_true(cluster, "MaintenancePlanned", "Drained")
        cluster.away = True
        agent.kill()
        service.show(STARTED)
        agent.start()
        agent.until_said("node-failed")
        assert f"The node's conditions cannot be written: node: GET {url}/" in agent.log()
        agent.kill()
        service.show()
        cluster.away = False
        assert true_types(cluster) == {"MaintenancePlanned", "Drained"}
        agent.start()
        until_true(cluster)
        wait_until(lambda: not marked(cluster) and not cluster.node()["spec"])


@pytest.mark.slow
def test_uncordon_during_a_drain_is_a_decision(
    cluster: Cluster, url: str, service: Service, tmp_path: Path
) -> None:
    """No new cordon and no approval follow, also after a crash; it is reported. Source: K-3."""
    cluster.protected["web"] = (429, "the budget web needs 1 healthy pod")
    with agent_of(tmp_path, service, url) as agent:
        service.show(FAR)
        until_true(cluster, "MaintenancePlanned", "DrainInProgress")
        evictions = "POST /api/v1/namespaces/default/pods/web/eviction"
        wait_until(lambda: evictions in cluster.changes, what="the first eviction")
        with cluster.lock:
            cluster.put(NODE, **{**cluster.node(), "spec": {}})
        agent.until_said("held")
        until_true(cluster, "MaintenancePlanned")
        agent.kill()
        agent.start()
        agent.until_said("named", times=2)
        assert "was uncordoned during its drain" in agent.log()
        service.show()
        wait_until(lambda: not marked(cluster))
    assert service.approvals == []
    cordoned = [bool(form.get("spec")) for form in versions(cluster)]
    assert [cordoned for cordoned, _ in itertools.groupby(cordoned)] == [False, True, False]


@pytest.mark.slow
def test_condition_of_another_program_is_left_and_reported(
    cluster: Cluster, url: str, service: Service, tmp_path: Path
) -> None:
    """AKS's own detector holds its type, whatever it says at the moment. Source: K-2."""
    detected = {"type": "VMEventScheduled", "status": "False"}
    cluster.node()["status"]["conditions"].append(detected)
    with agent_of(tmp_path, service, url) as agent:
        types = '[kubernetes.condition_types]\nVMEventScheduled = "aks-event"\nOwn = "announced"\n'
        agent.kill()
        agent.config.write_text(types + agent.config.read_text())
        agent.start()
        service.show(FAR)
        until_true(cluster, "Own")
        agent.until_said("node-shared")
        assert "VMEventScheduled" in agent.log()
    assert detected in cluster.node()["status"]["conditions"]


def test_notice_follows_the_event_and_its_drain() -> None:
    """Planned until the start, in progress until the end; drained also while the VM restarts."""
    engine = core((DRAIN,))

    def facts() -> object:
        notice = notice_of(engine, ME)
        return notice and notice["facts"]

    assert facts() is None
    engine.step(polled(1, event()), NOW)
    assert facts() == ["draining", "planned"]
    engine.step(HookEnded("node", 0), NOW + 1)
    assert facts() == ["drained", "planned"]
    engine.step(ApprovalEnded("E1", accepted=True), NOW + 2)
    engine.step(polled(2, event(status="Started")), NOW + 3)
    assert facts() == ["drained", "in-progress"]
    again = restarted(engine, (DRAIN,))
    again.step(Resumed({}, rebooted=True), NOW + 4)
    notice = notice_of(again, ME)
    assert notice is not None
    assert notice["facts"] == ["drained", "in-progress"]
    engine.step(polled(3), NOW + 5)
    assert facts() is None


def test_failed_drain_is_not_drained() -> None:
    """Pods are left on the node, whatever `on_failure` says."""
    for failure in ("hold", "go-on"):
        step = PreparationStep("node", on_failure=failure, spec=DRAIN_SPEC)
        engine = core((step,))
        engine.step(polled(1, event()), NOW)
        engine.step(HookEnded("node", 1), NOW + 1)
        notice = notice_of(engine, ME)
        assert notice is not None
        assert notice["facts"] == ["planned"]


def test_checks_repeat_only_while_a_notice_exists() -> None:
    """A quiet node costs nothing; a node with an event is checked every 15 s. Source: K-1."""
    engine, node = core((DRAIN,)), NodeConditions({"conditions": True})
    assert node.job(engine, ME, NOW) is None
    engine.step(polled(1), NOW)
    first = node.job(engine, ME, NOW)
    assert first is not None
    assert first["notice"] is None
    assert node.job(engine, ME, NOW) is None
    node.ended(failed=True, now_ms=NOW)
    assert node.next_ms() == NOW + RETRY_MS
    assert node.job(engine, ME, NOW + RETRY_MS) == first
    node.ended(failed=False, now_ms=NOW)
    assert node.job(engine, ME, NOW + 10 * CHECK_MS) is None
    engine.step(polled(2, event()), NOW)
    assert node.job(engine, ME, NOW) is not None
    node.ended(failed=False, now_ms=NOW)
    assert node.job(engine, ME, NOW + CHECK_MS - 1) is None
    assert node.job(engine, ME, NOW + CHECK_MS) is not None


def test_failed_renewal_is_all_that_a_job_prints(
    cluster: Cluster, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The agent logs the output of a failed job, and reads that of one that succeeds."""
    (tmp_path / "token").write_text("right")
    settings = {"server": url, "token_file": str(tmp_path / "token"), "node": "h1"}
    form = {"settings": settings, "notice": None}
    cluster.faults = [(404, "no node"), (500, "not now")]
    with pytest.raises(CallUnanswered, match="500"):
        node_job.main(form)
    assert capsys.readouterr().out == ""
    node_job.main(form)
    assert json.loads(capsys.readouterr().out) == {"foreign": [], "writer": ""}
