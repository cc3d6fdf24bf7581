"""The tail of history: waking those who follow it, and their streams.

A follower holds nothing but its place: it reads on when there is more, and a slow one reads
later. Nothing is queued for anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter, deque
from typing import TYPE_CHECKING, Generic, TypeVar

from forewarn.api.auth import STILL
from forewarn.api.responses import left
from forewarn.control.inbox import Overloaded
from forewarn.errors import CallerError, ForewarnError
from forewarn.store import HistoryPage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from starlette.types import Receive, Scope, Send

    from forewarn.store import Recorded, Store

T = TypeVar("T")

#: Streams open at a time; beyond it 503.
FOLLOWERS_MAX = 200
#: Entries remembered for followers, so that a commit is read once and not once for each.
RECENT_MAX = 1000
#: Entries a stream sends at once.
PAGE = 500
#: Seconds a stream may be silent before it says that it is alive.
SILENCE_S_MAX = 15.0
#: Seconds a follower may refuse to take what it is sent; then it is cut off, and may come back.
STALL_TIMEOUT_S = 30.0
#: Seconds between looks at whether a follower may still read. Source: P-4.
PERMISSION_LOOK_S = 2.0
#: Seconds between looks at the store, in case its notice was missed.
LOOK_S = 1.0


class TooManyStreams(CallerError):
    """A watch stream more than one operator may hold."""

    code = "too-many-streams"
    status = 429
    message = "Operator {operator} holds {limit} watch streams; one operator may hold no more."
    advice = "End one first."


class CursorAhead(CallerError):
    """A stream that is to begin after an entry that is not there yet."""

    code = "cursor-ahead"
    status = 409
    message = "The watch cannot begin after entry {after}: the newest of history is {newest}."
    advice = "The number is of another store; read what there is, and begin with a number of it."


class CursorExpired(CallerError):
    """A stream that is to begin after an entry whose successors were removed."""

    code = "cursor-expired"
    status = 410
    message = "The watch cannot begin after entry {after}: entries up to {removed} were removed."
    advice = "Read those from the exported files, then begin after {removed}; 0: with the oldest."


def check_cursor(store: Store, after: int) -> None:
    """Refuse a place in history after which entries would be missed without a word.

    Raises:
        CursorAhead: that entry is not there yet.
        CursorExpired: what follows it was removed.
    """
    removed, newest = store.history_bounds()
    if after > newest:
        raise CursorAhead(after=after, newest=newest)
    if 0 < after < removed:
        raise CursorExpired(after=after, removed=removed)


class OpenStreams:
    """Who holds how many streams, of all kinds together."""

    def __init__(self, max_per_operator: int = FOLLOWERS_MAX) -> None:
        """Count none yet."""
        self._max_per_operator = max_per_operator
        self.count = 0
        self._held: Counter[str] = Counter()

    def enter(self, operator: str) -> None:
        """Count a stream in.

        Raises:
            TooManyStreams: this operator holds as many as one may.
            Overloaded: there are too many already.
        """
        if self._held[operator] >= self._max_per_operator:
            raise TooManyStreams(operator=operator, limit=self._max_per_operator)
        if self.count >= FOLLOWERS_MAX:
            raise Overloaded(count=self.count)
        self.count += 1
        self._held[operator] += 1

    def leave(self, operator: str) -> None:
        """Count a stream out."""
        self.count -= 1
        self._held[operator] -= 1
        if not self._held[operator]:
            del self._held[operator]


class HistoryWatch:
    """Notifies followers when history grows, and keeps its last entries at hand."""

    def __init__(self, store: Store, max_per_operator: int = FOLLOWERS_MAX) -> None:
        """Watch nothing yet: the first follower starts the watch, the last one ends it."""
        #: Streams of every kind, this one's and the page's.
        self.streams = OpenStreams(max_per_operator)
        self._store = store
        self._recent: deque[Recorded] = deque(maxlen=RECENT_MAX)
        self._waiting: list[asyncio.Future[None]] = []
        self._followers = 0
        self._watching = False
        self._stopped = False
        self._reading = asyncio.Lock()

    def stop(self) -> None:
        """End every stream, each with its last line."""
        self._stopped = True
        self._wake()

    def enter(self, operator: str = "") -> None:
        """Count a follower in; `follow` counts it out.

        Raises:
            TooManyStreams: this operator holds as many as one may.
            Overloaded: too many follow already.
        """
        self.streams.enter(operator)
        self._followers += 1
        if not self._watching:
            self._start()

    async def follow(self, after: int, operator: str = "") -> AsyncGenerator[list[Recorded], None]:
        """Yield entries after a sequence number as they come; an empty list is a sign of life."""
        now_s = asyncio.get_running_loop().time
        said_s = now_s()
        try:
            yield []
            while not self._stopped:
                news = self._news()
                while page := await self._page(after):
                    yield page
                    after = page[-1].seq
                    said_s = now_s()
                if now_s() - said_s >= SILENCE_S_MAX:  # though it was woken to look, to no avail
                    yield []
                    said_s = now_s()
                await asyncio.wait([news], timeout=SILENCE_S_MAX)
        finally:
            self._followers -= 1
            self.streams.leave(operator)

    async def _page(self, after: int) -> list[Recorded]:
        """Return the next entries, from memory where they are there."""
        async with self._reading:
            page = self._remembered(after)
            if page is not None:
                return page
            wanted = HistoryPage(after=after, limit=PAGE)
            page = await asyncio.to_thread(self._store.history, wanted)
            newest = self._recent[-1].seq if self._recent else 0
            if page and page[0].seq > newest + 1:
                self._recent.clear()  # a gap: what is remembered must have none
            self._recent.extend(each for each in page if each.seq > newest)
            return page

    def _remembered(self, after: int) -> list[Recorded] | None:
        if not self._recent or not self._recent[0].seq <= after + 1 <= self._recent[-1].seq:
            return None
        first = after + 1 - self._recent[0].seq
        return [self._recent[n] for n in range(first, min(first + PAGE, len(self._recent)))]

    def _news(self) -> asyncio.Future[None]:
        news = asyncio.get_running_loop().create_future()
        self._waiting.append(news)
        return news

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for news in waiting:
            if not news.done():
                news.set_result(None)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for commits, in a thread of its own, for as long as anybody follows."""
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            while self._followers:
                with contextlib.suppress(ForewarnError):  # followers find out when they read
                    self._store.notice(LOOK_S)
                loop.call_soon_threadsafe(self._wake)
            loop.call_soon_threadsafe(self._unwatched)

    def _start(self) -> None:
        self._watching = True
        arguments = (asyncio.get_running_loop(),)
        threading.Thread(target=self._watch, args=arguments, name="tail", daemon=True).start()

    def _unwatched(self) -> None:
        self._watching = False
        if self._followers:  # one came while the thread was ending
            self._start()


async def _refused(still: Callable[[], bool] | None) -> None:
    """Wait until a caller may not call any more."""
    while still is None or still():  # noqa: ASYNC110 - tokens expire without an event
        await asyncio.sleep(PERMISSION_LOOK_S)


class WatchStream(Generic[T]):
    """Sends the tail to one follower until either side ends it; an ASGI application."""

    def __init__(
        self,
        pages: AsyncGenerator[list[T], None],
        media: str,
        line: Callable[[T], bytes],
        *,
        alive: bytes,
        last: bytes,
    ) -> None:
        """Send nothing yet.

        Args:
            pages: what `Tail.follow` yields.
            media: the media type.
            line: makes the bytes of one entry.
            alive: the sign of life.
            last: what a stream ends with when the service stops.
        """
        self._pages = pages
        self._media = media
        self._line = line
        self._alive = alive
        self._last = last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the follower leaves, stalls, may not read any more, or the service stops."""
        tasks = [
            asyncio.ensure_future(each)
            for each in (
                self._send(send),
                left(receive),
                _refused(scope.get("state", {}).get(STILL)),
            )
        ]
        try:
            with contextlib.suppress(asyncio.CancelledError):  # the service ends
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        """Send everything, and a last line however it ends."""
        headers = [(b"content-type", self._media.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        last = self._last
        try:
            async for page in self._pages:
                body = b"".join(map(self._line, page)) or self._alive
                async with asyncio.timeout(STALL_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:
            return  # it reads nothing, so the connection is cut
        except ForewarnError as error:
            last = self._last.replace(b"stopped", error.code.encode())
        finally:
            await self._pages.aclose()
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(LOOK_S):
                    await send({"type": "http.response.body", "body": last})
