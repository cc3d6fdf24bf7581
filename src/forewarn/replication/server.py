"""The control process's end of the feed: tells nodes of changes, takes their requests.

No change may be made in here and no approval judged: both are handed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from functools import partial
from typing import TYPE_CHECKING

from forewarn.replication import messages as feed
from forewarn.replication.follower import LINE_BYTES_MAX
from forewarn.replication.messages import (
    Ack,
    Answered,
    ApprovalAnswer,
    ApproveMessage,
    DocumentChange,
    EnableMessage,
    FeedUnreadable,
    PollMessage,
)

if TYPE_CHECKING:
    from forewarn.replication.messages import Caller, Publication, Upstream

BEHIND_BYTES_MAX = 64 * 1024 * 1024
"""What a node may be behind before it is cut off, to begin anew with the whole."""

_SOCKET_MODE = 0o600  # whoever reaches it sees every VM's document

_LOG = logging.getLogger(__name__)


class FeedSession:
    """One connected metadata node."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        """Start with nothing shown."""
        self.writer = writer
        self.shown = -1
        """Sequence of the last change it shows."""


class FeedServer:
    """Keeps the whole truth, sends it to every node that comes, and every change after it."""

    def __init__(self, upstream: Upstream) -> None:
        """Hand the nodes' requests on to `upstream`."""
        self._upstream = upstream
        self._callers: dict[str, Caller] = {}
        self._publications: dict[str, Publication] = {}
        self._sequence = 0
        self._nodes: dict[FeedSession, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._path = ""
        self._acked = asyncio.Event()

    async def start(self, address: str) -> str:
        """Listen on `unix:PATH` or `HOST:PORT`; returns where it really listens."""
        if address.startswith("unix:"):
            self._path = address.removeprefix("unix:")
            before = os.umask(0o777 & ~_SOCKET_MODE)
            try:
                self._server = await asyncio.start_unix_server(
                    self._connected, self._path, limit=LINE_BYTES_MAX
                )
            finally:
                os.umask(before)
            return address
        host, _, port = address.rpartition(":")
        self._server = await asyncio.start_server(
            self._connected, host.strip("[]"), int(port), limit=LINE_BYTES_MAX
        )
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Hang up on every node."""
        if self._server is not None:
            self._server.close()
        for node in tuple(self._nodes):
            node.writer.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)  # noqa: PTH108

    @property
    def nodes(self) -> int:
        """Return the number of connected nodes."""
        return len(self._nodes)

    def apply(self, change: DocumentChange) -> None:
        """Take a change over and send it to every node; call it on the event loop."""
        if change.whole:
            self._callers.clear()
            self._publications.clear()
        for vm in change.gone:
            self._callers.pop(vm, None)
        self._callers.update((caller.vm, caller) for caller in change.callers)
        self._publications.update((each.view, each) for each in change.publications)
        self._sequence = change.sequence
        line = feed.line_of(change)
        for node in tuple(self._nodes):
            if node.writer.transport.get_write_buffer_size() > BEHIND_BYTES_MAX:
                _LOG.warning("A metadata node is too far behind.", extra={"action": "node-cut"})
                node.writer.transport.abort()
            else:
                node.writer.write(line)

    async def shown(self, sequence: int, *, wait_s: float) -> bool:
        """Wait until every connected node shows this change; False where the time is up.

        Nothing may begin before it is shown (L-7): whoever begins waits here first. A node that
        is away is not waited for, since it learns the whole truth when it comes back.
        """
        try:
            async with asyncio.timeout(wait_s):
                while any(node.shown < sequence for node in self._nodes):
                    self._acked.clear()
                    await self._acked.wait()
        except TimeoutError:
            return False
        return True

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        node = FeedSession(writer)
        writer.write(feed.line_of(self._whole()))
        self._nodes[node] = None
        try:
            while line := await reader.readline():
                self._take(node, line)
        except (OSError, FeedUnreadable, ValueError) as error:
            _LOG.warning("A metadata node broke off: %s.", error, extra={"action": "node-broken"})
        except asyncio.CancelledError:
            pass  # only `stop` cancels
        finally:
            self._nodes.pop(node, None)
            self._tasks.discard(task)
            self._acked.set()
            writer.close()

    def _whole(self) -> DocumentChange:
        callers = tuple(self._callers.values())
        return DocumentChange(
            self._sequence,
            whole=True,
            callers=callers,
            publications=tuple(self._publications.values()),
        )

    def _take(self, node: FeedSession, line: bytes) -> None:
        match feed.read_asked(line):
            case Ack(sequence):
                node.shown = sequence
                self._acked.set()
            case PollMessage(groups):
                self._upstream.polled(frozenset(groups))
            case ApproveMessage(number, request):
                approved = self._upstream.approve(request)
                approved.add_done_callback(partial(self._approved, node, number))
            case EnableMessage(number, vm):
                enabled = self._upstream.enable(vm)
                enabled.add_done_callback(partial(self._enabled, node, number))

    def _approved(
        self, node: FeedSession, number: int, done: asyncio.Future[ApprovalAnswer]
    ) -> None:
        failed = done.cancelled() or done.exception() is not None
        self._answer(node, Answered(number, None if failed else done.result()))

    def _enabled(self, node: FeedSession, number: int, done: asyncio.Future[None]) -> None:
        failed = done.cancelled() or done.exception() is not None
        self._answer(node, Answered(number, None if failed else ApprovalAnswer(accepted=True)))

    def _answer(self, node: FeedSession, message: Answered) -> None:
        if node in self._nodes:
            node.writer.write(feed.line_of(message))
