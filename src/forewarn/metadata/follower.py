"""A metadata node away from the control plane: its snapshot follows a feed over a stream.

No document may be decided here and no VM answered. The stream is JSON lines, one message each.
The control process sends `{"change": …}` (the first is whole) and `{"answer": …}`; a node sends
`{"ack": sequence}` once it shows a change, and `{"approve": …}`, `{"enable": …}`, `{"polled": …}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from forewarn import feed
from forewarn.errors import OurError
from forewarn.feed import ApprovalAnswer, FeedUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.feed import ApprovalRequest, Change

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

    def __init__(self, address: str, apply: Callable[[Change], None]) -> None:
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
        form = {"vm": request.vm, "ids": list(request.event_ids), "address": request.address}
        return self._ask("approve", form)

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

        self._ask("enable", {"vm": vm}).add_done_callback(answered)
        return done

    def polled(self, groups: frozenset[str]) -> None:
        """Hand poll marks on; while the feed is away they are gathered. Source: B-2."""
        self._polled |= groups
        if self._writer is not None:
            self._send({"polled": sorted(self._polled)})
            self._polled.clear()

    def _ask(self, kind: str, form: Mapping[str, object]) -> asyncio.Future[ApprovalAnswer]:
        future: asyncio.Future[ApprovalAnswer] = asyncio.get_running_loop().create_future()
        if len(self._pending) >= PENDING_MAX:
            future.set_exception(FeedLost())
            return future
        self._number += 1
        number = self._number
        line = line_of({kind: {"number": number, **form}})
        self._pending[number] = line, future
        # Whoever gave up waiting has told its client to repeat; the request may still be sent,
        # since an approval that is made twice is made once.
        future.add_done_callback(lambda _: self._pending.pop(number, None))
        if self._writer is not None:
            self._writer.write(line)
        return future

    def _send(self, form: Mapping[str, object]) -> None:
        if self._writer is not None:
            self._writer.write(line_of(form))

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
            kind, form = message_of(line)
            if kind == "change":
                change = feed.decode(line_of(form))
                self._apply(change)
                if self._writer is None:
                    self._catch_up(writer)
                self._send({"ack": change.sequence})
            elif kind == "answer":
                self._answered(form)
            else:
                raise FeedUnreadable(reason=f"unknown message {kind}")

    def _catch_up(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.followed.set()
        for line, _ in tuple(self._pending.values()):
            writer.write(line)
        if self._polled:
            self.polled(frozenset())

    def _answered(self, form: Mapping[str, object]) -> None:
        number, error = form.get("number"), form.get("error")
        waiting = self._pending.get(number) if isinstance(number, int) else None
        if waiting is None or waiting[1].done():
            return
        if form.get("failed"):
            waiting[1].set_exception(FeedLost())
        else:
            accepted = form.get("accepted") is True
            waiting[1].set_result(ApprovalAnswer(accepted, str(error or "")))


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a stream to `unix:PATH` or `HOST:PORT`."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        return await asyncio.open_unix_connection(path, limit=LINE_BYTES_MAX)
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host.strip("[]"), int(port), limit=LINE_BYTES_MAX)


def line_of(form: Mapping[str, object]) -> bytes:
    """Return a message as a line."""
    return json.dumps(form, separators=(",", ":")).encode("ascii") + b"\n"


def message_of(line: bytes) -> tuple[str, dict[str, object]]:
    """Return a message's kind and content; a content that is no object is under its kind.

    Raises:
        FeedUnreadable: the line is no message.
    """
    try:
        form = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FeedUnreadable(reason="it is not JSON") from error
    if not isinstance(form, dict) or len(form) != 1:
        raise FeedUnreadable(reason="it is no message")
    ((kind, content),) = form.items()
    return kind, content if isinstance(content, dict) else {kind: content}
