"""Writes this process's row among the control planes of its store. Source: H-8, U-4."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from forewarn_base.errors import ForewarnError
from forewarn_base.version import version
from forewarn_store import Store

log = logging.getLogger("forewarn.store")

#: Interval at which a process writes a heartbeat, in seconds.
NOTE_S = 2.0
#: Age at which a row is removed, in seconds.
KEPT_S = 3600
#: Time limit of the last write when the process stops, in seconds.
LAST_NOTE_S_MAX = 1.0


class SignsOfLife:
    """Writes this process's row every `NOTE_S` seconds, on a thread, until `stop`."""

    def __init__(self, store: Store, token: str, url: Callable[[], str] = str) -> None:
        """Start to write; `token` is this process's token for the lease.

        `url` returns the URL of its operator API, on any thread; empty: not known yet.
        """
        self._url = url
        self._store = store
        self._token = token
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop writing, and remove the row."""
        self._stopping.set()
        self._thread.join(LAST_NOTE_S_MAX)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._note()
            self._stopping.wait(NOTE_S)
        with suppress(ForewarnError):  # other processes soon ignore the old row
            self._store.remove_process(self._token)

    def _note(self) -> None:
        try:
            self._store.note_process(self._token, self._url(), version(), kept_ms=KEPT_S * 1000)
        except ForewarnError as error:  # the thread of the lease reports an outage
            log.debug("the heartbeat could not be written: %s", error)
