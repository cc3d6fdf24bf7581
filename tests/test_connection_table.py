"""Who may hold connections to a port, on both event loops the service may have."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import uvloop

from forewarn_base.openssl import make_certificate
from forewarn_metadata import connection_table
from forewarn_metadata.connection_table import (
    UNKNOWN_FDS_SHARE,
    ConnectionTable,
    CountedPort,
    TrackedConnection,
    source_of,
)
from tests.metadata.feeds import until
from tests.waiting import LIMIT_S

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def __init__(self, tracked: TrackedConnection) -> None:
        """Serve one connection."""
        self.tracked = tracked

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Send it back; its caller is known."""
        self.tracked.admit()
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Count it out."""
        self.tracked.leave()


class Handshake:
    """A caller that has sent its ClientHello and goes on when the test says so."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, trust: ssl.SSLContext
    ) -> None:
        """Send the ClientHello."""
        self._reader, self._writer = reader, writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = trust.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        writer.write(self._outgoing.read())

    async def echoes(self) -> bool:
        """Finish the handshake; return whether the caller is served."""
        await self._until_done(self._tls.do_handshake)
        self._tls.write(b"hello")
        return await self._until_done(lambda: self._tls.read(5)) == b"hello"

    async def _until_done(self, act: Callable[[], object]) -> object:
        while True:
            try:
                return act()
            except ssl.SSLWantReadError:
                self._writer.write(self._outgoing.read())
                received = await self._reader.read(65536)
                assert received, "the port has ended the connection"
                self._incoming.write(received)


class Port:
    """A port with TLS for a few unknown callers, of which one source may be a quarter."""

    def __init__(self, directory: Path, *, unknown: int = 4) -> None:
        """Make its certificate."""
        self.table = ConnectionTable(1000, 1000, fds_max=unknown * UNKNOWN_FDS_SHARE)
        made = make_certificate(directory)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(made.path, made.key)
        self.trust = ssl.create_default_context(cafile=str(made.path))
        self._callers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        """Listen."""
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self._port = CountedPort(listener, self.table, Echo, tls=self.tls)
        self._port.start()
        self.number = listener.getsockname()[1]

    async def dial(
        self, *, tls: bool, source: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, with or without a handshake."""
        trust = self.trust if tls else None
        host = "localhost" if tls else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.number, ssl=trust, server_hostname=host, local_addr=(source, 0)
        )
        self._callers.append(writer)
        return reader, writer

    async def stop(self) -> None:
        """End everything; nothing is counted then."""
        await self._port.stop()
        for writer in self._callers:
            writer.transport.abort()
        await until(lambda: self.table._count == 0)

    async def shake_hands(self, source: str) -> Handshake:
        """Send the first message of a handshake."""
        return Handshake(*await self.dial(tls=False, source=source), self.trust)

    async def echoes(self) -> bool:
        """Whether a caller is served."""
        reader, writer = await self.dial(tls=True)
        writer.write(b"hello")
        heard = await reader.readexactly(5)
        return heard == b"hello"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give handshakes the time that a busy machine takes."""
    monkeypatch.setattr(connection_table, "HANDSHAKE_S_MAX", LIMIT_S)


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[object, object, None]], None]:
    """Return what runs a story on one kind of event loop."""

    def bounded(story: Coroutine[object, object, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(asyncio.wait_for(story, LIMIT_S))

    return bounded


async def ended(reader: asyncio.StreamReader) -> None:
    """Return once the other side has ended a connection, however it does."""
    with contextlib.suppress(ConnectionError):
        await reader.read()


def test_silent_handshake_makes_room(
    tmp_path: Path, run: Callable[[Coroutine[object, object, None]], None]
) -> None:
    """A connection counts before its handshake, and the oldest of its source goes first."""

    async def story() -> None:
        port = Port(tmp_path)
        await port.start()
        silent = [await port.dial(tls=False) for _ in range(10)]
        other = await port.dial(tls=False, source="127.0.0.2")
        assert await port.echoes()
        for reader, _ in silent:
            await ended(reader)
        assert not other[0].at_eof()
        await port.stop()

    run(story())


def test_rush_of_handshakes_ends(
    tmp_path: Path,
    run: Callable[[Coroutine[object, object, None]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many more callers than handshakes at a time are all served, at their first attempt."""
    monkeypatch.setattr(connection_table, "HANDSHAKES_MAX", 3)

    async def story() -> None:
        port = Port(tmp_path, unknown=16)
        await port.start()
        callers = [await port.shake_hands(f"127.0.1.{number}") for number in range(1, 61)]
        assert all(await asyncio.gather(*(caller.echoes() for caller in callers)))
        await port.stop()

    run(story())


def test_source_leaves_handshakes_for_others(
    tmp_path: Path,
    run: Callable[[Coroutine[object, object, None]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Handshakes that a source begins and leaves do not keep others waiting."""
    monkeypatch.setattr(connection_table, "SOURCE_HANDSHAKES_MAX", 1)

    async def story() -> None:
        port = Port(tmp_path, unknown=16)
        await port.start()
        for _ in range(20):
            await port.shake_hands("127.0.0.2")
        assert await port.echoes()
        await port.stop()

    run(story())


@pytest.mark.parametrize("start", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
def test_incomplete_hello_makes_room(
    tmp_path: Path, run: Callable[[Coroutine[object, object, None]], None], start: bytes
) -> None:
    """Who has not sent a whole ClientHello takes no handshake from others."""

    async def story() -> None:
        port = Port(tmp_path)
        await port.start()
        for number in range(1, 20):
            _, writer = await port.dial(tls=False, source=f"127.0.2.{number}")
            writer.write(start)
        assert await port.echoes()
        await port.stop()

    run(story())


def test_silent_handshake_ends_soon(
    tmp_path: Path,
    run: Callable[[Coroutine[object, object, None]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody holds a connection that never says hello, and then nothing is counted."""

    async def story() -> None:
        port = Port(tmp_path)
        await port.start()
        monkeypatch.setattr(connection_table, "HANDSHAKE_S_MAX", 0.05)
        for hello in (b"", b"GET / HTTP/1.1\r\n\r\n"):
            reader, writer = await port.dial(tls=False)
            writer.write(hello)
            await ended(reader)
        monkeypatch.setattr(connection_table, "HANDSHAKE_S_MAX", LIMIT_S)
        assert await port.echoes()
        await port.stop()

    run(story())


def test_known_caller_is_kept(
    tmp_path: Path, run: Callable[[Coroutine[object, object, None]], None]
) -> None:
    """Strangers do not end the connection of a caller who is known."""

    async def story() -> None:
        port = Port(tmp_path)
        await port.start()
        reader, writer = await port.dial(tls=True)
        writer.write(b"known")
        await reader.readexactly(5)
        for _ in range(10):
            await port.dial(tls=False)
        writer.write(b"still")
        assert await reader.readexactly(5) == b"still"
        await port.stop()

    run(story())


@pytest.mark.parametrize(("fds", "most"), [(0, 256), (1024, 64), (65_536, 256)])
def test_unknown_callers_leave_descriptors(fds: int, most: int) -> None:
    """All unknown callers of a port have a share of the descriptors, one source a part of it."""
    table = ConnectionTable(1000, 1000, fds_max=fds)
    assert (table._max_unknown, table._max_per_source) == (most, most // 4)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_limits_count_by_network(address: str, source: str) -> None:
    """One holder of an IPv6 network is one source, however many addresses it uses."""
    assert source_of(address) == source
