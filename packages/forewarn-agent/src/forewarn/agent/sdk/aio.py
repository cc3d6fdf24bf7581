"""The SDK's asynchronous client, for asyncio; imported only on first use."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

from forewarn.agent.sdk.client_steps import INTERVAL_S, ClientSteps
from forewarn.agent.sdk.dialogue import event_ids_of, seconds
from forewarn.agent.sdk.http import HttpResponse, ResponseReader
from forewarn.agent.sdk.sockets import CHUNK_BYTES, keep_alive

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Any

    from forewarn_base.protocol.documents import Document, ScheduledEvent


class AsyncClient(ClientSteps):
    """A client of this VM's metadata service, for one task at a time, except `close`.

    The methods have the results and errors of `Client`.

    Example:
        async for document in forewarn.AsyncClient().changes():
            for event in document.events:
                print(event.event_type, event.status, event.resources)
    """

    def _prepare(self) -> None:
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._closed = asyncio.Event()
        self._limit: asyncio.Timeout | None = None

    async def get(self) -> Document:
        """Return the current document; see `Client.get`. Source: C-1, C-7."""
        return await self._retry(self._poll)

    def changes(self, interval_s: float = INTERVAL_S) -> AsyncGenerator[Document, None]:
        """Yield the current document, and each changed document, until the client is closed.

        See `Client.changes`. Source: C-1, C-7, E-9.
        """
        return self._changes(seconds("interval_s", interval_s))

    async def approve(self, *events: ScheduledEvent | str) -> tuple[str, ...]:
        """Approve events; return the approved ids; see `Client.approve`. Source: A-1, A-4, A-5."""
        event_ids = event_ids_of(events)
        return await self._retry(lambda: self._approve(event_ids))

    async def instance_name(self) -> str:
        """Return the name of this VM in Resources; see `Client.instance_name`. Source: I-2."""
        return await self._retry(self._name)

    async def outcome(self, event: ScheduledEvent | str) -> dict[str, Any]:
        """Return an event's outcome for this VM; see `Client.outcome`. Source: X-1."""
        return await self._outcome(self._dialogue.outcome_request(event))

    async def close(self) -> None:
        """Close the client permanently; callable from any task.

        `changes` ends at once; other requests raise `ClientClosed`.
        """
        self._closed.set()
        if self._limit is not None and not self._limit.expired():  # the task of the running request
            self._limit.reschedule(asyncio.get_running_loop().time())
        self._disconnect()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the connection."""
        await self.close()

    async def _changes(self, interval_s: float) -> AsyncGenerator[Document, None]:
        document = await self._next_change(None, interval_s)
        while document is not None:
            yield document
            document = await self._next_change(document, interval_s)

    async def _pause(self, duration_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(duration_s):
                await self._closed.wait()

    @property
    def _is_closed(self) -> bool:
        return self._closed.is_set()

    @property
    def _is_connected(self) -> bool:
        return self._streams is not None

    def _disconnect(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _send(self, method: str, request: bytes, timeout_s: float) -> HttpResponse:
        try:
            async with asyncio.timeout(timeout_s) as self._limit:
                return await self._answer(method, request)
        finally:
            self._limit = None

    async def _answer(self, method: str, request: bytes) -> HttpResponse:
        if self._streams is None:
            target = self._dialogue.target
            async with asyncio.timeout(self._timeout_s):
                if target.path:
                    self._streams = await asyncio.open_unix_connection(target.path)
                else:
                    self._streams = await asyncio.open_connection(target.host, target.port)
                    keep_alive(self._streams[1].get_extra_info("socket"))
        source, sink = self._streams
        sink.write(request)
        await sink.drain()
        reader = ResponseReader(method)
        while not reader.feed(await source.read(CHUNK_BYTES)):
            pass
        assert reader.answer is not None
        if not reader.keeps:
            self._disconnect()
        return reader.answer
