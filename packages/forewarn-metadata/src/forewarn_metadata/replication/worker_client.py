"""A local worker's end of its stream from the service: shows every change, forwards requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from forewarn_base.ids import Ids
from forewarn_core.requests import Request, RequestAnswer
from forewarn_metadata.replication.collected_polls import CollectedPolls
from forewarn_metadata.replication.feed_client import (
    PENDING_MAX,
    VM_POLLS_MAX,
    ChangeNotShown,
    FeedLost,
)
from forewarn_metadata.replication.http_stream import Streams
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
    WorkerReport,
    WorkerRequest,
    line_of,
    read_to_worker,
)
from forewarn_metadata.replication.node_failures import NodeFailures
from forewarn_metadata.replication.nodes import SILENT_S_MAX

#: Maximum length of a line: a part of a change, or a document with ten thousand events.
LINE_BYTES_MAX = 16 * 1024 * 1024

#: Number of unsent bytes above which a worker drops or delays polls.
UNSENT_BYTES_MAX = 1024 * 1024

#: Pause before a worker connects again.
RETRY_S = 0.2

_LOG = logging.getLogger("forewarn.replication.worker_client")


async def connect_unix(path: str) -> Streams:
    """Open a stream to the service."""
    return await asyncio.open_unix_connection(path, limit=LINE_BYTES_MAX)


class WorkerClient:
    """The worker's `Upstream`."""

    def __init__(
        self,
        path: str,
        name: str,
        apply: Callable[[DocumentChange], None],
        *,
        connect: Callable[[str], Awaitable[Streams]] = connect_unix,
        silent_s_max: float = SILENT_S_MAX,
        ids: Ids | None = None,
    ) -> None:
        """Receive changes from the service at a Unix socket."""
        self._path = path
        self._name = name
        self._apply = apply
        self._connect = connect
        self._silent_s_max = silent_s_max
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._parts: list[ChangePart] = []
        self._number = 0
        self._pending: dict[int, tuple[bytes, asyncio.Future[RequestAnswer]]] = {}
        self._polls = CollectedPolls(VM_POLLS_MAX)
        #: The service's clock in its last ping, and when the ping came.
        self._clock: tuple[int, float] = 0, 0.0
        #: Set while the worker is connected and up to date.
        self.followed = asyncio.Event()
        self.failures = NodeFailures(ids or Ids())
        self.failed = self.failures.failed
        self._on_lost: Callable[[], None] | None = None

    def when_lost(self, call: Callable[[], None] | None) -> None:
        """Call a function when the service is lost; None: no function."""
        self._on_lost = call

    def start(self) -> None:
        """Start following, without waiting for the connection."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        """Stop following; unanswered requests fail."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self.failures.stop()
        for _, future in tuple(self._pending.values()):
            if not future.done():
                future.set_exception(FeedLost())
                future.exception()  # the caller may have stopped waiting

    def ask(self, request: Request) -> asyncio.Future[RequestAnswer]:
        """Forward a request, after a reconnect if the service is lost. Source: A-6, B-1, X-1."""
        reply: asyncio.Future[RequestAnswer] = asyncio.get_running_loop().create_future()
        if len(self._pending) >= PENDING_MAX:
            reply.set_exception(FeedLost())
            return reply
        self._number += 1
        number = self._number
        line = line_of(WorkerRequest(number, request))
        self._pending[number] = line, reply
        reply.add_done_callback(lambda _: self._pending.pop(number, None))
        self._write(line)
        return reply

    def tell(self, report: PollReport) -> None:
        """Report polls; collect polls of groups while the service is lost or slow. B-2, B-5."""
        self._polls.add(report if self._writer is not None else PollReport(report.groups))
        writer = self._writer
        if writer is None or writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return
        clock_ms, heard_s = self._clock
        clock_ms += int((asyncio.get_running_loop().time() - heard_s) * 1000)
        for each in self._polls.take().reports():
            self._write(line_of(WorkerReport(clock_ms, each)))

    def _write(self, line: bytes) -> None:
        if self._writer is not None and not self._writer.transport.is_closing():
            self._writer.write(line)

    async def _follow(self) -> None:
        trouble = ""
        while True:
            try:
                await self._connect_and_read()
            except (OSError, FeedUnreadable, ValueError) as error:  # OSError: TimeoutError, too
                if str(error) != trouble:
                    trouble = str(error)
                    text, facts = "The service cannot be followed: %s.", {"action": "feed-lost"}
                    _LOG.warning(text, trouble.removesuffix("."), extra=facts)
            except Exception:  # noqa: BLE001 - a worker that stops following shows old news for ever
                self.failures.note()
            finally:
                self._writer = None
                self._parts.clear()
                if self.followed.is_set():
                    self.followed.clear()
                    if self._on_lost is not None:
                        self._on_lost()
            await asyncio.sleep(RETRY_S)

    async def _connect_and_read(self) -> None:
        reader, writer = await self._connect(self._path)
        try:
            writer.write(line_of(Hello(self._name)))
            while True:
                async with asyncio.timeout(self._silent_s_max):
                    line = await reader.readline()
                if not line:
                    return
                self._take(line, writer)
                await writer.drain()
        finally:
            writer.close()

    def _take(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        match read_to_worker(line):
            case ChangePart() as part:
                self._parts.append(part)
            case DocumentChange() as last:
                self._show(joined(self._parts, last))
                self._parts.clear()
                writer.write(line_of(Shown(last.sequence)))
                if not self.followed.is_set():
                    self._begin(writer)
            case Answered(number, reply):
                self._answered(number, reply)
            case Ping(clock_ms):
                self._clock = clock_ms, asyncio.get_running_loop().time()
                writer.write(line_of(Shown()))

    def _show(self, change: DocumentChange) -> None:
        try:
            self._apply(change)
        except Exception as error:
            raise ChangeNotShown(sequence=change.sequence) from error

    def _begin(self, writer: asyncio.StreamWriter) -> None:
        """Send what has waited for the service."""
        self._writer = writer
        self.followed.set()
        for line, _ in tuple(self._pending.values()):
            self._write(line)
        if self._polls:
            self.tell(PollReport())

    def _answered(self, number: int, reply: RequestAnswer | None) -> None:
        _, waiting = self._pending.get(number, (b"", None))
        if waiting is None or waiting.done():
            return
        if reply is None:
            waiting.set_exception(FeedLost())
        else:
            waiting.set_result(reply)


def joined(parts: list[ChangePart], last: DocumentChange) -> DocumentChange:
    """Return a change with the records of its parts."""
    callers: list[Caller] = []
    publications: list[Publication] = []
    gone: list[str] = []
    for part in parts:
        callers += part.callers
        publications += part.publications
        gone += part.gone
    return DocumentChange(
        last.sequence,
        whole=last.whole,
        callers=tuple(callers),
        gone=tuple(gone),
        publications=tuple(publications),
    )
