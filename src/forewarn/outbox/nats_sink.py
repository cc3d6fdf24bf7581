"""A stream of NATS JetStream as a destination; `nats-py` is imported when it is connected to.

The stream must be there: who keeps how much of it is not decided in here.
"""

from __future__ import annotations

import contextlib
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forewarn.nats_client import new_client
from forewarn.outbox.cloudevents import MEDIA
from forewarn.outbox.sink import DeliveryFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forewarn.outbox.cloudevents import CloudEvent


@dataclass(frozen=True, slots=True)
class NatsTarget:
    """Which stream, and how it is reached."""

    name: str
    servers: tuple[str, ...]
    #: Events are published to this subject, behind a dot and the action.
    subject: str
    credentials_file: str = ""
    token: str = ""
    ca_file: str = ""
    timeout_s: float = 10.0

    @property
    def wants_tls(self) -> bool:
        """Whether nothing may be sent in the clear."""
        return bool(self.ca_file) or any(each.startswith("tls:") for each in self.servers)


class NatsSink:
    """Publishes events, each once the one before is in the stream."""

    batch_max = 100

    def __init__(self, target: NatsTarget) -> None:
        """Connect nothing yet."""
        self._target = target
        self._client: Any = None
        self._stream: Any = None

    async def open(self) -> None:
        """Connect to one of the servers."""
        import nats  # noqa: PLC0415 - an extra

        target = self._target
        options: dict[str, Any] = {}
        if target.credentials_file:
            options["user_credentials"] = target.credentials_file
        if target.token:
            options["token"] = target.token
        if target.ca_file:
            options["tls"] = ssl.create_default_context(cafile=target.ca_file)
        client = self._client = new_client(tls_only=target.wants_tls)
        try:
            await client.connect(
                list(target.servers),
                allow_reconnect=False,  # what a lost connection had buffered must not come later
                connect_timeout=target.timeout_s,
                error_cb=_ignore,
                **options,
            )
        except (OSError, nats.errors.Error, TimeoutError) as error:
            raise self._failed(f"cannot be reached: {_said(error)}") from error
        self._stream = client.jetstream(timeout=target.timeout_s)

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Publish events; the stream drops one that it has, by its id."""
        import nats  # noqa: PLC0415 - an extra

        for event in events:
            subject = f"{self._target.subject}.{event['type'].removeprefix('forewarn.')}"
            headers = {"Nats-Msg-Id": f"{event['source']}#{event['id']}", "Content-Type": MEDIA}
            body = json.dumps(event, ensure_ascii=False).encode()
            try:
                await self._stream.publish(subject, body, headers=headers)
            except (OSError, nats.errors.Error, TimeoutError) as error:
                raise self._failed(f"did not take an event: {_said(error)}") from error

    async def close(self) -> None:
        """Disconnect."""
        client, self._client, self._stream = self._client, None, None
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()

    def _failed(self, problem: str) -> DeliveryFailed:
        return DeliveryFailed(name=self._target.name, problem=problem)


async def _ignore(_: Exception) -> None:
    """Log nothing: the awaited calls raise their failures."""


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
