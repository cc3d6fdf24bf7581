"""Enforces the limits of the past on a separate thread, once an hour.

`store/retention.py` exports and deletes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from forewarn_base.audit_chain import CallRecord
from forewarn_base.clock import Clock
from forewarn_base.errors import ForewarnError
from forewarn_base.values import replace
from forewarn_store import Retention, Store, Trimmed
from forewarn_store.retention import RetentionLimited

log = logging.getLogger("forewarn.control")

#: Interval between checks, in seconds; the first check runs at the start.
LOOK_S = 3600.0
#: How much history exceeds its limits of age, in milliseconds, before it is deleted, and the share
#: of the limit of bytes that a deletion leaves.
SLACK_MS, REMOVED_TO = 86_400_000, 0.9
#: Pause between two steps in which the store returns space, in seconds.
BETWEEN_S = 0.05
#: Time limit for a running deletion once the service stops, in seconds.
STOP_S_MAX = 1.0


class HistoryKeeper:
    """Exports and deletes the past beyond its limits until it is stopped."""

    def __init__(
        self,
        store: Store,
        retention: Retention,
        clock: Clock,
        *,
        record: Callable[[CallRecord], None],
        exports: bool = True,
    ) -> None:
        """Prepare the thread; `start` begins.

        Args:
            store: the store, of which this process is the writer.
            retention: the limits.
            clock: the service's clock.
            record: writes the exported range of the audit into the audit.
            exports: whether history must be exported before it is deleted.
        """
        self._store = store
        self._retention = replace(retention, slack_ms=SLACK_MS, removed_to=REMOVED_TO)
        self._clock = clock
        self._record = record
        self._exports = exports
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    def start(self) -> None:
        """Start the thread, which trims at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; an interrupted deletion is repeated at the next start."""
        self._stopping.set()
        self._thread.join(STOP_S_MAX)

    def trim(self) -> None:
        """Delete what exceeds the limits, and return the space.

        Raises:
            ForewarnError: the export or the store failed; the next call continues.
        """
        now_ms = self._clock.now_ms()
        self._store.trim_availability(now_ms)
        self._store.trim_tickets(now_ms)
        self._store.trim_durations()
        if self._exports and self._retention.directory is None:
            self._report("there is no directory for exports" if self._is_due(now_ms) else "")
        elif self._retention.limits:
            trimmed = self._store.trim(self._retention, now_ms)
            self._trim_audit(trimmed, now_ms)
            self._report(trimmed.excess)
        while self._store.return_space() and not self._stopping.wait(BETWEEN_S):
            pass

    def _is_due(self, now_ms: int) -> bool:
        retention = self._retention
        since_ms = self._store.past_since_ms()
        if retention.max_age_ms and 0 < since_ms < now_ms - retention.max_age_ms - SLACK_MS:
            return True
        return 0 < retention.max_bytes < self._store.past_size().total

    def _trim_audit(self, trimmed: Trimmed, now_ms: int) -> None:
        """Export the audit's old records; without an export they stay. Source: P-7."""
        directory = self._retention.directory
        if directory is None:
            return
        exported = self._store.audit.trim(
            directory,
            oldest_ms=trimmed.audit_before_ms,
            now_ms=now_ms,
            creates=self._retention.creates,
        )
        if exported is not None:
            self._record(exported)

    def _report(self, excess: str) -> None:
        text = ""
        if excess:
            error = RetentionLimited(reason=excess)
            text = str(error)
            if not self._store.past_excess:
                log.warning("%s %s", error, error.advice_text(), extra={"action": error.code})
        self._store.past_excess = text

    def _run(self) -> None:
        while True:
            try:
                self.trim()
            except ForewarnError as error:
                text = "history could not be trimmed: %s"
                log.warning(text, error, extra={"action": error.code})
            except Exception:
                log.exception("trimming history failed because of a bug")
            if self._stopping.wait(LOOK_S):
                return
