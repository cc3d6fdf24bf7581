"""Message brokers for tests: one in memory that loses messages, and nodes over a real one."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from ssl import SSLContext

from forewarn.replication.carrier import Broker


@dataclass
class Weather:
    """What the network does to messages; healed, it only delivers them."""

    random: Random
    lost: float = 0.0
    repeated: float = 0.0
    altered: float = 0.0
    delay_s: float = 0.0
    """Longest delay: messages overtake one another."""


@dataclass
class Exchange:
    """A broker in memory."""

    weather: Weather
    subscribers: list[tuple[str, Callable[[str, bytes], None]]] = field(default_factory=list)

    async def connect(self, _address: str = "", _tls: SSLContext | None = None) -> Broker:
        """Open a connection."""
        return Connection(self)

    def deliver(self, subject: str, body: bytes) -> None:
        """Hand a message to the subscribers that there are now."""
        for pattern, receive in tuple(self.subscribers):
            if subject == pattern or (pattern[-1] == ">" and subject.startswith(pattern[:-1])):
                receive(subject, body)

    def send(self, subject: str, body: bytes) -> None:
        """Do to a message what the weather wants."""
        weather = self.weather
        for _ in range(1 + (weather.random.random() < weather.repeated)):
            if weather.random.random() < weather.lost:
                continue
            sent = body
            if weather.random.random() < weather.altered:
                place = weather.random.randrange(len(body))
                sent = body[:place] + bytes((body[place] ^ 1,)) + body[place + 1 :]
            delay_s = weather.delay_s * weather.random.random()
            asyncio.get_running_loop().call_later(delay_s, self.deliver, subject, sent)


class Connection:
    """One client's connection to an exchange."""

    def __init__(self, exchange: Exchange) -> None:
        self.closed = asyncio.Event()
        self.max_bytes = 4096
        self.on_refused: Callable[[str], None] = lambda _: None
        self._exchange = exchange
        self._own: list[tuple[str, Callable[[str, bytes], None]]] = []

    def publish(self, subject: str, body: bytes, reply: str = "") -> None:  # noqa: ARG002 - as a broker has it
        """Send a message."""
        if not self.closed.is_set():
            self._exchange.send(subject, body)

    async def subscribe(self, subject: str, receive: Callable[[str, bytes], None]) -> None:
        """Subscribe."""
        self._own.append((subject, receive))
        self._exchange.subscribers.append(self._own[-1])

    async def close(self) -> None:
        """Disconnect."""
        self.closed.set()
        for each in self._own:
            if each in self._exchange.subscribers:
                self._exchange.subscribers.remove(each)


async def skip(seconds: float) -> None:
    """Let a time of a skipping loop pass, which takes no real time."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await over.wait()


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock skips the time in which nothing would happen."""

    skipped_s = 0.0

    def time(self) -> float:
        """Return seconds."""
        return super().time() + self.skipped_s

    def _run_once(self) -> None:
        scheduled = self._scheduled  # type: ignore[attr-defined]  # of asyncio's own loops
        if scheduled and not self._ready:  # type: ignore[attr-defined]  # the same
            self.skipped_s += max(0.0, scheduled[0]._when - self.time())
        super()._run_once()  # type: ignore[misc]  # the same
