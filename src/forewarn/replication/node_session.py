"""One connected metadata node, on the control process's side: its requests and their answers.

What it is sent of the feed is chosen in `server.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

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
    VmPollsMessage,
)
from forewarn.replication.nodes import COST_BYTES, POLLED_COST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from forewarn.connection_table import TrackedConnection
    from forewarn.replication.messages import Upstream
    from forewarn.replication.nodes import NodeTable
    from forewarn.replication.scopes import ScopedFeed

    Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ASKED_LINE_BYTES_MAX = 1024 * 1024
"""Longest line of a node: the poll marks of a thousand groups with long names have 300 kB."""

GREETING_BYTES_MAX, GREETING_S_MAX = 4096, 2.0
"""Longest first line of a node over the network, in bytes, and how long it may take, in seconds:
its name is not proved yet."""

REQUESTS_MAX = 10_000
"""Requests of a node that may be under way."""

YIELD_COST = 32
"""What a node may say, as it is charged, before others have their turn."""

IDLE_BYTES_MAX = 64 * 1024
"""A node with more than this unsent is not asked for a sign of life: it is being sent some."""

PINGS_MAX = 100
"""Pings that may be unanswered: it is not silent as long as it says anything else."""

_NOWHERE = -1
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
        """Start with nothing sent; `limited`: the node may say only so much."""
        self.writer = writer
        self.feed = feed
        """What it is sent."""
        self.said = Follow("")
        """How the node introduced itself."""
        self.position = _NOWHERE
        """How much of its feed it was sent; see `ChangeLog`."""
        self.wake = asyncio.Event()
        """Set when there may be something to send."""
        self._upstream = upstream
        self._nodes = nodes
        self._limited = limited
        self._spent = 0
        """What it said since others had their turn."""
        self._requests = 0
        self._answers: deque[tuple[int, bytes]] = deque()
        self._current = False
        self._pings: deque[float] = deque()
        """When each ping was sent that is not answered yet, by the event loop's clock."""
        self._heard_of_s = asyncio.get_running_loop().time()
        """What it says now it said after this: when the last ping it has answered was sent."""

    @property
    def name(self) -> str:
        """Return the node's name; empty until it has said it."""
        return self.said.name

    @property
    def idle(self) -> bool:
        """Whether little waits to be sent to it."""
        return self.writer.transport.get_write_buffer_size() <= IDLE_BYTES_MAX

    def greeted(self, follow: Follow) -> None:
        """Note who it is; from now on its silence counts."""
        self.said = follow
        self._nodes.heard(follow.name)

    async def hear(self, reader: asyncio.StreamReader, heard: Callable[[], None]) -> None:
        """Read the messages of the node until its end; others get their turn between lines.

        Args:
            reader: its messages.
            heard: called after each line.

        Raises:
            FeedUnreadable: it says nothing a node says, or more than it may.
        """
        while line := await reader.readline():
            self._charge(1 + len(line) // COST_BYTES)
            self.take(line)
            heard()
            if self._spent >= YIELD_COST:
                self._spent = 0
                await asyncio.sleep(0)

    def take(self, line: bytes) -> None:
        """Handle a line; an answer is sent after all changes made until then.

        Raises:
            FeedUnreadable: it says nothing a node says.
        """
        self._nodes.heard(self.name)
        match feed.read_asked(line):
            case Ack(sequence):
                self._nodes.shows(self.name, sequence)
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
                raise FeedUnreadable(reason="a node says only once who it is")

    def ping(self) -> None:
        """Ask for a sign of life, unless too many were asked for in vain."""
        if self.idle and len(self._pings) < PINGS_MAX:
            self._pings.append(asyncio.get_running_loop().time())
            self.writer.write(_PING)

    async def send(self, line: bytes) -> None:
        """Send a line, as fast as the node reads."""
        self.writer.write(line)
        await self.writer.drain()

    def send_answers(self) -> None:
        """Send the answers whose time has come: each follows the changes that were before it."""
        while self._answers and self._answers[0][0] <= self.position:
            self._requests -= 1
            self.writer.write(self._answers.popleft()[1])

    def caught_up(self) -> None:
        """Note that everything was sent; from the first time on publications wait for it."""
        self.send_answers()
        if not self._current:
            self._current = True
            self._heard_of_s = asyncio.get_running_loop().time()  # it says no more before that
            self._nodes.enlist(self.name)
            self.writer.write(feed.line_of(FeedCurrent()))

    def _way_ms(self) -> int:
        """Return the longest time that its current message may have been under way, in ms.

        What it says behind its answer to a ping it said after that was sent, however long both
        were in a buffer, of a process that stood still, say. Source: F-5.
        """
        return int((asyncio.get_running_loop().time() - self._heard_of_s) * 1000)

    def _charge(self, cost: int) -> None:
        self._spent += cost
        if self._limited and not self._nodes.charge(self.name, cost):
            raise FeedUnreadable(reason="a node says more than it may")

    def _count_request(self) -> None:
        if self._requests >= REQUESTS_MAX:
            raise FeedUnreadable(reason="a node asks more than it may at a time")
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
    """What comes from a node whose name is not proved: little, until it is admitted."""

    _limit: int

    def __init__(self, tracked: TrackedConnection) -> None:
        """Read from a connection that is counted."""
        super().__init__(GREETING_BYTES_MAX)
        self._tracked = tracked

    @property
    def source(self) -> str:
        """Where it comes from, as limits count it."""
        return self._tracked.source

    def admit(self) -> None:
        """Keep the connection, and take lines of any length a node may say."""
        self._tracked.admit()
        self._limit = ASKED_LINE_BYTES_MAX


class NodeConnection(asyncio.StreamReaderProtocol):
    """The stream of a node over the network, counted until its end."""

    def __init__(self, tracked: TrackedConnection, serve: Serve) -> None:
        """Serve it with `serve`."""
        super().__init__(UnprovedReader(tracked), serve)
        self._tracked = tracked

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting it."""
        self._tracked.leave()
        super().connection_lost(exc)


def read_greeting(line: bytes) -> Follow:
    """Read a node's first line.

    Raises:
        FeedUnreadable: it is not how a node introduces itself.
    """
    greeting = feed.read_asked(line)
    if not isinstance(greeting, Follow) or not greeting.name:
        raise FeedUnreadable(reason="a node says first who it is")
    return greeting
