"""Standing by: on a shared store one process writes, the others wait for its lease to end.

Only the waiting and renewing live here; who may hold the lease is judged in `store/lease.py`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from forewarn.errors import PeerError
from forewarn.store.errors import StoreLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.clock import Clock
    from forewarn.errors import ForewarnError
    from forewarn.store.lease import Tenure

log = logging.getLogger("forewarn.control")

#: How long a lease lasts unrenewed. Long enough for a database's failover, short enough that a
#: standby takes over well within the shortest notice but Preempt's.
TERM_MS = 10_000
#: Renewals within a term: two may fail before the lease is at risk.
RENEWALS = 3


async def become_writer(tenure: Tenure, clock: Clock) -> None:
    """Wait until this process holds the lease, also through an outage of the database."""
    said = ""
    while True:
        try:
            if await asyncio.to_thread(tenure.attempt, clock.now_ms()):
                return
            reason = "another process is the writer"
        except PeerError as error:
            reason = str(error)
        if reason != said:
            log.info("standing by: %s", reason, extra={"action": "standby"})
            said = reason
        await asyncio.sleep(tenure.term_ms / RENEWALS / 1000)


async def stay_writer(tenure: Tenure, clock: Clock, lost: Callable[[ForewarnError], None]) -> None:
    """Renew the lease until cancelled; call `lost` once another process holds it.

    An outage of the database ends nothing: VMs are answered from memory, nothing can be
    committed meanwhile, and if another process has become the writer by then, the store refuses
    this one's commits and the lease tells.
    """
    said = ""
    while True:
        await asyncio.sleep(tenure.term_ms / RENEWALS / 1000)
        try:
            held = await asyncio.to_thread(tenure.attempt, clock.now_ms())
        except PeerError as error:
            if str(error) != said:
                said = str(error)
                text = "the lease could not be renewed: %s"
                log.warning(text, error, extra={"action": error.code})
            continue
        if not held:
            lost(StoreLost(place="the shared store"))
            return
        if said:
            said = ""
            log.info("the lease is renewed again", extra={"action": "lease.renewed"})


async def leave(tenure: Tenure) -> None:
    """Give the lease up, if the database can be told; else the next writer waits for its end."""
    try:
        await asyncio.to_thread(tenure.release)
    except PeerError as error:
        log.warning("the lease could not be given up: %s", error, extra={"action": error.code})
