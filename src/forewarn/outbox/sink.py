"""The interface for kinds of destinations, and the error for a failed delivery."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Protocol, TypeVar

from forewarn.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from forewarn.outbox.cloudevents import CloudEvent
T = TypeVar("T")


class DeliveryFailed(PeerError):
    """A destination is unreachable, or refused an event; the outbox retries the delivery."""

    code = "outbox-delivery-failed"
    status = 503
    message = "Destination {name} {problem}."
    advice = "Check the receiver. Delivery is retried; `forewarn outbox retry` retries at once."


class Sink(Protocol):
    """A connection to one receiver, used on the outbox's event loop, with one call at a time."""

    #: Most events in one call of `send`.
    batch_max: int

    async def open(self) -> None:
        """Connect, and check that the receiver accepts events.

        Raises:
            DeliveryFailed: the receiver is unreachable, or refuses events.
        """

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Deliver events in order; after the return, the receiver has all events.

        Raises:
            DeliveryFailed: the receiver may have only some of the events.
        """

    async def close(self) -> None:
        """Disconnect, even after a failure."""


async def blocking(work: Callable[[], T]) -> T:
    """Run a call on a thread; after a cancellation of the caller, the call continues."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failed: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it belongs to who waits
            failed = error
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name="outbox call", daemon=True).start()
    return await answer
