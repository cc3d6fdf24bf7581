"""The control plane's side of a connected metadata node: its requests and their answers.

`server.py` selects the node's parts of the feed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from forewarn.connection_table import TrackedConnection
from forewarn.replication import messages as feed
from forewarn.replication.messages import (
    Ack,
    Answered,
    ApproveMessage,
    EnableMessage,
    FeedCurrent,
    FeedUnreadable,
    Follow,
    OutcomeMessage,
    Ping,
    PollMessage,
    Pong,
    RequestAnswer,
    Upstream,
    VmPollsMessage,
)
from forewarn.replication.nodes import COST_BYTES, POLLED_COST, NodeTable
from forewarn.replication.scopes import ScopedFeed
from forewarn.replication.streams import write_line

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ASKED_LINE_BYTES_MAX = 1024 * 1024
"""Maximum length of a node's line; polls of a thousand groups with long names take 300 kB."""

GREETING_BYTES_MAX, GREETING_S_MAX = 4096, 2.0
"""Maximum length in bytes, and time limit in seconds, of a network node's first line, which proves
the node's name."""

REQUESTS_MAX = 10_000
"""Maximum number of a node's requests in progress."""

YIELD_COST = 32
"""Maximum cost of a node's messages before the server serves other nodes."""

IDLE_BYTES_MAX = 64 * 1024
"""Unsent bytes above which a node needs no keepalive request."""

PINGS_MAX = 100
"""Maximum number of unanswered pings; every message also proves that a node is alive."""

_NO_POSITION = -1
_PING = feed.line_of(Ping())


class NodeSession:
    """One connection of a node."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        upstream: Upstream,
        *,
        nodes: NodeTable,
        feed: ScopedFeed,
        limited: bool,
    ) -> None:
        """Start without messages; `limited` enables the rate limit for the node's messages."""
        self.writer = writer
        self.feed = feed
        """The feed that the node receives."""
        self.said = Follow("")
        """The node's first message."""
        self.position = _NO_POSITION
        """Position up to which the feed was sent to the node; see `ChangeLog`."""
        self.wake = asyncio.Event()
        """Event that is set if there may be data to send."""
        self._upstream = upstream
        self._nodes = nodes
        self._limited = limited
        self._spent = 0
        """Cost of the node's messages since the server served other nodes."""
        self._requests = 0
        self._answers: deque[tuple[int, bytes]] = deque()
        self._current = False
        self.source = ""
        """The node's source address; empty: unknown."""
        self.since_s = asyncio.get_running_loop().time()
        """When the connection began, by the event loop's clock."""
        self._alive = asyncio.Event()
        """Event that is set by each message of the node."""
        self._pings: deque[float] = deque()
        """Send times of the unanswered pings, by the event loop's clock."""
        self._heard_of_s = asyncio.get_running_loop().time()
        """Send time of the last answered ping; later messages are newer."""

    @property
    def name(self) -> str:
        """Return the node's name; empty until its first message."""
        return self.said.name

    @property
    def idle(self) -> bool:
        """Whether the node's send buffer contains few bytes."""
        return self.writer.transport.get_write_buffer_size() <= IDLE_BYTES_MAX

    def greeted(self, follow: Follow, source: str = "") -> None:
        """Record the node's identity, and start to measure the node's silence."""
        self.said, self.source = follow, source
        self._nodes.heard(follow.name)

    async def hear(self, reader: asyncio.StreamReader, heard: Callable[[], None]) -> None:
        """Process the node's messages until the end; serve other nodes between lines.

        Raises:
            FeedUnreadable: a message is invalid, or too long.
        """
        while line := await reader.readline():
            self._charge(1 + len(line) // COST_BYTES)
            self.take(line)
            heard()
            if self._spent >= YIELD_COST:
                self._spent = 0
                await asyncio.sleep(0)

    def take(self, line: bytes) -> None:
        """Handle a line; an answer is sent after all earlier changes.

        Raises:
            FeedUnreadable: the message is invalid.
        """
        self._nodes.heard(self.name)
        self._alive.set()
        match feed.read_asked(line):
            case Ack(sequence):
                self._nodes.record_shown(self.name, sequence)
            case Pong():
                if self._pings:
                    self._heard_of_s = max(self._heard_of_s, self._pings.popleft())
            case PollMessage(groups, age_ms):
                self._charge(POLLED_COST)
                self._upstream.polled(frozenset(groups), age_ms + self._way_ms())
            case VmPollsMessage(polls):
                self._charge(POLLED_COST)
                self._upstream.vms_polled(polls)
            case ApproveMessage(number, request):
                self._count_request()
                approved = self._upstream.approve(request)
                approved.add_done_callback(partial(self._approved, number))
            case EnableMessage(number, vm):
                self._count_request()
                enabled = self._upstream.enable(vm)
                enabled.add_done_callback(partial(self._enabled, number))
            case OutcomeMessage(number, vm, event_id):
                self._count_request()
                outcome = self._upstream.outcome(vm, event_id)
                outcome.add_done_callback(partial(self._approved, number))
            case Follow():
                raise FeedUnreadable(reason="a node identifies itself only once")

    def ping(self) -> None:
        """Request a keepalive, unless too many requests are unanswered."""
        if self.idle and len(self._pings) < PINGS_MAX:
            self._pings.append(asyncio.get_running_loop().time())
            write_line(self.writer, _PING)

    async def answers(self, within_s: float) -> bool:
        """Ask for a keepalive; return whether the node sends anything in time."""
        self._alive.clear()
        self.ping()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._alive.wait()
        return self._alive.is_set()

    def is_clone(self, other: NodeSession) -> bool:
        """Return whether another session with this name may be that of another machine.

        A process that reconnects has the same id and address; earlier versions send no id.
        """
        ours, theirs = (self.said.instance, self.source), (other.said.instance, other.source)
        return ours != theirs and bool(ours[0] and theirs[0])

    async def send(self, line: bytes) -> None:
        """Send a line; wait until the node reads."""
        write_line(self.writer, line)
        await self.writer.drain()

    def send_answers(self) -> None:
        """Send the due answers, each after the changes before it."""
        while self._answers and self._answers[0][0] <= self.position:
            self._requests -= 1
            write_line(self.writer, self._answers.popleft()[1])

    def caught_up(self) -> None:
        """Report the end of the feed to the node; later publications wait for the node."""
        self.send_answers()
        if not self._current:
            self._current = True
            self._heard_of_s = (
                asyncio.get_running_loop().time()
            )  # before this message, the node sends nothing
            self._nodes.enlist(self.name)
            write_line(self.writer, feed.line_of(FeedCurrent()))

    def _way_ms(self) -> int:
        """Return the maximum age of the node's current message, in ms.

        A message after the answer to a ping is newer than the ping, even if a suspended process
        buffered both. Source: F-5.
        """
        return int((asyncio.get_running_loop().time() - self._heard_of_s) * 1000)

    def _charge(self, cost: int) -> None:
        self._spent += cost
        if self._limited and not self._nodes.charge(self.name, cost):
            raise FeedUnreadable(reason="a node sends too much")

    def _count_request(self) -> None:
        if self._requests >= REQUESTS_MAX:
            raise FeedUnreadable(reason="a node has too many requests in progress")
        self._requests += 1

    def _approved(self, number: int, done: asyncio.Future[RequestAnswer]) -> None:
        failed = done.cancelled() or done.exception() is not None
        self._answer(Answered(number, None if failed else done.result()))

    def _enabled(self, number: int, done: asyncio.Future[None]) -> None:
        failed = done.cancelled() or done.exception() is not None
        self._answer(Answered(number, None if failed else RequestAnswer(accepted=True)))

    def _answer(self, message: Answered) -> None:
        self._answers.append((self.feed.log.next, feed.line_of(message)))
        self.wake.set()


class UnprovedReader(asyncio.StreamReader):
    """Reads a limited amount from a node until the node's name is proved."""

    _limit: int

    def __init__(self, tracked: TrackedConnection) -> None:
        super().__init__(GREETING_BYTES_MAX)
        self._tracked = tracked

    @property
    def source(self) -> str:
        """Source address of the node, for limits."""
        return self._tracked.source

    def admit(self) -> None:
        """Admit the connection, and accept lines of any length that a node may send."""
        self._tracked.admit()
        self._limit = ASKED_LINE_BYTES_MAX


class NodeConnection(asyncio.StreamReaderProtocol):
    """The stream of a node over the network, counted until its end."""

    def __init__(self, tracked: TrackedConnection, serve: Serve) -> None:
        super().__init__(UnprovedReader(tracked), serve)
        self._tracked = tracked

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._tracked.leave()
        super().connection_lost(exc)


def read_greeting(line: bytes) -> Follow:
    """Read a node's first line.

    Raises:
        FeedUnreadable: the line is not a node's first message.
    """
    greeting = feed.read_asked(line)
    if not isinstance(greeting, Follow) or not greeting.name:
        raise FeedUnreadable(reason="a node must identify itself first")
    return greeting
