"""The service's end of the streams to local workers, which receive every change, one line each.

A worker that connects receives everything, and then each change and answer in order. A worker that
reads too slowly receives everything again. Workers answer pings; a silent worker is reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from forewarn_base.errors import PeerError
from forewarn_core.requests import Request, RequestAnswer
from forewarn_metadata.replication.feed_state import FeedState
from forewarn_metadata.replication.messages import (
    Answered,
    Caller,
    ChangePart,
    DocumentChange,
    FeedUnreadable,
    Hello,
    Ping,
    PollReport,
    Publication,
    Shown,
    Upstream,
    WorkerReport,
    WorkerRequest,
    encoded,
    line_of,
    read_from_worker,
)
from forewarn_metadata.replication.nodes import NodeTable

#: Maximum length of a worker's line; polls of a thousand groups with long names take 300 kB.
LINE_BYTES_MAX = 1024 * 1024

#: Length at which a part of a change is sent, in bytes; about a millisecond of work.
PART_BYTES = 256 * 1024

#: Maximum bytes that wait for a slow worker; then it receives everything again.
BEHIND_BYTES_MAX = 64 * 1024 * 1024

#: Interval of the pings to each worker, and number of unanswered pings of a hung worker.
HEARTBEAT_S, SILENT_BEATS = 1.0, 10

_SOCKET_MODE = 0o600  # every client of the socket can read every VM's document

_LOG = logging.getLogger("forewarn.replication.worker_streams")


class WorkerStreams:
    """The connected workers."""

    def __init__(
        self, upstream: Upstream, nodes: NodeTable, state: FeedState, *, heartbeat_s: float
    ) -> None:
        self._heartbeat_s = heartbeat_s
        self._upstream = upstream
        self._nodes = nodes
        self._state = state
        self._sequence = 0
        self._sessions: dict[str, _Session] = {}
        self._server: asyncio.Server | None = None
        self._path = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._beating: asyncio.Task[None] | None = None
        #: Names of all workers that ever connected.
        self.names: dict[str, None] = {}
        self._on_silent: Callable[[str], None] = lambda _: None

    def when_silent(self, call: Callable[[str], None]) -> None:
        """Call a function with the name of each worker that has been silent for too long."""
        self._on_silent = call

    async def start(self, path: str) -> None:
        """Listen at a Unix socket; every client of it receives everything."""
        self._path = path
        before, loop = os.umask(0o777 & ~_SOCKET_MODE), asyncio.get_running_loop()
        try:
            self._server = await loop.create_unix_server(self._protocol, path)
        finally:
            os.umask(before)

    async def stop(self) -> None:
        """Disconnect every worker."""
        if self._server is not None:
            self._server.close()
        if self._beating is not None:
            self._beating.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)  # noqa: PTH108

    def has(self, name: str) -> bool:
        """Return whether a worker is connected."""
        return name in self._sessions

    def apply(self, change: DocumentChange) -> None:
        """Send a change to every worker; the change is in the state already."""
        self._sequence = change.sequence
        if not self._sessions:
            return
        lines = () if change.whole else tuple(lines_of(change))
        for session in self._sessions.values():
            session.send(lines)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one worker until its connection ends."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        if self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._beat())
        session: _Session | None = None
        try:
            hello = read_from_worker(await reader.readline())
            if not isinstance(hello, Hello):
                raise FeedUnreadable(reason="a worker must say its name first")
            self.names[hello.name] = None
            self._nodes.heard(hello.name)
            session = _Session(hello.name, writer, self._whole, nodes=self._nodes)
            if (before := self._sessions.get(hello.name)) is not None:
                before.abort()
            self._sessions[hello.name] = session
            while line := await reader.readline():
                self._take(session, line)
        except (OSError, PeerError, ValueError) as error:
            text = "a metadata worker broke off: %s"
            _LOG.warning(text, error, extra={"action": "worker-broken"})
        except asyncio.CancelledError:
            pass  # only `stop` cancels
        finally:
            if session is not None:
                session.sending.cancel()
                if self._sessions.get(session.name) is session:
                    del self._sessions[session.name]
            self._tasks.discard(task)
            writer.close()

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(LINE_BYTES_MAX), self.serve)

    def _whole(self) -> DocumentChange:
        return self._state.whole(self._sequence)

    def _take(self, session: _Session, line: bytes) -> None:
        self._nodes.heard(session.name)
        match read_from_worker(line):
            case Shown(sequence):
                if sequence is not None:
                    self._nodes.record_shown(session.name, sequence)
            case WorkerRequest(number, request):
                self._ask(session, number, request)
            case WorkerReport(clock_ms, report):
                way_ms = max(_now_ms() - clock_ms, 0)
                groups = {group: age + way_ms for group, age in report.groups.items()}
                self._upstream.tell(PollReport(groups, report.vms))
            case Hello():
                raise FeedUnreadable(reason="a worker says its name only once")

    def _ask(self, session: _Session, number: int, request: Request) -> None:
        self._upstream.ask(request).add_done_callback(partial(session.answered, number))

    async def _beat(self) -> None:
        """Ask for signs of life, and detect silent workers."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + self._heartbeat_s
            await asyncio.sleep(self._heartbeat_s)
            if loop.time() > due_s + self._heartbeat_s:  # this process itself was stopped
                self._nodes.forgive()
            for session in tuple(self._sessions.values()):
                if self._nodes.silent(session.name):
                    session.abort()
                else:
                    session.send((line_of(Ping(_now_ms())),))
            for name in self.names:
                if self._nodes.counts(name) and self._nodes.silent(name):
                    self._on_silent(name)


class _Session:
    """A connected worker, and the lines that it has not been sent."""

    def __init__(
        self,
        name: str,
        writer: asyncio.StreamWriter,
        whole: Callable[[], DocumentChange],
        *,
        nodes: NodeTable,
    ) -> None:
        self.name = name
        self._nodes = nodes
        self._writer = writer
        self._whole = whole
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._lacks_whole = True
        self._due = asyncio.Event()
        self._due.set()
        self.sending = asyncio.get_running_loop().create_task(self._send())

    def send(self, lines: Sequence[bytes]) -> None:
        """Send lines in order; no lines: everything again."""
        if not lines:
            self._lacks_whole = True
        elif not self._lacks_whole or not is_change(lines[0]):
            self._lines.extend(lines)
            self._bytes += sum(map(len, lines))
        self._lacks_whole |= self._bytes > BEHIND_BYTES_MAX
        self._due.set()

    def answered(self, number: int, done: asyncio.Future[RequestAnswer]) -> None:
        """Send an answer, after all earlier changes."""
        failed = done.cancelled() or done.exception() is not None
        self.send((line_of(Answered(number, None if failed else done.result())),))

    def abort(self) -> None:
        """End the connection at once."""
        self._writer.transport.abort()

    async def _send(self) -> None:
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                if self._lacks_whole:
                    await self._send_whole()
                while self._lines and not self._lacks_whole:
                    line = self._lines.popleft()
                    self._bytes -= len(line)
                    await self._write(line)
        except OSError:
            self._writer.close()
        except Exception:  # noqa: BLE001 - the worker comes back, and receives everything
            _LOG.exception("the stream to %s ends because of a bug", self.name)
            self.abort()

    async def _send_whole(self) -> None:
        """Send everything; later changes follow it, and waiting answers, too."""
        waiting = [each for each in self._lines if not is_change(each)]
        self._lines.clear()
        self._lines.extend(waiting)
        self._bytes, self._lacks_whole = sum(map(len, waiting)), False
        for line in lines_of(self._whole()):
            if not line.startswith(b'{"type":"part"'):  # from its end on the worker serves VMs
                self._nodes.enlist(self.name)
            await self._write(line)
            await asyncio.sleep(0)  # serve others between parts

    async def _write(self, line: bytes) -> None:
        """Write a line; nothing if the connection has ended, whose reader notices the end."""
        if not self._writer.transport.is_closing():  # uvloop raises RuntimeError for such a write
            self._writer.write(line)
        await self._writer.drain()


def lines_of(change: DocumentChange) -> Iterator[bytes]:
    """Encode a change as lines of bounded length, each created on demand; the last completes it."""
    for part in _parts(change):
        yield line_of(part)
    yield line_of(DocumentChange(change.sequence, whole=change.whole, withheld=change.withheld))


def is_change(line: bytes) -> bool:
    """Return whether a line is a change or a part of one."""
    return line.startswith((b'{"type":"part"', b'{"type":"change"'))


def _parts(change: DocumentChange) -> Iterator[ChangePart]:
    size = 0
    callers: list[Caller] = []
    publications: list[Publication] = []
    for caller in change.callers:
        callers.append(caller)
        size += len(encoded(caller))
        if size > PART_BYTES:
            yield ChangePart(tuple(callers))
            callers, size = [], 0
    for publication in change.publications:
        publications.append(publication)
        size += len(encoded(publication))
        if size > PART_BYTES:
            yield ChangePart(tuple(callers), (), tuple(publications))
            callers, publications, size = [], [], 0
    if callers or publications or change.gone:
        yield ChangePart(tuple(callers), change.gone, tuple(publications))


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
