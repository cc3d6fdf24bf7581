"""Logs the calls that the service or another system could not answer, each reason once a minute.

A process without its database refuses every list for the same reason.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

from forewarn_base.clock import SystemClock
from forewarn_base.errors import ForewarnError

log = logging.getLogger("forewarn.operator")

#: Least time between two lines with one reason, in milliseconds, and maximum stored reasons.
REPEATED_MS, REASONS_MAX = 60_000, 100


class RefusalLog:
    """Counts refusals between two lines."""

    def __init__(self, elapsed_ms: Callable[[], int]) -> None:
        """Start without a refusal; `elapsed_ms` is a monotonic clock."""
        self._elapsed_ms = elapsed_ms
        #: Reason -> time of its last line, and refusals since then; the latest last.
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def note(self, call: str, error: ForewarnError) -> None:
        """Log a refused call, unless the reason was logged within a minute."""
        reason, now_ms = str(error), self._elapsed_ms()
        logged_ms, count = self._known.get(reason, (now_ms - REPEATED_MS, 0))
        if now_ms - logged_ms < REPEATED_MS:
            self._known[reason] = logged_ms, count + 1
            return
        more = f" ({count} calls before, too)" if count else ""
        log.error("%s: %s%s", call, reason, more, extra={"action": error.code})
        self._known[reason] = now_ms, 0
        self._known.move_to_end(reason)
        if len(self._known) > REASONS_MAX:
            self._known.popitem(last=False)


#: The refusals of this process.
REFUSALS = RefusalLog(SystemClock().elapsed_ms)
