"""Configured commands that run in the background, each on a separate thread.

The driver's records contain all begun commands; this module contains the commands of this process.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from forewarn.errors import ForewarnError

if TYPE_CHECKING:
    from collections.abc import Callable

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
