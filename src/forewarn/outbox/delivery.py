"""Delivery to one destination: reads history after its cursor, sends in order, retries for ever.

Nothing is queued: an unreachable destination costs only its position in history.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from forewarn.errors import ForewarnError
from forewarn.outbox.cloudevents import AUDIT_HEAD, EventMaker
from forewarn.store import HistoryPage
from forewarn.store.audit import HEAD_LOGGED_MS
from forewarn.store.errors import StoreLost
from forewarn.store.reading import owners_text
from forewarn.values import Word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from forewarn.clock import Clock
    from forewarn.outbox.cloudevents import CloudEvent
    from forewarn.outbox.sink import Sink
    from forewarn.store import Recorded, Store

log = logging.getLogger("forewarn.outbox")

#: Entries read per page.
PAGE = 200
#: Interval of checking history in seconds, in case a notification of new entries was lost.
LOOK_S = 5.0
#: First and longest pause after a failure, in seconds; it doubles each time.
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 300.0
#: A destination counts as dead after failing for this long, and raises an alert; retries go on.
DEAD_AFTER_MS = 3600 * 1000


class DeliveryState(Word):
    """The state of the delivery to a destination."""

    #: All entries are delivered, or being delivered.
    DELIVERING = "delivering"
    #: The last attempt failed; the next one follows a pause.
    RETRYING = "retrying"
    #: All attempts failed for an hour; attempts continue.
    DEAD = "dead"
    #: This process no longer delivers.
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Destination:
    """One destination, as the settings describe it."""

    name: str
    kind: str
    sink: Sink
    #: Actions to send, as shell patterns.
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    #: Send only data that this owner may read; empty: everything. Source: P-3.
    owner: str = ""
    #: The `source` of the CloudEvents; empty: the store's epoch is the source.
    source: str = ""

    @property
    def wants_heads(self) -> bool:
        """Whether to send the audit's head: only if `include` names it, and never to an owner."""
        return AUDIT_HEAD in self.include and not self.owner

    def wants(self, action: str) -> bool:
        """Return whether to send transitions with this action."""
        wanted = any(fnmatchcase(action, pattern) for pattern in self.include)
        return wanted and not any(fnmatchcase(action, pattern) for pattern in self.exclude)


@dataclass(slots=True)
class Delivery:
    """Delivers to one destination; used on the outbox's event loop, but its fields may be read."""

    destination: Destination
    store: Store
    clock: Clock
    #: Last entry that was delivered or skipped.
    cursor: int
    #: Number of the audit record whose head was sent last, and the time, ms since the epoch UTC.
    head: int = 0
    head_ms: int = 0
    sent: int = 0
    failures: int = 0
    #: Start of the present failures, ms since the epoch UTC; 0: none.
    failing_since_ms: int = 0
    error: str = ""
    #: Whether the present failure was logged.
    alerted: bool = False
    stopped: bool = False
    #: Set when history may have new entries, or when an operator asks for a retry.
    news: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)

    def state(self, now_ms: int) -> DeliveryState:
        """Return the state of the delivery."""
        if self.stopped:
            return DeliveryState.STOPPED
        if not self.failing_since_ms:
            return DeliveryState.DELIVERING
        failing_ms = now_ms - self.failing_since_ms
        return DeliveryState.DEAD if failing_ms >= DEAD_AFTER_MS else DeliveryState.RETRYING

    async def run(self) -> None:
        """Deliver until the task is cancelled, or until another process writes the store."""
        pause_s = PAUSE_S_MIN
        while True:
            before = self.cursor
            try:
                await self.destination.sink.open()
                await self._deliver()
            except StoreLost:
                self.stopped = True
                return
            except ForewarnError as error:
                self._failed(str(error))
            except Exception as error:
                log.exception("delivery to %s failed because of a bug", self.destination.name)
                self._failed(f"delivery failed because of a bug: {error!r}")
            finally:
                with contextlib.suppress(Exception):
                    await self.destination.sink.close()
            pause_s = PAUSE_S_MIN if self.cursor > before else min(pause_s * 2, PAUSE_S_MAX)
            await _waited(self.hurry, pause_s)

    def skip(self, sequence: int) -> None:
        """Skip everything up to an entry, as an operator requested."""
        self.cursor = max(self.cursor, sequence)
        self.hurry.set()

    async def _deliver(self) -> None:
        maker = EventMaker(self.store, self.destination.source)
        while True:
            self.news.clear()
            after = self.cursor
            await self._deliver_head(maker)
            page = await asyncio.to_thread(self._page, after)
            if page:
                await self._deliver_page(page, maker, after)
            else:
                self._recovered()
                await _waited(self.news, LOOK_S)

    async def _deliver_head(self, maker: EventMaker) -> None:
        """Send the head of the audit if it is new and wanted, at most once a minute."""
        now_ms = self.clock.now_ms()
        if not self.destination.wants_heads or abs(now_ms - self.head_ms) < HEAD_LOGGED_MS:
            return
        for newest in await asyncio.to_thread(self.store.audit.newest, 1):
            if newest.seq != self.head:
                await self.destination.sink.send([maker.head(newest)])
                self.head, self.head_ms = newest.seq, now_ms

    def _page(self, after: int) -> list[Recorded]:
        entries = self.store.history(HistoryPage(after=after, limit=PAGE, images=True))
        if entries:
            self.store.confirm()  # a former writer must not send old events after new ones
        return entries

    async def _deliver_page(self, page: list[Recorded], maker: EventMaker, after: int) -> None:
        events = await asyncio.to_thread(self._events_of, page, maker, after)
        for chunk in _chunks(events, self.destination.sink.batch_max):
            if self.cursor != after:
                return  # an operator has skipped some of these entries
            await self.destination.sink.send([event for _, event in chunk])
            self._recovered()
            self.sent += len(chunk)
            if self.cursor == after:
                after = self.cursor = chunk[-1][0]
        if self.cursor == after:
            self.cursor = page[-1].seq  # includes filtered entries after the last sent one

    def _events_of(
        self, page: list[Recorded], maker: EventMaker, after: int
    ) -> list[tuple[int, CloudEvent]]:
        """Return the events of a page, each with the number of its entry."""
        events = []
        first, owner = page[0], self.destination.owner
        groups = None
        if owner:
            groups = self.store.groups_of(owner)
            wanted = HistoryPage(
                after=after, before=page[-1].seq + 1, limit=PAGE, owners=owners_text([owner])
            )
            own = {each.seq for each in self.store.history(wanted)}
            page = [each for each in page if each.seq in own]
        if first.seq > after + 1:
            events.append((first.seq - 1, maker.gap(after + 1, first.seq - 1, first.entry.at_ms)))
        events += [
            (each.seq, maker.make(each, groups))
            for each in page
            if self.destination.wants(each.entry.action)
        ]
        return events

    def _failed(self, problem: str) -> None:
        self.failures += 1
        if problem != self.error:
            self.error = problem
            facts = {"action": "outbox.failed"}
            log.warning("%s Delivery will be retried.", problem, extra=facts)
        now_ms = self.clock.now_ms()
        self.failing_since_ms = self.failing_since_ms or now_ms
        if self.state(now_ms) is DeliveryState.DEAD and not self.alerted:
            self.alerted = True
            text, facts = "delivery to %s has failed for an hour: %s", {"action": "outbox.dead"}
            log.error(text, self.destination.name, problem, extra=facts)

    def _recovered(self) -> None:
        if self.failing_since_ms:
            name = self.destination.name
            log.info("delivery to %s works again", name, extra={"action": "outbox.recovered"})
        self.failing_since_ms = 0
        self.alerted = False
        self.error = ""


def _chunks(
    events: Sequence[tuple[int, CloudEvent]], size: int
) -> Iterator[Sequence[tuple[int, CloudEvent]]]:
    for start in range(0, len(events), size):
        yield events[start : start + size]


async def _waited(event: asyncio.Event, timeout_s: float) -> None:
    """Wait until an event is set, or for `timeout_s`; then clear it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    event.clear()
