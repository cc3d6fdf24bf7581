"""Nodes that follow the feed at a follower: the active process waits for them as for its own."""

import asyncio

import pytest

from forewarn_metadata.replication.messages import RelayReport
from forewarn_metadata.replication.nodes import NodeTable


def test_publication_waits_for_a_relayed_node() -> None:
    """It ends with the report that the node shows the change, not with a newer feed. M-4, L-7."""

    async def story() -> None:
        nodes = NodeTable()
        assert not nodes.take_report(RelayReport("f", 5, joined=("n1",)))
        assert nodes.take_report(RelayReport("f", 5, joined=("n1", "n2"), begins=True))
        assert nodes.wait(5, 9).done()
        waiting = nodes.wait(7, 9, ("n1",))
        nodes.take_report(RelayReport("f", 8, {"n1": 5}))
        assert not waiting.done()
        nodes.take_report(RelayReport("f", 8))
        await asyncio.sleep(0)
        assert waiting.result() == ()
        assert nodes.relayed("n2")

    asyncio.run(story())


def test_node_that_leaves_a_follower_is_waited_for() -> None:
    """What it shows counts, nothing later; a follower that begins again names all nodes."""

    async def story() -> None:
        nodes = NodeTable()
        nodes.take_report(RelayReport("f", 5, joined=("n1", "n2"), begins=True))
        nodes.take_report(RelayReport("f", 9, left=("n1",)))
        assert (nodes.shown("n1"), nodes.relayed("n1")) == (5, False)
        waiting = nodes.wait(9, 9, ("n1", "n2"))
        assert not waiting.done()
        nodes.record_shown("n1", 9)
        assert waiting.result() == ()
        nodes.take_report(RelayReport("f", 12, joined=("n1",), begins=True))
        assert (nodes.shown("n2"), nodes.shown("n1")) == (9, 12)

    asyncio.run(story())


def test_node_that_connects_elsewhere_keeps_its_progress() -> None:
    """It shows nothing older, so that no publication waits for it again. Source: M-4."""

    async def story() -> None:
        nodes = NodeTable()
        nodes.enlist("n1")
        nodes.record_shown("n1", 7)
        nodes.enlist("n1")
        assert nodes.wait(7, 9).done()
        nodes.take_report(RelayReport("f", 9, joined=("n1",), begins=True))
        nodes.take_report(RelayReport("behind", 8, joined=("n1",), begins=True))
        assert nodes.wait(9, 9).done()
        assert not nodes.wait(10, 9).done()

    asyncio.run(story())


def test_node_that_two_followers_have_is_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that went from the first to the second leaves the first in time. Source: M-5, H-5."""

    async def story() -> None:
        nodes = NodeTable(silent_s_max=10)
        loop, at = asyncio.get_running_loop(), 0.0
        monkeypatch.setattr(loop, "time", lambda: at)
        nodes.take_report(RelayReport("f", 5, joined=("moves", "twice"), begins=True))
        nodes.take_report(RelayReport("g", 5, joined=("moves", "twice", "new"), begins=True))
        at = 9.0
        nodes.take_report(RelayReport("f", 5, left=("moves",)))
        assert list(nodes.cloned()) == []
        for later in (15.0, 21.0):
            at = later
            nodes.take_report(RelayReport("f", 5))
            nodes.take_report(RelayReport("g", 5))
        assert list(nodes.cloned()) == [("twice", ("f", "g"))]
        at = 32.0  # the first follower was killed
        nodes.take_report(RelayReport("g", 5))
        assert list(nodes.cloned()) == []

    asyncio.run(story())
