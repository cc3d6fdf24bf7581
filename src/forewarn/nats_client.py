"""Connections to NATS servers; `nats-py` is an extra, imported at the first connection."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from forewarn.errors import CallerError, PeerError
from forewarn.values import value

CONNECT_S_MAX = 3.0
"""Time limit of a connection attempt."""

QUEUED_BYTES_MAX = 64 * 1024 * 1024
"""Maximum unsent bytes; further messages are dropped, as NATS itself may do."""


class NatsMissing(CallerError):
    """The NATS client library is not installed."""

    code = "nats-missing"
    message = "The feed over NATS needs the package nats-py."
    advice = "Install Forewarn with the extra `nats`: pip install './forewarn[nats]'."


class NatsUnreachable(PeerError):
    """A NATS server cannot be used."""

    code = "nats-unreachable"
    message = "The NATS server {server} cannot be used: {reason}."
    advice = "Check that the server runs; check its address and certificate, and the credentials."


@value
class NatsLogin:
    """A client's credentials for a server. A certificate is part of `tls`."""

    user: str = ""
    password: str = ""
    credentials_file: str = ""
    """User JWT and seed, in the format of `nsc`."""
    tls: ssl.SSLContext | None = None
    """TLS context; None: no encryption, for servers on this machine."""


class NatsConnection:
    """One connection, which is not reopened after a failure; use it on one event loop."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - of an extra
        """Wrap a connected client."""
        self._client = client
        self._queue: deque[tuple[str, bytes, str]] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self.closed = asyncio.Event()
        """Set once the connection has ended."""
        self.max_bytes: int = client.max_payload
        #: Called with each refusal of the server, for instance of a subject.
        self.on_refused: Callable[[str], None] = lambda _: None
        self._sending = asyncio.get_running_loop().create_task(self._send())

    def publish(self, subject: str, body: bytes, reply: str = "") -> None:
        """Queue a message; the server reports missing subscribers to `reply`."""
        size = len(body)
        if self.closed.is_set() or self._queued_bytes + size > QUEUED_BYTES_MAX:
            return
        self._queue.append((subject, body, reply))
        self._queued_bytes += size
        self._wake.set()

    async def subscribe(self, subject: str, receive: Callable[[str, bytes], None]) -> None:
        """Call `receive` with the subject and body of each message.

        An empty body means that the sent message has no subscriber.
        """

        async def received(message: Any) -> None:  # noqa: ANN401 - of an extra
            receive(message.subject, message.data)

        await self._client.subscribe(subject, cb=received)

    async def close(self) -> None:
        """Disconnect once queued messages are sent, if the server accepts them."""
        if not self.closed.is_set():
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CONNECT_S_MAX):
                    await self._send_queued()
                    await self._client.flush()
        self.end()
        with contextlib.suppress(Exception):
            await self._client.close()

    def end(self) -> None:
        """Record that the connection has ended."""
        self.closed.set()
        self._sending.cancel()
        self._queue.clear()

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._send_queued()
            except Exception as error:  # noqa: BLE001 - of an extra; the connection is over
                self.on_refused(str(error) or type(error).__name__)
                self.closed.set()
                return

    async def _send_queued(self) -> None:
        while self._queue:
            subject, body, reply = self._queue.popleft()
            self._queued_bytes -= len(body)
            await self._client.publish(subject, body, reply=reply)


async def connect_nats(server: str, login: NatsLogin, *, name: str) -> NatsConnection:
    """Connect to one server, `nats://HOST:PORT`.

    Args:
        server: address of the server.
        login: the client's credentials.
        name: the name shown to the server's operators.

    Raises:
        NatsMissing: nats-py is not installed.
        NatsUnreachable: the server cannot be used.
    """
    check_nats()
    from nats import errors  # noqa: PLC0415 - an extra

    connection: NatsConnection | None = None

    async def refused(error: Exception) -> None:
        if connection is not None:
            connection.on_refused(str(error) or type(error).__name__)

    async def ended() -> None:
        if connection is not None:
            connection.end()

    options: dict[str, Any] = {"tls": login.tls} if login.tls else {}
    if login.credentials_file:
        options["user_credentials"] = login.credentials_file
    elif login.password:
        options.update(user=login.user, password=login.password)
    client = new_client(tls_only=login.tls is not None)
    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            await client.connect(
                [server],
                name=name,
                allow_reconnect=False,  # a lost connection's buffer must not be sent later
                connect_timeout=CONNECT_S_MAX,
                error_cb=refused,
                disconnected_cb=ended,
                closed_cb=ended,
                ping_interval=10,
                **options,
            )
    except (OSError, errors.Error, TimeoutError, ImportError, ValueError) as error:
        with contextlib.suppress(Exception):
            await client.close()
        silent = isinstance(error, TimeoutError) and not str(error)
        reason = f"no answer within {CONNECT_S_MAX:g} s" if silent else str(error)
        reason = (reason or type(error).__name__).removesuffix(".")
        raise NatsUnreachable(server=server, reason=reason) from error
    connection = NatsConnection(client)
    return connection


def check_nats() -> None:
    """Refuse to continue without the client of NATS.

    Raises:
        NatsMissing: nats-py is not installed.
    """
    if find_spec("nats") is None:
        raise NatsMissing


def new_client(*, tls_only: bool) -> Any:  # noqa: ANN401 - of an extra
    """Return a client; if TLS is required, the client disconnects from servers without TLS.

    nats-py itself uses TLS only if the server's first line requests it. An attacker on the network
    can change that line, and the client would then continue unencrypted, with its secret.
    """
    from nats import errors  # noqa: PLC0415 - an extra
    from nats.aio.client import Client  # noqa: PLC0415 - an extra

    class TlsClient(Client):
        async def _process_info(self, info: dict[str, Any], *more: bool, **named: bool) -> None:
            if not info.get("tls_required"):
                raise errors.Error("the server offers no TLS, but the settings require TLS")
            await super()._process_info(info, *more, **named)

    return TlsClient() if tls_only else Client()
