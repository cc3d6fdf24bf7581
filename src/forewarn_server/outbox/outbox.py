"""The outbox of a service: a thread with its own event loop, and a task for each destination.

The writer only notifies the outbox of new entries, so that the outbox does not delay polls and
calls. Once a second, the outbox saves the positions of all destinations in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence

from forewarn_base.clock import Clock
from forewarn_base.errors import CallerError, ForewarnError
from forewarn_base.values import value
from forewarn_server.outbox.delivery import Delivery, DeliveryState, Destination, SubmitLink
from forewarn_server.outbox.sink import Confirming
from forewarn_store import Store

log = logging.getLogger("forewarn.outbox")

#: Interval of saving positions, in seconds; after a crash, entries since the last save are
#: repeated.
SAVE_S = 1.0
#: Longest wait for running deliveries when the service stops, in seconds.
STOP_S_MAX = 2.0


class UnknownDestination(CallerError):
    """No destination has this name."""

    code = "outbox-unknown-destination"
    status = 404
    message = "The destination {name} does not exist."
    advice = "Use a destination of the service's settings, table [outbox.NAME]: {known}."


class ValidationCodeWrong(CallerError):
    """The validation URL has a wrong code."""

    code = "outbox-validation-code-wrong"
    status = 403
    message = "The code is not the validation code of destination {name}."
    advice = (
        "Open the receiver's newest validationUrl, which changes with each start of the service."
    )


@value
class DestinationStatus:
    """The progress of the delivery to a destination."""

    name: str
    kind: str
    state: DeliveryState
    #: Last delivered entry of history, and number of later entries.
    sequence: int
    behind: int
    #: Age of the oldest undelivered entry, in milliseconds; 0: all entries are delivered.
    behind_ms: int
    sent: int
    #: Entries that operators have skipped since the start.
    skipped: int
    failures: int
    #: Error of the last attempt; empty after success.
    error: str
    #: Start of the current failures, ms since the epoch UTC; 0: no failures.
    failing_since_ms: int


class Outbox:
    """Delivers to all destinations in the settings until stopped."""

    def __init__(
        self,
        store: Store,
        destinations: Sequence[Destination],
        clock: Clock,
        *,
        submit: SubmitLink,
    ) -> None:
        """Resume at the saved positions; a new destination begins with new entries.

        Raises:
            ForewarnError: the store cannot be read or written.
        """
        self._store = store
        self._clock = clock
        names = [each.name for each in destinations]
        cursors = store.cursors.take_up(names, store.history_seq)
        self._saved = dict(cursors)
        self._deliveries = {
            each.name: Delivery(each, store, clock, cursors[each.name], submit)
            for each in destinations
        }
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop deliveries, and save the positions."""
        self._call(self._ending.set)
        self._thread.join(STOP_S_MAX)

    def grew(self) -> None:
        """Notify the outbox of possible new entries; callable from any thread, never blocks."""
        self._call(self._wake)

    def statuses(self) -> list[DestinationStatus]:
        """Return the progress of each destination, read from history; callable from any thread."""
        return [self._status(each) for each in self._deliveries.values()]

    def retry(self, name: str) -> None:
        """Retry a destination at once.

        Raises:
            UnknownDestination: no destination has this name.
        """
        delivery = self._find(name)
        self._call(delivery.hurry.set)

    def validate(self, name: str, code: str) -> None:
        """Accept a receiver's consent to receive events, and retry its destination at once.

        Raises:
            UnknownDestination: no destination has this name.
            ValidationCodeWrong: the code differs from the code sent to the receiver.
        """
        sink = self._find(name).destination.sink
        if not (isinstance(sink, Confirming) and sink.confirm(code)):
            raise ValidationCodeWrong(name=name)
        self.retry(name)

    def skip(self, name: str, sequence: int) -> None:
        """Skip undelivered entries of a destination, up to and including entry `sequence`.

        Raises:
            UnknownDestination: no destination has this name.
        """
        delivery = self._find(name)
        last = min(sequence, self._store.history_seq)
        self._call(lambda: delivery.skip(last))

    def _find(self, name: str) -> Delivery:
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
            delivery.destination.options.kind,
            delivery.state(now_ms),
            sequence=cursor,
            behind=behind,
            behind_ms=max(now_ms - at_ms, 0) if at_ms else 0,
            sent=delivery.sent,
            skipped=delivery.skipped,
            failures=delivery.failures,
            error=delivery.error,
            failing_since_ms=delivery.failing_since_ms,
        )

    def _call(self, act: object) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has ended
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
        """Save positions that have changed since the last save; retry after a failure."""
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
            log.debug("positions of destinations cannot be saved now: %s", error)
        else:
            self._saved.update(moved)
