"""The manual driver: people do the work and report its end to the operator API.

No machine is touched from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.drivers import Progress

if TYPE_CHECKING:
    from forewarn.drivers import Task


class ManualDriver:
    """Does nothing: `forewarn operation complete` ends each operation."""

    name = "manual"

    def __init__(self, name: str = "") -> None:
        """Store the driver's name from the settings."""
        self.name = name or self.name

    def begin(self, task: Task) -> None:
        """Leave the work to people."""

    def progress(self, task: Task, now_ms: int) -> Progress:  # noqa: ARG002
        """Report that a person must do the work and complete the operation."""
        return Progress(
            waits=f"somebody must do it and run `forewarn operation complete {task.operation.id}`"
        )

    def abort(self, task: Task) -> None:
        """Do nothing: no work was begun."""
