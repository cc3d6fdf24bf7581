"""Both ends of a feed on loopback, with the planes behind them in the test's hands."""

import asyncio
from collections.abc import Callable, Coroutine

from forewarn_base.protocol.documents import Document
from forewarn_metadata.replication.messages import DocumentChange, Publication
from forewarn_metadata.replication.server import FeedServer
from forewarn_metadata.replication.worker_client import WorkerClient
from tests.metadata.live import FREEZE, VM_A, VM_C, Control
from tests.waiting import LIMIT_S


def publication(incarnation: int, *, view: str = "group-1") -> Publication:
    """Return a document of a view."""
    return Publication(view, enabled=True, document=Document(incarnation, (FREEZE,)))


WHOLE = DocumentChange(1, whole=True, callers=(VM_A, VM_C), publications=(publication(1),))


def run(story: Coroutine[object, object, None]) -> None:
    """Run one story on a loop of its own, not for ever."""

    async def bounded() -> None:
        await asyncio.wait_for(story, LIMIT_S)

    asyncio.run(bounded())


async def until(true: Callable[[], bool]) -> None:
    """Let everything else run until something is true."""
    for _ in range(1_000_000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


class Feed:
    """A service's streams to workers, a worker, and what it was told."""

    def __init__(self, path: str, apply: Callable[[DocumentChange], None] | None = None) -> None:
        self.path = path
        self.control = Control()
        self.told: list[DocumentChange] = []
        self.server = FeedServer(self.control)
        self.worker = WorkerClient(path, "worker", apply or self.told.append)

    async def start(self) -> None:
        """Start both ends and wait until they have met."""
        self.server.apply(WHOLE)
        await self.server.workers.start(self.path)
        self.worker.start()
        await self.worker.followed.wait()

    async def cut(self) -> None:
        """Break the connection, and wait until both ends know."""
        for session in tuple(self.server.workers._sessions.values()):
            session.abort()
        await until(lambda: not self.worker.followed.is_set())

    async def stop(self) -> None:
        """Stop both ends."""
        await self.worker.stop()
        await self.server.stop()

    async def restart_server(self) -> None:
        """Come back with a new feed server, as after a crash of the control process."""
        self.server = FeedServer(self.control)
        self.server.apply(WHOLE)
        await self.server.workers.start(self.path)

    async def lose(self) -> None:
        """Stop the feed server and wait until the client knows."""
        await self.server.stop()
        await until(lambda: not self.worker.followed.is_set())
