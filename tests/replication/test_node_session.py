"""What a node says counts when it was said, whatever lies between."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from forewarn.replication import node_session
from forewarn.replication.access import NodeAccess
from forewarn.replication.feed_client import connect
from forewarn.replication.messages import (
    FeedCurrent,
    Follow,
    Ping,
    PollMessage,
    Pong,
    line_of,
    read_server_message,
)
from forewarn.replication.node_session import NodeSession
from forewarn.replication.nodes import FeedPace
from forewarn.replication.server import FeedServer
from tests.metadata.feeds import run, until
from tests.metadata.live import Control
from tests.replication.rig import HOSTS, WHOLE, Feed, proves, token_of
from tests.waiting import LIMIT_S

PAUSE_S = 5
"""How long a process stands still here: less than a test may take."""


class ManualNode:
    """A node that says what it is told to, when it is told to."""

    def __init__(self) -> None:
        """Begin with a server that asks for no sign of life on its own."""
        self.control = Control()
        access = NodeAccess(HOSTS, proves)
        self.server = FeedServer(self.control, access=access, pace=FeedPace(3600.0, 7200.0))
        loop = asyncio.get_running_loop()
        self._clock, self._later_s = loop.time, 0
        loop.time = lambda: self._clock() + self._later_s  # type: ignore[method-assign]  # the test's

    async def start(self) -> NodeSession:
        """Follow, and read until it is up to date."""
        self.server.apply(WHOLE)
        address = await self.server.start_network("127.0.0.1:0", None)
        self.reader, self.writer = await connect(address)
        self.writer.write(line_of(Follow("n1", token=token_of("n1"))))
        await self.hears(FeedCurrent())
        [session] = self.server._sessions.values()
        return session

    async def hears(self, message: FeedCurrent | Ping) -> None:
        """Read until that comes."""
        while read_server_message(await self.reader.readline()) != message:
            pass

    def wait(self) -> None:
        """Let time pass in which nobody does anything."""
        self._later_s += PAUSE_S

    async def age_ms(self, *said: Pong | PollMessage) -> int:
        """Say something, of which the last are poll marks; return how old they are found to be."""
        self.control.ages_ms.clear()
        self.writer.write(b"".join(map(line_of, said)))
        await until(lambda: self.control.ages_ms != [])
        return self.control.ages_ms[0]

    async def stop(self) -> None:
        """End both."""
        self.writer.close()
        await self.server.stop()


def test_poll_marks_age_on_their_way() -> None:
    """They are as old as what they may have been sent after, in whatever buffer. Source: F-5."""

    async def story() -> None:
        node = ManualNode()
        session = await node.start()
        marks = PollMessage(("web",), 1000)
        node.wait()
        assert await node.age_ms(marks) >= 6000, "nothing says that they are not from before that"
        session.ping()
        await node.hears(Ping())
        assert 1000 <= await node.age_ms(Pong(), marks) < 6000, "they are from after that"
        session.ping()
        node.wait()
        assert await node.age_ms(Pong(), marks) >= 6000, "both were read late"
        assert await node.age_ms(Pong(), marks) >= 6000, "it was not asked"
        await node.stop()

    run(story())


def test_pings_that_nobody_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may say other things for ever. Source: M-5."""
    monkeypatch.setattr(node_session, "PINGS_MAX", 2)

    async def story() -> None:
        node = ManualNode()
        session = await node.start()
        for _ in range(3):
            session.ping()
        await node.hears(Ping())
        await node.hears(Ping())
        await node.age_ms(Pong(), PollMessage(("web",)))
        session.ping()
        await node.hears(Ping())
        assert len(session._pings) == 2
        await node.stop()

    run(story())


@pytest.mark.parametrize("end", ["server", "node"])
def test_connection_that_has_ended_takes_lines_without_a_bug(
    end: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A node breaks off while much is sent to it, with the event loop of the service. M-1."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")
        [session] = feed.server._sessions.values()
        client = node.feed_client._writer
        assert client is not None
        (session.writer if end == "server" else client).transport.abort()
        for _ in range(3):
            await asyncio.sleep(0)
            session.ping()
            session.caught_up()
            with suppress(OSError):
                await session.send(line_of(Ping()))
            node.feed_client._writer = client
            node.feed_client.polled(frozenset({"web"}))
        await node.stop()
        await feed.server.stop()

    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(story(), LIMIT_S))
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []
