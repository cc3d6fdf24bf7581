"""The SDK's synchronous client: read documents, follow changes, approve. Source: C-1 to C-9.

The client uses raw sockets, ignores proxy settings and follows no redirects.
Source: C-7.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from forewarn.agent.sdk.client_steps import INTERVAL_S, ClientSteps
from forewarn.agent.sdk.dialogue import ClientClosed, event_ids_of, seconds
from forewarn.agent.sdk.http import HttpResponse, ResponseReader
from forewarn.agent.sdk.sockets import CHUNK_BYTES, connect

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Self, TypeVar

    from forewarn.agent.sdk.client_steps import Steps
    from forewarn_base.protocol.documents import Document, ScheduledEvent

    T = TypeVar("T")


class Client(ClientSteps):
    """A client of this VM's metadata service, for one thread at a time, except `close`.

    Example:
        for document in forewarn.Client().changes():
            for event in document.events:
                print(event.event_type, event.status, event.resources)
    """

    def _prepare(self) -> None:
        self._socket: socket.socket | None = None
        self._closed = threading.Event()

    def get(self) -> Document:
        """Return the current document. Source: C-1, C-7.

        Raises:
            RequestRejected: the service refused the request, or is not a metadata service.
            UnsupportedApiVersion: the service and this client share no api-version.
            PeerError: the service returned no document within `patience_s`.
        """
        return self._run(self._retry(self._poll))

    def changes(self, interval_s: float = INTERVAL_S) -> Generator[Document, None, None]:
        """Yield the current document, and each changed document, until the client is closed.

        A change arrives within milliseconds if the service can delay answers, otherwise at the next
        poll. The client retries after transient errors without limit, and also after refusals once
        a document was read. Source: C-1, C-7, E-9.

        Args:
            interval_s: Seconds between two polls if the service cannot delay its answers.

        Raises:
            RequestRejected: the service refused the first request, or is not a metadata service.
            UnsupportedApiVersion: the service and this client share no api-version.
            ValueError: `interval_s` is invalid.
        """
        return self._changes(seconds("interval_s", interval_s))

    def approve(self, *events: ScheduledEvent | str) -> tuple[str, ...]:
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
        return self._run(self._retry(lambda: self._approve(event_ids)))

    def instance_name(self) -> str:
        """Return the name of this VM in Resources. Source: I-2.

        Raises:
            PeerError: there was no answer within `patience_s`.
        """
        return self._run(self._retry(self._name))

    def outcome(self, event: ScheduledEvent | str) -> dict[str, Any]:
        """Return an event's outcome for this VM: `result`, times, `interruption_ms`. Source: X-1.

        The client sends one request, without retries.

        Raises:
            PeerError: the service shows no outcomes, lacks this event, or did not answer.
        """
        return self._run(self._outcome(self._dialogue.outcome_request(event)))

    def close(self) -> None:
        """Close the client permanently; callable from any thread.

        `changes` ends within a second; other requests raise `ClientClosed`.
        """
        self._closed.set()
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):  # the socket is unconnected or already closed
                connection.shutdown(socket.SHUT_RDWR)  # wake a thread that reads from the socket
            connection.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connection."""
        self.close()

    def _changes(self, interval_s: float) -> Generator[Document, None, None]:
        document = self._run(self._next_change(None, interval_s))
        while document is not None:
            yield document
            document = self._run(self._next_change(document, interval_s))

    def _run(self, steps: Steps[T]) -> T:
        """Return the result of a coroutine that never suspends."""
        try:
            steps.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        raise AssertionError("a step has suspended")  # pragma: no cover

    async def _pause(self, duration_s: float) -> None:
        self._closed.wait(duration_s)

    @property
    def _is_closed(self) -> bool:
        return self._closed.is_set()

    @property
    def _is_connected(self) -> bool:
        return self._socket is not None

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _keep_socket(self, connection: socket.socket) -> None:
        self._socket = connection
        if self._closed.is_set():
            raise ClientClosed

    async def _send(self, method: str, request: bytes, timeout_s: float) -> HttpResponse:
        connection = self._socket or connect(
            self._dialogue.target, self._timeout_s, self._keep_socket
        )
        until_ms = self._clock.now_ms() + int(timeout_s * 1000)
        reader = ResponseReader(method)
        connection.settimeout(timeout_s)
        connection.sendall(request)
        while True:  # ends when the answer is complete, too long or too late
            left_ms = until_ms - self._clock.now_ms()
            if left_ms <= 0:
                raise TimeoutError("no complete answer in time")
            connection.settimeout(left_ms / 1000)
            if reader.feed(connection.recv(CHUNK_BYTES)):
                break
        assert reader.answer is not None
        if not reader.keeps:
            self._disconnect()
        return reader.answer
