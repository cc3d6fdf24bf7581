"""The control plane's end of the feed: what each metadata node is shown, and what it has confirmed.

Theory of operation. Each node waits in `follow` with the tag of the part that it shows. A part is
encoded only when it may have changed since; its digest decides whether the node needs it. So the
number of a change may differ between control planes, but an equal part is never sent again, and a
node counts as showing everything once it comes with the digest of its current part. Local workers
receive the changes themselves (`worker_streams.py`). `api/feed_endpoint.py` is the way to here by
HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from itertools import islice
from typing import NamedTuple

from forewarn_base.errors import CallerError, OurError
from forewarn_base.ids import Ids
from forewarn_core.requests import Request, RequestAnswer
from forewarn_metadata.replication.access import NodeAccess, NodeProof, NodeRefused
from forewarn_metadata.replication.feed_tag import FeedTag
from forewarn_metadata.replication.messages import (
    PART_BYTES_MAX,
    DocumentChange,
    NodeTroubles,
    PollReport,
    RelayReport,
    Upstream,
)
from forewarn_metadata.replication.moves import Moves
from forewarn_metadata.replication.node_requests import NodeRequests
from forewarn_metadata.replication.nodes import PART_COST, SILENT_S_MAX, NodeTable
from forewarn_metadata.replication.pace import FeedPace, pace_for
from forewarn_metadata.replication.scopes import ScopedFeed, Scopes
from forewarn_metadata.replication.worker_streams import HEARTBEAT_S, SILENT_BEATS, WorkerStreams

#: Maximum number of connected nodes.
NODES_MAX = 10_000

#: Maximum number of nodes in an answer to operators; the metrics contain all nodes.
NAMED_MAX = 100

#: Time limit for a sign of life of a node whose name another process claims, and for a follower to
#: learn what a node shows already, in seconds.
ANSWER_S_MAX = 2.0

#: Maximum number of a node's requests in progress.
REQUESTS_MAX = 1000

#: Maximum number of remembered answers, by node and idempotency key.
ANSWERS_MAX = 20_000

#: Assumed age of a report that another control plane's clock times. Source: F-5.
UNKNOWN_WAY_MS = 30_000

#: Interval at which a person's long poll looks at a part.
LOOK_S = 1.0

_LOG = logging.getLogger("forewarn.replication.server")


class FeedClosed(OurError):
    """This process cannot serve nodes now; another one may."""

    code = "feed-closed"
    status = 503
    message = "This control plane does not serve metadata nodes now: {reason}."
    advice = "No action is needed: nodes ask another control plane, or ask again."


class NodeTooFast(CallerError):
    """A node exceeds a limit on its requests."""

    code = "node-too-fast"
    status = 429
    message = "Metadata node {name} sends too many requests: {reason}."
    advice = "Look for a second program with the node's name or token."


class NodeKeyReused(CallerError):
    """A node used an idempotency key for two requests."""

    code = "node-key-reused"
    status = 422
    message = "Metadata node {name} used the Idempotency-Key {key} for another request before."
    advice = "Look for a second program with the node's name or token. Nothing was changed."


class RequestUnanswered(OurError):
    """A VM's request could not be answered now."""

    code = "request-unanswered"
    status = 502
    message = "The request could not be answered."
    advice = "The VM repeats it."


class PartTooLarge(OurError):
    """A node has too many VMs."""

    code = "node-part-too-large"
    status = 507
    message = "The documents of metadata node {name} take {size} bytes; the limit is {limit}."
    advice = "Divide the node's hosts between several nodes, in [feed] hosts."


async def _believe(_commit: str, _node: str) -> bool:
    """Accept each commit."""
    return True


class StoreHistory(NamedTuple):
    """What a feed must know about the store's past. Source: H-10."""

    #: Returns the signed id of the newest commit; empty: unknown.
    newest_commit: Callable[[], str] = str
    #: Returns whether the store has a commit that a node knows.
    check_commit: Callable[[str, str], Awaitable[bool]] = _believe


class FeedCaller(NamedTuple):
    """Who asks for a node's part."""

    #: Name of the node.
    name: str
    hosts: frozenset[str]
    #: Id of the node's process; empty: a person reads the part, which confirms nothing.
    instance: str
    source: str = ""
    #: What proves the node's name.
    proof: NodeProof = NodeProof()


class FeedAnswer(NamedTuple):
    """The answer to a long poll."""

    tag: FeedTag
    #: The part; None: the caller shows it already.
    body: bytes | None
    pace: FeedPace
    age_ms: int


class _OpenRequest(NamedTuple):
    """A node's request, and its answer."""

    request: Request
    reply: asyncio.Future[RequestAnswer]


class _Node:
    """A connected node."""

    __slots__ = (
        "absent",
        "asking",
        "asks_again",
        "caller",
        "commit",
        "connection",
        "feed",
        "requests",
        "waiting",
    )

    def __init__(self, caller: FeedCaller, feed: ScopedFeed, requests: NodeRequests) -> None:
        loop = asyncio.get_running_loop()
        self.caller = caller
        self.feed = feed
        self.requests = requests
        #: Completes when the node's part may differ (False), or must be answered (True).
        self.waiting: asyncio.Future[bool] | None = None
        #: Completes with the node's next request, or with its end.
        self.asks_again: asyncio.Future[None] = loop.create_future()
        #: The newest connection, on which the node waits.
        self.connection: object = None
        #: Runs while the node does not wait, until it counts as disconnected.
        self.absent: asyncio.TimerHandle | None = None
        self.asking = 0
        #: The last commit in a tag for this node.
        self.commit = ""

    def heard(self) -> asyncio.Future[None]:
        """Note a request of the node; return what completes with the next one."""
        if self.absent is not None:
            self.absent.cancel()
        if not self.asks_again.done():
            self.asks_again.set_result(None)
        self.asks_again = asyncio.get_running_loop().create_future()
        return self.asks_again

    def wake(self) -> None:
        """Look at the node's part again."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(False)

    def answer_now(self) -> None:
        """Answer the node's waiting request."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(True)


class FeedServer:
    """Stores all documents, and answers each node with its part. Use it on one event loop."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        epoch: str = "",
        access: NodeAccess | None = None,
        pace: Callable[[int], FeedPace] = pace_for,
        heartbeat_s: float = HEARTBEAT_S,
        history: StoreHistory | None = None,
    ) -> None:
        """Create a server; without `access`, only workers may follow."""
        self._history = history or StoreHistory()
        self.nodes = NodeTable(heartbeat_s * SILENT_BEATS)
        self._age_ms: Callable[[], int] = int
        self._on_reportable: Callable[[], None] = _nothing
        #: Id of the sequence of changes.
        self.epoch = epoch or Ids().guid("feed")
        #: Number of the last commit, including commits without changes for nodes.
        self.generation = 0
        self.access = access
        self._upstream = upstream
        self._pace = pace
        self._scopes = Scopes()
        self.workers = WorkerStreams(
            upstream, self.nodes, self._scopes.state, heartbeat_s=heartbeat_s
        )
        self._connected: dict[str, _Node] = {}
        self._moves = Moves(
            self.nodes,
            self._scopes,
            access=access,
            is_here=self._connected.__contains__,
            over=self._leave,
        )
        self._probing: set[asyncio.Task[None]] = set()
        #: Why this process refuses all nodes now; empty: it serves them.
        self._closed = ""
        #: Groups without documents until the control plane has recovered.
        self._withheld: frozenset[str] = frozenset()
        #: Connected nodes that may serve VMs, and the subset that is behind.
        self._present: set[str] = set()
        self._behind: set[str] = set()
        self._joined: dict[str, bool] = {}
        self._answers: OrderedDict[tuple[str, str], _OpenRequest] = OrderedDict()
        self._process = Ids().token("feed")
        self._offences = Offences()

    @property
    def connected(self) -> int:
        """Return the number of connected nodes."""
        return len(self._connected)

    async def stop(self) -> None:
        """Refuse every node."""
        self.suspend(suspended=True)
        self._moves.stop()
        for task in self._probing:
            task.cancel()
        await asyncio.gather(*self._probing, return_exceptions=True)
        await self.workers.stop()

    def state_age(self, age_ms: Callable[[], int]) -> None:
        """State the age of this process's information in answers, in ms. Source: H-3."""
        self._age_ms = age_ms

    def when_reportable(self, call: Callable[[], None]) -> None:
        """Call a function when a follower has a new report; see `report`."""
        self._on_reportable = call

    def suspend(self, *, suspended: bool) -> None:
        """Refuse all nodes, or accept nodes again. Source: H-3."""
        self._closed = "its information may be outdated" if suspended else ""
        if suspended:
            for node in tuple(self._connected.values()):
                self._end(node)

    # What nodes ask.

    async def follow(
        self, caller: FeedCaller, tag: FeedTag, wait_s: float, *, connection: object = None
    ) -> FeedAnswer:
        """Return a node's part once it differs from the tag, or nothing new after the wait.

        The tag confirms what the node shows. Source: M-1, M-4.

        Raises:
            FeedClosed: this process cannot serve nodes now.
            NodeRefused: another machine follows under the node's name, or there are too many.
            NodeTooFast, PartTooLarge: a limit is reached.
        """
        self._check_open()
        if not caller.instance:
            return await self._read(caller, tag, wait_s)
        node = await self._enter(caller)
        node.connection = connection
        asks_again = node.heard()
        try:
            if tag.commit and tag.commit != node.commit:
                if not await self._history.check_commit(tag.commit, caller.name):
                    raise FeedClosed(reason="its store may lack a commit that the node knows")
                self._check_open()
            update = await self._until_new(node, tag, wait_s)
        finally:
            if not asks_again.done():  # a request that a newer one replaced starts no time limit
                self._expect(node)
        node.commit = update.tag.commit
        return update

    def lost(self, caller: FeedCaller, connection: object) -> None:
        """Note that a connection has ended; a node that waits on it has gone."""
        node = self._connected.get(caller.name)
        if node is not None and node.connection is connection and node.waiting is not None:
            self._end(node)

    async def ask(self, caller: FeedCaller, request: Request, key: str) -> RequestAnswer:
        """Answer a VM's request; a repetition with the same key gets the same answer. M-3, M-5.

        Raises:
            FeedClosed, NodeRefused, NodeTooFast: the node may not ask now.
            NodeKeyReused: the key belongs to another request.
            RequestUnanswered: the control plane failed.
        """
        node = await self._enter_to_ask(caller)
        earlier = self._answers.get((caller.name, key)) if key else None
        if earlier is not None and earlier.request != request:
            raise NodeKeyReused(name=caller.name, key=repr(key))
        reply = earlier.reply if earlier is not None else None
        if reply is None or (reply.done() and (reply.cancelled() or reply.exception())):
            if node.asking >= REQUESTS_MAX:
                raise NodeTooFast(name=caller.name, reason=f"{REQUESTS_MAX} are in progress")
            node.asking += 1
            reply = node.requests.ask(request)
            reply.add_done_callback(partial(_note_reply, node))
            if key:
                self._answers[caller.name, key] = _OpenRequest(request, reply)
            while len(self._answers) > ANSWERS_MAX:
                self._answers.popitem(last=False)
        await asyncio.wait((reply,))
        if reply.cancelled() or reply.exception() is not None:
            raise RequestUnanswered
        return reply.result()

    async def tell(self, caller: FeedCaller, report: PollReport, clock: str) -> None:
        """Record polls that a node reports, with their time on the way. Source: B-2, B-5, F-5.

        Raises:
            FeedClosed, NodeRefused, NodeTooFast: the node may not report now.
        """
        node = await self._enter_to_ask(caller)
        process, _, clock_ms = clock.rpartition(".")
        way_ms = UNKNOWN_WAY_MS
        if process == self._process and clock_ms.isdecimal():
            way_ms = max(self._now_ms() - int(clock_ms[:15]), 0)
        groups = {group: age_ms + way_ms for group, age_ms in report.groups.items()}
        node.requests.tell(PollReport(groups, report.vms))

    def charge(self, name: str, cost: int) -> None:
        """Charge a node for a request.

        Raises:
            NodeTooFast: it exceeds its rate.
        """
        if not self.nodes.charge(name, cost):
            raise NodeTooFast(name=name, reason="it exceeds its rate")

    def clock(self) -> str:
        """Return this process's monotonic clock, which nodes send back with their reports."""
        return f"{self._process}.{self._now_ms()}"

    def sequence_for(self, name: str) -> int:
        """Return the last change of a node's part."""
        return self._scopes.latest(name)

    def has_host(self, name: str) -> bool:
        """Return whether a host with VMs, or a node that follows, has this name."""
        return name in self._scopes.hosts or name in self._connected

    def refuse(self, source: str, refused: NodeRefused) -> None:
        """Record and log a refusal."""
        self._offences.refuse(source, str(refused), refused.code)

    async def _enter(self, caller: FeedCaller) -> _Node:
        """Return the connected node, after the end of another process with its name.

        A refused process does not change the hosts of the node's feed. Source: M-5.
        """
        name = caller.name
        node = self._connected.get(name)
        if node is not None and node.caller.instance != caller.instance:
            await self._check_alone(node, caller)
            self._check_open()
            node = self._connected.get(name)
        if node is None and len(self._connected) >= NODES_MAX:
            raise NodeRefused(name=name, reason=f"{NODES_MAX} nodes are connected")
        feed = self._scopes.open(name, caller.hosts)
        if node is None or node.feed is not feed or node.caller.instance != caller.instance:
            lied = partial(self._offences.refuse, name, action="node.refused")
            requests = NodeRequests(self._upstream, self._scopes, feed=feed, on_misuse=lied)
            if node is not None:
                self._end(node)
            node = self._connected[name] = _Node(caller, feed, requests)
            self._expect(node)
        node.caller = caller
        return node

    async def _enter_to_ask(self, caller: FeedCaller) -> _Node:
        self._check_open()
        return await self._enter(caller)

    async def _check_alone(self, node: _Node, caller: FeedCaller) -> None:
        """Refuse a second machine with the name of a connected node, such as a clone.

        Otherwise each would end the wait of the other again and again. Source: M-5.

        Raises:
            NodeRefused: the connected node lives.
        """
        if await self._lives(node):
            reason = f"another machine with this name, at {node.caller.source}, follows"
            raise NodeRefused(name=caller.name, reason=f"{reason}; this one is at {caller.source}")

    async def _lives(self, node: _Node) -> bool:
        """Answer a connected node; return whether it asks again soon."""
        asks_again = node.asks_again
        node.answer_now()
        await asyncio.wait((asks_again,), timeout=ANSWER_S_MAX)
        is_here = self._connected.get(node.feed.name) is node
        return is_here and asks_again.done() and not asks_again.cancelled()

    async def _read(self, caller: FeedCaller, tag: FeedTag, wait_s: float) -> FeedAnswer:
        """Answer a person, who changes and confirms nothing; the next look is the next second's."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_s
        while True:
            feed = self._scopes.shown(caller.name, caller.hosts)
            body, left_s = self._part(feed), until_s - loop.time()
            is_new = (tag.epoch, tag.digest) != (self.epoch, feed.digest)
            if is_new or left_s < LOOK_S:
                return self._answered(feed, tag, body if is_new else None)
            await asyncio.sleep(LOOK_S)
            self._check_open()

    async def _until_new(self, node: _Node, tag: FeedTag, wait_s: float) -> FeedAnswer:
        loop = asyncio.get_running_loop()
        until_s, feed, is_over = loop.time() + wait_s, node.feed, wait_s <= 0
        while True:
            body, blocker = self._news(node, tag)
            if body is not None:
                return self._answered(feed, tag, body)
            if blocker and is_over:
                raise FeedClosed(reason=blocker)
            if is_over:
                return self._answered(feed, tag, None)
            if blocker:  # a moment only
                until_s = min(until_s, loop.time() + ANSWER_S_MAX)
            is_over = await self._wait(node, until_s)
            self._check_open()
            if self._connected.get(feed.name) is not node:  # another request replaced this one
                raise FeedClosed(reason="another request of the node replaced this one")
            assert self.access is not None
            if not self.access.still_proves(feed.name, node.caller.proof):
                refused = NodeRefused(name=feed.name, reason="the node's token is no longer valid")
                self._end(node)
                raise refused

    def _news(self, node: _Node, tag: FeedTag) -> tuple[bytes | None, str]:
        """Return the part that a node lacks, or why it must wait; note what it shows."""
        feed, name, ours = node.feed, node.feed.name, tag.epoch == self.epoch
        body = None
        if not feed.digest:
            body = self._part(feed)
        if ours and tag.digest == feed.digest:
            self.nodes.enlist(name)
            self.nodes.record_shown(name, self._scopes.sequence)
            self._heard(name)
            return None, ""
        if ours and self.nodes.counts(name):
            self.nodes.record_shown(name, min(tag.sequence, feed.sequence - 1))
        self._heard(name)
        if ours and tag.sequence > self.generation:
            return None, "it has not followed the store up to what the node shows"
        # A node would lose a document that it may show. Source: M-2.
        if any(self._scopes.shows_group(feed, group) for group in self._withheld):
            return None, "it has not recovered"
        self.charge(name, PART_COST)
        return body if body is not None else self._part(feed), ""

    def _part(self, feed: ScopedFeed) -> bytes:
        """Return a node's encoded part. Source: M-6."""
        body = self._scopes.part(feed).body
        if len(body) > PART_BYTES_MAX:
            raise PartTooLarge(name=feed.name, size=len(body), limit=PART_BYTES_MAX)
        return body

    async def _wait(self, node: _Node, until_s: float) -> bool:
        """Wait for a change of the node's part; return whether the node must be answered now."""
        loop = asyncio.get_running_loop()
        node.answer_now()  # an earlier request, whose connection is lost
        waiting = node.waiting = loop.create_future()
        timer = loop.call_at(until_s, node.answer_now)
        try:
            is_over: bool = await waiting
            return is_over
        finally:
            timer.cancel()
            if node.waiting is waiting:
                node.waiting = None

    def _answered(self, feed: ScopedFeed, tag: FeedTag, body: bytes | None) -> FeedAnswer:
        sequence = max(feed.sequence, tag.sequence if tag.epoch == self.epoch else 0)
        if body is None and (tag.epoch, tag.digest) != (self.epoch, feed.digest):
            new = tag
        else:
            new = FeedTag(self.epoch, sequence, feed.digest, self._history.newest_commit())
        return FeedAnswer(new, body, self._pace(len(self._connected)), self._age_ms())

    def _expect(self, node: _Node) -> None:
        """Give a node that does not wait some time to ask again."""
        node.absent = asyncio.get_running_loop().call_later(SILENT_S_MAX, self._end, node)

    def _check_open(self) -> None:
        if self._closed:
            raise FeedClosed(reason=self._closed)

    def _end(self, node: _Node) -> None:
        """Forget a connected node, and answer its waiting request."""
        name = node.feed.name
        if self._connected.get(name) is node:
            del self._connected[name]
            self._gone(name)
        node.wake()
        if node.absent is not None:
            node.absent.cancel()
        if not node.asks_again.done():
            node.asks_again.cancel()

    # Changes of the control plane.

    def record_commit(self, generation: int) -> None:
        """Record a commit whose changes have been applied; nodes that know it may be answered."""
        self.generation = max(self.generation, generation)

    def apply(self, change: DocumentChange) -> frozenset[str] | None:
        """Apply a change and wake its nodes; call it on the event loop.

        The cost is O(change + its nodes), or O(nodes) for a whole.

        Returns: the affected nodes, connected or not; None: all.
        """
        self.generation = max(self.generation, change.sequence)
        self._moves.expect(change)
        changed = self._scopes.apply(change)
        if change.whole:
            self._withheld = change.withheld
            self.nodes.reset_shown(change.sequence)
        concerned = {name for name in self.workers.names if self.nodes.counts(name)}
        self.workers.apply(change)
        for feed, arrived in changed.items():
            if feed.name in self._present:
                self._behind.add(feed.name)
            concerned.add(feed.name)
            if arrived:
                self._moves.begin(feed.name, change.sequence, frozenset(arrived))
        self._wake(changed)
        if self.access is None:
            return None
        concerned.update(self.access.expected(self._scopes.hosts_shown(change)))
        return frozenset(concerned)

    def confirmed(
        self, sequence: int, wait_s: float, names: Collection[str] | None = None
    ) -> asyncio.Future[tuple[str, ...]]:
        """Wait until these nodes, or all nodes that may serve, show this change.

        The driver host calls this function before it begins work (L-7). At the time limit, the
        result contains the names of the nodes without the change. Source: M-4.
        """
        return self.nodes.wait(sequence, wait_s, names)

    def hosts_of(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the hosts that these nodes serve; empty if a node serves every VM."""
        if self.access is None:
            return ()
        hosts: set[str] = set()
        for name in names:
            served = self._scopes.hosts_of(name) or self.access.permitted(name)
            if not served:
                return ()
            hosts |= served
        return tuple(sorted(hosts))

    def _wake(self, changed: Collection[ScopedFeed]) -> None:
        for feed in changed:
            node = self._connected.get(feed.name)
            if node is not None:
                node.wake()

    def _leave(self, vms: list[str]) -> None:
        """Remove moved VMs from their old nodes."""
        self._wake(self._scopes.remove_moved(vms))

    # What others know about nodes.

    def report(self, process: str, *, begins: bool) -> RelayReport:
        """Return a follower's report on its nodes since the last report, or the complete report.

        Cost: O(nodes that connected, disconnected or are behind).
        """
        changed, self._joined = self._joined, {}
        joined = [name for name, is_here in changed.items() if is_here]
        return RelayReport(
            process,
            self.generation,
            {name: self.nodes.shown(name) for name in self._behind},
            joined=tuple(sorted(self._present) if begins else joined),
            left=tuple(name for name, is_here in changed.items() if not is_here),
            begins=begins,
        )

    def take_report(self, report: RelayReport) -> bool:
        """Apply a follower's report; return False if the follower must start over. Source: M-4."""
        complete = self.nodes.take_report(report)
        self._moves.settle_relayed()
        for name, processes in self.nodes.cloned():
            text = (
                f"Metadata node {name} follows two control planes, {' and '.join(processes)}:"
                " two machines have its name."
            )
            self._offences.refuse(name, text, "node.cloned")
        for name in self._connected.keys() & set(report.joined):
            task = asyncio.get_running_loop().create_task(self._probe(self._connected[name]))
            self._probing.add(task)
            task.add_done_callback(self._probing.discard)
        return complete

    def troubles(self) -> NodeTroubles:
        """Return the nodes that are behind or disconnected, and recent refusals."""

        def is_behind(name: str) -> bool:
            shown = self.nodes.shown(name)
            return not self._follows(name) or shown < self._scopes.latest(name)

        expected = self.access.expected(self._scopes.hosts) if self.access else ()
        names = dict.fromkeys(islice(filter(is_behind, self.nodes.names), NAMED_MAX))
        names.update(dict.fromkeys(islice(filter(is_behind, expected), NAMED_MAX)))
        return NodeTroubles(tuple(sorted(names)[:NAMED_MAX]), tuple(self._offences.refused))

    def lags(self) -> dict[str, int]:
        """Return the number of changes that each node lacks; -1: disconnected."""
        names = {*self.nodes.names, *(self.access.hosts if self.access else ())}
        return {
            name: max(self._scopes.latest(name) - self.nodes.shown(name), 0)
            if self._follows(name)
            else -1
            for name in names
        }

    def _follows(self, name: str) -> bool:
        here = name in self._connected or self.workers.has(name)
        return here or self.nodes.relayed(name)

    def _heard(self, name: str) -> None:
        """Apply a node's request, which may confirm changes."""
        self._moves.settle(name)
        if not self.nodes.counts(name):
            return
        if name not in self._present:
            self._present.add(name)
            self._joined[name] = True
            self._behind.add(name)
        if name in self._behind and self.nodes.shown(name) >= self._scopes.latest(name):
            self._behind.discard(name)
            self._on_reportable()

    def _gone(self, name: str) -> None:
        """Record that a node has disconnected."""
        self._behind.discard(name)
        if name in self._present:
            self._present.discard(name)
            self._joined[name] = False
            self._on_reportable()

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def _probe(self, node: _Node) -> None:
        """Report a node that follows this process and a follower at the same time. Source: M-5."""
        name = node.feed.name
        if not await self._lives(node):
            if self._connected.get(name) is node:
                self._end(node)
        elif self.nodes.relayed(name):
            text = (
                f"Metadata node {name} follows two control planes, this one from"
                f" {node.caller.source}: two machines have its name."
            )
            self._offences.refuse(name, text, "node.cloned")


def _note_reply(node: _Node, _: object) -> None:
    node.asking -= 1


def _nothing() -> None:
    """Do nothing."""


#: Maximum number of refusals shown to operators.
REFUSED_MAX = 20

#: Minimum interval between log lines about one node or source, and maximum tracked offenders.
LOGGED_S, KNOWN_MAX = 60.0, 10_000


class Offences:
    """The latest refusals without repetitions. Each offender has at most one log line a minute."""

    def __init__(self) -> None:
        #: Refused requests, the latest last. Source: M-5.
        self.refused: deque[str] = deque(maxlen=REFUSED_MAX)
        #: Node or source -> time of its last log line, by the event loop's clock; in order.
        self._logged_s: OrderedDict[str, float] = OrderedDict()

    def refuse(self, who: str, text: str, action: str) -> None:
        """Record and log a request of a node or source for hosts that it may not serve."""
        if text not in self.refused:
            self.refused.append(text)
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s.get(who, -LOGGED_S) < LOGGED_S:
            return
        self._logged_s[who] = now_s
        self._logged_s.move_to_end(who)
        if len(self._logged_s) > KNOWN_MAX:
            self._logged_s.popitem(last=False)
        _LOG.warning("%s (%s)", text, who, extra={"action": action})
