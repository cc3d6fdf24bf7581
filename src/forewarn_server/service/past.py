"""The past of a service: outcomes for VMs, the limits of history, and its check."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from forewarn_core.fleet.outcomes import EventOutcome
from forewarn_core.requests import RequestAnswer
from forewarn_server.control.history_keeper import HistoryKeeper
from forewarn_server.service.service_files import retention_of
from forewarn_store.past_check import PastCheck

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from forewarn_base.audit_chain import CallRecord
    from forewarn_base.clock import Clock
    from forewarn_base.settings import Settings
    from forewarn_store import Store


def find_outcome(store: Store, vm: str, event_id: str) -> RequestAnswer:
    """Return the outcome of an event for a VM, as JSON; on a thread. Source: X-1."""
    event = store.event(event_id)
    operation = store.operation(event.operation) if event else None
    if event is None or operation is None or vm not in event.resources:
        return RequestAnswer(accepted=False)
    outcome = EventOutcome(event, operation).form()
    return RequestAnswer(accepted=True, outcome=json.dumps(outcome))


def problems_of(store: Store) -> tuple[str, ...]:
    """Return a sentence about each problem of ended work and history."""
    damage = store.past_progress.damage if store.past_progress else ""
    return tuple(text for text in (store.past_excess, damage) if text)


def keep_history(
    store: Store,
    settings: Settings,
    clock: Clock,
    *,
    closing: AsyncExitStack,
    record: Callable[[CallRecord], None],
) -> None:
    """Enforce the limits of the past, and check it, in the background until `closing` ends."""
    exports = settings.history.export and not settings.store.url.endswith(":memory:")
    keeper = HistoryKeeper(store, retention_of(settings), clock, record=record, exports=exports)
    keeper.start()
    closing.push_async_callback(asyncio.to_thread, keeper.stop)
    check = PastCheck(store, clock)
    closing.push_async_callback(asyncio.to_thread, check.stop)
