"""KubeVirt's VMs: migrates, restarts and stops VMs with repeatable requests."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NoReturn

from forewarn_base.errors import PeerError
from forewarn_drivers import FINISHED, Task, WorkStep
from forewarn_kubernetes.client import CONFLICT, Kubernetes, KubernetesRefused
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.nodes import Nodes
from forewarn_kubernetes.records import KubernetesRecords

API, SUBRESOURCES = "/apis/kubevirt.io/v1", "/apis/subresources.kubevirt.io/v1"
#: Phases of a migration, in order; unknown phases count as the first phase.
PHASES = ("Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running")
#: Phases of an ended VMI.
ENDED = frozenset({"Succeeded", "Failed"})
#: Minimum time for the shutdown of a VM, in seconds.
FAREWELL_S = 5
#: Reason why a VM cannot return.
NO_SELECTOR = "this KubeVirt cannot be asked for a node; KubeVirt 1.6 or later can"


class MigrationFailed(PeerError):
    """A live migration failed; the VM still runs on its old host."""

    code = "kubevirt-migration-failed"
    message = "The live migration of {vm} failed: {reason}."
    advice = "Check the VirtualMachineInstanceMigration and virt-handler; then retry the operation."


class TaskMachines:
    """The VMs of one task."""

    def __init__(
        self,
        task: Task,
        kubernetes: Kubernetes,
        records: KubernetesRecords,
        *,
        config: KubernetesConfig,
        nodes: Nodes,
    ) -> None:
        self._task = task
        self._kubernetes = kubernetes
        self._records = records
        self._config = config
        self._nodes = nodes
        self.now_ms = 0
        #: Destination, or else current node, of each VM.
        self.placements: dict[str, str] = {}

    def migrate(self, vm: str) -> WorkStep:
        """Migrate a running VM from the operation's host.

        Raises:
            MigrationFailed: the migration failed, or exceeded its time limit.
        """
        facts = self._records.facts(self._task)
        if f"restart {vm}" in facts:
            return self.restart(vm, elsewhere=True)
        machine = self._machine(vm)
        if machine is None:
            return FINISHED  # a stopped VM needs no migration
        migration = self._migration(vm)[1]
        if migration is None:
            if self._has_left(vm, machine):
                return FINISHED
            if f"migration {vm}" in facts:
                raise MigrationFailed(
                    vm=vm, reason=facts[f"migration {vm}"] or "the migration was deleted"
                )
            migration = self._create_migration(vm)
        self._check_selector(vm, migration)
        if f"migration {vm}" not in facts:
            self._records.note(self._task, f"migration {vm}", "")
        phase = migration.get("status", {}).get("phase", PHASES[0])
        state = self._state(vm, machine, migration)
        if phase == "Succeeded":
            self._has_left(vm, machine)
            return FINISHED
        if phase == "Failed":
            reason = state.get("failureReason") or "KubeVirt gives no reason"
            raise MigrationFailed(vm=vm, reason=str(reason)[:200].removesuffix("."))
        begun = datetime.fromisoformat(migration["metadata"]["creationTimestamp"])
        if self.now_ms - begun.timestamp() * 1000 > self._config.migration_timeout_s * 1000:
            return self._time_out(vm, machine)
        done = PHASES.index(phase) / len(PHASES) if phase in PHASES else 0.0
        return WorkStep(text=f"migrating {vm}: {phase}", share=done)

    def _check_selector(self, vm: str, migration: dict[str, Any]) -> None:
        """Cancel a return whose destination this KubeVirt has ignored."""
        if self._task.operation.is_return and "addedNodeSelector" not in migration["spec"]:
            self._give_up(vm, NO_SELECTOR)

    def _state(self, vm: str, machine: dict[str, Any], migration: dict[str, Any]) -> dict[str, Any]:
        """Return the state of a VM's migration, and record its destination."""
        state: dict[str, Any] = machine["status"].get("migrationState") or {}
        if state.get("migrationUid", "") != migration["metadata"]["uid"]:
            return {}
        if state.get("targetNode"):
            self.placements[vm] = state["targetNode"]
        return state

    def _has_left(self, vm: str, machine: dict[str, Any]) -> bool:
        """Return whether a VM has left, or returned; record its new node as destination."""
        node = machine["status"].get("nodeName")
        if not node or not self._task.operation.has_moved(node):
            return False
        self.placements[vm] = node
        return True

    def _create_migration(self, vm: str) -> dict[str, Any]:
        place = self._migration(vm)[0]
        folder, _, name = place.rpartition("/")
        spec: dict[str, Any] = {"vmiName": _parts(vm)[1]}
        if self._task.operation.destination:
            spec["addedNodeSelector"] = self._nodes.selector(self._task.operation.destination)
        form = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": name, "labels": {"forewarn.dev/operation": name}},
            "spec": spec,
        }
        return self._kubernetes.ask("POST", folder, form)

    def _time_out(self, vm: str, machine: dict[str, Any]) -> WorkStep:
        reason = f"the driver cancelled the migration after {self._config.migration_timeout_s} s"
        if not self._config.restart_when_late or self._task.operation.is_return:
            self._give_up(vm, reason)
        self._records.note(self._task, f"migration {vm}", reason)
        self._records.note(self._task, f"restart {vm}", machine["metadata"]["uid"])
        self.end_migration(vm)
        return self.restart(vm, elsewhere=True)

    def _give_up(self, vm: str, reason: str) -> NoReturn:
        self._records.note(self._task, f"migration {vm}", reason)
        self.end_migration(vm)
        raise MigrationFailed(vm=vm, reason=reason)

    def end_migration(self, vm: str) -> None:
        """Cancel a migration of this task; the VM stays on its node."""
        place, migration = self._migration(vm)
        if migration and not _is_over(migration):
            self._kubernetes.ask("DELETE", place)

    def restart(self, vm: str, *, elsewhere: bool = False) -> WorkStep:
        """Restart a VM, once per attempt."""
        machine = self._machine(vm)
        facts = self._records.facts(self._task)
        if f"restart {vm}" not in facts:
            if machine is None:
                return FINISHED  # a stopped VM stays stopped
            facts[f"restart {vm}"] = machine["metadata"]["uid"]
            self._records.note(self._task, f"restart {vm}", facts[f"restart {vm}"])
        if machine is not None and machine["metadata"]["uid"] != facts[f"restart {vm}"]:
            away = self._has_left(vm, machine) or not elsewhere
            if machine["status"].get("phase") == "Running" and away:
                return FINISHED
        elif machine is not None and "deletionTimestamp" not in machine["metadata"]:
            self._act(vm, "restart", {})
        return WorkStep(text=f"restarting {vm}", share=0.5)

    def stop(self, vm: str) -> WorkStep:
        """Shut a VM down permanently."""
        machine = self._machine(vm)
        if machine is None:
            return FINISHED
        if "deletionTimestamp" not in machine["metadata"]:
            left_s = ((self._task.operation.notice.not_before_ms or 0) - self.now_ms) // 1000
            self._act(vm, "stop", {"gracePeriod": max(left_s, FAREWELL_S)})
        return WorkStep(text=f"stopping {vm}", share=0.5)

    def _act(self, vm: str, verb: str, form: object) -> None:
        """Call a subresource of a VM; a conflict means that the action is in progress."""
        namespace, name = _parts(vm)
        place = f"{SUBRESOURCES}/namespaces/{namespace}/virtualmachines/{name}/{verb}"
        try:
            self._kubernetes.ask("PUT", place, form)
        except KubernetesRefused as error:
            if error.number != CONFLICT:
                raise

    def _machine(self, vm: str) -> dict[str, Any] | None:
        """Return a VM's instance, or None for a stopped VM."""
        namespace, name = _parts(vm)
        place = f"{API}/namespaces/{namespace}/virtualmachineinstances/{name}"
        machine = self._kubernetes.find(place)
        if machine is None or machine.setdefault("status", {}).get("phase") in ENDED:
            return None
        return machine

    def _migration(self, vm: str) -> tuple[str, dict[str, Any] | None]:
        """Return the path and the form of this attempt's migration, or of an earlier one."""
        namespace, name = _parts(vm)
        folder = f"{API}/namespaces/{namespace}/virtualmachineinstancemigrations"
        operation, last = self._records.operation(self._task), self._task.attempt
        for attempt in range(last, 0, -1):
            path = f"{folder}/{operation}-{attempt}-{name}"
            migration = self._kubernetes.find(path)
            if migration and (attempt == last or not _is_over(migration)):
                return path, migration
        return f"{folder}/{operation}-{last}-{name}", None


def _is_over(migration: dict[str, Any]) -> bool:
    return migration.get("status", {}).get("phase") in ENDED


def _parts(vm: str) -> tuple[str, str]:
    """Split a VM's name into the namespace, which contains no dot, and the name."""
    namespace, dot, name = vm.partition(".")
    return (namespace, name) if dot else ("default", vm)
