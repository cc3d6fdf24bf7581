"""Forwards calls from a follower's operator API to the active process.

A follower forwards every change and every read that only the active process can answer. A follower
also forwards the calls of unknown or unpermitted callers. The active process may have newer tokens
and permissions, and records the refusal.

A call is forwarded with the caller's own credentials and `Idempotency-Key`. The active process
judges it only by these credentials, never by the follower's connection. With the lease's token the
follower proves that it is a process of the same store, so that the active process believes the
caller's address. During a takeover, the follower repeats reads and changes with a key. Source: H-4,
P-1, P-7, P-10.
"""

from __future__ import annotations

import asyncio
import hmac
import http.client
import re
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.api.connections import SAFE
from forewarn.api.responses import left, refusal
from forewarn.errors import CallerError, PeerError
from forewarn.http_client import new_connection

#: Maximum number of forwarded calls at a time, including watches; further calls wait.
FORWARDED_MAX = 200
#: Maximum size of a forwarded body, in bytes; larger than the largest topology.
BODY_BYTES_MAX = 16 * 1024 * 1024
#: Time limit of a repeatable call's wait for an active process, longer than a lease's term, and
#: delay before a repetition, in seconds.
TAKEOVER_S, AGAIN_S = 8.0, 0.2
#: Time limit of each socket operation, in seconds; streams of the active process are never silent
#: for so long.
STEP_S = 60.0
#: Size of a forwarded part of an answer, in bytes.
PART_BYTES = 65536
#: Header of a forwarded call. A process never forwards a call with this header, and identifies its
#: caller only by a token or session in the call.
FORWARDED_HEADER = b"forewarn-forwarded"
#: Headers with the lease's token, which proves a process of the same store, and with the address of
#: the caller of that process.
LEASE_HEADER, ORIGIN_HEADER = b"forewarn-lease", b"forewarn-origin"
#: Headers that a process sets on each call that it forwards; those of the caller are dropped.
OF_RELAY = frozenset({FORWARDED_HEADER, LEASE_HEADER, ORIGIN_HEADER})
#: Headers that belong to one connection and are not forwarded.
OF_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"content-length"}
)


class StandingBy(PeerError):
    """This process cannot reach the active process."""

    code = "standing-by"
    status = 503
    message = "This process is a follower and reaches no active process{reason}."
    advice = "Repeat the call. For a change, send the same Idempotency-Key."


class ForwardedTooLarge(CallerError):
    """The body exceeds the limit of every process."""

    code = "forwarded-too-large"
    status = 413
    message = "The body has more than {bytes_max} bytes."
    advice = "Divide the body into several calls."


class Forwarder:
    """Forwards calls to the active process; an ASGI application."""

    def __init__(self, url: Callable[[], str], lease: Callable[[], str], ca_file: str = "") -> None:
        """Forward calls to the active process.

        Args:
            url: returns its URL; empty: no process is active.
            lease: returns the token of its lease.
            ca_file: the CA file of its server; empty: the system's.
        """
        #: Paths of reads that only the active process can answer.
        self.active_paths = re.compile("")
        self._successor: ASGIApp | None = None
        self.url = url
        self._lease = lease
        self._ca_file = ca_file
        self._threads = ThreadPoolExecutor(FORWARDED_MAX, "forwarded")
        self._open: set[_Exchange] = set()
        self._stopped = False

    def stop(self) -> None:
        """End the running calls, and accept no further calls."""
        self._stopped = True
        for exchange in tuple(self._open):
            exchange.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def end_with(self, successor: ASGIApp) -> None:
        """Pass waiting calls to an application, because this process is active now."""
        self._successor = successor

    def wants(self, scope: Scope) -> bool:
        """Return whether a call must be forwarded to the active process."""
        return scope["method"] not in SAFE or bool(self.active_paths.fullmatch(scope["path"]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a call and return its answer to the caller."""
        headers, loop = dict(scope["headers"]), asyncio.get_running_loop()
        keyed = scope["method"] == "POST" and b"idempotency-key" in headers
        repeatable = keyed or scope["method"] in SAFE
        until_s, reason = loop.time() + TAKEOVER_S, ""
        try:
            body = await read_forwarded(receive)
        except CallerError as error:
            await refusal(error)(scope, receive, send)
            return
        while FORWARDED_HEADER not in headers:
            if self._successor is not None:
                await self._successor(scope, _replay_body(body, receive), send)
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
                # Close the connection, so that the caller notices a truncated answer.
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
            url, lease = self.url(), self._lease()
            return await loop.run_in_executor(self._threads, exchange.begin, url, lease)
        except asyncio.CancelledError:
            if task is None or task.cancelling():
                raise
            raise ConnectionError("this process forwards no more") from None

    async def _pass_on(
        self, response: http.client.HTTPResponse, receive: Receive, send: Send
    ) -> None:
        """Forward an answer in parts until the answer ends or the caller disconnects."""
        loop, gone = asyncio.get_running_loop(), asyncio.ensure_future(left(receive))
        await send(
            {
                "type": "http.response.start",
                "status": response.status,
                "headers": _response_headers(response),
            }
        )
        part = b"begun"
        try:
            while part:
                reading = loop.run_in_executor(self._threads, response.read1, PART_BYTES)
                either: list[asyncio.Future[Any]] = [reading, gone]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
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
        #: Whether the active process may have received the call.
        self.sent = False

    def begin(self, url: str, lease: str) -> http.client.HTTPResponse:
        """Send the call with the lease's token; return the head of its answer.

        Raises:
            OSError, HTTPException: sending failed, or no answer arrived.
        """
        if not url:
            raise ConnectionError("no process is active")
        connection = self._connection = new_connection(url, self._ca_file, timeout_s=STEP_S)
        connection.connect()
        scope = self._scope
        path = scope["raw_path"].decode() + ("?" if scope["query_string"] else "")
        connection.putrequest(
            scope["method"],
            path + scope["query_string"].decode(),
            skip_accept_encoding=True,
            skip_host=True,  # a browser's `Origin` is compared with `Host`
        )
        for name, text in scope["headers"]:
            if name not in OF_CONNECTION and name not in OF_RELAY:
                connection.putheader(name, text)
        connection.putheader(FORWARDED_HEADER, b"1")
        connection.putheader(LEASE_HEADER, lease)
        if scope.get("client"):  # a caller at a Unix socket has this machine's address
            connection.putheader(ORIGIN_HEADER, scope["client"][0])
        connection.putheader("content-length", str(len(self._body)))
        self.sent = True
        connection.endheaders(self._body)
        return connection.getresponse()

    def close(self) -> None:
        """Close the connection; a thread that reads from it receives an error."""
        connection = self._connection
        if connection is None:
            return
        with suppress(OSError):
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()


def proves_relay(headers: Mapping[bytes, bytes], lease: str) -> bool:
    """Return whether a process of the same store sent a request: it knows the lease's token.

    `lease` is the token of this process's lease; empty: this process is not active.
    """
    given = headers.get(LEASE_HEADER, b"")
    return bool(lease) and hmac.compare_digest(given, lease.encode())


def _response_headers(response: http.client.HTTPResponse) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer that the caller receives."""
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


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` function that first returns an already received body."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
