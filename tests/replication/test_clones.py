"""Two machines with the name of one node, as after a clone: one follows, the other is reported."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

import pytest

from forewarn.replication.feed_client import connect
from forewarn.replication.messages import (
    FeedCurrent,
    Follow,
    Refused,
    RelayReport,
    line_of,
    read_server_message,
)
from tests.replication.rig import Feed, Node, token_of
from tests.waiting import LIMIT_S


class Machine:
    """The program of a node that says what the test has it say."""

    def __init__(self, feed: Feed, instance: str) -> None:
        """Connect to nothing yet."""
        self._feed, self._instance = feed, instance

    async def follow(self) -> object:
        """Ask to follow; return the message that ends the answer."""
        self._reader, self._writer = await connect(self._feed.address)
        self._writer.write(line_of(Follow("n1", token=token_of("n1"), instance=self._instance)))
        while line := await self._reader.readline():
            message = read_server_message(line)
            if isinstance(message, FeedCurrent | Refused):
                return message
        return None

    async def end(self) -> None:
        """End the connection."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


def test_second_machine_with_a_name_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first goes on; people and the second learn both addresses. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        first = await feed.node("n1")
        session = feed.server._sessions["n1"]
        for _ in range(3):
            clone = Machine(feed, "a clone")
            refused = await clone.follow()
            await clone.end()
            assert isinstance(refused, Refused)
            assert "another machine with this name, at 127.0.0.1, follows" in refused.reason
        assert feed.server._sessions["n1"] is session
        [told] = feed.server.troubles().refused
        assert told.endswith("; this one is at 127.0.0.1.")
        await first.stop()
        await feed.server.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(asyncio.wait_for(story(), LIMIT_S))
    assert [getattr(each, "action", "") for each in caplog.records].count("node-refused") == 1


def test_node_takes_the_place_of_its_own_lost_connection(tmp_path: Path) -> None:
    """A process that reconnects is the same one: nobody is asked. Source: M-1."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        before, after = Machine(feed, "a process"), Machine(feed, "a process")
        assert isinstance(await before.follow(), FeedCurrent)
        assert isinstance(await after.follow(), FeedCurrent)
        await asyncio.gather(before.end(), after.end())
        await feed.server.stop()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


def test_restarted_node_takes_the_place_of_a_machine_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its power was cut: the connection of before is open, and nobody is behind it. M-1, M-5."""
    monkeypatch.setattr("forewarn.replication.server.ANSWER_S_MAX", 0.05)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        gone, restarted = Machine(feed, "before"), Machine(feed, "after")
        assert isinstance(await gone.follow(), FeedCurrent)  # it answers no keepalive
        assert isinstance(await restarted.follow(), FeedCurrent)
        assert feed.server.troubles().refused == ()
        await asyncio.gather(gone.end(), restarted.end())
        await feed.server.stop()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


def test_clone_takes_over_once_the_first_machine_has_left(tmp_path: Path) -> None:
    """It tries again and again, as every node does. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        first = await feed.node("n1")
        clone = Node(feed.address, "n1", tmp_path / "clone")
        clone.feed_client.start()
        while not feed.server.troubles().refused:  # noqa: ASYNC110 - the feed has no event for it
            await asyncio.sleep(0)
        assert not clone.feed_client.followed.is_set()
        await first.stop()
        await clone.feed_client.followed.wait()
        await clone.stop()
        await feed.server.stop()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


def test_node_of_an_earlier_version_is_not_asked_for_its_process(tmp_path: Path) -> None:
    """It sends none, and its connection replaces the one before. Source: H-8."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        before, after = Machine(feed, ""), Machine(feed, "")
        assert isinstance(await before.follow(), FeedCurrent)
        assert isinstance(await after.follow(), FeedCurrent)
        await asyncio.gather(before.end(), after.end())
        await feed.server.stop()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


def test_node_that_follows_two_control_planes_is_reported(tmp_path: Path) -> None:
    """One of the machines is connected here, the other to a follower. Source: M-5, H-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")
        server, loop = feed.server, asyncio.get_running_loop()
        server.take_report(RelayReport("a follower", 1, joined=("n1",), begins=True))
        session = server._sessions["n1"]
        server._look_for_clone(session, loop.time())
        assert server.troubles().refused == ()  # it may be changing over
        session.since_s -= 3600
        server._look_for_clone(session, loop.time())
        [told] = server.troubles().refused
        assert told.startswith("Metadata node n1 follows two control planes, this one from 127")
        await node.stop()
        await feed.server.stop()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))
