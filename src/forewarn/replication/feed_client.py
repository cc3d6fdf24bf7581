"""A metadata node outside the control plane's process: follows a feed over a stream.

`messages.py` defines the messages, one per line. A node confirms only the changes that it shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from functools import partial
from typing import TypeAlias

from forewarn.errors import OurError, PeerError
from forewarn.host_port import host_and_port
from forewarn.ids import Ids
from forewarn.replication import messages as feed
from forewarn.replication.feed_state import digest_of
from forewarn.replication.messages import (
    Ack,
    Answered,
    ApprovalRequest,
    DocumentChange,
    FeedCurrent,
    FeedPortion,
    FeedStart,
    FeedUnreadable,
    Follow,
    Ping,
    Pong,
    Refused,
    RequestAnswer,
    VmPoll,
)
from forewarn.replication.node_store import NodeStore, Position
from forewarn.replication.nodes import FeedPace, usual_pace
from forewarn.replication.portions import ChangeAssembly, FeedBroken
from forewarn.replication.streams import write_line
from forewarn.values import value

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

PENDING_MAX = 10_000
"""Maximum number of requests that wait for an answer or for a lost feed."""

UNSENT_BYTES_MAX = 1024 * 1024
"""Number of unsent bytes above which a node delays polls."""

RETRY_S, RETRY_S_MAX = 0.2, 3.0
"""Pause before a node reconnects to a lost feed; the pause doubles up to the maximum."""

CONNECT_S_MAX = 3.0
"""Time limit of a connection attempt, before the next address is tried."""

FAILURES_MAX = 3
"""Number of a node's failures at one message after which the node stops."""

DOUBT_S_MAX = 60.0
"""Maximum time in seconds that a node continues after its first failure.

The actual time is random, at least half of it, so that nodes end at different times.
"""

_LOG = logging.getLogger(__name__)


class FeedLost(OurError):
    """A request could not be sent to the control plane."""

    code = "feed-lost"
    status = 503
    message = "The control plane cannot be reached."
    advice = "Repeat the request after a moment."


class ChangeNotShown(OurError):
    """A metadata node failed at a change."""

    code = "change-not-shown"
    message = "A metadata node could not show change {sequence}."
    advice = "The log contains the reason. The node requests the whole feed again. Report this bug."


class FeedOlder(PeerError):
    """A control plane lacks changes that the node has already received."""

    code = "feed-older"
    message = (
        "The feed at {address} is at change {sequence}, but this node already shows change {shown}."
    )
    advice = (
        "Another control plane may be the writer now. If its store was restored from a backup, "
        "run `forewarn store restore --in-place` there."
    )


class FeedRefused(PeerError):
    """The control plane refuses this node."""

    code = "feed-refused"
    message = "The control plane refuses this node: {reason}"
    advice = (
        "Check this node's name, its certificate or token, and [feed] hosts of the control plane."
    )


@value
class NodeIdentity:
    """The node's identity, and the files that verify the other end."""

    name: str = "node"
    hosts: tuple[str, ...] = ()
    """Hosts whose VMs the node serves; empty: all permitted hosts."""
    token: str = ""
    tls: ssl.SSLContext | None = None
    """TLS files; None: the address is reachable only from this machine."""


LINE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum length of a line: a portion, or a document with ten thousand events.

A busy node buffers twice this length.
"""


async def connect(address: str, tls: ssl.SSLContext | None = None) -> Streams:
    """Open a stream to `unix:PATH` or `HOST:PORT`."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        return await asyncio.open_unix_connection(path, limit=LINE_BYTES_MAX)
    host, port = host_and_port(address)
    return await asyncio.open_connection(host, port, limit=LINE_BYTES_MAX, ssl=tls)


@value
class FeedRoute:
    """The route to a feed, and the interval of keepalives."""

    connect: Callable[[str, ssl.SSLContext | None], Awaitable[Streams]] = connect
    pace: FeedPace = field(default_factory=usual_pace)
    #: Random numbers that distribute reconnects over time.
    ids: Ids = field(default_factory=Ids)


async def next_line(reader: asyncio.StreamReader, silent_s_max: float) -> bytes:
    """Return the next line; empty bytes at the end, or if the other end hangs."""
    async with asyncio.timeout(silent_s_max):
        return await reader.readline()


class FeedClient:
    """A node's end of the feed; the node's `Upstream`."""

    def __init__(
        self,
        address: str,
        apply: Callable[[DocumentChange], None],
        *,
        identity: NodeIdentity | None = None,
        store: NodeStore | None = None,
        route: FeedRoute | None = None,
    ) -> None:
        """Follow the feed at `unix:PATH` or `HOST:PORT`, or one of several, separated by commas."""
        self._route = route or FeedRoute()
        self._addresses = [each.strip() for each in address.split(",")]
        self._apply = apply
        self._identity = identity or NodeIdentity()
        self._instance = self._route.ids.token("instance")
        self._store = store
        self._nothing = Position()
        self._shows = self._nothing
        """The node's last shown change, which it reports after a reconnect."""
        self._commit = ""
        """The last signed commit of a control plane, which the node reports after a reconnect."""
        self._assembly: ChangeAssembly | None = None
        """The change or whole feed whose portions are arriving."""
        self._starting = self._nothing
        """The node's position once the whole feed has arrived."""
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self._pending: dict[int, tuple[bytes, asyncio.Future[RequestAnswer]]] = {}
        self._polled: dict[str, float] = {}
        """Group -> time of its VMs' last poll, by the event loop's clock, in seconds."""
        self.followed = asyncio.Event()
        """Set while the node is connected and up to date."""
        #: Called when a followed feed is lost.
        self.on_lost: Callable[[], None] = lambda: None
        self.failures = 0
        """Number of failures at a message."""
        self._doubts: list[asyncio.TimerHandle] = []
        self.failed = asyncio.Event()
        """Event that is set after too many failures, or too long after the first failure; the
        process must restart."""

    @property
    def _address(self) -> str:
        """The address of the current feed or attempt; after a failure, the next address follows.

        H-5.
        """
        return self._addresses[0]

    @property
    def sequence(self) -> int:
        """Return the number of the last shown change; 0: no change."""
        return self._shows.sequence

    def take_up(self) -> bool:
        """Show the stored documents before `start`; return whether the store has documents. M-2."""
        assert self._store is not None
        kept = self._store.load()
        if kept is None:
            return False
        self._apply(kept)
        self._shows, self._commit = self._store.position, self._store.commit
        return True

    def start(self) -> None:
        """Start following, without waiting for the connection."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        """Stop following; unanswered requests fail."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for doubt in self._doubts:
            doubt.cancel()
        for _, future in self._pending.values():
            if not future.done():
                future.set_exception(FeedLost())
                future.exception()  # the caller may have stopped waiting
        self._pending.clear()

    def approve(self, request: ApprovalRequest) -> asyncio.Future[RequestAnswer]:
        """Send an approval, after a reconnect if the feed is lost. Source: A-6."""
        return self._ask(partial(feed.ApproveMessage, request=request))

    def enable(self, vm: str) -> asyncio.Future[None]:
        """Ask the control plane to enable a group. Source: B-1."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answered(future: asyncio.Future[RequestAnswer]) -> None:
            failed = future.cancelled() or future.exception() is not None
            if done.done():
                return
            if failed or not future.result().accepted:
                done.set_exception(FeedLost())
            else:
                done.set_result(None)

        self._ask(partial(feed.EnableMessage, vm=vm)).add_done_callback(answered)
        return done

    def outcome(self, vm: str, event_id: str) -> asyncio.Future[RequestAnswer]:
        """Ask the control plane for the outcome of a VM's event. Source: X-1."""
        return self._ask(partial(feed.OutcomeMessage, vm=vm, event_id=event_id))

    def polled(self, groups: frozenset[str], age_ms: int = 0) -> None:
        """Report which groups polled; collect these reports while the feed is lost or slow. B-2.

        Each poll has its age, so that a poll before a wave does not count after the wave. Source:
        F-5.
        """
        now_s = asyncio.get_running_loop().time()
        self._polled.update(dict.fromkeys(groups, now_s - age_ms / 1000))
        writer = self._writer
        if writer is None or writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return
        by_age: dict[int, list[str]] = {}
        for group in sorted(self._polled):
            by_age.setdefault(int((now_s - self._polled[group]) * 1000), []).append(group)
        for age, marks in by_age.items():
            for start in range(0, len(marks), feed.POLLED_MAX):
                part = tuple(marks[start : start + feed.POLLED_MAX])
                write_line(writer, feed.line_of(feed.PollMessage(part, age)))
        self._polled.clear()

    def vms_polled(self, polls: Sequence[VmPoll]) -> None:
        """Report the last polls of VMs; drop these reports while the feed is lost or slow. B-5.

        A VM that continues to poll is in the next report.
        """
        writer = self._writer
        if writer is None or writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return
        for start in range(0, len(polls), feed.POLLED_MAX):
            part = tuple(polls[start : start + feed.POLLED_MAX])
            write_line(writer, feed.line_of(feed.VmPollsMessage(part)))

    def _ask(
        self,
        message: Callable[[int], feed.ApproveMessage | feed.EnableMessage | feed.OutcomeMessage],
    ) -> asyncio.Future[RequestAnswer]:
        future: asyncio.Future[RequestAnswer] = asyncio.get_running_loop().create_future()
        if len(self._pending) >= PENDING_MAX:
            future.set_exception(FeedLost())
            return future
        self._number += 1
        number = self._number
        line = feed.line_of(message(number))
        self._pending[number] = line, future
        # A caller that stopped waiting has asked its client to retry. The request may still be
        # sent, because repeated approvals count once.
        future.add_done_callback(lambda _: self._pending.pop(number, None))
        if self._writer is not None:
            write_line(self._writer, line)
        return future

    async def _follow(self) -> None:
        pause_s, trouble = RETRY_S, ""
        while True:
            try:
                await self._connect_and_read()
            except (
                OSError,  # OSError includes TimeoutError
                FeedUnreadable,
                FeedBroken,
                FeedOlder,
                FeedRefused,
                ValueError,
            ) as error:
                if isinstance(error, FeedBroken):
                    self._shows = self._nothing
                reason = str(error) or "the control plane does not answer"
                if reason != trouble:
                    trouble = reason
                    facts = {"action": "feed-lost"}
                    text = "The feed at %s cannot be followed: %s."
                    _LOG.warning(text, self._address, reason.removesuffix("."), extra=facts)
            except Exception:  # noqa: BLE001 - a node that stops following shows old news for ever
                self._fail()
            finally:
                self._writer = None
                self._assembly = None
                self._addresses.append(self._addresses.pop(0))
                if self.followed.is_set():
                    pause_s, trouble = RETRY_S, ""
                    self.followed.clear()
                    self.on_lost()
            # Nodes retry at different times, and try each address at least once per longest pause.
            share = (1 + self._route.ids.fraction("retry")) / 2 / len(self._addresses)
            await asyncio.sleep(pause_s * share)
            pause_s = min(pause_s * 2, RETRY_S_MAX)

    def _fail(self) -> None:
        """Handle a change that the node could not show completely because of a bug."""
        _LOG.exception("the node could not show a change because of a bug")
        self._shows = self._nothing
        self.failures += 1
        if self.failures >= FAILURES_MAX:
            self.failed.set()
        else:  # a whole feed may help, but after a partial change the process must restart later
            pause_s = DOUBT_S_MAX * (1 + self._route.ids.fraction("doubt")) / 2
            self._doubts.append(asyncio.get_running_loop().call_later(pause_s, self.failed.set))

    async def _connect_and_read(self) -> None:
        """Process messages until the end; send requests once the node is up to date."""
        greeting = feed.line_of(
            self._greeting()
        )  # computing the digest takes longer than a server's time limit
        async with asyncio.timeout(CONNECT_S_MAX):
            reader, writer = await self._route.connect(self._address, self._identity.tls)
        try:
            write_line(writer, greeting)
            while line := await next_line(reader, self._route.pace.silent_s_max):
                self._take(feed.read_server_message(line), writer)
                await writer.drain()
        finally:
            writer.close()

    def _greeting(self) -> Follow:
        me, shows, digest = self._identity, self._shows, ""
        if self._store is not None and shows.epoch:
            digest = digest_of(self._store.state.whole(shows.sequence))
        return Follow(
            me.name,
            shows.epoch,
            shows.sequence,
            shows.checksum,
            hosts=me.hosts,
            digest=digest,
            token=me.token,
            commit=self._commit,
            instance=self._instance,
        )

    def _take(self, message: feed.ServerMessage, writer: asyncio.StreamWriter) -> None:
        match message:
            case Answered():
                self._answered(message)
            case Ping():
                write_line(writer, feed.line_of(Pong()))
            case Refused(reason):
                raise FeedRefused(reason=reason)
            case FeedStart():
                self._begin(message)
            case FeedPortion():
                self._take_portion(message, writer)
            case FeedCurrent():
                write_line(writer, feed.line_of(Ack(self._shows.sequence)))
                self._catch_up(writer)

    def _begin(self, start: FeedStart) -> None:
        shows, starting = self._shows, Position(start.epoch, start.sequence, start.checksum)
        # An equal digest means equal content, even if another process uses other numbers.
        if start.whole and start.epoch == shows.epoch and start.sequence < shows.sequence:
            address = self._address
            raise FeedOlder(address=address, sequence=start.sequence, shown=shows.sequence)
        if start.whole:
            self._starting = starting
            self._assembly = ChangeAssembly(0, whole=True)
        elif starting != shows:  # the digests were equal, so the server's checksum applies
            if self._store is None or start.epoch != shows.epoch:
                raise FeedBroken(
                    sequence=start.sequence,
                    reason="the server resumes after a different change",
                )
            self._store.move(starting)
            self._shows = starting
        self._commit = start.commit or self._commit

    def _take_portion(self, portion: FeedPortion, writer: asyncio.StreamWriter) -> None:
        assembly = self._assembly or ChangeAssembly(self._shows.checksum)
        self._assembly = assembly
        change = assembly.add(portion)
        if change is None:
            return
        self._assembly = None
        before, self._shows = self._shows, self._nothing
        position = self._starting
        if not change.whole:
            position = Position(before.epoch, change.sequence, assembly.checksum)
        try:
            if self._store is not None:
                self._store.keep(change, position)
            self._apply(change)
        except Exception as error:
            raise ChangeNotShown(sequence=change.sequence) from error
        self._shows = position
        self._commit = change.commit or self._commit
        write_line(writer, feed.line_of(Ack(change.sequence)))

    def _catch_up(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        shows, facts = self._shows.sequence, {"action": "feed-followed"}
        _LOG.info("%s follows the feed, up to change %d", self._identity.name, shows, extra=facts)
        self.followed.set()
        for line, _ in tuple(self._pending.values()):
            write_line(writer, line)
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
