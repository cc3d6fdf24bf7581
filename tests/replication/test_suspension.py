"""A feed whose process may not be the writer any more, or has not recovered yet."""

import asyncio
from pathlib import Path

from forewarn_metadata.replication.messages import DocumentChange
from tests.replication.rig import WHOLE, Feed, Node, shown
from tests.waiting import LIMIT_S

DB = frozenset(("db",))


async def connected(feed: Feed, *, count: int) -> None:
    """Wait until this number of nodes is connected."""
    while feed.server.connected != count:  # noqa: ASYNC110 - the feed has no event for it
        await asyncio.sleep(0)


def test_feed_that_is_suspended_serves_nobody(tmp_path: Path) -> None:
    """Nodes are hung up on, and come back once it goes on. Source: H-3."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")
        feed.server.suspend(suspended=True)
        await connected(feed, count=0)
        feed.server.suspend(suspended=False)
        await connected(feed, count=1)
        await node.stop()
        await feed.stop()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


def test_node_leaves_a_feed_that_is_suspended_for_another(tmp_path: Path) -> None:
    """It knows both addresses, and needs nobody to change over. Source: H-5."""

    async def story() -> None:
        first, second = await Feed(tmp_path / "a").start(), await Feed(tmp_path / "b").start()
        node = await Node(f"{first.address}, {second.address}", "n1", tmp_path).start()
        assert (first.server.connected, second.server.connected) == (1, 0)
        first.server.suspend(suspended=True)
        await connected(second, count=1)
        second.server.suspend(suspended=True)
        first.server.suspend(suspended=False)
        await connected(first, count=1)
        await node.stop()
        await first.stop()
        await second.stop()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


def test_node_keeps_a_document_that_waits_for_recovery(tmp_path: Path) -> None:
    """Only nodes without VMs of its group are sent the others meanwhile. Source: M-2."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        keeps = await feed.node("n1")
        loaded = DocumentChange(
            2, whole=True, callers=WHOLE.callers, publications=(shown("web", 2),), withheld=DB
        )
        await feed.restart(loaded)
        follows = await feed.node("n2")
        assert follows.incarnation("web") == 2
        assert keeps.incarnation("db") == 1
        documents = (shown("web", 3), shown("db", 3))
        recovered = DocumentChange(3, whole=True, callers=WHOLE.callers, publications=documents)
        assert await feed.shows(recovered) == ()
        assert [each.sequence for each in keeps.told] == [1, 3]
        for node in (keeps, follows):
            await node.stop()
        await feed.stop()

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))
