"""What a kind of destination must supply, and how it says that it could not deliver."""

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
    """A destination cannot be reached, or has refused an event; it is tried again."""

    code = "outbox-delivery-failed"
    status = 503
    message = "Destination {name} {problem}."
    advice = "Look at the far side; delivery is retried; `forewarn outbox retry` retries at once."


class Sink(Protocol):
    """A way to one far side. Used on the outbox's event loop, one call at a time."""

    #: Most events that `send` takes at a time.
    batch_max: int

    async def open(self) -> None:
        """Connect, and see that the far side wants to be sent events.

        Raises:
            DeliveryFailed: it cannot be reached, or does not want any.
        """

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Deliver events in their order; on return the far side has all of them.

        Raises:
            DeliveryFailed: it may have some of them, the first ones, and not the others.
        """

    async def close(self) -> None:
        """Disconnect; also after something failed."""


async def blocking(work: Callable[[], T]) -> T:
    """Return the result of a call; it goes on in the background if the caller is cancelled."""
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
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name="outbox call", daemon=True).start()
    return await answer
