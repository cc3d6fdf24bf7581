"""A process's part in the lease of a shared store, and its heartbeats for operators."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from forewarn_base.clock import SystemClock
from forewarn_base.values import value
from forewarn_server.control.standby import LeaseKeeper, become_writer, leave
from forewarn_server.service.signs_of_life import SignsOfLife
from forewarn_store.lease import Tenure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forewarn_base.errors import ForewarnError
    from forewarn_store import Store


@value
class LeaseHolder:
    """The process that competes for the lease, by its functions; see `LeaseKeeper`."""

    #: Returns the URL of its operator API for operators; empty: none yet. On any thread.
    url: Callable[[], str]
    #: Returns the hanging parts of the service, while which the lease is not renewed.
    silent: Callable[[], tuple[str, ...]]
    on_lost: Callable[[ForewarnError], None]
    on_lapse: Callable[[bool], object]
    on_renewal: Callable[[int], object]
    #: Called after an outage of the store, before the lease is renewed.
    on_return: Callable[[], object]


async def take_lease(
    tenure: Tenure,
    store: Store,
    closing: contextlib.AsyncExitStack,
    *,
    stand_by: Callable[[contextlib.AsyncExitStack], Awaitable[None]],
    holder: LeaseHolder,
) -> LeaseKeeper:
    """Follow until this process holds the lease, and renew it until `closing` ends.

    `stand_by` is awaited once if the lease is not free, with the stack of what ends at the
    takeover.
    """
    signs = SignsOfLife(store, tenure.token, holder.url)
    closing.push_async_callback(asyncio.to_thread, signs.stop)
    # Even a process that is stopped while it acquires the lease releases it.
    closing.push_async_callback(leave, tenure)
    # A separate clock, because a term is elapsed time.
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as standing_by:
        await become_writer(tenure, clock, partial(stand_by, standing_by))
    keeper = LeaseKeeper(
        tenure,
        clock,
        holder.on_lost,
        silent=holder.silent,
        on_lapse=holder.on_lapse,
        on_renewal=holder.on_renewal,
        on_return=holder.on_return,
    )
    closing.push_async_callback(asyncio.to_thread, keeper.stop)
    return keeper
