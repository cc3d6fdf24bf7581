"""The control planes that share a store: who they are, and how far each of them is.

Each process writes its own row; nothing decides by them. Source: H-8, U-4.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from forewarn.errors import ForewarnError
from forewarn.values import value
from forewarn.version import version

if TYPE_CHECKING:
    from forewarn.store import Store
    from forewarn.store.engine import Engine

log = logging.getLogger("forewarn.store")

#: How often a process writes a sign of life, in seconds.
NOTE_S = 2.0
#: Age from which on a sign of life is that of a process that is gone, in seconds.
SILENT_S_MAX = 15
#: Age at which a row is removed, in seconds, and rows that are read.
KEPT_S, PROCESSES_MAX = 3600, 100
#: Longest wait for the last write once the process stops, in seconds.
LAST_NOTE_S_MAX = 1.0


@value
class ControlProcess:
    """One control plane, as it was last seen."""

    #: Where its operator API is; empty: not known.
    url: str
    version: str
    #: Commits that it lacks.
    behind: int
    #: How long ago it was seen, in seconds.
    age_s: float
    #: Whether it holds the lease.
    active: bool

    @property
    def runs(self) -> bool:
        """Whether it was seen lately."""
        return self.age_s <= SILENT_S_MAX


def processes(engine: Engine) -> tuple[ControlProcess, ...]:
    """Return the processes of a shared store, the active one first; those gone a while, too.

    Raises:
        StoreContradiction: the schema has no table of them yet.
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
    """Writes this process's row every `NOTE_S`, on a thread, until it is stopped."""

    def __init__(self, store: Store, token: str) -> None:
        """Begin; `token` is what the process contends for the lease with."""
        #: Where this process's operator API is; may be set at any time.
        self.url = ""
        self._store = store
        self._token = token
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="signs of life", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Remove the row, and write no more."""
        self._stopping.set()
        self._thread.join(LAST_NOTE_S_MAX)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._note()
            self._stopping.wait(NOTE_S)
        with suppress(ForewarnError):  # the row is too old soon
            self._store.remove_process(self._token)

    def _note(self) -> None:
        try:
            self._store.note_process(self._token, self.url, version(), kept_ms=KEPT_S * 1000)
        except ForewarnError as error:  # the lease's own thread reports an outage
            log.debug("no sign of life: %s", error)
