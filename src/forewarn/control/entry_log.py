"""Lines of the log for entries of history: one for each, and which of them are alerts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forewarn.core.state import Entry

log = logging.getLogger("forewarn.control")

#: History that somebody should look at. Source: L-8.
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
    """Say what has become durable, to people and to machines."""
    for entry in entries:
        level = logging.WARNING if entry.action in ALERTS else logging.INFO
        facts = {"action": entry.action, "actor": entry.actor}
        log.log(level, "%s", entry.text, extra=facts)
