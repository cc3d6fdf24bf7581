"""A metadata worker: what it reads, what it says, and when and how it ends."""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from forewarn_base.clock import SystemClock
from forewarn_base.settings import MetadataSettings
from forewarn_metadata.endpoint import server, worker_process
from forewarn_metadata.endpoint.worker_process import WorkerPlace, main, read_settings, work
from forewarn_metadata.replication.messages import DocumentChange
from forewarn_metadata.replication.server import FeedServer
from tests.metadata.feeds import WHOLE, publication, run, until
from tests.metadata.live import EVENTS, SETTINGS, Control, request
from tests.waiting import LIMIT_S


class Parent:
    """Whoever started a worker: its standard input, and what it has said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Keep standard input open."""
        self._capsys = capsys
        self._said = ""
        self.reads, self.writes = os.pipe()

    def said(self) -> list[dict[str, object]]:
        """Every line of it so far."""
        self._said += self._capsys.readouterr().out
        return [json.loads(line) for line in self._said.splitlines()]

    def address(self) -> str:
        """The one address of what it said first."""
        bound = self.said()[0]["metadata"]
        assert isinstance(bound, list)
        [address] = bound
        return str(address)

    def hang_up(self) -> None:
        """Close the worker's standard input."""
        os.close(self.writes)


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Parent]:
    """The parent of a worker that runs in this process."""
    found = Parent(capsys)
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    with os.fdopen(found.reads, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield found
    with suppress(OSError):  # most tests have hung up
        found.hang_up()
    for number, handler in before.items():
        signal.signal(number, handler)


async def a_feed(tmp_path: Path) -> tuple[FeedServer, WorkerPlace]:
    """A feed with its first snapshot, and a worker's place at it."""
    server = FeedServer(Control())
    server.apply(WHOLE)
    await server.workers.start(f"{tmp_path}/feed")
    return server, WorkerPlace(f"{tmp_path}/feed", "w-1", ("127.0.0.1:0",), 1)


async def asked(address: str) -> bytes:
    """Ask for a document; return the answer's first line and body."""
    reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))
    writer.write(request(EVENTS, connection="close"))
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("way", ["hang up", "SIGTERM", "SIGINT"])
def test_worker_serves_until_it_is_to_end(tmp_path: Path, parent: Parent, way: str) -> None:
    """It names its addresses once it has documents, follows changes, and ends well. M-1."""

    async def story() -> None:
        feed, place = await a_feed(tmp_path)
        working = asyncio.ensure_future(work(SETTINGS, place))
        await until(lambda: len(parent.said()) >= 2)
        address = parent.address()
        assert parent.said()[1]["vms"] == 2
        answer = await asked(address)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"DocumentIncarnation":1' in answer
        feed.apply(DocumentChange(2, publications=(publication(2),)))
        assert await feed.confirmed(2, LIMIT_S) == ()
        assert b'"DocumentIncarnation":2' in await asked(address)
        if way == "hang up":
            parent.hang_up()
        else:
            os.kill(os.getpid(), getattr(signal, way))
        assert await working == 0
        with pytest.raises(ConnectionRefusedError):
            await asked(address)
        await until(lambda: not feed.workers.has("w-1"))
        await feed.stop()

    run(story())


def test_worker_says_its_figures_again_and_again(
    tmp_path: Path, parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service shows the sum of all workers. Source: M-1."""
    monkeypatch.setattr(worker_process, "FIGURES_S", 0.001)

    async def story() -> None:
        feed, place = await a_feed(tmp_path)
        working = asyncio.ensure_future(work(SETTINGS, place))
        await until(lambda: len(parent.said()) >= 2)
        address = parent.address()
        await asked(address)
        await asyncio.sleep(0)
        count = len(parent.said())
        await until(lambda: len(parent.said()) >= count + 3)
        assert all({"vms", "connections"} <= each.keys() for each in parent.said()[1:])
        parent.hang_up()
        assert await working == 0
        await feed.stop()

    run(story())


def test_worker_without_documents_serves_nobody(tmp_path: Path, parent: Parent) -> None:
    """It waits for the feed, and ends when its parent does. Source: M-2."""

    async def story() -> None:
        place = WorkerPlace(f"{tmp_path}/nobody", "w-1", ("127.0.0.1:0",), 1)
        working = asyncio.ensure_future(work(SETTINGS, place))
        for _ in range(100):
            await asyncio.sleep(0)
        assert parent.said() == []
        parent.hang_up()
        assert await working == 0
        assert parent.said() == []

    run(story())


def test_worker_follows_a_step_of_the_system_clock(
    tmp_path: Path, parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Now, and as often as the service does. Source: N-4."""
    monkeypatch.setattr(server, "STEP_LOOK_S", 0.001)
    looks: list[int] = []

    def adopt(_: SystemClock) -> int:
        looks.append(1)
        return 0

    monkeypatch.setattr(SystemClock, "adopt", adopt)

    async def story() -> None:
        feed, place = await a_feed(tmp_path)
        working = asyncio.ensure_future(work(SETTINGS, place))
        await until(lambda: len(looks) >= 4)
        parent.hang_up()
        assert await working == 0
        await feed.stop()

    run(story())


def test_settings_come_as_json() -> None:
    """What is not said has its default; lists are those of the settings. Source: M-1."""
    assert read_settings("") == read_settings("{}") == MetadataSettings()
    text = '{"rate_per_s": 0, "proxy_addresses": ["10.0.0.1", "10.0.0.2"]}\n'
    expected = MetadataSettings(rate_per_s=0, proxy_addresses=("10.0.0.1", "10.0.0.2"))
    assert read_settings(text) == expected


def test_worker_that_cannot_listen_says_why(
    tmp_path: Path, parent: Parent, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its parent is given the sentence and a status that is not 0. Source: E-1."""
    os.write(parent.writes, b'{"rate_per_s": 0}\n')

    async def feed() -> tuple[FeedServer, str]:
        server = FeedServer(Control())
        server.apply(WHOLE)
        await server.workers.start(f"{tmp_path}/feed")
        return server, f"{tmp_path}/feed"

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server, address = asyncio.run_coroutine_threadsafe(feed(), loop).result(LIMIT_S)
    try:
        assert main(["--feed", address, "--listen", "example.net:80", "--name", "w"]) == 1
        assert "'example.net:80' is not a valid listening address" in capsys.readouterr().err
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(LIMIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT_S)
        loop.close()
        parent.hang_up()
