"""The work of each operation on a cluster, advanced by a step with each call.

`nodes.py` changes nodes, `machines.py` changes VMs, and `driver.py` calls this module.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from forewarn_base.errors import ForewarnError, PeerError
from forewarn_core.fleet.impact import TRAITS, Cause, Impact
from forewarn_core.fleet.lifecycle import FollowedBy
from forewarn_drivers import FINISHED, Task, WorkStep
from forewarn_drivers.host_command import HostCommand
from forewarn_kubernetes.client import Kubernetes, KubernetesRefused
from forewarn_kubernetes.config import KubernetesConfig
from forewarn_kubernetes.machines import MigrationFailed, TaskMachines
from forewarn_kubernetes.nodes import (
    Nodes,
    address,
    annotations_of,
    boot_id,
    is_cordoned,
    is_ready,
    uncordoned,
)
from forewarn_kubernetes.records import KubernetesRecords

#: Default number of VMs handled in parallel.
AT_ONCE_MAX = 20
#: Name of the note that an attempt's command has begun.
COMMAND = "command"
#: Name of the note that an attempt has found its node cordoned.
CORDONED = "cordoned"

#: Begin of the report of a node that is being drained, and of one that is drained.
DRAINING_TEXT, REBOOTING_TEXT = "draining ", "waiting for drained "


class KubernetesWorkUnsupported(PeerError):
    """The driver does not support this operation."""

    code = "kubernetes-work-unsupported"
    message = "The kubernetes driver cannot carry out {cause} with impact {impact}."
    advice = "Do the work by hand and run `forewarn operation complete`, or fail the operation."


class NodeAway(PeerError):
    """A node did not return from its reboot."""

    code = "kubernetes-node-away"
    message = "Node {host} did not reboot and become ready within {seconds} s."
    advice = "Check the node; then retry, complete or fail the operation."


class NodeWork:
    """The work of one task, advanced by a step with each call."""

    def __init__(
        self,
        task: Task,
        kubernetes: Kubernetes,
        records: KubernetesRecords,
        *,
        config: KubernetesConfig,
        commands: LastCommands,
    ) -> None:
        self._task = task
        self._operation = task.operation
        self._records = records
        self._config = config
        self._commands = commands
        self._nodes = Nodes(kubernetes, records.cordon(task))
        self._machines = TaskMachines(task, kubernetes, records, config=config, nodes=self._nodes)

    @property
    def placements(self) -> dict[str, str]:
        """Known destination nodes of VMs, by VM."""
        return dict(self._machines.placements)

    def advance(self, now_ms: int) -> WorkStep:
        """Do the work that is currently possible.

        Raises:
            ForewarnError: the task failed; `KubernetesUnreachable` permits a retry.
        """
        self._machines.now_ms = now_ms
        operation, machines = self._operation, self._machines
        traits = TRAITS[operation.cause]
        itself = operation.host in operation.vms  # without KubeVirt, nodes are VMs
        if itself and not traits.fault and operation.impact is not Impact.REBOOT:
            raise self._unsupported()
        if operation.impact in {Impact.PREEMPT, Impact.TERMINATE}:
            return self._each(machines.stop)
        if traits.fault and operation.impact is not Impact.REDEPLOY:
            ready = is_ready(self._nodes.get(operation.host))
            return FINISHED if ready else WorkStep(waits=f"node {operation.host} to be ready")
        if operation.impact is Impact.REDEPLOY and not traits.fault:
            return self._away(lambda vm: machines.restart(vm, elsewhere=True), AT_ONCE_MAX)
        if operation.impact is Impact.FREEZE and traits.moves:
            if operation.is_return:
                return self._each(machines.migrate)
            return self._away(machines.migrate, self._config.parallel_migrations)
        if operation.impact is Impact.REBOOT and operation.cause is not Cause.REIMAGE:
            if operation.of_vm and not itself:
                return self._each(machines.restart)
            return self._reboot(now_ms)
        raise self._unsupported()

    def _unsupported(self) -> KubernetesWorkUnsupported:
        cause, impact = self._operation.cause.value, self._operation.impact.value
        return KubernetesWorkUnsupported(cause=cause, impact=impact)

    def call_off(self) -> None:
        """Cancel the migrations of this operation's last attempt, and uncordon its node."""
        for vm in self._operation.vms:
            self._machines.end_migration(vm)
        self.give_back()

    def give_back(self) -> None:
        """Undo this operation's changes to its node."""
        self._nodes.free(self._operation.host, self._task.id, self._config.reboot_annotation)

    def _away(self, act: Callable[[str], WorkStep], at_once: int) -> WorkStep:
        """Move VMs away; the host remains cordoned until the following work has ended."""
        waits = self._cordon(self._records.facts(self._task))
        if waits is not None:
            return waits
        step = self._each(act, at_once)
        degraded = self._operation.cause is Cause.HARDWARE_DEGRADED
        if step.done and not degraded and self._operation.followed_by is FollowedBy.NOTHING:
            self.give_back()
        return step

    def _cordon(self, facts: dict[str, Any]) -> WorkStep | None:
        """Cordon the node; return a wait if another operation or a person must act first."""
        waits = self._nodes.cordon(self._operation.host, begun=CORDONED in facts)
        if waits:
            return WorkStep(waits=waits)
        if CORDONED not in facts:
            self._records.note(self._task, CORDONED, fact=True)
        return None

    def _reboot(self, now_ms: int) -> WorkStep:
        """Drain a node, request its reboot, and uncordon the ready node.

        Until the reboot is requested, each step checks that the node is still cordoned and empty.
        """
        host, facts = self._operation.host, self._records.facts(self._task)
        node = self._nodes.get(host)
        if "boot" in facts and boot_id(node) != facts["boot"]:
            if is_ready(node):
                self.give_back()
                return FINISHED
            return self._waits_for_boot(now_ms, facts)
        if not self._is_requested(node, facts):
            waits = self._cordon(facts) or self._drain()
            if waits is not None:
                return waits
            facts |= {"since_ms": now_ms, "boot": facts.get("boot", boot_id(node))}
            for name in ("since_ms", "boot"):
                self._records.note(self._task, name, facts[name])
            waits = self._request()
            if waits is not None:
                return waits
        failed = self._commands.failure(self._records.operation(self._task))
        if failed is not None:
            raise failed
        return self._waits_for_boot(now_ms, facts)

    def _drain(self) -> WorkStep | None:
        """Evict pods; return a wait while pods are left."""
        host = self._operation.host
        left, waiting = self._nodes.drain(host, unmanaged=self._config.evict_unmanaged)
        if not left:
            return None
        return WorkStep(text=f"{DRAINING_TEXT}{host}: {left} pods left", waits="; ".join(waiting))

    def _is_requested(self, node: dict[str, Any], facts: dict[str, Any]) -> bool:
        """Return whether this attempt has requested the reboot; a person's is never known."""
        if self._config.reboot_annotation:
            return annotations_of(node).get(self._config.reboot_annotation) == self._task.id
        return COMMAND in facts

    def _request(self) -> WorkStep | None:
        """Request the reboot of a node that is still cordoned; return a wait otherwise."""
        host = self._operation.host
        node = self._nodes.get(host)
        if not is_cordoned(node):
            return WorkStep(waits=uncordoned(host))
        if self._config.reboot_annotation:
            self._nodes.annotate(node, self._config.reboot_annotation, self._task.id)
            return None
        return self._command(node) if self._config.reboot_command else None

    def _waits_for_boot(self, now_ms: int, facts: dict[str, Any]) -> WorkStep:
        host, config = self._operation.host, self._config
        boot = config.reboot_annotation or config.reboot_command
        if boot and now_ms - facts["since_ms"] > config.reboot_timeout_s * 1000:
            raise NodeAway(host=host, seconds=config.reboot_timeout_s)
        waits = "" if boot else f"an operator to reboot {host}"
        return WorkStep(
            text=f"{REBOOTING_TEXT}{host} to reboot and be ready", waits=waits, share=0.5
        )

    def _command(self, node: dict[str, Any]) -> WorkStep | None:
        """Run the reboot command once per attempt, even after a restart of the service.

        The node's boot id shows whether the command of an earlier process has rebooted the node.
        """
        host, operation = self._operation.host, self._records.operation(self._task)
        if self._commands.runs(operation):
            return WorkStep(waits=f"the previous attempt's command to end on {host}")
        self._records.note(self._task, COMMAND, fact=True)
        command = HostCommand(
            "reboot_command", self._config.reboot_command, self._config.command_timeout_s
        )
        known = {"address": address(node)}
        self._commands.start(operation, lambda: command.run(host, known))
        return None

    def _each(self, act: Callable[[str], WorkStep], at_once: int = AT_ONCE_MAX) -> WorkStep:
        """Advance all VMs by a step; raise the first failure at the end."""
        vms, over = self._operation.vms, 0
        going: list[WorkStep] = []
        failed: PeerError | None = None
        for vm in vms:
            if len(going) == at_once:
                break
            try:
                step = act(vm)
            except (MigrationFailed, KubernetesRefused) as error:
                failed = failed or error
                step = FINISHED
            over += step.done
            going += [] if step.done else [step]
        if going:
            share = (over + sum(each.share for each in going)) / len(vms)
            return WorkStep(text="; ".join(each.text for each in going), share=share)
        if failed is not None:
            raise failed
        return FINISHED


#: Maximum number of operations in memory; the oldest is dropped first.
REMEMBERED_MAX = 10_000


class LastCommands:
    """The last command of each operation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def runs(self, operation: str) -> bool:
        """Whether an operation's command is running."""
        with self._lock:
            run = self._runs.get(operation)
        return run is not None and run.is_alive()

    def start(self, operation: str, act: Callable[[], None]) -> None:
        """Run an operation's command after the operation's previous command has ended."""
        assert not self.runs(operation), operation
        run = _Run(act, operation)
        with self._lock:
            self._runs.pop(operation, None)
            self._runs[operation] = run
            while len(self._runs) > REMEMBERED_MAX:
                del self._runs[next(iter(self._runs))]
        run.start()

    def failure(self, operation: str) -> ForewarnError | None:
        """Return the error of an operation's last command, or None."""
        with self._lock:
            run = self._runs.get(operation)
        return run.failed if run is not None else None


class _Run(threading.Thread):
    def __init__(self, act: Callable[[], None], operation: str) -> None:
        super().__init__(name=f"command of {operation}", daemon=True)
        self._act = act
        self.failed: ForewarnError | None = None

    def run(self) -> None:
        try:
            self._act()
        except ForewarnError as error:
            self.failed = error
