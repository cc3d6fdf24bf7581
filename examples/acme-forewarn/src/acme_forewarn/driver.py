"""The driver: Forewarn decides when, Acme reboots the host."""

from __future__ import annotations

from collections.abc import Mapping

from acme_forewarn.platform import Platform
from forewarn_core.fleet.impact import Impact
from forewarn_drivers import Progress, Task
from forewarn_drivers.task_records import DONE, TaskForgotten, TaskRecords


def create(name: str, options: Mapping[str, object], records: TaskRecords) -> AcmeDriver:
    """Create the driver of a table `[drivers.NAME]`.

    Raises:
        ValueError: an option is missing or unknown.
    """
    return AcmeDriver(name, Platform(options), records)


class AcmeDriver:
    """Reboots hosts, and lists hosts and VMs."""

    def __init__(self, name: str, platform: Platform, records: TaskRecords) -> None:
        """Use a platform, and records that outlive this process."""
        self.name = name
        self._platform = platform
        self._records = records

    def begin(self, task: Task) -> None:
        """Record the attempt; `progress` does the work, so that a crash in between loses none."""
        self._records.begin(task.key)

    def progress(self, task: Task, now_ms: int) -> Progress:  # noqa: ARG002 - the work is short
        """Reboot the host, unless it is done, and return the result."""
        self._records.check(task.key)
        operation = task.operation
        notes = self._records.notes(operation.number).get(task.attempt)
        if notes is None:
            raise TaskForgotten(task=task.id)
        if operation.impact is not Impact.REBOOT or operation.of_vm:
            return Progress(failed="Acme can only reboot hosts")
        if DONE not in notes:
            try:
                # The number of an operation is unique only in its store.
                self._platform.reboot(operation.host, f"{task.id}@{operation.created_ms}")
            except LookupError as error:
                return Progress(failed=str(error))
            self._records.put(operation.number, task.attempt, {DONE: ""})
        return Progress(done=True)

    def abort(self, task: Task) -> None:
        """Record that no further work of the operation may begin."""
        self._records.abort(task.key)

    def discover(self) -> Mapping[str, object]:
        """Return hosts and VMs in the format of a topology file, for `topology import`."""
        hosts: dict[str, object] = {}
        vms: dict[str, object] = {}
        for host, content in self._platform.hosts().items():
            hosts[host] = {"zone": content.get("zone", "")}
            names = content.get("vms")
            for vm in names if isinstance(names, list) else ():
                vms[vm] = {"host": host}
        return {"hosts": hosts, "vms": vms}
