"""The SDK's synchronous client: read documents, follow changes, approve. Source: C-1 to C-9.

The client uses raw sockets, ignores proxy settings and follows no redirects.
Source: C-7.
"""

from __future__ import annotations

import contextlib
import socket

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
from forewarn.protocol.documents import DocumentUnreadable

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType
    from typing import Any, Self, TypeVar

    from forewarn.agent.sdk.http import Endpoint
    from forewarn.protocol.documents import Document, ScheduledEvent

    T = TypeVar("T")

CHUNK_BYTES = 65536
TRANSIENT = (TemporarilyUnavailable, ResponseInvalid, DocumentUnreadable)
TIMEOUT_S = 10.0  # timeout of an answer without a permitted delay
PATIENCE_S = 130.0  # time for retries; the first answer may take two minutes. Source: B-1, C-1
INTERVAL_S = 1.0  # Source: C-1
WAIT_S = 60.0  # longest time for which a service may delay an answer
#: TCP keepalive: seconds to the first probe, seconds between probes, and number of unanswered
#: probes.
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}


class Client:
    """A client of this VM's metadata service, for one thread at a time, except `close`.

    Example:
        for document in forewarn.Client().changes():
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
        import threading  # noqa: PLC0415  the agent has no client

        self._dialogue = Dialogue(endpoints(endpoint), api_version=api_version, wait_s=wait_s)
        self._timeout_s = seconds("timeout_s", timeout_s)
        self._patience_s = seconds("patience_s", patience_s)
        self._ids = Ids()
        self._clock = SystemClock()
        self._socket: socket.socket | None = None
        self._closed = threading.Event()

    # ---- public methods ------------------------------------------------------------------------

    def get(self) -> Document:
        """Return the current document. Source: C-1, C-7.

        Raises:
            RequestRejected: the service refused the request, or is not a metadata service.
            UnsupportedApiVersion: the service and this client share no api-version.
            PeerError: the service returned no document within `patience_s`.
        """
        return self._persist(self._poll)

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
        return self._persist(lambda: self._approve(event_ids))

    def instance_name(self) -> str:
        """Return the name of this VM in Resources. Source: I-2.

        Raises:
            PeerError: there was no answer within `patience_s`.
        """
        return self._persist(lambda: self._text(NAME_PATH))

    def outcome(self, event: ScheduledEvent | str) -> dict[str, Any]:
        """Return an event's outcome for this VM: `result`, times, `interruption_ms`. Source: X-1.

        The client sends one request, without retries.

        Raises:
            PeerError: the service shows no outcomes, lacks this event, or did not answer.
        """
        request = self._dialogue.outcome_request(event)
        return self._dialogue.take_outcome(self._exchange("GET", request))

    @property
    def version(self) -> str:
        """The api-version in use."""
        return self._dialogue.version

    @property
    def endpoint(self) -> str:
        """The endpoint in use."""
        return str(self._dialogue.target)

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    # ---- internals -----------------------------------------------------------------------------

    def _changes(self, interval_s: float) -> Generator[Document, None, None]:
        last: Document | None = None
        tries = 0
        while True:  # ends when the caller stops the iteration
            try:
                # Yield a document that another call has read meanwhile.
                document = self._poll(hold=last is not None and last == self._dialogue.document)
            except ClientClosed:
                return
            except (*TRANSIENT, RequestRejected) as error:
                if last is None and isinstance(error, RequestRejected):
                    raise
                tries += 1
                self._pause(tries, error)
                continue
            tries = 0
            if document != last:
                last = document
                yield document
            if not self._dialogue.waits:
                self._closed.wait(interval_s)

    def _poll(self, *, hold: bool = False) -> Document:
        dialogue = self._dialogue
        while True:  # bounded: each round lowers the version or ends
            held_s = dialogue.wait_s if hold else 0.0
            request = dialogue.poll_request(self._clock.now_ms(), hold=hold)
            answer = self._exchange("GET", request, held_s=held_s)
            document = dialogue.take_poll(answer, self._clock.now_ms())
            if document is not None:
                return document

    def _approve(self, event_ids: tuple[str, ...]) -> tuple[str, ...]:
        while event_ids:  # bounded: each round has fewer events
            try:
                request = self._dialogue.approval_request(event_ids)
                self._dialogue.take_approval(self._exchange("POST", request))
                break
            except (RequestRejected, TemporarilyUnavailable):
                shown = still_shown(event_ids, self._poll())
                if shown == event_ids:
                    raise
                event_ids = shown
        return event_ids

    def _text(self, path: str) -> str:
        return self._dialogue.take_text(self._exchange("GET", self._dialogue.get_request(path)))

    def _persist(self, ask: Callable[[], T]) -> T:
        until_ms = self._clock.now_ms() + int(self._patience_s * 1000)
        tries = 0
        while True:  # ends after `patience_s`
            try:
                return ask()
            except TRANSIENT as error:
                tries += 1
                if self._clock.now_ms() >= until_ms:
                    raise
                self._pause(tries, error)

    def _pause(self, tries: int, error: Exception) -> None:
        asked_s = error.retry_after_s if isinstance(error, TemporarilyUnavailable) else 0.0
        self._closed.wait(pause_s(tries, asked_s=asked_s, jitter=self._ids.fraction("jitter")))

    def _exchange(self, method: str, request: bytes, *, held_s: float = 0.0) -> HttpResponse:
        first = self._dialogue.document is None
        timeout_s = max(self._timeout_s, self._patience_s if first else 0.0) + held_s
        for fresh in (self._socket is None, True):
            if self._closed.is_set():
                raise ClientClosed
            try:
                return self._over(method, request, timeout_s)
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
            except BaseException:  # close, because the next request must not read a late answer
                self._disconnect()
                raise
        raise AssertionError("the second attempt returns or raises")  # pragma: no cover

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _opened(self, connection: socket.socket) -> None:
        self._socket = connection
        if self._closed.is_set():
            raise ClientClosed

    def _over(self, method: str, request: bytes, timeout_s: float) -> HttpResponse:
        connection = self._socket or connect(self._dialogue.target, self._timeout_s, self._opened)
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


def connect(
    target: Endpoint, timeout_s: float, opened: Callable[[socket.socket], None] = lambda _: None
) -> socket.socket:
    """Return a connected socket, for TCP with TCP_NODELAY and keepalive.

    Args:
        target: Address of the service.
        timeout_s: Timeout for each of the target's addresses, in seconds.
        opened: Called with the unconnected socket, so that another thread can close the socket.
    """
    places: list[tuple[int, Any]]
    if target.path:
        places = [(socket.AF_UNIX, target.path)]
    else:
        addresses = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        places = [(family, address) for family, _, _, _, address in addresses]
    for left, (family, address) in enumerate(places, 1 - len(places)):
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            opened(connection)
            connection.settimeout(timeout_s)
            connection.connect(address)
        except OSError:
            connection.close()
            if left == 0:
                raise
            continue
        if not target.path:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(connection)
        return connection
    raise AssertionError("the last attempt returns or raises")  # pragma: no cover


def keep_alive(connection: socket.socket) -> None:
    """Enable TCP keepalive on a connection.

    After a live migration, the answer of the old host never arrives. The new host resets the
    connection at the first probe, and the client repeats its request.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        option = getattr(socket, name, None)  # ignore options that the system lacks
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
