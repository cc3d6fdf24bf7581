"""The control plane's end of the feed: sends changes to nodes, receives their requests.

A node reports its last change. The server sends the later changes if it still stores them,
otherwise the whole feed in portions. The server sends only as fast as the node reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from itertools import islice

from forewarn.connection_table import ConnectionTable, CountedPort, listeners_at
from forewarn.host_port import host_and_port, joined_address
from forewarn.ids import Ids
from forewarn.replication import messages as feed
from forewarn.replication.access import NodeAccess, NodeRefused
from forewarn.replication.carrier import Broker, BrokerListener, CarrierFigures
from forewarn.replication.feed_state import digest_of
from forewarn.replication.messages import (
    DocumentChange,
    FeedControlPlane,
    FeedStart,
    FeedUnreadable,
    Follow,
    NodeTroubles,
    Refused,
    RelayReport,
    Upstream,
)
from forewarn.replication.moves import Moves
from forewarn.replication.node_requests import NodeRequests
from forewarn.replication.node_session import (
    ASKED_LINE_BYTES_MAX,
    GREETING_S_MAX,
    NodeConnection,
    NodeSession,
    UnprovedReader,
    read_greeting,
)
from forewarn.replication.nodes import GREETING_COST, FeedPace, NodeTable, usual_pace
from forewarn.replication.portions import cut
from forewarn.replication.scopes import ScopedFeed, Scopes
from forewarn.replication.streams import write_line

NODES_MAX = 10_000
"""Maximum number of connected nodes."""

PINGS_PER_S_MAX = 2000
"""Keepalive requests per second; 10,000 nodes receive a request every 5 s, half of the permitted
silence."""

UNPROVED_MAX = 64
"""Maximum number of a source's connections without a proved name; less with few descriptors."""

NAMED_MAX = 100
"""Maximum number of nodes in an answer to operators; the metrics contain all nodes."""

ANSWER_S_MAX = 2.0
"""Time limit for a sign of life of a node whose name another process claims, in seconds."""

LOGGED_ITEMS_MAX = 10_000
"""Records above which a change is sent as a new whole, in portions, because the change would block
the event loop for longer than 30 ms."""

_SOCKET_MODE = 0o600  # every client of the socket can read every VM's document

_LOG = logging.getLogger(__name__)


class FeedServer:
    """Stores all documents, and sends each node its part and all later changes."""

    def __init__(
        self,
        upstream: FeedControlPlane,
        *,
        epoch: str = "",
        access: NodeAccess | None = None,
        pace: FeedPace | None = None,
    ) -> None:
        """Create a server; without `access`, only workers may connect."""
        self._pace = pace or usual_pace()
        self.nodes = NodeTable(self._pace.silent_s_max)
        #: Returns the signed id of the newest commit; empty: unknown.
        self.newest_commit: Callable[[], str] = str
        #: Returns whether the store has a commit that a node knows. Source: H-10.
        self.check_commit: Callable[[str, str], Awaitable[bool]] = _believe
        #: Receives the name of each counting node that has been silent for too long.
        self.on_silent: Callable[[str], None] = lambda _: None
        self._upstream = upstream
        #: Id of the sequence of changes; a node receives the id with its state.
        self.epoch = epoch or Ids().guid("feed")
        self._access = access
        self._scopes = Scopes()
        self._sessions: dict[str, NodeSession] = {}
        #: Names of the few nodes with the complete feed (workers).
        self._trusted: dict[str, None] = {}
        self._moves = Moves(self.nodes, self._scopes, access=access, over=self._leave)
        self._tasks: set[asyncio.Task[None]] = set()
        self._beating: asyncio.Task[None] | None = None
        #: Whether this process refuses all nodes now.
        self._suspended = False
        #: Groups without documents until the control plane has recovered.
        self._withheld: frozenset[str] = frozenset()
        #: Called when a follower has a new report; see `report`.
        self.on_reportable: Callable[[], None] = lambda: None
        #: Number of the last commit, including commits without changes for nodes.
        self.generation = 0
        #: Connected nodes that may serve VMs, and the subset that is behind.
        self._present: set[str] = set()
        self._behind: set[str] = set()
        self._joined: dict[str, bool] = {}
        self._servers: list[asyncio.Server] = []
        self._path = ""
        self._unproved = ConnectionTable(2 * NODES_MAX, UNPROVED_MAX)
        self._ports: list[CountedPort] = []
        self._brokered: BrokerListener | None = None
        self._offences = Offences()

    async def start(self, address: str) -> str:
        """Listen for workers on `unix:PATH` or `HOST:PORT`; return the actual address.

        The server trusts every client of the address, and sends it everything.
        """
        if not address.startswith("unix:"):
            return await self._listen(address, self._trusting)
        self._path = address.removeprefix("unix:")
        before, loop = os.umask(0o777 & ~_SOCKET_MODE), asyncio.get_running_loop()
        try:
            self._servers.append(await loop.create_unix_server(self._trusting, self._path))
        finally:
            os.umask(before)
        return address

    async def start_network(self, address: str, tls: ssl.SSLContext | None) -> str:
        """Listen for the permitted nodes on `HOST:PORT`; return the actual address."""
        assert self._access is not None
        protocol = partial(NodeConnection, serve=partial(self.serve, access=self._access))
        host, port = host_and_port(address)
        for listener in await listeners_at(host, port):
            self._ports.append(CountedPort(listener, self._unproved, protocol, tls=tls))
            self._ports[-1].start()
        return joined_address(host, self._ports[0].listener.getsockname()[1])

    def start_broker(self, connect: Callable[[], Awaitable[Broker]]) -> None:
        """Serve the permitted nodes over a message broker, once the broker is reachable. M-7."""
        access = self._access
        assert access is not None
        self._brokered = BrokerListener(
            connect,
            serve=partial(self.serve, access=access),
            hears=lambda name: not self._suspended and self.nodes.charge(name, 1),
            expected=lambda: {*access.expected(self._scopes.hosts), *access.hosts},
        )
        self._brokered.start()

    @property
    def carrier(self) -> CarrierFigures | None:
        """Return the counters of the feed over a broker; None without a broker."""
        return self._brokered.figures if self._brokered else None

    async def stop(self) -> None:
        """Disconnect every node."""
        for server in self._servers:
            server.close()
        for network_port in self._ports:
            await network_port.stop()
        if self._brokered is not None:
            await self._brokered.stop()
        if self._beating is not None:
            self._beating.cancel()
        self._moves.stop()
        for session in tuple(self._sessions.values()):
            session.writer.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)  # noqa: PTH108

    def record_commit(self, generation: int) -> None:
        """Record a commit without changes for nodes."""
        self.generation = max(self.generation, generation)

    def suspend(self, *, suspended: bool) -> None:
        """Disconnect and refuse all nodes, or accept nodes again. Source: H-3."""
        self._suspended = suspended
        if suspended:
            for session in tuple(self._sessions.values()):
                session.writer.close()

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
        known = self.nodes.take_report(report)
        self._moves.settle_relayed()
        return known

    def _heard(self, name: str) -> None:
        """Apply a node's message, which may confirm changes."""
        self._moves.settle(name)
        if not self.nodes.counts(name):
            return
        if name not in self._present:
            self._present.add(name)
            self._joined[name] = True
            self._behind.add(name)
        if name in self._behind and self.nodes.shown(name) >= self._scopes.latest(name):
            self._behind.discard(name)
            self.on_reportable()

    def _gone(self, name: str) -> None:
        """Record that a node has disconnected."""
        self._behind.discard(name)
        if name in self._present:
            self._present.discard(name)
            self._joined[name] = False
            self.on_reportable()

    async def serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        access: NodeAccess | None = None,
    ) -> None:
        """Serve one node until its connection ends; without `access`, trust the node."""
        task = asyncio.current_task()
        assert task is not None
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat())
        self._tasks.add(task)
        session: NodeSession | None = None
        sending: asyncio.Task[None] | None = None
        unproved = reader if isinstance(reader, UnprovedReader) else None
        wait_s = GREETING_S_MAX if unproved else self._pace.silent_s_max
        source = unproved.source if unproved else ""
        try:
            async with asyncio.timeout(wait_s):
                greeting = read_greeting(await reader.readline())
            if self._suspended:
                return
            session = self._admitted(greeting, writer, access, source)
            if unproved is not None:
                unproved.admit()
            await self._check_alone(session)
            if not await self.check_commit(greeting.commit, greeting.name) or self._suspended:
                return
            self._begin(session)
            sending = asyncio.create_task(self._send(session))
            await session.hear(reader, partial(self._heard, greeting.name))
        except NodeRefused as refused:
            self._offences.refuse(source, str(refused), refused.code)
            write_line(writer, feed.line_of(Refused(str(refused))))
        except (OSError, FeedUnreadable, ValueError) as error:
            who = f"Metadata node {session.name}" if session else f"A client at {source}"
            text = f"{who} broke off: {str(error).removesuffix('.')}."
            self._offences.log(session.name if session else "", text, "node-broken")
        except asyncio.CancelledError:
            pass  # only `stop` cancels
        finally:
            if session is not None and self._sessions.get(session.name) is session:
                del self._sessions[session.name]
                self._gone(session.name)
            self._tasks.discard(task)
            if sending is not None:
                sending.cancel()
            writer.close()

    @property
    def heartbeat_s(self) -> float:
        """Return the interval of keepalive requests to each node, in seconds."""
        return max(self._pace.heartbeat_s, len(self._sessions) / PINGS_PER_S_MAX)

    @property
    def connected(self) -> int:
        """Return the number of connected nodes."""
        return len(self._sessions)

    def apply(self, change: DocumentChange) -> frozenset[str] | None:
        """Apply a change and send it to every node; call it on the event loop.

        The cost is O(change + its nodes), or O(1) for a whole.

        Returns: the affected nodes, connected or not; None: all.
        """
        self.generation = max(self.generation, change.sequence)
        self._moves.expect(change)
        parts = self._scopes.apply(change)
        self._note(self._scopes.everything, change)
        if change.whole:
            self._withheld = change.withheld
            self._behind.update(self._present)
            self.nodes.reset_shown(change.sequence)
            for feed_of_one in self._scopes:
                feed_of_one.log.reset(change.sequence)
        concerned = {name for name in self._trusted if self.nodes.counts(name)}
        for part in parts:
            self._note(part.feed, part.change)
            if part.feed.name in self._present:
                self._behind.add(part.feed.name)
            concerned.add(part.feed.name)
            if part.arrived:
                self._moves.begin(part.feed.name, change.sequence, part.arrived)
        self._wake(self._scopes if change.whole else [part.feed for part in parts])
        if self._access is None:
            return None
        concerned.update(self._access.expected(self._scopes.hosts_shown(change)))
        return frozenset(concerned)

    def troubles(self) -> NodeTroubles:
        """Return the nodes that are behind or disconnected, and recent refusals."""

        def is_behind(name: str) -> bool:
            shown = self.nodes.shown(name)
            return not self._follows(name) or shown < self._scopes.latest(name)

        expected = self._access.expected(self._scopes.hosts) if self._access else ()
        names = dict.fromkeys(islice(filter(is_behind, self.nodes.names), NAMED_MAX))
        names.update(dict.fromkeys(islice(filter(is_behind, expected), NAMED_MAX)))
        return NodeTroubles(tuple(sorted(names)[:NAMED_MAX]), tuple(self._offences.refused))

    def lags(self) -> dict[str, int]:
        """Return the number of changes that each node lacks; -1: disconnected."""
        names = {*self.nodes.names, *(self._access.hosts if self._access else ())}
        return {
            name: max(self._scopes.latest(name) - self.nodes.shown(name), 0)
            if self._follows(name)
            else -1
            for name in names
        }

    def _follows(self, name: str) -> bool:
        return name in self._sessions or self.nodes.relayed(name)

    def hosts_of(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the hosts that these nodes serve; empty if a node serves every VM."""
        if self._access is None:
            return ()
        hosts: set[str] = set()
        for name in names:
            served = self._scopes.hosts_of(name) or self._access.hosts.get(name)
            if served is None and not self._access.each_host:
                return ()
            hosts |= served or {name}
        return tuple(sorted(hosts))

    def confirmed(
        self, sequence: int, wait_s: float, names: Collection[str] | None = None
    ) -> asyncio.Future[tuple[str, ...]]:
        """Wait until these nodes, or all nodes that may serve, show this change.

        The driver host calls this function before it begins work (L-7). At the time limit, the
        result contains the names of the nodes without the change. Source: M-4.
        """
        return self.nodes.wait(sequence, wait_s, names)

    def _note(self, scoped: ScopedFeed, change: DocumentChange) -> None:
        log = scoped.log
        size = len(change.callers) + len(change.gone) + len(change.publications)
        if change.whole or size > LOGGED_ITEMS_MAX:
            log.reset(change.sequence)
            return
        portions = tuple(
            cut(feed.signed(change, self.newest_commit()), log.checksum, self._pace.portion_bytes)
        )
        lines = tuple(portion.line for portion in portions)
        log.append(change.sequence, lines, portions[-1].checksum)

    def _wake(self, changed: Iterable[ScopedFeed]) -> None:
        """Wake the sessions with changed feeds, and the sessions of the complete feed."""
        for scoped in dict.fromkeys((self._scopes.everything, *changed)):
            names = (scoped.name,) if scoped.hosts is not None else tuple(self._trusted)
            slowest = scoped.log.next
            for session in map(self._sessions.get, names):
                if session is not None and session.feed is scoped:
                    session.wake.set()
                    slowest = min(slowest, session.position)
            scoped.log.trim(slowest)

    def _leave(self, vms: list[str]) -> None:
        """Remove moved VMs from their old nodes."""
        changed = []
        for scoped in self._scopes.serving_still(vms):
            change = self._scopes.left(scoped, vms)
            if change is not None:
                self._note(scoped, change)
                changed.append(scoped)
        self._wake(changed)

    def _trusting(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(ASKED_LINE_BYTES_MAX), self.serve)

    async def _listen(self, address: str, accepted: Callable[[], asyncio.Protocol]) -> str:
        host, port = host_and_port(address)
        server = await asyncio.get_running_loop().create_server(accepted, host, port)
        self._servers.append(server)
        return joined_address(host, server.sockets[0].getsockname()[1])

    def _admitted(
        self, greeting: Follow, writer: asyncio.StreamWriter, access: NodeAccess | None, source: str
    ) -> NodeSession:
        """Return a session for a permitted node. Source: M-5."""
        scoped = self._scopes.everything
        upstream: Upstream = self._upstream
        if access is not None:
            hosts = access.admit(greeting, writer.get_extra_info("peercert"), source)
            if not self.nodes.charge(greeting.name, GREETING_COST):
                raise NodeRefused(name=greeting.name, reason="the node exceeds its rate limit")
            if len(self._sessions) >= NODES_MAX and greeting.name not in self._sessions:
                raise NodeRefused(name=greeting.name, reason=f"{NODES_MAX} nodes are connected")
            scoped = self._scopes.open(greeting.name, hosts)
            refuse = partial(self._offences.refuse, greeting.name, action="node.refused")
            upstream = NodeRequests(self._upstream, self._scopes, feed=scoped, on_lie=refuse)
        limited = access is not None
        session = NodeSession(writer, upstream, nodes=self.nodes, feed=scoped, limited=limited)
        session.greeted(greeting, source)
        return session

    async def _check_alone(self, session: NodeSession) -> None:
        """Refuse a second machine with the name of a connected node, such as a clone.

        Otherwise each would end the connection of the other again and again. Source: M-5.

        Raises:
            NodeRefused: the connected node answers.
        """
        other = self._sessions.get(session.name)
        if other is None or session.feed.hosts is None or not session.is_clone(other):
            return
        if await other.answers(ANSWER_S_MAX) and self._sessions.get(session.name) is other:
            reason = f"another machine with this name, at {other.source or 'the broker'}, follows"
            raise NodeRefused(
                name=session.name, reason=f"{reason}; this one is at {session.source}"
            )

    def _begin(self, session: NodeSession) -> None:
        """Resume a node's feed after its last change, or schedule the whole. Source: M-1."""
        other = self._sessions.get(session.name)
        if (
            other is not None
        ):  # the node reconnected before the server noticed the end of its connection
            other.writer.transport.abort()
        self._sessions[session.name] = session
        if session.feed.hosts is None:
            self._trusted[session.name] = None
        greeting, log = session.said, session.feed.log
        if greeting.epoch != self.epoch:
            return
        position = log.position_of(greeting.sequence, greeting.checksum)
        sequence, checksum = greeting.sequence, greeting.checksum
        if position is None:
            if not greeting.digest or greeting.digest != digest_of(
                self._scopes.whole(session.feed)
            ):
                return
            position, sequence, checksum = log.next, log.sequence, log.checksum
        session.position = position
        start = FeedStart(self.epoch, sequence, checksum, whole=False, commit=self.newest_commit())
        write_line(session.writer, feed.line_of(start))

    async def _send(self, session: NodeSession) -> None:
        """Send a connected node its missing changes."""
        try:
            while True:
                session.wake.clear()
                if not session.feed.log.holds(session.position):
                    if self._withholds(session.feed):
                        await session.wake.wait()
                    else:
                        await self._send_whole(session)
                    continue
                change = session.feed.log.at(session.position)
                if change is None:
                    session.caught_up()
                    await session.writer.drain()
                    await session.wake.wait()
                    continue
                session.position += 1
                for line in change.lines:
                    await session.send(line)
                session.send_answers()
        except OSError:
            session.writer.close()
        except Exception:  # noqa: BLE001 - the node comes back and is sent the whole
            _LOG.exception("the feed to node %s ends because of a bug", session.name)
            session.writer.transport.abort()

    def _withholds(self, scoped: ScopedFeed) -> bool:
        """Return whether a node would lose a document that it may show; it waits. Source: M-2."""
        return any(self._scopes.shows_group(scoped, group) for group in self._withheld)

    async def _send_whole(self, session: NodeSession) -> None:
        """Send the current whole; later changes follow, in order. Source: M-1."""
        log = session.feed.log
        session.position = log.next
        commit = self.newest_commit()
        whole = feed.signed(self._scopes.whole(session.feed), commit)
        start = FeedStart(self.epoch, log.sequence, log.checksum, whole=True, commit=commit)
        await session.send(feed.line_of(start))
        for portion in cut(whole, 0, self._pace.portion_bytes):
            await session.send(portion.line)
            await asyncio.sleep(0)  # serve other nodes between portions
        session.send_answers()

    def _revoked(self, session: NodeSession) -> bool:
        """Return whether a node's token has been revoked. Source: P-4."""
        access = self._access
        if access is None or session.feed.hosts is None:
            return False  # workers are trusted
        certificate = session.writer.get_extra_info("peercert")
        return not certificate and not access.prove(session.name, session.said.token)

    async def _beat(self) -> None:
        """Ask for keepalives, and detect silent nodes."""
        loop = asyncio.get_running_loop()
        while True:
            heartbeat_s = self.heartbeat_s
            due_s = loop.time() + heartbeat_s
            await asyncio.sleep(heartbeat_s)
            if loop.time() > due_s + heartbeat_s:
                self.nodes.forgive()
            for session in tuple(self._sessions.values()):
                if self.nodes.silent(session.name):
                    session.writer.transport.abort()
                elif self._revoked(session):
                    refused = NodeRefused(
                        name=session.name, reason="the node's token is no longer valid"
                    )
                    self._offences.refuse(session.name, str(refused), refused.code)
                    write_line(session.writer, feed.line_of(Refused(str(refused))))
                    session.writer.close()
                else:
                    self._look_for_clone(session, loop.time())
                    session.ping()
            for name in self.nodes.names:
                if self.nodes.silent(name):
                    self.on_silent(name)

    def _look_for_clone(self, session: NodeSession, now_s: float) -> None:
        """Report a node that follows this process and a follower at the same time."""
        settled = now_s - session.since_s > self._pace.silent_s_max
        if settled and session.feed.hosts is not None and self.nodes.relayed(session.name):
            text = (
                f"Metadata node {session.name} follows two control planes, this one from"
                f" {session.source}: two machines have its name."
            )
            self._offences.refuse(session.name, text, "node.cloned")


async def _believe(_commit: str, _node: str) -> bool:
    """Accept each commit: a placeholder until the service sets the function."""
    return True


REFUSED_MAX = 20
"""Maximum number of refusals shown to operators."""

LOGGED_S, KNOWN_MAX = 60.0, 10_000
"""Minimum interval between log lines about one node or source, and maximum tracked offenders."""

_LOG = logging.getLogger(__name__)


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
        self.log(who, text, action)

    def log(self, who: str, text: str, action: str) -> None:
        """Log a refusal of a node or source, unless its last log line is less than a minute old."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s.get(who, -LOGGED_S) < LOGGED_S:
            return
        self._logged_s[who] = now_s
        self._logged_s.move_to_end(who)
        if len(self._logged_s) > KNOWN_MAX:
            self._logged_s.popitem(last=False)
        _LOG.warning("%s", text, extra={"action": action})
