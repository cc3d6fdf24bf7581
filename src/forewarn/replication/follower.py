"""A metadata node away from the control plane: its snapshot follows a feed over a stream.

No document may be decided here and no VM answered. Both ends send messages of `messages.py`, each a
line: the control process `Change` (the first is whole) and `Answered`; a node `Ack` once it shows
a change, and `Approve`, `Enable` and `Polled`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from forewarn.errors import OurError
from forewarn.replication import messages as feed
from forewarn.replication.messages import Answered, FeedUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.replication.messages import ApprovalAnswer, ApprovalRequest, DocumentChange

LINE_BYTES_MAX = 256 * 1024 * 1024
"""Longest line: the whole snapshot of 100,000 groups with an event each has about 50 MB."""

PENDING_MAX = 10_000
"""Requests that may wait for an answer, or for the feed to come back."""

RETRY_S = 0.2
"""How long a node waits before it looks for a lost feed again."""

_LOG = logging.getLogger(__name__)


class FeedLost(OurError):
    """A request could not be handed to the control plane."""

    code = "feed-lost"
    status = 503
    message = "The control plane cannot be reached."
    advice = "Try again in a moment."


class Follower:
    """A node's end of the feed; the node's `Upstream`."""

    def __init__(self, address: str, apply: Callable[[DocumentChange], None]) -> None:
        """Follow the feed at `address` (`unix:PATH` or `HOST:PORT`) into `apply`."""
        self._address = address
        self._apply = apply
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self._pending: dict[int, tuple[bytes, asyncio.Future[ApprovalAnswer]]] = {}
        self._polled: set[str] = set()
        self.followed = asyncio.Event()
        """Set while the node is up to date with a feed that is there."""

    def start(self) -> None:
        """Begin to follow; returns at once."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        """Stop following; requests without an answer fail."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for _, future in self._pending.values():
            if not future.done():
                future.set_exception(FeedLost())
                future.exception()  # whoever waited may be gone
        self._pending.clear()

    def approve(self, request: ApprovalRequest) -> asyncio.Future[ApprovalAnswer]:
        """Hand an approval on; while the feed is away it waits for it. Source: A-6."""
        return self._ask(partial(feed.ApproveMessage, request=request))

    def enable(self, vm: str) -> asyncio.Future[None]:
        """Have a group enabled. Source: B-1."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answered(future: asyncio.Future[ApprovalAnswer]) -> None:
            failed = future.cancelled() or future.exception() is not None
            if done.done():
                return
            if failed or not future.result().accepted:
                done.set_exception(FeedLost())
            else:
                done.set_result(None)

        self._ask(partial(feed.EnableMessage, vm=vm)).add_done_callback(answered)
        return done

    def polled(self, groups: frozenset[str]) -> None:
        """Hand poll marks on; while the feed is away they are gathered. Source: B-2."""
        self._polled |= groups
        if self._writer is not None:
            self._writer.write(feed.line_of(feed.PollMessage(tuple(sorted(self._polled)))))
            self._polled.clear()

    def _ask(
        self, message: Callable[[int], feed.ApproveMessage | feed.EnableMessage]
    ) -> asyncio.Future[ApprovalAnswer]:
        future: asyncio.Future[ApprovalAnswer] = asyncio.get_running_loop().create_future()
        if len(self._pending) >= PENDING_MAX:
            future.set_exception(FeedLost())
            return future
        self._number += 1
        number = self._number
        line = feed.line_of(message(number))
        self._pending[number] = line, future
        # Whoever gave up waiting has told its client to repeat; the request may still be sent,
        # since an approval that is made twice is made once.
        future.add_done_callback(lambda _: self._pending.pop(number, None))
        if self._writer is not None:
            self._writer.write(line)
        return future

    async def _follow(self) -> None:
        told = False
        while True:
            try:
                reader, writer = await connect(self._address)
            except OSError as error:
                if not told:
                    told = True
                    _LOG.warning(
                        "The feed at %s is away: %s.",
                        self._address,
                        error,
                        extra={"action": "feed-lost"},
                    )
                await asyncio.sleep(RETRY_S)
                continue
            told = False
            try:
                await self._read(reader, writer)
            except (OSError, FeedUnreadable, ValueError) as error:
                _LOG.warning("The feed broke: %s.", error, extra={"action": "feed-broken"})
            finally:
                self._writer = None
                self.followed.clear()
                writer.close()
            await asyncio.sleep(RETRY_S)

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take messages until the end. Requests go out once the first change is shown."""
        while line := await reader.readline():
            message = feed.read_told(line)
            if isinstance(message, Answered):
                self._answered(message)
                continue
            self._apply(message)
            if self._writer is None:
                self._catch_up(writer)
            writer.write(feed.line_of(feed.Ack(message.sequence)))

    def _catch_up(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.followed.set()
        for line, _ in tuple(self._pending.values()):
            writer.write(line)
        if self._polled:
            self.polled(frozenset())

    def _answered(self, message: Answered) -> None:
        _, waiting = self._pending.get(message.number, (b"", None))
        if waiting is None or waiting.done():
            return
        if message.answer is None:
            waiting.set_exception(FeedLost())
        else:
            waiting.set_result(message.answer)


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a stream to `unix:PATH` or `HOST:PORT`."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        return await asyncio.open_unix_connection(path, limit=LINE_BYTES_MAX)
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host.strip("[]"), int(port), limit=LINE_BYTES_MAX)
