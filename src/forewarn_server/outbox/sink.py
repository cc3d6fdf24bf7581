"""The interface for kinds of destinations, their common options, and the error of a delivery."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from forewarn_base.errors import PeerError
from forewarn_base.validation.fields import Number, Text
from forewarn_base.validation.forms import ListOf
from forewarn_core.fleet.stimulus import LinkTicket
from forewarn_server.outbox.cloudevents import CloudEvent

T = TypeVar("T")


_PATTERNS = ListOf(Text(100), 100, 1)
#: Options that a kind of destination may give another default.
IncludeOption: TypeAlias = Annotated[
    tuple[str, ...],
    _PATTERNS,
    "Actions to send, as shell patterns (default: all); `audit.head` adds the audit's head.",
]
TimeoutOption: TypeAlias = Annotated[
    float, Number(0.1, 3600), "Longest time of one delivery (default: 10)."
]
CaFileOption: TypeAlias = Annotated[
    str, Text(4096), "Trusted CA certificates (default: the system's certificates)."
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationOptions:
    """Options of all kinds of destinations; the texts are for the reference."""

    kind: Annotated[
        str,
        Text(20),
        "`webhook`, `event-grid`, `nats`, `kafka`, `apprise`, or a kind of an installed package.",
    ]
    include: IncludeOption = ("*",)
    exclude: Annotated[
        tuple[str, ...], _PATTERNS, "Actions to omit from `include` (default: none)."
    ] = ()
    owner: Annotated[
        str, Text(), "Sends only data that this owner may read (default: all data)."
    ] = ""
    source: Annotated[
        str, Text(2048), "CloudEvents' `source` (default: `/forewarn/` and the epoch)."
    ] = ""
    timeout_s: TimeoutOption = 10.0


class DeliveryFailed(PeerError):
    """A destination is unreachable, or refused an event; the outbox retries the delivery."""

    code = "outbox-delivery-failed"
    status = 503
    message = "Destination {name} {problem}."
    advice = "Check the receiver. Delivery is retried; `forewarn outbox retry` retries at once."


class Sink(Protocol):
    """A connection to one receiver, used on the outbox's event loop, with one call at a time."""

    #: Most events in one call of `send`.
    batch_max: int

    async def open(self) -> None:
        """Connect, and check that the receiver accepts events.

        Raises:
            DeliveryFailed: the receiver is unreachable, or refuses events.
        """

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Deliver events in order; after the return, the receiver has all events.

        Raises:
            DeliveryFailed: the receiver may have only some of the events.
        """

    async def close(self) -> None:
        """Disconnect, even after a failure."""


@runtime_checkable
class Confirming(Protocol):
    """A sink whose receiver may consent later, by a code that the sink sent to it."""

    def confirm(self, code: str) -> bool:
        """Return whether the receiver has consented; callable from any thread."""


@runtime_checkable
class Linking(Protocol):
    """A sink whose receiver answers an event about a ticket with the id of its own ticket."""

    def take_links(self) -> Sequence[LinkTicket]:
        """Return the ids of the answers since the last call, each once. Source: T-10."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkKind:
    """A kind of destination; the registered object of the entry points `forewarn.sinks`."""

    #: Options of the table `[outbox.NAME]`, a subclass of `DestinationOptions`.
    options: type[DestinationOptions]
    #: Creates the sink from its name and the parsed options, without opening a connection. It
    #: raises ValueError with a problem such as `must have a url`, or OSError for a file.
    create: Callable[[str, Any], Sink]
    #: Module that the kind imports when it connects, and the extra that contains it; may be empty.
    module: str = ""
    extra: str = ""


def secret_in(path: str) -> str:
    """Return the content of a file with a secret; empty if no file is named.

    Raises:
        OSError: the file cannot be read.
    """
    return Path(path).read_text("utf-8").strip() if path else ""


class AbsentSink:
    """Placeholder for the sink of a kind that is not installed or unusable; each delivery fails."""

    batch_max = 1

    def __init__(self, name: str, problem: str) -> None:
        """Fail with a problem, a phrase such as `needs the package nats`."""
        self._name = name
        self.absent = problem

    async def open(self) -> None:
        """Fail."""
        raise DeliveryFailed(name=self._name, problem=self.absent)

    async def send(self, events: Sequence[CloudEvent]) -> None:  # noqa: ARG002 - as a sink
        """Fail."""
        await self.open()

    async def close(self) -> None:
        """Do nothing."""


async def blocking(work: Callable[[], T]) -> T:
    """Run a call on a thread; after a cancellation of the caller, the call continues."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failed: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it belongs to who waits
            failed = error
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name="outbox call", daemon=True).start()
    return await answer
