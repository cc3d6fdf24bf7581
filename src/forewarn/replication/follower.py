"""A metadata node away from the control plane: its snapshot follows a feed over a stream.

No document may be decided here and no VM answered. The messages are those of `messages.py`, each
a line; what the node shows is what it says it shows, and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from forewarn.errors import OurError, PeerError
from forewarn.replication import messages as feed
from forewarn.replication.feed_state import digest_of
from forewarn.replication.messages import (
    Ack,
    Answered,
    FeedCurrent,
    FeedPortion,
    FeedStart,
    FeedUnreadable,
    Follow,
    Ping,
    Pong,
    Refused,
)
from forewarn.replication.node_store import NodeStore, Position
from forewarn.replication.portions import ChangeAssembly, FeedBroken
from forewarn.replication.route import FeedRoute, next_line
from forewarn.values import value

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from forewarn.replication.messages import (
        ApprovalRequest,
        DocumentChange,
        RequestAnswer,
        VmPoll,
    )

PENDING_MAX = 10_000
"""Requests that may wait for an answer, or for the feed to come back."""

UNSENT_BYTES_MAX = 1024 * 1024
"""What may wait to be sent before poll marks are held back."""

RETRY_S, RETRY_S_MAX = 0.2, 3.0
"""Pause before a node looks for a lost feed again; doubled each time, up to the longest."""

CONNECT_S_MAX = 3.0
"""How long a feed may take to be connected to, before the next address is tried."""

FAILURES_MAX = 3
"""Times a node may fail at a message before it is given up."""

DOUBT_S_MAX = 60.0
"""How long a node goes on after it failed once; half of that at least, so that not all end at the
same time."""

_LOG = logging.getLogger(__name__)


class FeedLost(OurError):
    """A request could not be handed to the control plane."""

    code = "feed-lost"
    status = 503
    message = "The control plane cannot be reached."
    advice = "Try again in a moment."


class ChangeNotShown(OurError):
    """A metadata node failed at a change."""

    code = "change-not-shown"
    message = "A metadata node could not show change {sequence}."
    advice = "The log has the reason; the node requests everything again. Report a bug."


class FeedOlder(PeerError):
    """A control plane that knows less than it did."""

    code = "feed-older"
    message = "The feed at {address} is at change {sequence}, and this node shows {shown} already."
    advice = (
        "Another control plane may be the writer now. After its store was put back from a backup,"
        " run `forewarn store restore --in-place` there."
    )


class FeedRefused(PeerError):
    """The control plane does not let this node follow."""

    code = "feed-refused"
    message = "The control plane refuses this node: {reason}"
    advice = "Look at its name, its certificate or token, and at [feed] hosts there."


@value
class NodeIdentity:
    """How a node introduces itself, and by what it knows the other end."""

    name: str = "node"
    hosts: tuple[str, ...] = ()
    """Whose VMs it serves; empty: all that it may."""
    token: str = ""
    tls: ssl.SSLContext | None = None
    """None: the address is one that only its own machine reaches."""


class Follower:
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
        """Follow the feed at `address` (`unix:PATH` or `HOST:PORT`) into `apply`.

        Args:
            address: where the feed is; several, separated by commas, are tried in turn.
            apply: shows a change.
            identity: how the node introduces itself.
            store: keeps the documents that are shown; None: nothing is kept.
            route: how it is reached; None: over a socket, with signs of life as usual.
        """
        self._route = route or FeedRoute()
        self._addresses = [each.strip() for each in address.split(",")]
        self._apply = apply
        self._identity = identity or NodeIdentity()
        self._store = store
        self._nothing = Position()
        self._shows = self._nothing
        """What it shows, as it says when it comes back."""
        self._assembly: ChangeAssembly | None = None
        """The change or whole whose portions arrive."""
        self._starting = self._nothing
        """What it shows once the whole has arrived."""
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self._pending: dict[int, tuple[bytes, asyncio.Future[RequestAnswer]]] = {}
        self._polled: dict[str, float] = {}
        """Group -> when a VM of it asked last, by the event loop's clock, in seconds."""
        self.followed = asyncio.Event()
        """Set while the node is up to date with a feed that is there."""
        #: Called when the feed is lost after it was followed.
        self.on_lost: Callable[[], None] = lambda: None
        self.failures = 0
        """Times it failed at a message."""
        self._doubts: list[asyncio.TimerHandle] = []
        self.failed = asyncio.Event()
        """Set once it has failed too often, or for too long: a new process does better."""

    @property
    def _address(self) -> str:
        """The address that is followed or tried; the next one comes first once it fails. H-5."""
        return self._addresses[0]

    @property
    def sequence(self) -> int:
        """Return the last change that is shown; 0: none yet."""
        return self._shows.sequence

    def take_up(self) -> bool:
        """Show what the store has, before `start`; returns whether it has anything. M-2."""
        assert self._store is not None
        kept = self._store.load()
        if kept is None:
            return False
        self._apply(kept)
        self._shows = self._store.position
        return True

    def start(self) -> None:
        """Begin to follow; returns at once."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        """Stop following; requests without an answer fail."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for doubt in self._doubts:
            doubt.cancel()
        for _, future in self._pending.values():
            if not future.done():
                future.set_exception(FeedLost())
                future.exception()  # the caller may be gone
        self._pending.clear()

    def approve(self, request: ApprovalRequest) -> asyncio.Future[RequestAnswer]:
        """Hand an approval on; while the feed is away it waits for it. Source: A-6."""
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
        """Hand poll marks on; while the feed is away or slow they are gathered. Source: B-2.

        Each goes with its age: a poll before a wave is none after it. Source: F-5.
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
                writer.write(feed.line_of(feed.PollMessage(part, age)))
        self._polled.clear()

    def vms_polled(self, polls: Sequence[VmPoll]) -> None:
        """Send the last polls of VMs; without a feed that takes them they are dropped. B-5.

        A VM that goes on polling is in the next report.
        """
        writer = self._writer
        if writer is None or writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return
        for start in range(0, len(polls), feed.POLLED_MAX):
            part = tuple(polls[start : start + feed.POLLED_MAX])
            writer.write(feed.line_of(feed.VmPollsMessage(part)))

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
        # A caller that gave up has asked its client to repeat; the request may still be sent,
        # since an approval that is made twice is made once.
        future.add_done_callback(lambda _: self._pending.pop(number, None))
        if self._writer is not None:
            self._writer.write(line)
        return future

    async def _follow(self) -> None:
        pause_s, trouble = RETRY_S, ""
        while True:
            try:
                await self._connect_and_read()
            except (
                OSError,  # a TimeoutError is one
                FeedUnreadable,
                FeedBroken,
                FeedOlder,
                FeedRefused,
                ValueError,
            ) as error:
                if isinstance(error, FeedBroken):
                    self._shows = self._nothing
                reason = str(error) or "it does not answer"
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
            # Not all nodes at once, and no address longer without a try than the longest pause.
            share = (1 + self._route.ids.fraction("retry")) / 2 / len(self._addresses)
            await asyncio.sleep(pause_s * share)
            pause_s = min(pause_s * 2, RETRY_S_MAX)

    def _fail(self) -> None:
        """Handle a change that a bug kept from being shown, perhaps in part."""
        _LOG.exception("the node could not show what it was sent, by a bug")
        self._shows = self._nothing
        self.failures += 1
        if self.failures >= FAILURES_MAX:
            self.failed.set()
        else:  # the whole may help, yet it is laid over a half: a new process is better, in turn
            pause_s = DOUBT_S_MAX * (1 + self._route.ids.fraction("doubt")) / 2
            self._doubts.append(asyncio.get_running_loop().call_later(pause_s, self.failed.set))

    async def _connect_and_read(self) -> None:
        """Take messages until the end. Requests go out once the node is up to date."""
        greeting = feed.line_of(self._greeting())  # its digest takes longer than a server waits
        async with asyncio.timeout(CONNECT_S_MAX):
            reader, writer = await self._route.connect(self._address, self._identity.tls)
        try:
            writer.write(greeting)
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
        )

    def _take(self, message: feed.ServerMessage, writer: asyncio.StreamWriter) -> None:
        match message:
            case Answered():
                self._answered(message)
            case Ping():
                writer.write(feed.line_of(Pong()))
            case Refused(reason):
                raise FeedRefused(reason=reason)
            case FeedStart():
                self._begin(message)
            case FeedPortion():
                self._take_portion(message, writer)
            case FeedCurrent():
                writer.write(feed.line_of(Ack(self._shows.sequence)))
                self._catch_up(writer)

    def _begin(self, start: FeedStart) -> None:
        shows, starting = self._shows, Position(start.epoch, start.sequence, start.checksum)
        # With the same digest it has the same, though another process may number it otherwise.
        if start.whole and start.epoch == shows.epoch and start.sequence < shows.sequence:
            address = self._address
            raise FeedOlder(address=address, sequence=start.sequence, shown=shows.sequence)
        if start.whole:
            self._starting = starting
            self._assembly = ChangeAssembly(0, whole=True)
        elif starting != shows:  # the digest was the same, as the server has it
            if self._store is None or start.epoch != shows.epoch:
                raise FeedBroken(sequence=start.sequence, reason="it goes on after another change")
            self._store.move(starting)
            self._shows = starting

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
        writer.write(feed.line_of(Ack(change.sequence)))

    def _catch_up(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        shows, facts = self._shows.sequence, {"action": "feed-followed"}
        _LOG.info("%s follows the feed, up to change %d", self._identity.name, shows, extra=facts)
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
