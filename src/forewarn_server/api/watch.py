"""The watch: streams of history to watchers.

The watch stores only each watcher's position. A watcher reads new entries after a notification,
and a slow watcher reads them later. There is no queue of entries per watcher. An entry is sent once
this process's answers to reads contain its commit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from starlette.types import Receive, Scope, Send

from forewarn_base.errors import CallerError, ForewarnError
from forewarn_core.fleet.step import StepResult
from forewarn_server.api.auth import STILL_PERMITTED
from forewarn_server.api.responses import first_of, left, start_stream
from forewarn_server.control.inbox import Overloaded
from forewarn_server.control.readable import ReadableControl
from forewarn_store import HistoryPage, Recorded, Store

T = TypeVar("T")

#: Maximum number of open streams; a further stream is refused with status 503.
WATCHERS_MAX = 200
#: Number of recent entries in memory; the store reads a commit once for all watchers.
RECENT_MAX = 1000
#: Maximum number of entries that a stream sends at once.
PAGE = 500
#: Time in seconds after which a silent stream sends a keep-alive.
SILENCE_S_MAX = 15.0
#: Time in seconds after which a stalled watcher is disconnected.
STALL_TIMEOUT_S = 30.0
#: Interval in seconds between checks of a watcher's permission. Source: P-4.
PERMISSION_LOOK_S = 2.0
#: Time limit in seconds for the last line of a stream.
LAST_LINE_S_MAX = 1.0


class TooManyStreams(CallerError):
    """An operator has too many open watch streams."""

    code = "too-many-streams"
    status = 429
    message = "Operator {operator} has {limit} watch streams open, the maximum."
    advice = "End a stream before you open another."


class CursorAhead(CallerError):
    """The requested start of a stream is an entry that does not exist yet."""

    code = "cursor-ahead"
    status = 409
    message = "The watch cannot begin after entry {after}: the newest entry of history is {newest}."
    advice = (
        "The number belongs to another store. Read the history of this store and use its numbers."
    )


class CursorExpired(CallerError):
    """The entries after the requested start of a stream were deleted."""

    code = "cursor-expired"
    status = 410
    message = "The watch cannot begin after entry {after}: entries up to {removed} were deleted."
    advice = (
        "Read the deleted entries from the exported files, then begin after {removed}. 0 begins "
        "at the oldest entry."
    )


def check_cursor(store: Store, after: int) -> None:
    """Refuse a position after which entries are missing.

    Raises:
        CursorAhead: the entry does not exist yet.
        CursorExpired: the entries after it were deleted.
    """
    removed, newest = store.history_bounds()
    if after > newest:
        raise CursorAhead(after=after, newest=newest)
    if 0 < after < removed:
        raise CursorExpired(after=after, removed=removed)


class OpenStreams:
    """Counts the open streams of all kinds per operator."""

    def __init__(self, max_per_operator: int = WATCHERS_MAX) -> None:
        self._max_per_operator = max_per_operator
        self.count = 0
        self._held: Counter[str] = Counter()

    def enter(self, operator: str) -> None:
        """Count a new stream.

        Raises:
            TooManyStreams: this operator has reached the limit.
            Overloaded: too many streams are open.
        """
        if self._held[operator] >= self._max_per_operator:
            raise TooManyStreams(operator=operator, limit=self._max_per_operator)
        if self.count >= WATCHERS_MAX:
            raise Overloaded(count=self.count)
        self.count += 1
        self._held[operator] += 1

    def leave(self, operator: str) -> None:
        """Stop counting a stream."""
        self.count -= 1
        self._held[operator] -= 1
        if not self._held[operator]:
            del self._held[operator]


class HistoryWatch:
    """Notifies watchers when history grows, and caches its last entries."""

    def __init__(
        self, store: Store, loop: ReadableControl, max_per_operator: int = WATCHERS_MAX
    ) -> None:
        """Start idle; the first watcher starts the notifications."""
        #: All open streams, including those of the page.
        self.streams = OpenStreams(max_per_operator)
        self._store = store
        self._loop = loop
        #: The event loop of the watchers; None before the first watcher.
        self._here: asyncio.AbstractEventLoop | None = None
        self._recent: deque[Recorded] = deque(maxlen=RECENT_MAX)
        #: Set by the next notification, and then replaced.
        self._news = asyncio.Event()
        self._watchers = 0
        self._stopped = False
        self._reading = asyncio.Lock()

    def stop(self) -> None:
        """End every stream with a last line."""
        self._stopped = True
        self._wake()

    def enter(self, operator: str = "") -> None:
        """Count a new watcher; `follow` stops counting it.

        Raises:
            TooManyStreams: this operator has reached the limit.
            Overloaded: too many streams are open.
        """
        self.streams.enter(operator)
        self._watchers += 1
        if self._here is None:
            self._here = asyncio.get_running_loop()
            self._loop.on_committed.add(self._note)

    async def follow(self, after: int, operator: str = "") -> AsyncGenerator[list[Recorded], None]:
        """Yield new entries after a sequence number; an empty list is a keep-alive."""
        now_s = asyncio.get_running_loop().time
        said_s = now_s()
        try:
            yield []
            while not self._stopped:
                news = self._news
                while page := await self._page(after):
                    yield page
                    after = page[-1].seq
                    said_s = now_s()
                if now_s() - said_s >= SILENCE_S_MAX:  # the notification brought no new entry
                    yield []
                    said_s = now_s()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SILENCE_S_MAX):
                        await news.wait()
        finally:
            self._watchers -= 1
            self.streams.leave(operator)

    async def _page(self, after: int) -> list[Recorded]:
        """Return the next entries, from memory or from the store."""
        async with self._reading:
            page = self._recent_page(after)
            if page is not None:
                return page
            readable = self._loop.freshness().history_seq
            wanted = HistoryPage(after=after, before=readable + 1, limit=PAGE)
            page = await asyncio.to_thread(self._store.history, wanted)
            newest = self._recent[-1].seq if self._recent else 0
            if page and page[0].seq > newest + 1:
                self._recent.clear()  # cached entries must be consecutive
            self._recent.extend(each for each in page if each.seq > newest)
            return page

    def _recent_page(self, after: int) -> list[Recorded] | None:
        if not self._recent or not self._recent[0].seq <= after + 1 <= self._recent[-1].seq:
            return None
        first = after + 1 - self._recent[0].seq
        return [self._recent[n] for n in range(first, min(first + PAGE, len(self._recent)))]

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _note(self, _: StepResult) -> None:
        """Wake the watchers; runs on the thread of the control plane."""
        if self._watchers and self._here is not None and not self._here.is_closed():
            self._here.call_soon_threadsafe(self._wake)


async def _await_permission_end(still: Callable[[], bool] | None) -> None:
    """Wait until a caller's permission ends."""
    while still is None or still():  # noqa: ASYNC110 - tokens expire without an event
        await asyncio.sleep(PERMISSION_LOOK_S)


class WatchStream(Generic[T]):
    """ASGI application that sends history to one watcher until either side ends the stream."""

    def __init__(
        self,
        pages: AsyncGenerator[list[T], None],
        media: str,
        line: Callable[[T], bytes],
        *,
        alive: bytes,
        last: bytes,
    ) -> None:
        """Prepare a stream.

        Args:
            pages: the result of `HistoryWatch.follow`.
            media: the media type.
            line: encodes one entry.
            alive: the keep-alive.
            last: the last bytes of a stream when the service stops.
        """
        self._pages = pages
        self._media = media
        self._line = line
        self._alive = alive
        self._last = last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the watcher leaves, stalls or loses its permission, or the service stops."""
        still = scope.get("state", {}).get(STILL_PERMITTED)
        with contextlib.suppress(asyncio.CancelledError):  # the service ends
            await first_of(self._send(send), left(receive), _await_permission_end(still))

    async def _send(self, send: Send) -> None:
        """Send all pages, and a last line after every kind of end."""
        await start_stream(send, self._media)
        last = self._last
        try:
            async for page in self._pages:
                body = b"".join(map(self._line, page)) or self._alive
                async with asyncio.timeout(STALL_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:
            return  # close the connection of a stalled watcher
        except ForewarnError as error:
            last = self._last.replace(b"stopped", error.code.encode())
        finally:
            await self._pages.aclose()
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(LAST_LINE_S_MAX):
                    await send({"type": "http.response.body", "body": last})
