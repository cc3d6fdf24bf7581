"""The control process's end of the feed: tells nodes of changes, takes their requests.

No change may be made in here and no approval judged: both are handed on. A node says what it
shows and is sent what it lacks: the changes since, while they are kept, or the whole, both in
portions and no faster than it reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING

from forewarn.ids import Ids
from forewarn.replication import messages as feed
from forewarn.replication.change_log import ChangeLog
from forewarn.replication.feed_state import FeedState
from forewarn.replication.messages import FeedStart, FeedUnreadable, Ping
from forewarn.replication.node_session import ASKED_LINE_BYTES_MAX, NodeSession
from forewarn.replication.nodes import SILENT_S_MAX, NodeTable
from forewarn.replication.portions import Portion, cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.replication.messages import DocumentChange, Upstream

HEARTBEAT_S = 1.0
"""How often each node is asked for a sign of life."""

NODES_MAX = 1000
"""Connected nodes; DESIGN gives direct connections some hundred."""

LOGGED_ITEMS_MAX = 10_000
"""A change of more records than this is sent as a fresh whole, in portions: it would hold the
event loop for longer than 30 ms."""

_SOCKET_MODE = 0o600  # whoever reaches it sees every VM's document

_LOG = logging.getLogger(__name__)


class FeedServer:
    """Keeps the whole truth, sends it to every node that comes, and every change after it."""

    def __init__(self, upstream: Upstream, *, epoch: str = "") -> None:
        """Hand the nodes' requests on to `upstream`.

        Args:
            upstream: whom they are for.
            epoch: names this server's sequence: no other server may ever have the same.
        """
        self.nodes = NodeTable()
        #: Called with the name of each node that counts and has been silent for too long.
        self.on_silent: Callable[[str], None] = lambda _: None
        self._upstream = upstream
        self._epoch = epoch or Ids().guid("feed")
        self._state = FeedState()
        self._log = ChangeLog()
        self._sessions: dict[NodeSession, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._beating: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._path = ""

    async def start(self, address: str) -> str:
        """Listen on `unix:PATH` or `HOST:PORT`; returns where it really listens."""
        self._beating = asyncio.get_running_loop().create_task(self._beat())
        if address.startswith("unix:"):
            self._path = address.removeprefix("unix:")
            before = os.umask(0o777 & ~_SOCKET_MODE)
            try:
                self._server = await asyncio.start_unix_server(
                    self._connected, self._path, limit=ASKED_LINE_BYTES_MAX
                )
            finally:
                os.umask(before)
            return address
        host, _, port = address.rpartition(":")
        self._server = await asyncio.start_server(
            self._connected, host.strip("[]"), int(port), limit=ASKED_LINE_BYTES_MAX
        )
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Hang up on every node."""
        if self._server is not None:
            self._server.close()
        if self._beating is not None:
            self._beating.cancel()
        for session in tuple(self._sessions):
            session.writer.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)  # noqa: PTH108

    @property
    def connected(self) -> int:
        """Return the number of connected nodes."""
        return len(self._sessions)

    def apply(self, change: DocumentChange) -> None:
        """Take a change over and have it sent to every node; call it on the event loop.

        The cost grows with the change and the number of nodes; a whole is only noted here.
        """
        self._state.apply(change)
        self._note(change)
        slowest = min((each.position for each in self._sessions), default=self._log.next)
        self._log.trim(slowest)
        for session in self._sessions:
            session.wake.set()

    def _note(self, change: DocumentChange) -> None:
        size = len(change.callers) + len(change.gone) + len(change.publications)
        if change.whole or size > LOGGED_ITEMS_MAX:
            if change.whole:
                self.nodes.outdated(change.sequence)
            self._log.reset(change.sequence)
            return
        portions: tuple[Portion, ...] = tuple(cut(change, self._log.checksum))
        lines = tuple(portion.line for portion in portions)
        self._log.append(change.sequence, lines, portions[-1].checksum)

    def confirmed(self, sequence: int, wait_s: float) -> asyncio.Future[tuple[str, ...]]:
        """Wait until every node that may serve shows this change.

        Nothing may begin before it is shown (L-7): whoever begins waits here first. Done with the
        names of the nodes that do not show it once the time is up. Source: M-4.
        """
        return self.nodes.wait(sequence, wait_s)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._sessions) >= NODES_MAX:
            writer.close()
            return
        self._tasks.add(task)
        session = NodeSession(writer, self._upstream, self.nodes)
        sending: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(SILENT_S_MAX):
                session.greeted(await reader.readline())
            self._begin(session)
            sending = asyncio.create_task(self._send(session))
            while line := await reader.readline():
                session.take(line, answered_at=lambda: self._log.next)
        except (OSError, FeedUnreadable, ValueError) as error:
            _LOG.warning(
                "Metadata node %s broke off: %s.",
                session.name or "(unnamed)",
                error,
                extra={"action": "node-broken"},
            )
        except asyncio.CancelledError:
            pass  # only `stop` cancels
        finally:
            self._sessions.pop(session, None)
            self._tasks.discard(task)
            if sending is not None:
                sending.cancel()
            writer.close()

    def _begin(self, session: NodeSession) -> None:
        """Take a node up where it stopped, or plan to send it the whole. Source: M-1."""
        for other in tuple(self._sessions):
            if other.name == session.name:  # it came back before its end was noticed
                other.writer.transport.abort()
                del self._sessions[other]
        self._sessions[session] = None
        said = session.said
        position = self._log.position_of(said.sequence, said.checksum)
        if said.epoch != self._epoch or position is None:
            return
        session.position = position
        start = FeedStart(self._epoch, said.sequence, said.checksum, whole=False)
        session.writer.write(feed.line_of(start))

    async def _send(self, session: NodeSession) -> None:
        """Send a node what it lacks, for as long as it is connected."""
        try:
            while True:
                if not self._log.holds(session.position):
                    await self._send_whole(session)
                    continue
                change = self._log.at(session.position)
                if change is None:
                    session.caught_up()
                    session.wake.clear()
                    await session.wake.wait()
                    continue
                session.position += 1
                for line in change.lines:
                    await session.send(line)
                session.send_answers()
        except OSError:
            session.writer.close()
        except Exception:  # noqa: BLE001 - the node comes back and is sent the whole
            _LOG.exception("the feed to node %s ends by a bug", session.name)
            session.writer.transport.abort()

    async def _send_whole(self, session: NodeSession) -> None:
        """Send everything as it is now; what changes meanwhile follows, in order. Source: M-1."""
        session.position = self._log.next
        whole = self._state.whole(self._log.sequence)
        start = FeedStart(self._epoch, self._log.sequence, self._log.checksum, whole=True)
        await session.send(feed.line_of(start))
        for portion in cut(whole, 0):
            await session.send(portion.line)
            await asyncio.sleep(0)  # others are served between portions
        session.send_answers()

    async def _beat(self) -> None:
        """Ask for signs of life, and notice who gives none."""
        loop = asyncio.get_running_loop()
        line = feed.line_of(Ping())
        while True:
            due_s = loop.time() + HEARTBEAT_S
            await asyncio.sleep(HEARTBEAT_S)
            if loop.time() > due_s + HEARTBEAT_S:
                self.nodes.forgive()
            for session in tuple(self._sessions):
                if self.nodes.silent(session.name):
                    session.writer.transport.abort()
                elif session.idle:
                    session.writer.write(line)
            for name in self.nodes.names:
                if self.nodes.silent(name):
                    self.on_silent(name)
