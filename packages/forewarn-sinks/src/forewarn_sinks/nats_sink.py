"""Sink for a stream of NATS JetStream; imports `nats-py` when connecting.

The stream must exist; its owner chooses how long it keeps messages.
"""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from forewarn_base.urls import is_protected, shown_url
from forewarn_base.validation.fields import Text
from forewarn_base.validation.forms import ListOf
from forewarn_server.outbox.cloudevents import MEDIA, CloudEvent
from forewarn_server.outbox.sink import DeliveryFailed, DestinationOptions, SinkKind, secret_in


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsOptions(DestinationOptions):
    """CloudEvents in a stream of NATS JetStream."""

    servers: Annotated[
        tuple[str, ...], ListOf(Text(2048), 20, 1), "`tls://HOST:PORT` or `nats://`."
    ]
    subject: Annotated[str, Text(200), "Prefix of the subjects (default: `forewarn`)."] = "forewarn"
    credentials_file: Annotated[str, Text(4096), "Credentials file, written by `nsc`."] = ""
    token_file: Annotated[
        str,
        Text(4096),
        "File with a token; requires TLS unless the server is on this machine.",
    ] = ""
    ca_file: Annotated[str, Text(4096), "Trusted CA certificates for TLS."] = ""

    @property
    def wants_tls(self) -> bool:
        """Whether all traffic must be encrypted."""
        return bool(self.ca_file) or any(each.startswith("tls:") for each in self.servers)


class NatsSink:
    """Publishes events one after another, each after the stream has stored the previous event."""

    batch_max = 100

    def __init__(self, name: str, target: NatsOptions, token: str) -> None:
        self._name = name
        self._target = target
        self._token = token
        self._client: Any = None
        self._stream: Any = None

    async def open(self) -> None:
        """Connect to one of the servers."""
        import nats  # noqa: PLC0415 - an extra

        target = self._target
        options: dict[str, Any] = {}
        if target.credentials_file:
            options["user_credentials"] = target.credentials_file
        if self._token:
            options["token"] = self._token
        if target.ca_file:
            options["tls"] = ssl.create_default_context(cafile=target.ca_file)
        client = self._client = new_client(tls_only=target.wants_tls)
        try:
            await client.connect(
                list(target.servers),
                allow_reconnect=False,  # the buffer could send events out of order
                connect_timeout=target.timeout_s,
                error_cb=_ignore,
                **options,
            )
        except (OSError, nats.errors.Error, TimeoutError) as error:
            raise self._failure(f"cannot be reached: {_error_text(error)}") from error
        self._stream = client.jetstream(timeout=target.timeout_s)

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Publish events; the stream drops repeated events by their ids."""
        import nats  # noqa: PLC0415 - an extra

        for event in events:
            subject = f"{self._target.subject}.{event['type'].removeprefix('forewarn.')}"
            headers = {"Nats-Msg-Id": f"{event['source']}#{event['id']}", "Content-Type": MEDIA}
            body = json.dumps(event, ensure_ascii=False).encode()
            try:
                await self._stream.publish(subject, body, headers=headers)
            except (OSError, nats.errors.Error, TimeoutError) as error:
                raise self._failure(f"did not accept an event: {_error_text(error)}") from error

    async def close(self) -> None:
        """Disconnect."""
        client, self._client, self._stream = self._client, None, None
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()

    def _failure(self, problem: str) -> DeliveryFailed:
        return DeliveryFailed(name=self._name, problem=problem)


def create(name: str, options: NatsOptions) -> NatsSink:
    """Return the sink of a destination."""
    for server in options.servers:
        scheme, _, host = shown_url(server).partition("://")
        if scheme not in {"nats", "tls"}:
            raise ValueError("must have servers with nats:// or tls://")
        secret = bool(options.token_file) or "@" in urlsplit(server).netloc
        if secret and not (scheme == "tls" or is_protected(f"http://{host}")):
            raise ValueError(f"must have tls:// for {host}, to protect the token")
    return NatsSink(name, options, secret_in(options.token_file))


KIND = SinkKind(options=NatsOptions, create=create, module="nats", extra="nats")


async def _ignore(_: Exception) -> None:
    """Ignore errors in callbacks, because the awaited calls raise the same errors."""


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


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
