"""Two machines with the name of one node, as after a clone: one follows, the other is reported."""

import asyncio
import logging
from pathlib import Path

import pytest

from forewarn_core.requests import EnableRequest
from forewarn_metadata.replication.feed_client import connect
from forewarn_metadata.replication.feed_tag import FeedTag
from forewarn_metadata.replication.http_stream import HttpAnswer, HttpStream
from forewarn_metadata.replication.messages import PART_BYTES_MAX, RelayReport, encoded
from forewarn_metadata.replication.pace import INSTANCE
from forewarn_metadata.replication.server import FeedCaller, FeedClosed, StoreHistory
from tests.metadata.feeds import run, until
from tests.replication.rig import Feed, Node, token_of


class Machine:
    """The program of a node that asks when the test has it ask, on one connection."""

    def __init__(self, feed: Feed, instance: str) -> None:
        """Connect to nothing yet."""
        self._feed = feed
        self._said = {INSTANCE: instance, "Authorization": f"Bearer {token_of('n1')}"}

    async def follow(self, wait_s: float = 0) -> HttpAnswer:
        """Ask once."""
        self._stream = HttpStream(
            await connect(self._feed.address), self._feed.address, PART_BYTES_MAX
        )
        return await self.again(wait_s)

    async def again(self, wait_s: float) -> HttpAnswer:
        """Ask with the tag of the last answer."""
        target = f"/feed/n1?wait={wait_s:g}"
        answer = await self._stream.exchange("GET", target, self._said)
        self._said["If-None-Match"] = answer.headers.get("etag", "")
        return answer

    def end(self) -> None:
        """End the connection."""
        self._stream.close()


def test_second_machine_with_a_name_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first goes on; people and the second learn both addresses. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        first = await feed.node("n1")
        for _ in range(3):
            clone = Machine(feed, "a clone")
            refused = await clone.follow()
            clone.end()
            assert refused.status == 403
            assert b"another machine with this name, at 127.0.0.1, follows" in refused.body
        assert first.feed_client.followed.is_set()
        [told] = feed.server.troubles().refused
        assert told.endswith("; this one is at 127.0.0.1.")
        await first.stop()
        await feed.stop()

    with caplog.at_level(logging.WARNING):
        run(story())
    assert [getattr(each, "action", "") for each in caplog.records].count("node-refused") == 1


def test_node_takes_the_place_of_its_own_lost_connection(tmp_path: Path) -> None:
    """A process that reconnects is the same one: nobody is asked. Source: M-1."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        before, after = Machine(feed, "a process"), Machine(feed, "a process")
        assert (await before.follow()).status == 200
        waiting = asyncio.ensure_future(before.again(25))
        await until(lambda: any(each.waiting for each in feed.server._connected.values()))
        assert (await after.follow()).status == 200
        before.end()
        waiting.cancel()
        assert (await after.again(0)).status == 304
        after.end()
        await feed.stop()

    run(story())


def test_answer_on_a_lost_connection_does_not_end_the_newer_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a busy control plane would disconnect the nodes that came back. Source: H-5."""
    monkeypatch.setattr("forewarn_metadata.replication.server.SILENT_S_MAX", 0.05)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        before, after = Machine(feed, "a process"), Machine(feed, "a process")
        await before.follow()
        after._said.update(before._said)
        replaced = asyncio.ensure_future(before.again(25))
        await until(lambda: any(each.waiting for each in feed.server._connected.values()))
        newer = asyncio.ensure_future(after.follow(0.5))
        assert (await replaced).status == 304
        assert (await newer).status == 304
        before.end()
        after.end()
        await feed.stop()

    run(story())


def test_node_that_only_sends_a_request_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have sent it just before its end; operators must see that it is gone. M-4."""
    monkeypatch.setattr("forewarn_metadata.replication.server.SILENT_S_MAX", 0.05)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        body = encoded(EnableRequest("web_0"))
        answer = await feed.http("n1", method="POST", body=body, instance="a process")
        assert answer.status == 200
        await until(lambda: feed.server.connected == 0)
        await feed.stop()

    run(story())


def test_node_that_is_refused_for_its_commit_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes to another control plane; operators must not see it here. Source: M-4."""
    monkeypatch.setattr("forewarn_metadata.replication.server.SILENT_S_MAX", 0.05)

    async def lacks(_commit: str, _node: str) -> bool:
        return False

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        monkeypatch.setattr(feed.server, "_history", StoreHistory(str, lacks))
        caller = FeedCaller("n1", frozenset({"h1"}), "a process")
        with pytest.raises(FeedClosed):
            await feed.server.follow(
                caller, FeedTag("e", 1, "", "commit-of-another-store"), 1.0, connection=object()
            )
        await until(lambda: feed.server.connected == 0)
        await feed.stop()

    run(story())


def test_restarted_node_takes_the_place_of_a_machine_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its power was cut: the connection of before is open, and nobody is behind it. M-1, M-5."""
    monkeypatch.setattr("forewarn_metadata.replication.server.ANSWER_S_MAX", 0.05)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        gone, restarted = Machine(feed, "before"), Machine(feed, "after")
        assert (await gone.follow()).status == 200  # it never asks again
        assert (await restarted.follow()).status == 200
        assert feed.server.troubles().refused == ()
        gone.end()
        restarted.end()
        await feed.stop()

    run(story())


def test_clone_takes_over_once_the_first_machine_has_left(tmp_path: Path) -> None:
    """It tries again and again, as every node does. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        first = await feed.node("n1")
        clone = Node(feed.address, "n1", tmp_path / "clone")
        clone.feed_client.start()
        await until(lambda: feed.server.troubles().refused != ())
        assert not clone.feed_client.followed.is_set()
        await first.stop()
        await clone.feed_client.followed.wait()
        await clone.stop()
        await feed.stop()

    run(story())


def test_node_that_follows_two_control_planes_is_reported(tmp_path: Path) -> None:
    """One of the machines is connected here, the other to a follower. Source: M-5, H-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")
        feed.server.take_report(RelayReport("a follower", 1, joined=("n1",), begins=True))
        await until(lambda: feed.server.troubles().refused != ())
        [told] = feed.server.troubles().refused
        assert told.startswith("Metadata node n1 follows two control planes, this one from 127")
        await node.stop()
        await feed.stop()

    run(story())


def test_node_that_went_to_a_follower_is_no_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection here is still open, and it does not ask on it. Source: M-5, H-5."""
    monkeypatch.setattr("forewarn_metadata.replication.server.ANSWER_S_MAX", 0.05)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        gone = Machine(feed, "a process")
        await gone.follow()
        feed.server.take_report(RelayReport("a follower", 1, joined=("n1",), begins=True))
        await until(lambda: feed.server.connected == 0)
        assert feed.server.troubles().refused == ()
        gone.end()
        await feed.stop()

    run(story())
