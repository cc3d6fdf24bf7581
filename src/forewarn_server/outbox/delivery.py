"""Delivery to one destination: reads history, sends in order, and retries without limit.

The delivery reads from history instead of a queue, so that an unreachable destination costs no
memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

from forewarn_base.clock import Clock
from forewarn_base.errors import ForewarnError
from forewarn_base.values import Word
from forewarn_core.fleet.refusals import UnknownTicket
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import LinkTicket
from forewarn_server.outbox.cloudevents import AUDIT_HEAD, CloudEvent, EventMaker
from forewarn_server.outbox.sink import DestinationOptions, Linking, Sink
from forewarn_store import HistoryPage, Recorded, Store
from forewarn_store.audit import HEAD_LOGGED_MS
from forewarn_store.errors import StoreLost
from forewarn_store.reading import owners_text

log = logging.getLogger("forewarn.outbox")

SubmitLink: TypeAlias = Callable[[LinkTicket, str], Future[StepResult]]

#: Entries read per page.
PAGE = 200
#: Interval of checks of history, in seconds, in case a notification was lost.
LOOK_S = 5.0
#: First and longest pause after a failure, in seconds; the pause doubles each time.
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 300.0
#: Duration of failures after which a destination counts as dead, with an alert.
DEAD_AFTER_MS = 3600 * 1000


class DeliveryState(Word):
    """The state of the delivery to a destination."""

    #: The destination accepts entries.
    DELIVERING = "delivering"
    #: The last attempt failed; the next attempt follows after a pause.
    RETRYING = "retrying"
    #: All attempts have failed for an hour; attempts continue.
    DEAD = "dead"
    #: This process has stopped delivering.
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Destination:
    """One destination, from the settings."""

    name: str
    sink: Sink
    options: DestinationOptions

    @property
    def wants_heads(self) -> bool:
        """Whether to send the audit's head: requires its name in `include`, and no owner."""
        return AUDIT_HEAD in self.options.include and not self.options.owner

    def wants(self, action: str) -> bool:
        """Return whether to send transitions with this action."""
        include, exclude = self.options.include, self.options.exclude
        wanted = any(fnmatchcase(action, pattern) for pattern in include)
        return wanted and not any(fnmatchcase(action, pattern) for pattern in exclude)


@dataclass(slots=True)
class Delivery:
    """Delivers to one destination on the outbox's event loop; other threads may read the fields."""

    destination: Destination
    store: Store
    clock: Clock
    #: Number of the last delivered or skipped entry.
    cursor: int
    #: Submits what a receiver has answered, with the actor of the change.
    submit: SubmitLink
    #: Number of the last sent audit head, and the time of its delivery, ms since the epoch UTC.
    head: int = 0
    head_ms: int = 0
    sent: int = 0
    #: Entries that operators have skipped since the start.
    skipped: int = 0
    failures: int = 0
    #: Start of the current failures, ms since the epoch UTC; 0: no failures.
    failing_since_ms: int = 0
    error: str = ""
    #: Whether the current failure was logged.
    alerted: bool = False
    stopped: bool = False
    #: Set when history may have new entries, or when an operator requests a retry.
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
        """Deliver until the task is cancelled, or until another process is the writer."""
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
                self._note_failure(str(error))
            except Exception as error:
                log.exception("delivery to %s failed because of a bug", self.destination.name)
                self._note_failure(f"delivery failed because of a bug: {error!r}")
            finally:
                with contextlib.suppress(Exception):
                    await self.destination.sink.close()
            pause_s = PAUSE_S_MIN if self.cursor > before else min(pause_s * 2, PAUSE_S_MAX)
            await _wait_for(self.hurry, pause_s)

    def skip(self, sequence: int) -> None:
        """Skip all entries up to `sequence`, at an operator's request."""
        self.skipped += max(sequence - self.cursor, 0)
        self.cursor = max(self.cursor, sequence)
        self.hurry.set()

    async def _deliver(self) -> None:
        maker = EventMaker(self.store, self.destination.options.source)
        while True:
            self.news.clear()
            after = self.cursor
            await self._deliver_head(maker)
            page = await asyncio.to_thread(self._page, after)
            if page:
                await self._deliver_page(page, maker, after)
            else:
                self._note_success()
                await _wait_for(self.news, LOOK_S)

    async def _deliver_head(self, maker: EventMaker) -> None:
        """Send a new head of the audit, at most once a minute."""
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
            self.store.confirm()  # a former writer must not send old events after newer events
        return entries

    async def _deliver_page(self, page: list[Recorded], maker: EventMaker, after: int) -> None:
        events = await asyncio.to_thread(self._events_of, page, maker, after)
        for chunk in _chunks(events, self.destination.sink.batch_max):
            if self.cursor != after:
                return  # an operator has skipped some entries of the page
            await self.destination.sink.send([event for _, event in chunk])
            await self._link()
            self._note_success()
            self.sent += len(chunk)
            if self.cursor == after:
                after = self.cursor = chunk[-1][0]
        if self.cursor == after:
            self.cursor = page[-1].seq  # includes filtered entries after the last sent entry

    async def _link(self) -> None:
        """Record the ids of the receiver's own tickets before the events count as delivered."""
        sink = self.destination.sink
        for link in sink.take_links() if isinstance(sink, Linking) else ():
            with contextlib.suppress(UnknownTicket):  # it has ended
                await asyncio.wrap_future(self.submit(link, f"outbox {self.destination.name}"))

    def _events_of(
        self, page: list[Recorded], maker: EventMaker, after: int
    ) -> list[tuple[int, CloudEvent]]:
        """Return the events of a page of history, each with the number of its entry."""
        events = []
        first, owner = page[0], self.destination.options.owner
        groups = None
        if owner:
            groups = self.store.groups_of(owner)
            wanted = HistoryPage(
                after=after, before=page[-1].seq + 1, limit=PAGE, owners=owners_text([owner])
            )
            own = {each.seq for each in self.store.history(wanted)}
            page = [each for each in page if each.seq in own or maker.is_declared_to(each, owner)]
        if first.seq > after + 1:
            events.append((first.seq - 1, maker.gap(after + 1, first.seq - 1, first.entry.at_ms)))
        events += [
            (each.seq, maker.make(each, groups, owner))
            for each in page
            if self.destination.wants(each.entry.action)
        ]
        return events

    def _note_failure(self, problem: str) -> None:
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

    def _note_success(self) -> None:
        if self.failing_since_ms:
            name = self.destination.name
            log.info("delivery to %s succeeds again", name, extra={"action": "outbox.recovered"})
        self.failing_since_ms = 0
        self.alerted = False
        self.error = ""


def _chunks(
    events: Sequence[tuple[int, CloudEvent]], size: int
) -> Iterator[Sequence[tuple[int, CloudEvent]]]:
    for start in range(0, len(events), size):
        yield events[start : start + size]


async def _wait_for(event: asyncio.Event, timeout_s: float) -> None:
    """Wait until an event is set, for at most `timeout_s`; then clear the event."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    event.clear()
