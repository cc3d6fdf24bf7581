"""Standing by: on a shared store one process writes, the others wait for its lease to end.

Only the waiting and renewing live here; who may hold the lease is judged in `store/lease.py`.
The lease is renewed from a thread of its own, over a connection of its own: a long commit, a large
load or a busy event loop costs no failover.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from forewarn.errors import ForewarnError, PeerError
from forewarn.store.errors import StoreLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forewarn.clock import Clock
    from forewarn.store.lease import Tenure

log = logging.getLogger("forewarn.control")

#: How long a lease lasts unrenewed. Long enough for a database's failover, short enough that a
#: standby takes over well within the shortest notice but Preempt's.
TERM_MS = 10_000
#: Renewals within a term: two may fail before the lease is at risk.
RENEWALS = 3


#: Longest wait for a renewal under way once the service stops, in seconds.
LAST_RENEWAL_S_MAX = 1.0


async def become_writer(
    tenure: Tenure, clock: Clock, on_standby: Callable[[], Awaitable[None]]
) -> None:
    """Wait until this process holds the lease, also through an outage of the database.

    `on_standby` is awaited once, if that is not at once.
    """
    message = ""
    while True:
        try:
            if await asyncio.to_thread(tenure.attempt, clock.now_ms()):
                return
            reason = "another process is the writer"
        except PeerError as error:
            reason = str(error)
        if not message:
            await on_standby()
        if reason != message:
            log.info("standing by: %s", reason, extra={"action": "standby"})
            message = reason
        await asyncio.sleep(tenure.term_ms / RENEWALS / 1000)


class LeaseKeeper:
    """Renews the lease until it is stopped, or another process holds it.

    An outage of the database ends nothing: VMs are answered from memory, nothing can be
    committed meanwhile, and if another process has become the writer by then, the store refuses
    this one's commits and the lease shows.
    """

    def __init__(self, tenure: Tenure, clock: Clock, lost: Callable[[ForewarnError], None]) -> None:
        """Begin to renew the lease that `tenure` holds; `lost` is called on the keeper's thread."""
        self._tenure = tenure
        self._clock = clock
        self._lost = lost
        self._stopping = threading.Event()
        self._said = ""
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Renew no more."""
        self._stopping.set()
        self._thread.join(LAST_RENEWAL_S_MAX)

    def _run(self) -> None:
        while not self._stopping.wait(self._tenure.term_ms / RENEWALS / 1000):
            try:
                held = self._tenure.attempt(self._clock.now_ms())
            except ForewarnError as error:
                if str(error) != self._said:
                    self._said = str(error)
                    text = "the lease could not be renewed: %s"
                    log.warning(text, error, extra={"action": error.code})
                continue
            if not held:
                self._lost(StoreLost(place="the shared store"))
                return
            if self._said:
                self._said = ""
                log.info("the lease is renewed again", extra={"action": "lease.renewed"})


async def leave(tenure: Tenure) -> None:
    """Give the lease up, if the database can be reached; else the next writer waits for its end."""
    try:
        await asyncio.to_thread(tenure.release)
    except PeerError as error:
        log.warning("the lease could not be given up: %s", error, extra={"action": error.code})
