"""The kubernetes driver on a small server that speaks the documented JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from forewarn_conformance.driver_checks import run_driver_checks
from forewarn_conformance.driver_trial import Subject
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_drivers import Task
from forewarn_drivers.task_records import TaskForgotten
from forewarn_kubernetes.driver import KubernetesDriver, create
from forewarn_kubernetes.records import DONE, KEPT_MS
from kubernetes_tests.tasks import MOVE, RESTART, carried_out, ended
from tests.drivers.tasks import ended as ended_by_drivers
from tests.drivers.tasks import now_ms, task
from tests.kubernetes.small_cluster import (
    PODS,
    REBOOT,
    VMIS,
    Cluster,
    Form,
    node_status,
)
from tests.waiting import wait_until


@pytest.mark.parametrize("vm", ["", "default.a"])
def test_driver_passes_every_check(cluster: Cluster, options: dict[str, object], vm: str) -> None:
    """Its reboots of a node happen once, whoever asks how often. Source: R-2, R-6."""

    def make() -> KubernetesDriver:
        return create("kubernetes", {**options, "poll_s": 0.01})

    effects = None if vm else (lambda name: cluster.effects[name])
    subject = Subject(make, "h1", vm, effects=effects)
    results = list(run_driver_checks(subject))
    assert [each for each in results if each.verdict.value == "failed"] == []
    assert sum(each.verdict.value == "passed" for each in results) >= (8 if vm else 13), results


def test_node_is_drained_rebooted_and_freed(cluster: Cluster, driver: KubernetesDriver) -> None:
    """Pods go through the Eviction API; those of daemon sets stay. Source: R-2."""
    cluster.pod("web")
    cluster.pod("agent", kind="DaemonSet")
    assert carried_out(driver, task(vms=())).done
    assert [each for each in cluster.changes if each.endswith("/eviction")] == [
        "POST /api/v1/namespaces/default/pods/web/eviction"
    ]
    assert cluster.effects["op-12/1"] == 1
    assert not cluster.node()["spec"]
    assert cluster.node()["metadata"]["annotations"] == {}


def test_node_is_rebooted_as_its_own_vm(cluster: Cluster, driver: KubernetesDriver) -> None:
    """Where there is no KubeVirt a node's VM is the node; it cannot be moved. Source: R-4."""
    cluster.has_kubevirt = False
    assert carried_out(driver, task(vms=("h1",), of_vm=True)).done
    assert cluster.effects["op-12/1"] == 1
    move = task(13, **{**MOVE, "vms": ("h1",)})
    assert "cannot carry out live-migration" in carried_out(driver, move).failed
    stop = task(14, cause=Cause.EVICTION, impact=Impact.PREEMPT, vms=("h1",))
    assert "cannot carry out eviction" in carried_out(driver, stop).failed


def test_drain_waits_for_a_budget(cluster: Cluster, driver: KubernetesDriver) -> None:
    """What a budget protects is not deleted; people are told which budget. Source: R-1."""
    cluster.pod("web")
    cluster.pod("db")
    cluster.put(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web-budget",
        spec={"selector": {"matchLabels": {"app": "web"}}},
        status={"disruptionsAllowed": 0},
    )
    cluster.protected = {"web": (429, "too soon"), "db": (500, "more than one budget")}
    given = task(vms=())
    driver.begin(given)
    said = driver.progress(given, now_ms())
    assert "default/web waits for budget web-budget" in said.waits
    assert "default/db cannot be evicted: more than one budget" in said.waits
    assert said.text == "draining h1: 2 pods left"
    driver.abort(given)
    assert not cluster.node()["spec"]
    assert "op-12/1" not in cluster.effects


def test_pod_nobody_starts_again_is_in_the_way(cluster: Cluster, driver: KubernetesDriver) -> None:
    """It fails before anything is evicted."""
    cluster.pod("web")
    cluster.pod("lonely", kind="")
    assert "default/lonely" in carried_out(driver, task(vms=())).failed
    assert not any(each.endswith("/eviction") for each in cluster.changes)


def test_node_of_people_stays_theirs(cluster: Cluster, driver: KubernetesDriver) -> None:
    """A node that somebody else has cordoned stays cordoned."""
    cluster.node()["spec"] = {"unschedulable": True}
    assert carried_out(driver, task(vms=())).done
    assert cluster.node()["spec"] == {"unschedulable": True}


def test_without_an_annotation_people_reboot(cluster: Cluster, options: dict[str, object]) -> None:
    """The driver waits for another boot of the node, and says for whom."""
    driver = create("kubernetes", {**options, "reboot_annotation": ""})
    given = task(vms=())
    driver.begin(given)
    assert driver.progress(given, now_ms()).waits == "an operator to reboot h1"
    cluster.node()["status"]["nodeInfo"]["bootID"] = "boot-2"
    assert driver.progress(given, now_ms()).done


COMMAND = "echo {host} {address} >> %s/log; while ! test -e %s/go; do sleep 0.01; done"


def with_command(options: dict[str, object], tmp_path: Path, end: str = "") -> dict[str, object]:
    """Return options with a command that notes its run, and goes on when the file `go` is there."""
    words = ["sh", "-c", COMMAND.replace("%s", str(tmp_path)) + end]
    return {**options, "reboot_annotation": "", "reboot_command": words}


def test_node_is_rebooted_by_a_command_once(
    cluster: Cluster, options: dict[str, object], tmp_path: Path
) -> None:
    """A later process waits for the boot, and does not run the command again. Source: R-2."""
    node = cluster.node()
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}]
    options = with_command(options, tmp_path)
    driver, given = create("kubernetes", options), task(vms=())
    driver.begin(given)
    wait_until(lambda: driver.progress(given, now_ms()).text and (tmp_path / "log").exists())
    later = create("kubernetes", options)
    for each in (driver, later):
        assert "waiting for drained h1 to reboot" in each.progress(given, now_ms()).text
    node["status"] |= node_status("boot-2")
    assert ended(later, given).done
    assert (tmp_path / "log").read_text() == "h1 10.0.0.1\n"
    (tmp_path / "go").touch()


def test_command_that_fails_says_why(
    cluster: Cluster, options: dict[str, object], tmp_path: Path
) -> None:
    """A retry runs it again, once the one before has ended. Source: L-8."""
    driver = create("kubernetes", with_command(options, tmp_path, "; echo no BMC >&2; exit 3"))
    driver.begin(task(vms=()))
    wait_until(lambda: driver.progress(task(vms=()), now_ms()).text and (tmp_path / "log").exists())
    again = task(vms=(), attempt=2)
    driver.begin(again)
    assert "previous attempt" in driver.progress(again, now_ms()).waits
    (tmp_path / "go").touch()
    said = ended_by_drivers(driver, again)
    assert "reboot_command of host h1 failed: sh ended with status 3: no BMC" in said.failed
    assert (tmp_path / "log").read_text().count("h1 h1") == 2
    assert cluster.node()["spec"] == {"unschedulable": True}


def test_node_that_does_not_come_back_is_told(options: dict[str, object], tmp_path: Path) -> None:
    """The command has ended well, and the node has not booted."""
    driver, given = create("kubernetes", with_command(options, tmp_path)), task(vms=())
    (tmp_path / "go").touch()
    driver.begin(given)
    assert driver.progress(given, now_ms()).again_ms
    assert "become ready within 1800 s" in driver.progress(given, now_ms() * 2).failed


def test_node_has_one_way_to_be_rebooted() -> None:
    """Two would reboot it twice."""
    both = {"reboot_annotation": REBOOT, "reboot_command": ["reboot"], "server": "https://x"}
    with pytest.raises(ValueError, match="both set"):
        create("kubernetes", both)


def test_records_of_long_ended_operations_are_pruned(
    cluster: Cluster, driver: KubernetesDriver, options: dict[str, object]
) -> None:
    """After 90 days; that of an operation that never ended stays, and the writer's. R-2."""
    long_ago_ms = now_ms() - KEPT_MS - 1
    for number in (1, 2, 3):
        given = task(number, **RESTART)
        driver.begin(given)
        path = next(
            each for each in cluster.objects if f"/forewarn-kubernetes-op-{number}-" in each
        )
        changed_ms = long_ago_ms if number < 3 else now_ms()
        attempt: dict[str, Any] = {} if number == 2 else {DONE: {}}
        data = {"attempts": {"1": attempt}, "changed_ms": changed_ms}
        cluster.objects[path]["data"] = {"state": json.dumps(data)}
    later = create("kubernetes", options)
    later.begin(task(4, **RESTART))

    def kept() -> set[str]:
        names = [each.rpartition("/")[2] for each in cluster.objects if "configmaps" in each]
        return {"-".join(each.split("-")[2:4]) for each in names}

    wait_until(lambda: kept() == {"writer", "op-2", "op-3", "op-4"})
    driver.abort(task(2, **RESTART))
    assert "op-2" in kept()


def uncordon(cluster: Cluster) -> None:
    """Do what `kubectl uncordon` does: the annotation of the driver stays."""
    cluster.put("/api/v1/nodes/h1", **{**cluster.node(), "spec": {}})


def cordon(cluster: Cluster) -> None:
    """Do what `kubectl cordon` does."""
    cluster.put("/api/v1/nodes/h1", **{**cluster.node(), "spec": {"unschedulable": True}})


def draining(cluster: Cluster, driver: KubernetesDriver, *, foreign: bool = False) -> Task:
    """Return a task whose drain waits for a pod."""
    if foreign:
        cordon(cluster)
    cluster.pod("web")
    cluster.protected = {"web": (429, "too soon")}
    given = task(vms=())
    driver.begin(given)
    assert "1 pods left" in driver.progress(given, now_ms()).text
    return given


@pytest.mark.parametrize("foreign", [False, True], ids=["own cordon", "cordon of a person"])
def test_uncordoned_node_is_neither_drained_nor_rebooted(
    cluster: Cluster, driver: KubernetesDriver, *, foreign: bool
) -> None:
    """A manual uncordon is a decision: the driver reports it, and waits for a person. R-1."""
    given = draining(cluster, driver, foreign=foreign)
    uncordon(cluster)
    cluster.protected = {}
    for _ in range(3):
        assert "cordon h1 again" in driver.progress(given, now_ms()).waits
    assert f"{PODS}/web" in cluster.objects, "nothing is evicted from a node in use"
    assert not cluster.effects
    cordon(cluster)
    assert ended(driver, given).done
    assert cluster.effects["op-12/1"] == 1
    assert cluster.node()["spec"] == ({"unschedulable": True} if foreign else {})


def test_node_is_checked_right_before_its_reboot(
    cluster: Cluster, driver: KubernetesDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody uncordons it after its last pod has gone. Source: R-1."""
    given = task(vms=())
    driver.begin(given)
    answer = cluster.answer

    def uncordoned_after_the_drain(verb: str, target: str, form: Form) -> tuple[int, Form]:
        said = answer(verb, target, form)
        if target.startswith("/api/v1/pods?"):
            uncordon(cluster)
            cluster.pod("new")
        return said

    monkeypatch.setattr(cluster, "answer", uncordoned_after_the_drain)
    assert "cordon h1 again" in driver.progress(given, now_ms()).waits
    assert not cluster.effects
    monkeypatch.undo()
    cordon(cluster)
    assert ended(driver, given).done
    assert f"{PODS}/new" not in cluster.objects, "what came meanwhile is evicted first"
    assert cluster.effects["op-12/1"] == 1


def test_reboot_is_not_requested_of_a_node_that_changes(
    cluster: Cluster, driver: KubernetesDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An uncordon between the check and the request makes the API server refuse. Source: R-1."""
    given = task(vms=())
    driver.begin(given)
    answer = cluster.answer

    def uncordoned_at_last(verb: str, target: str, form: Form) -> tuple[int, Form]:
        if verb == "PATCH" and REBOOT in form["metadata"].get("annotations", {}):
            uncordon(cluster)
        return answer(verb, target, form)

    monkeypatch.setattr(cluster, "answer", uncordoned_at_last)
    assert "meantime" in driver.progress(given, now_ms()).text
    monkeypatch.undo()
    assert "cordon h1 again" in driver.progress(given, now_ms()).waits
    assert not cluster.effects


def test_command_does_not_run_for_an_uncordoned_node(
    cluster: Cluster, options: dict[str, object], tmp_path: Path
) -> None:
    """The reboot command comes after the check, as the annotation does. Source: R-1."""
    driver = create("kubernetes", with_command(options, tmp_path))
    given = draining(cluster, driver)
    uncordon(cluster)
    cluster.drop(f"{PODS}/web")
    assert "cordon h1 again" in driver.progress(given, now_ms()).waits
    assert not (tmp_path / "log").exists()
    cordon(cluster)
    assert driver.progress(given, now_ms()).text
    wait_until((tmp_path / "log").exists)
    (tmp_path / "go").touch()


def test_retry_cordons_again(cluster: Cluster, driver: KubernetesDriver) -> None:
    """An operator who retries has decided. Source: L-8."""
    cluster.pod("lonely", kind="")
    assert carried_out(driver, task(vms=())).failed
    uncordon(cluster)
    cluster.drop(f"{PODS}/lonely")
    assert carried_out(driver, task(vms=(), attempt=2)).done


def test_cancel_of_a_waiting_drain_leaves_the_node_open(
    cluster: Cluster, driver: KubernetesDriver
) -> None:
    """The operator agrees with who uncordoned it. Source: R-1."""
    given = draining(cluster, driver)
    uncordon(cluster)
    driver.progress(given, now_ms())
    driver.abort(given)
    assert not cluster.node()["spec"]
    assert cluster.node()["metadata"]["annotations"] == {}


@pytest.mark.parametrize("fault", [(401, ""), (429, "busy"), (500, ""), (503, ""), (0, "")])
def test_api_server_may_be_away(
    cluster: Cluster, driver: KubernetesDriver, fault: tuple[int, str]
) -> None:
    """The work goes on when it answers; after a while people are told."""
    given = task(vms=())
    driver.begin(given)
    cluster.faults = [fault, fault]
    start_ms = now_ms()
    problem = "sheds load" if fault[0] == 429 else "does not answer"
    assert problem in driver.progress(given, start_ms).text
    assert problem in driver.progress(given, start_ms + 301_000).failed
    assert ended(driver, given).done


def test_replaced_token_is_read(cluster: Cluster, driver: KubernetesDriver, tmp_path: Path) -> None:
    """Tokens of service accounts expire, and are replaced in their file."""
    given = task(vms=())
    driver.begin(given)
    cluster.token = "newer"
    assert "Unauthorized" in driver.progress(given, now_ms()).text
    (tmp_path / "token").write_text("newer")
    assert ended(driver, given).done


def test_conflict_is_tried_again_and_refusal_told(
    cluster: Cluster, driver: KubernetesDriver
) -> None:
    """Somebody else changes objects, too; a missing right is for people."""
    given = task(vms=())
    driver.begin(given)
    cluster.faults = [(409, "modified")]
    assert driver.progress(given, now_ms()).again_ms
    cluster.faults = [(403, "may not get configmaps")]
    assert "may not get configmaps (403)" in driver.progress(given, now_ms()).failed


def test_unknown_task_and_unknown_work(driver: KubernetesDriver) -> None:
    """Neither is done."""
    with pytest.raises(TaskForgotten):
        driver.progress(task(), now_ms())
    given = task(cause=Cause.HOST_UPDATE, impact=Impact.FREEZE)
    assert "cannot carry out host-update" in carried_out(driver, given).failed
    assert "no node h9" in carried_out(driver, task(13, host="h9")).failed


def test_cluster_is_discovered(cluster: Cluster, driver: KubernetesDriver) -> None:
    """Nodes, zones, VMs and their groups. Source: R-4."""
    cluster.node("h2")["metadata"]["labels"] = {
        "topology.kubernetes.io/zone": "2",
        "forewarn.dev/fault-domain": "7",
    }
    cluster.objects[f"{VMIS}/a"]["metadata"]["labels"] = {"forewarn.dev/group": "web"}
    found = driver.discover()
    assert found["hosts"] == {
        "h1": {"fault_domain": 0, "update_domain": 0, "driver": "kubernetes", "labels": {}},
        "h2": {
            "fault_domain": 7,
            "update_domain": 1,
            "driver": "kubernetes",
            "zone": "2",
            "labels": {},
        },
    }
    assert found["groups"] == {"default.web": {}}
    uids = {each: cluster.objects[f"{VMIS}/{each}"]["metadata"]["uid"] for each in "ab"}
    ids = {each: {"vm_id": uid, "instance_id": uid} for each, uid in uids.items()}
    assert found["vms"] == {
        "default.a": {"host": "h1", "group": "default.web", **ids["a"]},
        "default.b": {"host": "h1", **ids["b"]},
    }


def test_token_does_not_cross_a_network_in_the_clear() -> None:
    """Only TLS, or this machine itself."""
    with pytest.raises(ValueError, match="neither https"):
        create("kubernetes", {"server": "http://cluster.example"})
