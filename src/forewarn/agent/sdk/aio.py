"""The SDK's asynchronous client, for asyncio; imported only on first use."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

from forewarn.agent.sdk.client import (
    CHUNK_BYTES,
    INTERVAL_S,
    PATIENCE_S,
    TIMEOUT_S,
    TRANSIENT,
    WAIT_S,
    keep_alive,
)
from forewarn.agent.sdk.dialogue import (
    NAME_PATH,
    ClientClosed,
    Dialogue,
    RequestRejected,
    TemporarilyUnavailable,
    event_ids_of,
    pause_s,
    seconds,
    still_shown,
    unreachable,
)
from forewarn.agent.sdk.discovery import endpoints
from forewarn.agent.sdk.http import HttpResponse, ResponseInvalid, ResponseReader
from forewarn.clock import SystemClock
from forewarn.ids import Ids

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from types import TracebackType
    from typing import Any, TypeVar

    from forewarn.protocol.documents import Document, ScheduledEvent

    T = TypeVar("T")


class AsyncClient:
    """A client of this VM's metadata service, for one task at a time, except `close`.

    Example:
        async for document in forewarn.AsyncClient().changes():
            for event in document.events:
                print(event.event_type, event.status, event.resources)
    """

    def __init__(
        self,
        endpoint: str = "",
        *,
        api_version: str = "",
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        wait_s: float = WAIT_S,
    ) -> None:
        """Create a client with the same arguments as `Client`."""
        self._dialogue = Dialogue(endpoints(endpoint), api_version=api_version, wait_s=wait_s)
        self._timeout_s = seconds("timeout_s", timeout_s)
        self._patience_s = seconds("patience_s", patience_s)
        self._ids = Ids()
        self._clock = SystemClock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._closed = asyncio.Event()
        self._limit: asyncio.Timeout | None = None

    # ---- public methods ------------------------------------------------------------------------

    async def get(self) -> Document:
        """Return the current document. Source: C-1, C-7.

        Raises:
            RequestRejected: the service refused the request, or is another kind of service.
            UnsupportedApiVersion: the service and this client share no api-version.
            PeerError: the service returned no document within `patience_s`.
        """
        return await self._persist(self._poll)

    def changes(self, interval_s: float = INTERVAL_S) -> AsyncGenerator[Document, None]:
        """Yield the current document, and each changed document, until the client is closed.

        The client retries after transient errors without limit, and also after refusals once a
        document was read. Source: C-1, C-7, E-9.

        Args:
            interval_s: Seconds between two polls if the service cannot delay its answers.

        Raises:
            RequestRejected: the service refused the first request, or is not a metadata service.
            UnsupportedApiVersion: the service and this client share no api-version.
            ValueError: `interval_s` is invalid.
        """
        return self._changes(seconds("interval_s", interval_s))

    async def approve(self, *events: ScheduledEvent | str) -> tuple[str, ...]:
        """Approve events, given as events or ids; approved events may start at once.

        An approval counts for all VMs of the event. One request contains at most 100 events.
        Source: A-1, A-4, A-5.

        Returns:
            The approved ids, without the ids of events that are over. Source: A-3.

        Raises:
            RequestRejected: the service refused the approval.
            PeerError: there was no answer within `patience_s`.
            ValueError: an argument is neither an event nor an id.
        """
        event_ids = event_ids_of(events)
        return await self._persist(lambda: self._approve(event_ids))

    async def instance_name(self) -> str:
        """Return the name of this VM in Resources. Source: I-2.

        Raises:
            PeerError: there was no answer within `patience_s`.
        """
        return await self._persist(self._name)

    async def outcome(self, event: ScheduledEvent | str) -> dict[str, Any]:
        """Return an event's outcome for this VM: `result`, times, `interruption_ms`. Source: X-1.

        The client sends one request, without retries.

        Raises:
            PeerError: the service shows no outcomes, lacks this event, or did not answer.
        """
        request = self._dialogue.outcome_request(event)
        return self._dialogue.take_outcome(await self._exchange("GET", request))

    @property
    def version(self) -> str:
        """The api-version in use."""
        return self._dialogue.version

    @property
    def endpoint(self) -> str:
        """The endpoint in use."""
        return str(self._dialogue.target)

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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        await self.close()

    # ---- internals -----------------------------------------------------------------------------

    async def _changes(self, interval_s: float) -> AsyncGenerator[Document, None]:
        last: Document | None = None
        tries = 0
        while True:  # ends when the caller stops the iteration
            try:
                # Yield a document that another call has read meanwhile.
                hold = last is not None and last == self._dialogue.document
                document = await self._poll(hold=hold)
            except ClientClosed:
                return
            except (*TRANSIENT, RequestRejected) as error:
                if last is None and isinstance(error, RequestRejected):
                    raise
                tries += 1
                await self._pause(tries, error)
                continue
            tries = 0
            if document != last:
                last = document
                yield document
            if not self._dialogue.waits:
                await self._sleep(interval_s)

    async def _poll(self, *, hold: bool = False) -> Document:
        dialogue = self._dialogue
        while True:  # bounded: each round lowers the version or ends
            held_s = dialogue.wait_s if hold else 0.0
            request = dialogue.poll_request(self._clock.now_ms(), hold=hold)
            answer = await self._exchange("GET", request, held_s=held_s)
            document = dialogue.take_poll(answer, self._clock.now_ms())
            if document is not None:
                return document

    async def _approve(self, event_ids: tuple[str, ...]) -> tuple[str, ...]:
        while event_ids:  # bounded: each round has fewer events
            try:
                request = self._dialogue.approval_request(event_ids)
                self._dialogue.take_approval(await self._exchange("POST", request))
                break
            except (RequestRejected, TemporarilyUnavailable):
                shown = still_shown(event_ids, await self._poll())
                if shown == event_ids:
                    raise
                event_ids = shown
        return event_ids

    async def _name(self) -> str:
        answer = await self._exchange("GET", self._dialogue.get_request(NAME_PATH))
        return self._dialogue.take_text(answer)

    async def _persist(self, ask: Callable[[], Awaitable[T]]) -> T:
        until_ms = self._clock.now_ms() + int(self._patience_s * 1000)
        tries = 0
        while True:  # ends after `patience_s`
            try:
                return await ask()
            except TRANSIENT as error:
                tries += 1
                if self._clock.now_ms() >= until_ms:
                    raise
                await self._pause(tries, error)

    async def _pause(self, tries: int, error: Exception) -> None:
        asked_s = error.retry_after_s if isinstance(error, TemporarilyUnavailable) else 0.0
        await self._sleep(pause_s(tries, asked_s=asked_s, jitter=self._ids.fraction("jitter")))

    async def _sleep(self, duration_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(duration_s):
                await self._closed.wait()

    async def _exchange(self, method: str, request: bytes, *, held_s: float = 0.0) -> HttpResponse:
        first = self._dialogue.document is None
        timeout_s = max(self._timeout_s, self._patience_s if first else 0.0) + held_s
        for fresh in (self._streams is None, True):
            if self._closed.is_set():
                raise ClientClosed
            try:
                async with asyncio.timeout(timeout_s) as self._limit:
                    return await self._over(method, request)
            except (OSError, ResponseInvalid) as error:  # TimeoutError is an OSError
                self._disconnect()
                if self._closed.is_set():
                    raise ClientClosed from error
                if not fresh and not isinstance(error, TimeoutError):
                    continue  # retry: the idle connection was closed
                self._dialogue.switch_endpoint()
                if isinstance(error, ResponseInvalid):
                    raise
                raise unreachable(self.endpoint, error) from error
            except BaseException:  # the next request must not read a late answer
                self._disconnect()
                raise
            finally:
                self._limit = None
        raise AssertionError("the second attempt returns or raises")  # pragma: no cover

    def _disconnect(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _over(self, method: str, request: bytes) -> HttpResponse:
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
