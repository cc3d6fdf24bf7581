"""The control planes that share a store, each with its last read commit.

Each process writes its own row. The rows are only for operators. Source: H-8, U-4.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from forewarn.errors import ForewarnError
from forewarn.store import Store
from forewarn.store.engine import Engine
from forewarn.values import value
from forewarn.version import version

log = logging.getLogger("forewarn.store")

#: Interval at which a process writes a heartbeat, in seconds.
NOTE_S = 2.0
#: Age in seconds of a heartbeat from which its process counts as stopped.
SILENT_S_MAX = 15
#: Age at which a row is removed, in seconds, and maximum number of rows in an answer.
KEPT_S, PROCESSES_MAX = 3600, 100
#: Time limit of the last write when the process stops, in seconds.
LAST_NOTE_S_MAX = 1.0


@value
class ControlProcess:
    """One control plane, as of its last heartbeat."""

    #: URL of the process's operator API; empty: not known.
    url: str
    version: str
    #: Number of commits that the process lacks.
    behind: int
    #: Age of the last heartbeat, in seconds.
    age_s: float
    #: Whether the process holds the lease.
    active: bool

    @property
    def runs(self) -> bool:
        """Whether the process has a recent heartbeat."""
        return self.age_s <= SILENT_S_MAX


def processes(engine: Engine) -> tuple[ControlProcess, ...]:
    """Return the current and recent processes of a shared store, the active process first.

    Raises:
        StoreContradiction: the schema has no table of processes yet.
    """
    with engine.reading() as transaction:
        holder = transaction.rows("lease")[0][0]
        generation = int(transaction.rows("service")[0][0])
        fills = {"now_ms": engine.now_ms}
        rows = transaction.rows_filled("processes", fills, limit=PROCESSES_MAX)
    seen = [
        ControlProcess(
            str(url),
            str(version_),
            behind=max(generation - int(has), 0),
            age_s=max(int(age_ms), 0) / 1000,
            active=token == holder,
        )
        for token, url, version_, has, age_ms in rows
    ]
    return tuple(sorted(seen, key=lambda each: (not each.active, each.url)))


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
