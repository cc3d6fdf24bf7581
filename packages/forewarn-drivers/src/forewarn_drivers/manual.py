"""The manual driver, for work that people do and report to the operator API.

The driver itself calls no machines.
"""

from __future__ import annotations

from collections.abc import Mapping

from forewarn_drivers import Progress, Task
from forewarn_drivers.task_records import TaskRecords


def create(name: str, options: Mapping[str, object], _: TaskRecords | None = None) -> ManualDriver:
    """Create a driver, which has no options.

    Raises:
        ValueError: there is an option.
    """
    if options:
        raise ValueError(f"unknown option {', '.join(options)}")
    return ManualDriver(name)


class ManualDriver:
    """Waits for `forewarn operation complete`, which ends each operation."""

    name = "manual"

    def __init__(self, name: str = "") -> None:
        self.name = name or self.name

    def begin(self, task: Task) -> None:
        """Do nothing, because people do the work."""

    def progress(self, task: Task, now_ms: int) -> Progress:  # noqa: ARG002
        """Report that a person must do the work and complete the operation."""
        command = f"forewarn operation complete {task.operation.id}"
        return Progress(waits=f"an operator must do the work and run `{command}`")

    def abort(self, task: Task) -> None:
        """Do nothing, because the driver has begun no work."""
