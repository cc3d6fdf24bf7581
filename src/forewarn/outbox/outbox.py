"""The outbox of a service: a thread with an event loop of its own, and a task per destination.

The writer only says that history grew; VMs' polls and operators' calls are on other threads. What
was delivered is noted in the store once a second, for all destinations together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from forewarn.errors import CallerError, ForewarnError
from forewarn.outbox.delivery import Delivery, DeliveryState
from forewarn.outbox.webhook_sink import EventGridSink
from forewarn.values import value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forewarn.clock import Clock
    from forewarn.outbox.delivery import Destination
    from forewarn.store import Store

log = logging.getLogger("forewarn.outbox")

#: Seconds between two notes of what was delivered: after a crash so much is delivered again.
SAVE_S = 1.0
#: Longest wait for deliveries under way when the service stops, in seconds.
STOP_S_MAX = 2.0


class UnknownDestination(CallerError):
    """A destination that the settings do not have."""

    code = "outbox-unknown-destination"
    status = 404
    message = "There is no destination {name}."
    advice = "Destinations are tables [outbox.NAME] of the service's settings; there are: {known}."


class ValidationCodeWrong(CallerError):
    """A validation URL was opened with a code that was not sent to the far side."""

    code = "outbox-validation-code-wrong"
    status = 403
    message = "This code does not validate destination {name}."
    advice = (
        "Open the newest validationUrl that it was sent; each start of the service has its own."
    )


@value
class DestinationStatus:
    """How far delivery to a destination is."""

    name: str
    kind: str
    state: DeliveryState
    #: The last entry of history that was delivered, and how many there are after it.
    sequence: int
    behind: int
    #: Age of the oldest entry that was not delivered, in milliseconds; 0: there is none.
    behind_ms: int
    sent: int
    failures: int
    #: Why the last try failed; empty: it did not.
    error: str
    #: Since when it fails, ms since the epoch UTC; 0: it does not.
    failing_since_ms: int


class Outbox:
    """Delivers to every destination of the settings until stopped."""

    def __init__(self, store: Store, destinations: Sequence[Destination], clock: Clock) -> None:
        """Resume at every cursor; a new destination begins with entries from now on.

        Raises:
            ForewarnError: the store cannot be asked or written.
        """
        self._store = store
        self._clock = clock
        names = [each.name for each in destinations]
        cursors = store.cursors.take_up(names, store.history_seq)
        self._saved = dict(cursors)
        self._deliveries = {
            each.name: Delivery(each, store, clock, cursors[each.name]) for each in destinations
        }
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def stop(self) -> None:
        """Stop delivering, and save the cursors."""
        self._call(self._ending.set)
        self._thread.join(STOP_S_MAX)

    def grew(self) -> None:
        """Note that history may have grown; on any thread, returns at once."""
        self._call(self._wake)

    def statuses(self) -> list[DestinationStatus]:
        """Return how far each destination is; any thread, costs a look at history for each."""
        return [self._status(each) for each in self._deliveries.values()]

    def retry(self, name: str) -> None:
        """Retry a destination at once.

        Raises:
            UnknownDestination: there is none of that name.
        """
        delivery = self._named(name)
        self._call(delivery.hurry.set)

    def validate(self, name: str, code: str) -> None:
        """Accept the confirmation of a destination that it wants events, and retry it at once.

        Raises:
            UnknownDestination: there is none of that name.
            ValidationCodeWrong: it was not sent this code.
        """
        sink = self._named(name).destination.sink
        if not (isinstance(sink, EventGridSink) and sink.confirm(code)):
            raise ValidationCodeWrong(name=name)
        self.retry(name)

    def skip(self, name: str, sequence: int) -> None:
        """Skip undelivered entries of a destination up to and including one.

        Raises:
            UnknownDestination: there is none of that name.
        """
        delivery = self._named(name)
        last = min(sequence, self._store.history_seq)
        self._call(lambda: delivery.skip(last))

    def _named(self, name: str) -> Delivery:
        delivery = self._deliveries.get(name)
        if delivery is None:
            raise UnknownDestination(name=name, known=", ".join(self._deliveries) or "none")
        return delivery

    def _status(self, delivery: Delivery) -> DestinationStatus:
        now_ms, cursor = self._clock.now_ms(), delivery.cursor
        behind = max(self._store.history_seq - cursor, 0)
        at_ms = self._store.cursors.next_ms(cursor) if behind else 0
        return DestinationStatus(
            delivery.destination.name,
            delivery.destination.kind,
            delivery.state(now_ms),
            sequence=cursor,
            behind=behind,
            behind_ms=max(now_ms - at_ms, 0) if at_ms else 0,
            sent=delivery.sent,
            failures=delivery.failures,
            error=delivery.error,
            failing_since_ms=delivery.failing_since_ms,
        )

    def _call(self, act: object) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(act)  # type: ignore[arg-type]

    def _wake(self) -> None:
        for delivery in self._deliveries.values():
            delivery.news.set()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._deliver())
        finally:
            self._loop.close()

    async def _deliver(self) -> None:
        tasks = [asyncio.create_task(each.run()) for each in self._deliveries.values()]
        try:
            while not self._ending.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SAVE_S):
                        await self._ending.wait()
                await asyncio.to_thread(self._save)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._save()

    def _save(self) -> None:
        """Note what was delivered since the last note; what cannot be noted is noted later."""
        moved = {
            name: each.cursor
            for name, each in self._deliveries.items()
            if each.cursor != self._saved[name]
        }
        if not moved:
            return
        try:
            self._store.confirm()
            self._store.cursors.save(moved)
        except ForewarnError as error:
            log.debug("what was delivered cannot be noted now: %s", error)
        else:
            self._saved.update(moved)
