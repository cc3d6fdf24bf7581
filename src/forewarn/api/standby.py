"""Forwards calls from a follower's operator API to the active process.

A follower forwards every change and every read that only the active process can answer. It also
forwards the calls of unknown or unpermitted callers: the active process may know newer tokens and
permissions, and records the refusal.

A call is forwarded with the caller's own credentials and `Idempotency-Key`. During a takeover, a
read or a change with a key is sent again. Source: H-4, P-10.
"""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from forewarn.api.connections import ADMIT, CREDENTIALS, SAFE
from forewarn.api.responses import refusal
from forewarn.errors import CallerError, PeerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Maximum forwarded calls at a time, watches included; further ones wait.
FORWARDED_MAX = 200
#: Maximum size of a forwarded body, in bytes: more than the largest topology.
BODY_BYTES_MAX = 16 * 1024 * 1024
#: How long a repeatable call waits for an active process, and the delay before it is sent again, in
#: seconds: longer than a term.
TAKEOVER_S, AGAIN_S = 8.0, 0.2
#: Time limit of a step of sending, in seconds; the active process ends silent streams later.
STEP_S = 60.0
#: Size of the parts in which an answer is passed on, in bytes.
PART_BYTES = 65536
#: Marks a forwarded call, which is never forwarded again.
FORWARDED = b"forewarn-forwarded"
#: Headers of a single connection, which are not forwarded.
OF_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"content-length"}
)


class StandingBy(PeerError):
    """This process cannot reach the active one."""

    code = "standing-by"
    status = 503
    message = "This process follows, and reaches no active process{reason}."
    advice = "Repeat the call; repeat a change with the same Idempotency-Key."


class ForwardedTooLarge(CallerError):
    """The body is larger than any process accepts."""

    code = "forwarded-too-large"
    status = 413
    message = "The body has more than {bytes_max} bytes."
    advice = "Send it in several calls."


class Forwarder:
    """Forwards calls to the active process; an ASGI application."""

    def __init__(self, url: Callable[[], str], ca_file: str = "") -> None:
        """Forward calls to the URL that `url` returns; `ca_file` has the CA of its server."""
        #: Paths of reads that only the active process answers.
        self.active_paths = re.compile("")
        #: Answers instead, once this process is active.
        self.successor: ASGIApp | None = None
        self.url = url
        self._ca_file = ca_file
        self._threads = ThreadPoolExecutor(FORWARDED_MAX, "forwarded")
        self._open: set[_Exchange] = set()
        self._stopped = False

    def stop(self) -> None:
        """End the calls in progress, and accept no more."""
        self._stopped = True
        for exchange in tuple(self._open):
            exchange.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def wants(self, scope: Scope) -> bool:
        """Whether a call must go to the active process."""
        return scope["method"] not in SAFE or bool(self.active_paths.fullmatch(scope["path"]))

    def proves(self, scope: Scope) -> bool:
        """Whether the credentials of a call can be forwarded."""
        return any(name in CREDENTIALS for name, _ in scope["headers"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a call and return its answer to the caller."""
        headers, loop = dict(scope["headers"]), asyncio.get_running_loop()
        keyed = scope["method"] == "POST" and b"idempotency-key" in headers
        repeatable = keyed or scope["method"] in SAFE
        until_s, reason = loop.time() + TAKEOVER_S, ""
        if self.proves(scope):
            scope.get("state", {}).get(ADMIT, _nothing)()  # answered even during a takeover
        try:
            body = await read_forwarded(receive)
        except CallerError as error:
            await refusal(error)(scope, receive, send)
            return
        while FORWARDED not in headers:
            if self.successor is not None:
                await self.successor(scope, _replayed(body, receive), send)
                return
            if self._stopped:
                break
            exchange = _Exchange(scope, body, self._ca_file)
            self._open.add(exchange)
            try:
                response = await self._begin(exchange)
            except (OSError, http.client.HTTPException) as error:
                reason = f": {error}"
            else:
                # The caller must notice a truncated answer, even if the threads have ended.
                with suppress(OSError, http.client.HTTPException, RuntimeError):
                    await self._pass_on(response, receive, send)
                return
            finally:
                self._open.discard(exchange)
                exchange.close()
            if (exchange.sent and not repeatable) or loop.time() > until_s:
                break
            await asyncio.sleep(AGAIN_S)
        await refusal(StandingBy(reason=reason))(scope, receive, send)

    async def _begin(self, exchange: _Exchange) -> http.client.HTTPResponse:
        """Send a call on a thread; `stop` cancels a wait for a thread, but not the call's task."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, exchange.begin, self.url())
        except asyncio.CancelledError:
            if task is None or task.cancelling():
                raise
            raise ConnectionError("this process forwards no more") from None

    async def _pass_on(
        self, response: http.client.HTTPResponse, receive: Receive, send: Send
    ) -> None:
        """Pass an answer on as it arrives, until it ends or the caller leaves."""
        loop, gone = asyncio.get_running_loop(), asyncio.ensure_future(_gone(receive))
        await send(
            {"type": "http.response.start", "status": response.status, "headers": _kept(response)}
        )
        part = b"begun"
        try:
            while part:
                reading: asyncio.Future[bytes] = loop.run_in_executor(
                    self._threads, response.read1, PART_BYTES
                )
                await asyncio.wait([reading, gone], return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    return
                part = reading.result()
                await send({"type": "http.response.body", "body": part, "more_body": bool(part)})
        finally:
            gone.cancel()


class _Exchange:
    """One call to the active process."""

    def __init__(self, scope: Scope, body: bytes, ca_file: str) -> None:
        self._scope = scope
        self._body = body
        self._ca_file = ca_file
        self._connection: http.client.HTTPConnection | None = None
        #: Whether the active process may have received it.
        self.sent = False

    def begin(self, url: str) -> http.client.HTTPResponse:
        """Send the call; return the head of its answer.

        Raises:
            OSError, HTTPException: the call could not be sent, or was not answered.
        """
        if not url:
            raise ConnectionError("no process is active")
        connection = self._connection = new_connection(url, self._ca_file)
        connection.connect()
        scope = self._scope
        path = scope["raw_path"].decode() + ("?" if scope["query_string"] else "")
        connection.putrequest(
            scope["method"],
            path + scope["query_string"].decode(),
            skip_accept_encoding=True,
            skip_host=True,  # the caller's own `Host`, with which a browser's `Origin` is compared
        )
        for name, text in scope["headers"]:
            if name not in OF_CONNECTION:
                connection.putheader(name, text)
        connection.putheader(FORWARDED, b"1")
        connection.putheader("content-length", str(len(self._body)))
        self.sent = True
        connection.endheaders(self._body)
        return connection.getresponse()

    def close(self) -> None:
        """Close the connection; a reading thread gets an error."""
        connection = self._connection
        if connection is None:
            return
        with suppress(OSError):
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a process of this machine."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the Unix socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def new_connection(
    url: str, ca_file: str, *, timeout_s: float = STEP_S
) -> http.client.HTTPConnection:
    """Return a connection to a process's operator API, not open yet."""
    if url.startswith("unix:"):
        return _UnixConnection(url.removeprefix("unix:"), timeout_s)
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    if parts.scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    context = ssl.create_default_context(cafile=ca_file or None)
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)


def _kept(response: http.client.HTTPResponse) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer that are passed on."""
    headers = [
        (name.lower().encode(), text.encode("latin-1")) for name, text in response.headers.items()
    ]
    return [each for each in headers if each[0] not in OF_CONNECTION]


async def read_forwarded(receive: Receive) -> bytes:
    """Return the body of a call.

    Raises:
        ForwardedTooLarge: the body is too large.
    """
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > BODY_BYTES_MAX:
            raise ForwardedTooLarge(bytes_max=BODY_BYTES_MAX)
    return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that starts with a body that was read already."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _nothing() -> None:
    """Do nothing."""


async def _gone(receive: Receive) -> bytes:
    """Wait until the caller has left; return nothing, as from an answer that has ended."""
    while (await receive())["type"] != "http.disconnect":
        pass
    return b""
