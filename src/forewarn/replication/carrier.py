"""The feed over a message broker: connections of nodes as channels of frames.

The messages, the server and the client are the same as over TCP sockets, which this module
replaces.
The broker's permissions prove the nodes' names. Each node may publish only to its own request
subject, and subscribe only to its own subject. Source: M-5, M-7.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Protocol

from forewarn.errors import ForewarnError
from forewarn.ids import Ids
from forewarn.replication.channel import (
    FRAME_OVERHEAD,
    SESSION_BYTES,
    Channel,
    Frame,
    FrameRefused,
    Kind,
    read_frame,
)
from forewarn.replication.feed_client import LINE_BYTES_MAX, Streams
from forewarn.replication.node_session import ASKED_LINE_BYTES_MAX, Serve

TO_NODE, FROM_NODE = "forewarn-feed.to.", "forewarn-feed.from."
"""Prefixes of the subjects for messages to a node and for requests of a node."""

TICK_S = 1.0
"""Interval at which a channel checks for lost frames, in seconds."""

HELLO_S = 0.5
"""Time after which a node repeats its request for a session."""

INVITED_MAX = 20_000
"""Maximum number of offered sessions that have not begun; the oldest are dropped first."""

RETRY_S = 1.0
"""Pause before a control plane tries the next server of a broker."""

UNSENT_BYTES_HIGH, UNSENT_BYTES_LOW = 64 * 1024, 16 * 1024
"""Unsent bytes above which a writer pauses, and below which it resumes."""

_LOG = logging.getLogger(__name__)


class Broker(Protocol):
    """A connection to a message broker, which may lose, repeat and reorder messages."""

    closed: asyncio.Event
    max_bytes: int
    on_refused: Callable[[str], None]

    def publish(self, subject: str, body: bytes, reply: str = "") -> None:
        """Send a message."""

    async def subscribe(self, subject: str, receive: Callable[[str, bytes], None]) -> None:
        """Call `receive` with each message's subject and body; an empty body: no subscriber."""

    async def close(self) -> None:
        """Disconnect."""


class CarrierFigures:
    """Counters of one end of the feed."""

    def __init__(self) -> None:
        self.connected = 0
        """Whether the broker is connected, 0 or 1."""
        self.gaps = 0
        """Number of gaps that were filled on request."""
        self.refused = 0
        """Number of malformed or altered messages."""

    def named(self) -> dict[str, int]:
        """Return the counters by the names of their metrics."""
        return {
            "feed_nats_connected": self.connected,
            "feed_gaps_filled": self.gaps,
            "feed_messages_refused": self.refused,
        }


class ChannelTransport(asyncio.Transport):
    """A session in the form of an asyncio transport."""

    def __init__(
        self,
        channel: Channel,
        publish: Callable[[bytes], None],
        *,
        figures: CarrierFigures,
        on_end: Callable[[], None],
        name: str = "",
    ) -> None:
        """`name` is the node's name, proved by the broker's permissions."""
        # The feed expects a node's name in the form of a TLS certificate.
        super().__init__({"peercert": {"subject": ((("commonName", name),),)}} if name else {})
        self.channel = channel
        self.name = name
        self._publish = publish
        self._figures = figures
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.Protocol | None = None
        self._reading = True
        self._writing = True
        self._ended = False
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, protocol: asyncio.Protocol) -> None:
        """Start to send received bytes to a protocol."""
        self._protocol = protocol
        protocol.connection_made(self)

    def receive(self, frame: Frame) -> None:
        """Process a frame of this session."""
        self.channel.receive(frame)
        self._read()
        if self.channel.has_output or not self._writing:
            self._flush_soon()
        self._wait()

    def lost(self) -> None:
        """End the session after the loss of the other end or of the broker."""
        if self._ended:
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._on_end()
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, None)

    def write(self, data: Any) -> None:  # noqa: ANN401 - any kind of bytes
        """Send bytes."""
        if not self._ended:
            self.channel.write(data)
            self._flush_soon()

    def close(self) -> None:
        """Send as many bytes as the window permits, and end the session."""
        if not self._ended:
            self.channel.close()
            self._flush()
            self.lost()

    abort = close

    def is_closing(self) -> bool:
        """Whether the session is over."""
        return self._ended

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes without acknowledgement."""
        return self.channel.unsent

    def pause_reading(self) -> None:
        """Buffer received bytes; the other end stops at the limit of its window."""
        self._reading = False

    def resume_reading(self) -> None:
        """Send the buffered bytes to the protocol."""
        self._reading = True
        self._loop.call_soon(self._resume)

    def is_reading(self) -> bool:
        """Return whether the protocol receives bytes."""
        return self._reading

    def _read(self) -> None:
        if self._ended or not self._reading or self._protocol is None:
            return
        before = self.channel.gaps
        content = self.channel.read()
        self._figures.gaps += self.channel.gaps - before
        if content:
            self._protocol.data_received(content)
        if self.channel.ended:
            self.lost()

    def _resume(self) -> None:
        self._read()
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Flush after all writes of this iteration of the event loop."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._ended:
            return
        for frame in self.channel.take():
            self._publish(frame)
        assert self._protocol is not None
        if self._writing and self.channel.unsent > UNSENT_BYTES_HIGH:
            self._writing = False
            self._protocol.pause_writing()
        elif not self._writing and self.channel.unsent < UNSENT_BYTES_LOW:
            self._writing = True
            self._protocol.resume_writing()
        self._wait()

    def _wait(self) -> None:
        """Schedule the next check for lost frames."""
        if self._timer is None and not self._ended and self.channel.waits:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.channel.tick()
        self._flush()


class BrokerListener:
    """The control plane's end: accepts nodes over a broker while the broker is reachable."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Broker]],
        *,
        serve: Serve,
        hears: Callable[[str], bool],
        expected: Callable[[], Iterable[str]],
    ) -> None:
        """`hears` returns whether to answer a node, `expected` the permitted nodes."""
        self._connect = connect
        self._serve = serve
        self._hears = hears
        self._expected = expected
        self._ids = Ids()
        self.figures = CarrierFigures()
        self._broker: Broker | None = None
        self._transports: dict[bytes, ChannelTransport] = {}
        self._invited: OrderedDict[bytes, tuple[str, bytes]] = OrderedDict()
        """Offered sessions that have not begun, each with its node and request."""
        self._offers: dict[tuple[str, bytes], bytes] = {}
        self._task: asyncio.Task[None] | None = None
        self._refusal = ""
        """Text of the broker's last refusal."""

    def start(self) -> None:
        """Start connecting, without waiting for a connection."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End every session and disconnect."""
        for transport in tuple(self._transports.values()):
            transport.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        trouble = ""
        while True:
            try:
                self._broker = broker = await self._connect()
                broker.on_refused = self._refused
                await broker.subscribe(f"{FROM_NODE}>", self._receive)
                self.figures.connected, trouble = 1, ""
                _LOG.info(
                    "metadata nodes can follow over NATS", extra={"action": "feed.broker-connected"}
                )
                self._announce(broker)
                await broker.closed.wait()
                reason = "the connection ended"
            except (ForewarnError, OSError) as error:
                reason = str(error).removesuffix(".")
            finally:
                self.figures.connected = 0
                broker_before, self._broker = self._broker, None
                if broker_before is not None:
                    await broker_before.close()
                for transport in tuple(self._transports.values()):
                    transport.lost()
            if reason != trouble:
                trouble, facts = reason, {"action": "feed.broker-lost"}
                _LOG.warning("metadata nodes cannot follow over NATS: %s", reason, extra=facts)
            await asyncio.sleep(RETRY_S)

    def _refused(self, reason: str) -> None:
        if reason == self._refusal:
            return
        self._refusal = reason
        text, facts = "NATS refused a request of the control plane: %s", {"action": "feed.refused"}
        _LOG.warning(text, reason, extra=facts)

    def _announce(self, broker: Broker) -> None:
        """Notify nodes that followed another process; O(nodes)."""
        frame = Frame(Kind.ANNOUNCE).encoded()
        for name in self._expected():
            if is_subject(name):
                broker.publish(TO_NODE + name, frame)

    def _receive(self, subject: str, body: bytes) -> None:
        try:
            frame = read_frame(body)
        except FrameRefused:
            self.figures.refused += 1
            return
        name = subject.removeprefix(FROM_NODE)
        transport = self._transports.get(frame.session)
        if transport is not None:
            if transport.name == name:
                transport.receive(frame)
        elif frame.kind is Kind.HELLO:
            self._welcome(name, frame.session)
        elif frame.kind is Kind.DATA and frame.session in self._invited:
            self._begin(name, frame)

    def _welcome(self, name: str, request: bytes) -> None:
        """Offer a session; repeated requests receive the same session."""
        if self._broker is None or not self._hears(name):
            return
        session = self._offers.get((name, request))
        if session is None:
            session = bytes.fromhex(self._ids.token("feed-session"))
            self._offers[name, request] = session
            self._invited[session] = name, request
            if len(self._invited) > INVITED_MAX:
                self._forget(next(iter(self._invited)))
        welcome = Frame(Kind.WELCOME, request, content=session)
        self._broker.publish(TO_NODE + name, welcome.encoded())

    def _begin(self, name: str, frame: Frame) -> None:
        """Serve a node in its offered session."""
        session = frame.session
        if self._invited[session][0] != name or self._broker is None:
            return
        self._forget(session)
        transport = ChannelTransport(
            Channel(session, frame_bytes=self._broker.max_bytes - FRAME_OVERHEAD),
            partial(self._broker.publish, TO_NODE + name),
            figures=self.figures,
            on_end=partial(self._ended, session),
            name=name,
        )
        self._transports[session] = transport
        reader = asyncio.StreamReader(ASKED_LINE_BYTES_MAX)
        transport.begin(asyncio.StreamReaderProtocol(reader, self._serve))
        transport.receive(frame)

    def _ended(self, session: bytes) -> None:
        self._transports.pop(session, None)

    def _forget(self, session: bytes) -> None:
        del self._offers[self._invited.pop(session)]


class BrokerRoute:
    """A node's end of the feed over a broker.

    `connect` has the signature of `FeedRoute.connect`.
    """

    def __init__(
        self, name: str, connect: Callable[[str, ssl.SSLContext | None], Awaitable[Broker]]
    ) -> None:
        self._name = name
        self._connect = connect
        self._ids = Ids()
        self.figures = CarrierFigures()
        self._broker: Broker | None = None
        self._address = ""
        self._request = b""
        self._welcomed: asyncio.Future[bytes] | None = None
        self._transport: ChannelTransport | None = None

    async def connect(self, address: str, tls: ssl.SSLContext | None) -> Streams:
        """Open a session with the first control plane that answers.

        Raises:
            OSError: the broker is unreachable, or no control plane answers.
        """
        broker = await self._reach(address, tls)
        self._request = bytes.fromhex(self._ids.token("feed-request"))
        welcomed = self._welcomed = asyncio.get_running_loop().create_future()
        hello = Frame(Kind.HELLO, self._request).encoded()
        try:
            while not welcomed.done():
                self._publish(hello)
                await asyncio.wait((welcomed,), timeout=HELLO_S)
            session = welcomed.result()
        finally:
            self._welcomed = None
        transport = self._transport = ChannelTransport(
            Channel(session, frame_bytes=broker.max_bytes - FRAME_OVERHEAD),
            self._publish,
            figures=self.figures,
            on_end=self._ended,
        )
        reader = asyncio.StreamReader(LINE_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport.begin(protocol)
        loop = asyncio.get_running_loop()
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def close(self) -> None:
        """Disconnect from the broker."""
        broker, self._broker = self._broker, None
        self.figures.connected = 0
        if broker is not None:
            await broker.close()

    async def _reach(self, address: str, tls: ssl.SSLContext | None) -> Broker:
        """Return the current usable connection to the broker, or a new connection."""
        broker = self._broker
        if broker is not None and not broker.closed.is_set() and address == self._address:
            return broker
        await self.close()
        try:
            broker = await self._connect(address, tls)
        except ForewarnError as error:
            raise ConnectionError(str(error)) from error
        self._broker, self._address = broker, address
        broker.on_refused = self._refused
        await broker.subscribe(TO_NODE + self._name, self._receive)
        self.figures.connected = 1
        self._watch = asyncio.get_running_loop().create_task(self._watched(broker))
        return broker

    async def _watched(self, broker: Broker) -> None:
        await broker.closed.wait()
        if broker is self._broker:
            self.figures.connected = 0
            self._fail(ConnectionResetError("the connection to the broker ended"))

    def _publish(self, frame: bytes) -> None:
        if self._broker is not None:
            self._broker.publish(FROM_NODE + self._name, frame, TO_NODE + self._name)

    def _receive(self, _subject: str, body: bytes) -> None:
        if not body:
            self._fail(ConnectionRefusedError("no control plane is connected to the broker"))
            return
        try:
            frame = read_frame(body)
        except FrameRefused:
            self.figures.refused += 1
            return
        if frame.kind is Kind.ANNOUNCE:
            self._end_session()
        elif frame.kind is Kind.WELCOME:
            welcomed = self._welcomed
            fits = frame.session == self._request and len(frame.content) == SESSION_BYTES
            if welcomed is not None and fits and not welcomed.done():
                welcomed.set_result(frame.content)
        elif self._transport is not None and frame.session == self._transport.channel.session:
            self._transport.receive(frame)

    def _refused(self, reason: str) -> None:
        if "permissions violation" in reason.lower():
            self._fail(PermissionError(f"the broker refuses the node: {reason}"))

    def _fail(self, error: OSError) -> None:
        if self._welcomed is not None and not self._welcomed.done():
            self._welcomed.set_exception(error)
        self._end_session()

    def _end_session(self) -> None:
        if self._transport is not None:
            self._transport.lost()

    def _ended(self) -> None:
        self._transport = None


def is_subject(name: str) -> bool:
    """Return whether a node's name can be part of a subject, without empty parts or wildcards."""
    return name.isascii() and all(
        part and part.isprintable() and not set(part) & set(" *>") for part in name.split(".")
    )
