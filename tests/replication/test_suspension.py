"""A feed whose process may not be the writer any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.replication.rig import Feed


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
        await feed.server.stop()

    asyncio.run(asyncio.wait_for(story(), 20))
