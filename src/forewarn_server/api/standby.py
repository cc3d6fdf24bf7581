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
import contextlib
import hmac
import re
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forewarn_base.errors import CallerError, PeerError
from forewarn_base.host_port import host_of_url
from forewarn_base.http_client import ANSWER_BYTES_MAX
from forewarn_metadata.replication.http_stream import HttpBroken, HttpStream
from forewarn_server.api.connections import SAFE
from forewarn_server.api.responses import body_of, left, refusal

#: Maximum number of forwarded calls at a time, including watches; further calls wait.
FORWARDED_MAX = 200
#: Maximum size of a forwarded body, in bytes; larger than the largest topology.
BODY_BYTES_MAX = 16 * 1024 * 1024
#: Time limit of a repeatable call's wait for an active process, longer than a lease's term, and
#: delay before a repetition, in seconds.
TAKEOVER_S, AGAIN_S = 8.0, 0.2
#: Time limit of each step of an exchange, in seconds; streams of the active process are never
#: silent for so long.
STEP_S = 60.0
#: Header of a forwarded call. A process never forwards a call with this header, and identifies its
#: caller only by a token or session in the call.
FORWARDED_HEADER = b"forewarn-forwarded"
#: Headers with the lease's token, which proves a process of the same store, and with the address of
#: the caller of that process.
LEASE_HEADER, ORIGIN_HEADER = b"forewarn-lease", b"forewarn-origin"
#: Headers that a process sets on each call that it forwards; those of the caller are dropped.
OF_RELAY = frozenset({FORWARDED_HEADER, LEASE_HEADER, ORIGIN_HEADER})
#: Path of questions for the answers to earlier requests.
ANSWERS_PATH = "/v1/answers"
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


class AnswerPending(CallerError):
    """The request with the key is being carried out, or waits in a follower."""

    code = "answer-pending"
    status = 503
    message = "The request with the Idempotency-Key {key} is being carried out."
    advice = "Ask for its answer again in a few seconds."


class ActiveProcess:
    """The active process, as a follower reaches it."""

    def __init__(self, url: Callable[[], str], lease: Callable[[], str], ca_file: str = "") -> None:
        """Reach the active process.

        Args:
            url: returns its URL; empty: no process is active.
            lease: returns the token of its lease.
            ca_file: the CA file of its server; empty: the system's.
        """
        self.url = url
        self._lease = lease
        self._ca_file = ca_file

    def proof(self) -> tuple[str, str]:
        """Return the header by which the active process knows a process of its store."""
        return LEASE_HEADER.decode(), self._lease()

    async def connect(self) -> HttpStream:
        """Open a connection.

        Raises:
            OSError: no process is active, or it cannot be reached.
        """
        url = self.url()
        if not url:
            raise ConnectionError("no process is active")
        if url.startswith("unix:"):
            streams = await asyncio.open_unix_connection(url.removeprefix("unix:"))
            return HttpStream(streams, "localhost", ANSWER_BYTES_MAX)
        parts, tls = urlsplit(url), None
        if parts.scheme == "https":
            tls = _tls_of(self._ca_file, _changed_ns(self._ca_file))
        host, port = host_of_url(parts.hostname or ""), parts.port or (443 if tls else 80)
        streams = await asyncio.open_connection(host, port, ssl=tls)
        return HttpStream(streams, parts.netloc, ANSWER_BYTES_MAX)


def _changed_ns(file: str) -> int:
    """Return when a file was last changed, so that a new CA counts at once."""
    return Path(file).stat().st_mtime_ns if file else 0


@lru_cache(1)
def _tls_of(ca_file: str, _changed_ns: int) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file or None)


class Forwarder:
    """Forwards calls to the active process; an ASGI application."""

    def __init__(self, active: ActiveProcess) -> None:
        """Forward calls to the active process."""
        #: Paths of reads that only the active process can answer.
        self.active_paths = re.compile("")
        self._active = active
        self._successor: ASGIApp | None = None
        self._free = asyncio.Semaphore(FORWARDED_MAX)
        self._attempts: set[asyncio.Task[None]] = set()
        #: The keys of waiting changes, each with the credentials of its caller.
        self._waiting: Counter[tuple[bytes, ...]] = Counter()
        #: Set when this process is active, so that no waiting call comes after later ones.
        self._succeeded = asyncio.Event()
        self._stopped = False

    @property
    def url(self) -> str:
        """The URL of the active process; empty: no process is active."""
        return self._active.url()

    def stop(self) -> None:
        """End the running calls, and accept no further calls."""
        self._stopped = True
        for each in self._attempts:
            each.cancel()

    def end_with(self, successor: ASGIApp) -> None:
        """Pass waiting calls to an application, because this process is active now."""
        self._successor = successor
        self._succeeded.set()

    def wants(self, scope: Scope) -> bool:
        """Return whether a call must be forwarded to the active process."""
        return scope["method"] not in SAFE or bool(self.active_paths.fullmatch(scope["path"]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a call and return its answer to the caller.

        While a change with a key waits here, the active process may not know it yet, so a question
        for its answer is answered here.
        """
        headers = dict(scope["headers"])
        credentials = headers.get(b"authorization", b""), headers.get(b"cookie", b"")
        if key := _key_asked_for(scope):
            if self._waiting[*credentials, key]:
                await refusal(AnswerPending(key=key.decode("latin-1")))(scope, receive, send)
                return
        elif scope["method"] == "POST" and b"idempotency-key" in headers:
            waiting = (*credentials, headers[b"idempotency-key"])
            self._waiting[waiting] += 1
            try:
                await self._forward(scope, receive, send, keyed=True)
            finally:
                self._waiting[waiting] -= 1
                if not self._waiting[waiting]:
                    del self._waiting[waiting]
            return
        await self._forward(scope, receive, send, keyed=False)

    async def _forward(self, scope: Scope, receive: Receive, send: Send, *, keyed: bool) -> None:
        headers, loop = dict(scope["headers"]), asyncio.get_running_loop()
        repeatable = keyed or scope["method"] in SAFE
        until_s, reason = loop.time() + TAKEOVER_S, ""
        try:
            body = await body_of(receive, BODY_BYTES_MAX)
        except ClientDisconnect:
            return
        except CallerError as error:
            await refusal(error)(scope, receive, send)
            return
        while FORWARDED_HEADER not in headers:
            if self._successor is not None:
                await self._successor(scope, _replay_body(body, receive), send)
                return
            if self._stopped:
                break
            attempt = _Attempt(self._active, scope, body)
            try:
                await self._try(attempt, receive, send)
            except (OSError, EOFError, HttpBroken) as error:
                reason = f": {error}"
            if attempt.answered:  # an incomplete answer ends with its connection
                return
            if (attempt.sent and not repeatable) or loop.time() > until_s:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._succeeded.wait()
        await refusal(StandingBy(reason=reason))(scope, receive, send)

    async def _try(self, attempt: _Attempt, receive: Receive, send: Send) -> None:
        """Carry out an attempt in a task, which `stop` cancels without the call's own."""
        task = asyncio.create_task(self._take_turn(attempt, receive, send))
        self._attempts.add(task)
        task.add_done_callback(self._attempts.discard)
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()
        if not task.cancelled():
            task.result()

    async def _take_turn(self, attempt: _Attempt, receive: Receive, send: Send) -> None:
        async with self._free:
            await attempt.run(receive, send)


class _Attempt:
    """One attempt to have a call answered by the active process."""

    def __init__(self, active: ActiveProcess, scope: Scope, body: bytes) -> None:
        self._active = active
        self._scope = scope
        self._body = body
        #: Whether the active process may have received the call.
        self.sent = False
        #: Whether the caller has received the beginning of the answer.
        self.answered = False

    async def run(self, receive: Receive, send: Send) -> None:
        """Forward the answer in pieces until it ends or the caller disconnects.

        Raises:
            OSError, EOFError, HttpBroken: there was no complete answer.
        """
        async with asyncio.timeout(STEP_S):
            stream = await self._active.connect()
        gone: asyncio.Future[None] | None = None
        try:
            self.sent, scope = True, self._scope
            target = scope["raw_path"] + (b"?" if scope["query_string"] else b"")
            target += scope["query_string"]
            async with asyncio.timeout(STEP_S):
                head = await stream.begin(
                    scope["method"], target.decode("latin-1"), self._fields(), body=self._body
                )
            fields = [(name.encode(), text.encode("latin-1")) for name, text in head.fields]
            shown = [each for each in fields if each[0] not in OF_CONNECTION]
            self.answered = True
            gone = asyncio.ensure_future(left(receive))
            gone.add_done_callback(lambda _: stream.close())  # which ends the wait for a piece
            await send({"type": "http.response.start", "status": head.status, "headers": shown})
            piece = b"begun"
            while piece:
                async with asyncio.timeout(STEP_S):
                    piece = await stream.piece()
                more = bool(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        finally:
            stream.close()
            if gone is not None:
                gone.cancel()

    def _fields(self) -> list[tuple[str, str]]:
        """Return the call's headers, with those of the relay; a browser compares its `Host`."""
        fields = [
            (name.decode("latin-1"), text.decode("latin-1"))
            for name, text in self._scope["headers"]
            if name not in OF_CONNECTION and name not in OF_RELAY
        ]
        fields += [(FORWARDED_HEADER.decode(), "1"), self._active.proof()]
        if self._scope.get("client"):  # a caller at a Unix socket has this machine's address
            fields.append((ORIGIN_HEADER.decode(), self._scope["client"][0]))
        return [*fields, ("content-length", str(len(self._body)))]


def proves_relay(headers: Mapping[bytes, bytes], lease: str) -> bool:
    """Return whether a process of the same store sent a request: it knows the lease's token.

    `lease` is the token of this process's lease; empty: this process is not active.
    """
    proof = headers.get(LEASE_HEADER, b"")
    return bool(lease) and hmac.compare_digest(proof, lease.encode())


def _key_asked_for(scope: Scope) -> bytes:
    """Return the key of a question for the answer to an earlier request; empty: another call."""
    if scope["method"] not in SAFE or scope["path"] != ANSWERS_PATH:
        return b""
    query: bytes = scope["query_string"]
    return parse_qs(query).get(b"key", [b""])[0]


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI `receive` function that first returns an already received body."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
