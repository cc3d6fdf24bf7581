"""Logs each entry of a commit, and calls the listeners of commits.

Errors here do not stop the run loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forewarn.control.plane import Committed
    from forewarn.core.state import Entry

log = logging.getLogger("forewarn.control")

#: Actions that are logged as warnings for operators. Source: L-8.
ALERTS = frozenset(
    {
        "operation.blocked",
        "operation.stuck",
        "operation.overdue",
        "operation.abort-failed",
        "operation.not-shown",
    }
)


def log_entries(entries: Iterable[Entry]) -> None:
    """Log the entries that have become durable, for people and for machines."""
    silent = not log.isEnabledFor(logging.INFO)
    for entry in entries:
        level = logging.WARNING if entry.action in ALERTS else logging.INFO
        if silent and level == logging.INFO:
            continue
        facts = {"action": entry.action, "actor": entry.actor}
        log.log(level, "%s", entry.text, extra=facts)


class CommitListeners:
    """Listeners called for each commit, after its answer, on the run loop's thread."""

    def __init__(self, *listeners: Callable[[Committed], None], logged: bool = True) -> None:
        """Start with these quick listeners. `logged`: also log the entries."""
        self._listeners = [*listeners]
        self._logged = logged
        self._pending: list[Committed] = []

    def add(self, listener: Callable[[Committed], None]) -> None:
        """Add a quick listener."""
        self._listeners.append(listener)

    def put(self, committed: Committed) -> None:
        """Store a commit until `notify`."""
        self._pending.append(committed)

    def notify(self) -> None:
        """Call every listener for the stored commits, and log them, in order.

        A failure of a listener is a bug, but delays no event.
        """
        pending, self._pending = self._pending, []
        for committed in pending:
            for listener in self._listeners:
                try:
                    listener(committed)
                except Exception:
                    log.exception("a listener for commits failed because of a bug")
            if self._logged:
                log_entries(committed.entries)
