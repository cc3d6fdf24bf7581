"""The manual driver: people do the work and tell the operator API when it has ended.

No machine is touched from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.drivers import Progress

if TYPE_CHECKING:
    from forewarn.core.lifecycle import Operation


class ManualDriver:
    """Does nothing by itself: `forewarn complete` ends each operation."""

    name = "manual"

    def begin(self, operation: Operation) -> None:
        """Leave it to people."""

    def progress(self, operation: Operation, now_ms: int) -> Progress:  # noqa: ARG002
        """Say that people will tell."""
        return Progress(waits=f"somebody must do it and say `forewarn complete {operation.id}`")

    def abort(self, operation: Operation) -> None:
        """Nothing was begun."""
