"""KubeVirt's VMs in the hands of the kubernetes driver: migrated, restarted and stopped."""

import pytest

from forewarn_base.values import replace
from forewarn_core.fleet.impact import Cause, Impact
from forewarn_core.fleet.lifecycle import FollowedBy
from forewarn_drivers import Task
from forewarn_drivers.task_records import TaskAborted, TaskOfLaterWriter, TaskSuperseded
from forewarn_kubernetes.driver import KubernetesDriver, create
from forewarn_kubernetes.nodes import HOSTNAME, MARK
from kubernetes_tests.tasks import MOVE, RESTART, carried_out, ended
from tests.drivers.tasks import now_ms, task
from tests.kubernetes.small_cluster import (
    MIGRATIONS,
    VMIS,
    Cluster,
)


def test_vms_are_migrated_alive(cluster: Cluster, driver: KubernetesDriver) -> None:
    """Each by one migration, named after the task; the node is cordoned meanwhile."""
    given = task(**MOVE)
    driver.begin(given)
    said = driver.progress(given, now_ms())
    assert "migrating default.a" in said.text
    assert cluster.node()["spec"] == {"unschedulable": True}
    assert ended(driver, given).done
    made = [each for each in cluster.changes if each == f"POST {MIGRATIONS}"]
    assert len(made) == 2
    assert {cluster.objects[f"{VMIS}/{vm}"]["status"]["nodeName"] for vm in "ab"} == {"h2"}
    assert not cluster.node()["spec"]


def test_emptied_node_takes_nobody_before_the_work_that_follows(
    cluster: Cluster, driver: KubernetesDriver
) -> None:
    """The maintenance's own work on the node gives it back. Source: F-1, R-5."""
    given = task(**MOVE)
    move = replace(given.operation, maintenance=9, followed_by=FollowedBy.WORK)
    assert carried_out(driver, Task(move, given.generation)).done
    assert cluster.node()["spec"] == {"unschedulable": True}
    work = replace(move, number=99, vms=(), followed_by=FollowedBy.NOTHING)
    assert carried_out(driver, Task(work, given.generation)).done
    assert not cluster.node()["spec"]


def back(cluster: Cluster) -> Task:
    """Return the return of VM a from h2 to h1; the VM is on h2."""
    cluster.objects[f"{VMIS}/a"]["status"]["nodeName"] = "h2"
    of_one = {"host": "h2", "vms": ("default.a",), "of_vm": True, "destination": "h1"}
    given = task(**MOVE)
    return Task(replace(given.operation, **of_one), given.generation)


def test_vm_returns_to_its_own_node(cluster: Cluster, driver: KubernetesDriver) -> None:
    """KubeVirt is asked for that node, and the other node stays open. Source: F-1."""
    assert carried_out(driver, back(cluster)).placements == {"default.a": "h1"}
    assert cluster.objects[f"{VMIS}/a"]["status"]["nodeName"] == "h1"
    assert not [each for each in cluster.changes if "nodes/" in each]


def test_node_of_a_return_is_selected_by_its_label(
    cluster: Cluster, driver: KubernetesDriver
) -> None:
    """Some clouds give a node another host name than the node's own name. Source: F-1."""
    cluster.node("h1")["metadata"]["labels"] = {HOSTNAME: "ip-10-0-0-1"}
    assert carried_out(driver, back(cluster)).placements == {"default.a": "h1"}


def test_return_to_a_node_that_is_gone_fails(cluster: Cluster, driver: KubernetesDriver) -> None:
    """No migration is created that could never find its node. Source: F-1."""
    given = back(cluster)
    cluster.drop("/api/v1/nodes/h1")
    assert "no node h1" in carried_out(driver, given).failed
    assert not [path for path in cluster.objects if path.startswith(MIGRATIONS)]


def test_vm_stays_where_kubevirt_cannot_choose_a_node(
    cluster: Cluster, driver: KubernetesDriver
) -> None:
    """A KubeVirt before 1.6 drops the selector; the VM is not moved to a third node. F-1."""
    cluster.pruned = ("addedNodeSelector",)
    said = carried_out(driver, back(cluster))
    assert "KubeVirt 1.6" in said.failed
    assert cluster.objects[f"{VMIS}/a"]["status"]["nodeName"] == "h2"
    assert not [path for path in cluster.objects if path.startswith(MIGRATIONS)]


def test_target_of_a_migration_is_told(cluster: Cluster, driver: KubernetesDriver) -> None:
    """As soon as KubeVirt has chosen it, and also when the end is asked for twice. Source: M-1."""
    cluster.migrations_go_on = False
    given = task(**MOVE)
    driver.begin(given)
    assert driver.progress(given, now_ms()).placements == {}
    made = next(form for path, form in cluster.objects.items() if path.endswith("-a"))
    chosen = {"migrationUid": made["metadata"]["uid"], "targetNode": "h2"}
    cluster.objects[f"{VMIS}/a"]["status"]["migrationState"] = chosen
    assert driver.progress(given, now_ms()).placements == {"default.a": "h2"}
    cluster.migrations_go_on = True
    both = {"default.a": "h2", "default.b": "h2"}
    assert ended(driver, given).placements == both
    assert driver.progress(given, now_ms()).placements == both


def test_target_of_an_earlier_migration_is_not_told(
    cluster: Cluster, driver: KubernetesDriver
) -> None:
    """A VMI keeps the state of its last migration. Source: M-1."""
    cluster.migrations_go_on = False
    before = {"migrationUid": "uid-of-another", "targetNode": "h1"}
    cluster.objects[f"{VMIS}/a"]["status"]["migrationState"] = before
    given = task(**MOVE)
    driver.begin(given)
    driver.progress(given, now_ms())
    assert driver.progress(given, now_ms()).placements == {}


def test_node_of_a_vm_that_was_restarted_elsewhere_is_told(driver: KubernetesDriver) -> None:
    """A redeploy takes it to the node that Kubernetes has chosen. Source: M-1."""
    away = task(cause=Cause.REDEPLOY, impact=Impact.REDEPLOY, of_vm=True, vms=("default.a",))
    assert carried_out(driver, away).placements == {"default.a": "h2"}
    again = task(13, cause=Cause.REBOOT, of_vm=True, vms=("default.b",), host="h1")
    assert carried_out(driver, again).done


def test_migration_is_found_again_by_a_later_writer(
    cluster: Cluster, driver: KubernetesDriver, options: dict[str, object]
) -> None:
    """On any machine: nothing is kept on a disk. Source: R-2."""
    given = task(**MOVE)
    driver.begin(given)
    driver.progress(given, now_ms())
    later = task(**MOVE, generation=2)
    assert carried_out(create("kubernetes", options), later).done
    assert cluster.changes.count(f"POST {MIGRATIONS}") == 2
    with pytest.raises(TaskSuperseded):
        driver.progress(given, now_ms())


def test_writer_of_a_store_that_has_gone_back_is_told(driver: KubernetesDriver) -> None:
    """The cluster remembers a later writer of the store; one of another proves nothing. H-10."""
    given = task(**MOVE)
    driver.begin(Task(given.operation, 7, "epoch"))
    with pytest.raises(TaskOfLaterWriter):
        driver.begin(Task(given.operation, 6, "epoch"))
    with pytest.raises(TaskSuperseded) as refused:
        driver.begin(Task(given.operation, 6, "another"))
    assert not isinstance(refused.value, TaskOfLaterWriter)


def test_retry_takes_over_a_migration(cluster: Cluster, driver: KubernetesDriver) -> None:
    """One that the attempt before has begun goes on; KubeVirt allows one at a time. L-8."""
    cluster.migrations_go_on = False
    given = task(**MOVE)
    driver.begin(given)
    driver.progress(given, now_ms())
    cluster.migrations_go_on = True
    assert carried_out(driver, task(attempt=2, **MOVE)).done
    assert cluster.changes.count(f"POST {MIGRATIONS}") == 2


def test_abort_ends_migrations(cluster: Cluster, driver: KubernetesDriver) -> None:
    """KubeVirt ends a migration that is deleted; the node takes pods again. Source: L-7."""
    cluster.migrations_go_on = False
    given = task(**MOVE)
    driver.begin(given)
    driver.progress(given, now_ms())
    driver.abort(given)
    assert not any(each.startswith(MIGRATIONS) for each in cluster.objects)
    assert MARK not in cluster.node()["metadata"]["annotations"]
    with pytest.raises(TaskAborted):
        driver.progress(given, now_ms())


def test_migration_that_takes_too_long(cluster: Cluster, options: dict[str, object]) -> None:
    """It is ended and fails, or the VM is restarted on another node."""
    cluster.migrations_go_on, cluster.created = False, "2026-01-01T00:00:00Z"
    given = task(**MOVE)
    assert "migration after 1800 s" in carried_out(create("kubernetes", options), given).failed
    other = create("kubernetes", {**options, "restart_when_late": True})
    waiting = task(13, **MOVE)
    other.begin(waiting)
    assert "which has cordoned h1" in other.progress(waiting, now_ms()).waits
    other.abort(waiting)
    other.abort(given)
    assert carried_out(other, task(14, **MOVE)).done
    assert cluster.effects["restart a"] == 1
    assert cluster.objects[f"{VMIS}/a"]["status"]["nodeName"] == "h2"


def test_migration_that_fails_says_why(cluster: Cluster, driver: KubernetesDriver) -> None:
    """In KubeVirt's words."""
    given = task(**MOVE)
    driver.begin(given)
    driver.progress(given, now_ms())
    made = next(form for path, form in cluster.objects.items() if path.endswith("-a"))
    made["status"] = {"phase": "Failed"}
    state = {"failureReason": "no room", "migrationUid": made["metadata"]["uid"]}
    cluster.objects[f"{VMIS}/a"]["status"]["migrationState"] = state
    assert "default.a failed: no room" in ended(driver, given).failed


def test_vm_is_restarted_once_and_stopped(cluster: Cluster, driver: KubernetesDriver) -> None:
    """A retry restarts it again, a repeated call does not."""
    given = task(**RESTART)
    assert carried_out(driver, given).done
    assert carried_out(driver, given).done
    assert cluster.effects["restart a"] == 1
    stopping = task(13, cause=Cause.EVICTION, impact=Impact.PREEMPT, vms=("default.a",))
    assert carried_out(driver, stopping).done
    assert f"{VMIS}/a" not in cluster.objects


def test_vms_are_not_migrated_from_a_node_that_was_uncordoned(
    cluster: Cluster, driver: KubernetesDriver
) -> None:
    """VMs may start on it again; a person decides whether the host is emptied. Source: R-1."""
    cluster.migrations_go_on = False
    given = task(**MOVE)
    driver.begin(given)
    assert "migrating" in driver.progress(given, now_ms()).text
    cluster.put("/api/v1/nodes/h1", **{**cluster.node(), "spec": {}})
    assert "cordon h1 again" in driver.progress(given, now_ms()).waits
    cluster.put("/api/v1/nodes/h1", **{**cluster.node(), "spec": {"unschedulable": True}})
    cluster.migrations_go_on = True
    assert ended(driver, given).done
