"""Sink for a topic of a broker with Kafka's protocol; imports `aiokafka` when connecting.

All events are sent to one partition, because Kafka guarantees the order only within a partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from forewarn_base.urls import is_protected
from forewarn_base.validation.fields import Boolean, Integer, Text
from forewarn_base.validation.forms import ListOf
from forewarn_server.outbox.cloudevents import MEDIA, CloudEvent
from forewarn_server.outbox.sink import (
    CaFileOption,
    DeliveryFailed,
    DestinationOptions,
    SinkKind,
    secret_in,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions(DestinationOptions):
    """CloudEvents in a topic of a broker with Kafka's protocol."""

    brokers: Annotated[tuple[str, ...], ListOf(Text(300), 20, 1), "`HOST:PORT`, …"]
    topic: Annotated[str, Text(249), "The topic (default: `forewarn`)."] = "forewarn"
    partition: Annotated[int, Integer(0, 1_000_000), "The partition (default: 0)."] = 0
    tls: Annotated[bool, Boolean(), "Whether to encrypt the connection (default: no)."] = False
    ca_file: CaFileOption = ""
    user: Annotated[str, Text(200), "User for SCRAM-SHA-512."] = ""
    password_file: Annotated[str, Text(4096), "File with the user's password."] = ""


class KafkaSink:
    """Sends events with an idempotent producer, acknowledged by all in-sync replicas."""

    batch_max = 100

    def __init__(self, name: str, target: KafkaOptions, password: str) -> None:
        self._name = name
        self._target = target
        self._password = password
        self._producer: Any = None

    async def open(self) -> None:
        """Connect to the brokers."""
        from aiokafka import AIOKafkaProducer  # noqa: PLC0415 - an extra
        from aiokafka.errors import KafkaError  # noqa: PLC0415 - an extra

        # Silence aiokafka, which logs each attempt to connect; the outbox logs a failure once.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        target = self._target
        options: dict[str, Any] = {}
        if target.tls:
            options["ssl_context"] = ssl.create_default_context(cafile=target.ca_file or None)
        if target.user:
            options |= {
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": target.user,
                "sasl_plain_password": self._password,
            }
        security = f"{'SASL_' if target.user else ''}{'SSL' if target.tls else 'PLAINTEXT'}"
        producer = AIOKafkaProducer(
            bootstrap_servers=list(target.brokers),
            security_protocol=security,
            enable_idempotence=True,
            acks="all",
            request_timeout_ms=int(target.timeout_s * 1000),
            **options,
        )
        self._producer = producer
        try:
            async with asyncio.timeout(target.timeout_s):
                await producer.start()
        except (OSError, KafkaError, TimeoutError) as error:
            raise self._failure(f"cannot be reached: {error or type(error).__name__}") from error

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Send events, and wait until all events are acknowledged."""
        from aiokafka.errors import KafkaError  # noqa: PLC0415 - an extra

        target = self._target
        try:
            async with asyncio.timeout(target.timeout_s):
                sent = [
                    await self._producer.send(
                        target.topic,
                        json.dumps(event, ensure_ascii=False).encode(),
                        key=event.get("subject", "").encode(),
                        partition=target.partition,
                        headers=[("content-type", MEDIA.encode())],
                    )
                    for event in events
                ]
                await asyncio.gather(*sent)
        except (OSError, KafkaError, TimeoutError) as error:
            problem = f"did not accept an event: {error or type(error).__name__}"
            raise self._failure(problem) from error

    async def close(self) -> None:
        """Disconnect; the next producer sends unacknowledged events again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(1.0):
                    await producer.stop()

    def _failure(self, problem: str) -> DeliveryFailed:
        return DeliveryFailed(name=self._name, problem=problem)


def create(name: str, options: KafkaOptions) -> KafkaSink:
    """Return the sink of a destination."""
    if bool(options.user) != bool(options.password_file):
        raise ValueError("must have both user and password_file, or neither")
    away = [each for each in options.brokers if not is_protected(f"http://{each}")]
    if options.user and away and not options.tls:
        raise ValueError(f"must have tls = true for {away[0]}, to protect the password")
    return KafkaSink(name, options, secret_in(options.password_file))


KIND = SinkKind(options=KafkaOptions, create=create, module="aiokafka", extra="kafka")
