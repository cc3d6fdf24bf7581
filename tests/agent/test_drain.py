"""The drain of a node against a small cluster: order, budgets, deadline, and what is undone."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.agent.preparations import kubernetes
from forewarn.agent.preparations.kubernetes import EXCLUDED, MARK, NodeUncordoned, PodsLeft
from forewarn_base.clock import SystemClock
from tests.agent.programs import EVENT
from tests.kubernetes.small_cluster import PODS, Cluster, served

NODE = "/api/v1/nodes/h1"
HOOK: dict[str, object] = {"name": "vm_0", "event": EVENT}
BUDGET = "The disruption budget web needs 1 healthy pods and has 1 currently"


@pytest.fixture
def cluster() -> Cluster:
    """Give a cluster of two nodes without pods."""
    return Cluster()


@pytest.fixture
def settings(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, object]]:
    """Serve the cluster, and give a step ten minutes for its node."""
    (tmp_path / "token").write_text("right")
    monkeypatch.setattr(kubernetes, "ROUND_S", 0.01)
    monkeypatch.setenv("FOREWARN_STATE", str(tmp_path))
    monkeypatch.setenv("FOREWARN_DEADLINE", str(SystemClock().now_ms() // 1000 + 600))
    with served(cluster) as url:
        yield {"node": "h1", "server": url, "token_file": str(tmp_path / "token")}


@pytest.fixture
def near_deadline(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the deadline come near as soon as the pods have been listed twice."""
    monkeypatch.setattr(kubernetes, "seconds_left", lambda: 600 if len(cluster.lists) < 2 else 10)


def left(cluster: Cluster) -> set[str]:
    """Return the names of the pods on all nodes."""
    return {path.removeprefix(f"{PODS}/") for path in cluster.objects if path.startswith(PODS)}


def order(cluster: Cluster) -> list[str]:
    """Return the pods in the order in which they left."""
    return [path.rpartition("/")[2] for _, path, kind, _ in cluster.log if kind == "DELETED"]


def protect(cluster: Cluster, name: str) -> None:
    """Have a budget refuse the eviction of a pod."""
    cluster.protected[name] = (429, BUDGET)


def test_pods_of_jobs_are_last(cluster: Cluster, settings: dict[str, object]) -> None:
    """A job may end meanwhile; daemon sets and mirror pods are left where they are."""
    for name, kind in (("a-job", "Job"), ("web", "ReplicaSet"), ("logs", "DaemonSet")):
        cluster.pod(name, kind=kind)
    cluster.pod("mirror")
    cluster.objects[f"{PODS}/mirror"]["metadata"]["annotations"] = {kubernetes.MIRROR: "x"}
    assert kubernetes.prepare(settings, HOOK) == "h1 is cordoned; 2 pods were evicted"
    assert order(cluster) == ["web", "a-job"]
    assert left(cluster) == {"logs", "mirror"}


def test_job_that_is_waited_for_is_evicted_near_the_deadline(
    cluster: Cluster,
    settings: dict[str, object],
    near_deadline: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It keeps its node as long as it can."""
    cluster.pod("a-job", kind="Job")
    kubernetes.prepare({**settings, "jobs": "wait"}, HOOK)
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == "pods left: 1 (default/a-job is a job, and last)"
    assert left(cluster) == set()


def test_drain_names_the_budget_that_is_in_its_way(
    cluster: Cluster, settings: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """The budget is honoured until the deadline; then the step does not succeed."""
    cluster.pod("web")
    protect(cluster, "web")
    with pytest.raises(PodsLeft, match="default/web waits: The disruption budget web"):
        kubernetes.prepare({**settings, "wait_s": 0.2}, HOOK)
    assert left(cluster) == {"web"}
    said = capsys.readouterr().out.splitlines()
    assert said == [f"pods left: 1 (default/web waits: {BUDGET})"]


def test_policy_deletes_what_budgets_keep_at_the_deadline(
    cluster: Cluster,
    settings: dict[str, object],
    near_deadline: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Budgets are honoured until then, because the VM goes in any case."""
    for name in ("web", "db"):
        cluster.pod(name)
    protect(cluster, "web")
    chosen = {**settings, "at_deadline": "delete"}
    assert kubernetes.prepare(chosen, HOOK) == "h1 is cordoned; 2 pods were evicted"
    first, *_, last = capsys.readouterr().out.splitlines()
    assert "default/web waits" in first
    assert last == "pods left: 1 (default/web is deleted at the deadline)"
    assert left(cluster) == set()


def test_one_write_cordons_taints_and_labels(cluster: Cluster, settings: dict[str, object]) -> None:
    """Load balancers take the node out at the same time; one write undoes all of it. K-3."""
    chosen = {**settings, "taint": True, "exclude_from_load_balancers": True}
    kubernetes.prepare(chosen, HOOK)
    kubernetes.prepare(chosen, HOOK)
    assert EXCLUDED in cluster.node()["metadata"]["labels"]
    assert kubernetes.recover(chosen, HOOK) == "h1: cordon, taint, label removed"
    versions = [form for _, path, _, form in cluster.log if path == NODE]
    assert len(versions) == 3
    first, _, last = versions
    assert not last["spec"]
    assert not last["metadata"]["labels"]
    assert last["status"] == first["status"]


def test_what_others_have_set_is_not_undone(cluster: Cluster, settings: dict[str, object]) -> None:
    """A cordon, a taint and a label of somebody else stay. Source: K-3."""
    taints = [{"key": "mine", "effect": "NoSchedule"}]
    spec = {"unschedulable": True, "taints": taints}
    cluster.put(NODE, metadata={"labels": {EXCLUDED: ""}}, spec=spec, status={})
    chosen = {**settings, "taint": True, "exclude_from_load_balancers": True}
    kubernetes.prepare(chosen, HOOK)
    assert len(cluster.node()["spec"]["taints"]) == 2
    kubernetes.recover(chosen, HOOK)
    assert cluster.node()["spec"] == spec
    assert cluster.node()["metadata"]["labels"] == {EXCLUDED: ""}


def uncordon(cluster: Cluster) -> None:
    """Uncordon the node as kubectl does, which leaves annotations."""
    cluster.put(NODE, **{**cluster.node(), "spec": {}})


def test_uncordon_after_the_drain_holds_the_approval(
    cluster: Cluster, settings: dict[str, object]
) -> None:
    """New pods may be there, until a person cordons the node again. Source: K-3."""
    kubernetes.prepare(settings, HOOK)
    assert kubernetes.approve(settings, HOOK) == "h1 is cordoned"
    uncordon(cluster)
    with pytest.raises(NodeUncordoned):
        kubernetes.approve(settings, HOOK)
    cluster.put(NODE, **{**cluster.node(), "spec": {"unschedulable": True}})
    assert kubernetes.approve(settings, HOOK) == "h1 is cordoned"
    kubernetes.recover(settings, HOOK)
    assert cluster.node()["spec"] == {"unschedulable": True}
    assert MARK not in cluster.node()["metadata"]["annotations"]


def test_own_cordon_is_kept_up_before_the_drain(
    cluster: Cluster, settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that was interrupted before its drain cordons the node again. Source: K-3."""
    only_cordon = {**settings, "evict": False}
    kubernetes.prepare(only_cordon, HOOK)
    uncordon(cluster)
    kubernetes.prepare(only_cordon, HOOK)
    assert cluster.node()["spec"]["unschedulable"]


def test_cordon_of_another_owner_is_left(cluster: Cluster, settings: dict[str, object]) -> None:
    """A setting names the owner of a cordon; two owners do not undo one another. Source: K-3."""
    kubernetes.prepare({**settings, "owner": "control-plane"}, HOOK)
    (Path(str(settings["token_file"])).parent / "notes.json").unlink()
    kubernetes.prepare(settings, HOOK)
    kubernetes.recover(settings, HOOK)
    assert cluster.node()["spec"]["unschedulable"]
    assert cluster.node()["metadata"]["annotations"][MARK] == "control-plane"


@pytest.mark.parametrize(
    ("kind", "duration_s", "drained"),
    [("Freeze", 5, False), ("Freeze", 30, True), ("Freeze", -1, True), ("Reboot", 5, True)],
)
def test_short_freeze_needs_no_drain(
    cluster: Cluster, settings: dict[str, object], kind: str, duration_s: int, *, drained: bool
) -> None:
    """Pods survive a pause of seconds; an unknown length is never short. Source: C-4."""
    cluster.pod("web")
    happens: dict[str, Any] = {**EVENT, "event_type": kind, "duration_s": duration_s}
    chosen = {**settings, "freeze_tolerated_s": 9}
    kubernetes.prepare(chosen, {"name": "vm_0", "event": happens})
    assert (left(cluster) == set()) is drained
    assert bool(cluster.node().get("spec")) is drained
    kubernetes.recover(chosen, HOOK)
    assert not cluster.node().get("spec")


def test_drain_goes_on_after_answers_that_failed(
    cluster: Cluster, settings: dict[str, object]
) -> None:
    """An API server that is upgraded meanwhile has refused nothing."""
    cluster.pod("web")
    for status in itertools.islice(itertools.cycle((503, 0, 429)), 6):
        cluster.faults.append((status, "not now"))
    kubernetes.prepare(settings, HOOK)
    assert left(cluster) == set()
