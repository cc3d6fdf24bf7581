"""Enforces the limits of history on a separate thread, once an hour.

`store/retention.py` exports and deletes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from forewarn.audit_chain import CallRecord
from forewarn.clock import Clock
from forewarn.errors import ForewarnError
from forewarn.store import Retention, Store

log = logging.getLogger("forewarn.control")

#: Interval between checks, in seconds; the first check runs at the start.
LOOK_S = 3600.0
#: Time limit for a running deletion once the service stops, in seconds.
STOP_S_MAX = 1.0


class HistoryKeeper:
    """Exports and deletes history beyond its limits until it is stopped."""

    def __init__(
        self,
        store: Store,
        retention: Retention,
        clock: Clock,
        *,
        record: Callable[[CallRecord], None],
    ) -> None:
        """Start the thread; `record` writes the exported range into the audit."""
        self._store = store
        self._retention = retention
        self._clock = clock
        self._record = record
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; an interrupted deletion is repeated at the next start."""
        self._stopping.set()
        self._thread.join(STOP_S_MAX)

    def _run(self) -> None:
        while True:
            try:
                self._trim(self._clock.now_ms())
            except ForewarnError as error:
                text = "history could not be trimmed: %s"
                log.warning(text, error, extra={"action": error.code})
            except Exception:
                log.exception("trimming history failed because of a bug")
            if self._stopping.wait(LOOK_S):
                return

    def _trim(self, now_ms: int) -> None:
        retention = self._retention
        self._store.trim(retention, now_ms)
        if retention.max_age_ms:
            oldest_ms = now_ms - retention.max_age_ms
            exported = self._store.audit.trim(
                retention.directory, oldest_ms=oldest_ms, now_ms=now_ms
            )
            if exported is not None:
                self._record(exported)
