"""The steps of the SDK's clients, as coroutines for the synchronous and the asynchronous client.

The coroutines of the synchronous client never suspend, because its requests and pauses block.
Source: C-1 to C-9.
"""

from __future__ import annotations

from forewarn.agent.sdk.dialogue import (
    NAME_PATH,
    ClientClosed,
    Dialogue,
    RequestRejected,
    TemporarilyUnavailable,
    pause_s,
    seconds,
    still_shown,
    unreachable,
)
from forewarn.agent.sdk.discovery import endpoints
from forewarn.agent.sdk.http import HttpResponse, ResponseInvalid
from forewarn_base.clock import SystemClock
from forewarn_base.ids import Ids
from forewarn_base.protocol.documents import DocumentUnreadable

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, TypeVar

    from forewarn_base.protocol.documents import Document, ScheduledEvent

    T = TypeVar("T")
    Steps = Coroutine[Any, Any, T]

TRANSIENT = (TemporarilyUnavailable, ResponseInvalid, DocumentUnreadable)
TIMEOUT_S = 10.0  # timeout of an answer without a permitted delay
PATIENCE_S = 130.0  # time for retries; the first answer may take two minutes. Source: B-1, C-1
INTERVAL_S = 1.0  # Source: C-1
WAIT_S = 60.0  # longest time for which a service may delay an answer


class ClientSteps:
    """The common part of both clients; a client adds the connection and the pauses."""

    def __init__(
        self,
        endpoint: str = "",
        *,
        api_version: str = "",
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        wait_s: float = WAIT_S,
    ) -> None:
        """Create a client that has no connection yet.

        Args:
            endpoint: `http://ADDRESS[:PORT]`, optionally with the path and query of the document,
                or `unix:/PATH`. Empty: `FOREWARN_ENDPOINT`, then the fixed address, then DHCP
                option 245. Source: C-8.
            api_version: The only version to use; empty: the newest version that the service
                supports.
            timeout_s: Seconds to wait for an answer after the first answer.
            patience_s: Seconds of retries before an error is raised. Source: C-1.
            wait_s: Seconds for which the service may delay an answer to `changes`; 0: polls only.

        Raises:
            ValueError: an argument is invalid; the error names it.
        """
        self._dialogue = Dialogue(endpoints(endpoint), api_version=api_version, wait_s=wait_s)
        self._timeout_s = seconds("timeout_s", timeout_s)
        self._patience_s = seconds("patience_s", patience_s)
        self._ids = Ids()
        self._clock = SystemClock()
        self._prepare()

    @property
    def version(self) -> str:
        """The api-version in use."""
        return self._dialogue.version

    @property
    def endpoint(self) -> str:
        """The endpoint in use."""
        return str(self._dialogue.target)

    def seconds_left(self, event: ScheduledEvent) -> float | None:
        """Return the seconds until NotBefore by the service's clock; None without a NotBefore.

        The result is negative for an overdue event, which has not started while its status is
        Scheduled. The clock of this VM may be wrong. Source: C-11.
        """
        if event.not_before_ms is None:
            return None
        return (event.not_before_ms - self._clock.now_ms() - self._dialogue.ahead_ms) / 1000

    def _prepare(self) -> None:
        """Create the client's own state, without a connection."""
        raise NotImplementedError

    @property
    def _is_closed(self) -> bool:
        raise NotImplementedError

    @property
    def _is_connected(self) -> bool:
        raise NotImplementedError

    def _disconnect(self) -> None:
        raise NotImplementedError

    async def _send(self, method: str, request: bytes, timeout_s: float) -> HttpResponse:
        """Send a request and return its answer; connect first if necessary."""
        raise NotImplementedError

    async def _pause(self, duration_s: float) -> None:
        """Return after a time in seconds, or once the client is closed."""
        raise NotImplementedError

    async def _next_change(self, last: Document | None, interval_s: float) -> Document | None:
        """Return the next document that differs from the last; None once the client is closed."""
        tries = 0
        while True:  # ends when the caller stops the iteration
            if last is not None and not tries and not self._dialogue.waits:
                await self._pause(interval_s)
            try:
                # Return a document that another call has read meanwhile.
                hold = last is not None and last == self._dialogue.document
                document = await self._poll(hold=hold)
            except ClientClosed:
                return None
            except (*TRANSIENT, RequestRejected) as error:
                if last is None and isinstance(error, RequestRejected):
                    raise
                tries += 1
                await self._pause_after(tries, error)
                continue
            tries = 0
            if document != last:
                return document

    async def _poll(self, *, hold: bool = False) -> Document:
        dialogue = self._dialogue
        while True:  # bounded: each round lowers the version or ends
            held_s = dialogue.wait_s if hold else 0.0
            request = dialogue.poll_request(self._clock.now_ms(), hold=hold)
            response = await self._exchange("GET", request, held_s=held_s)
            document = dialogue.take_poll(response, self._clock.now_ms())
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
        request = self._dialogue.get_request(NAME_PATH)
        return self._dialogue.take_text(await self._exchange("GET", request))

    async def _outcome(self, request: bytes) -> dict[str, Any]:
        return self._dialogue.take_outcome(await self._exchange("GET", request))

    async def _retry(self, ask: Callable[[], Steps[T]]) -> T:
        until_ms = self._clock.now_ms() + int(self._patience_s * 1000)
        tries = 0
        while True:  # ends after `patience_s`
            try:
                return await ask()
            except TRANSIENT as error:
                tries += 1
                if self._clock.now_ms() >= until_ms:
                    raise
                await self._pause_after(tries, error)

    async def _pause_after(self, tries: int, error: Exception) -> None:
        asked_s = error.retry_after_s if isinstance(error, TemporarilyUnavailable) else 0.0
        await self._pause(pause_s(tries, asked_s=asked_s, jitter=self._ids.fraction("jitter")))

    async def _exchange(self, method: str, request: bytes, *, held_s: float = 0.0) -> HttpResponse:
        first = self._dialogue.document is None
        timeout_s = max(self._timeout_s, self._patience_s if first else 0.0) + held_s
        for fresh in (not self._is_connected, True):
            if self._is_closed:
                raise ClientClosed
            try:
                return await self._send(method, request, timeout_s)
            except (OSError, ResponseInvalid) as error:  # TimeoutError is an OSError
                self._disconnect()
                if self._is_closed:
                    raise ClientClosed from error
                if not fresh and not isinstance(error, TimeoutError):
                    continue  # retry: the idle connection was closed
                self._dialogue.switch_endpoint()
                if isinstance(error, ResponseInvalid):
                    raise
                raise unreachable(self.endpoint, error) from error
            except BaseException:  # close, because the next request must not read a late answer
                self._disconnect()
                raise
        raise AssertionError("the second attempt returns or raises")  # pragma: no cover
