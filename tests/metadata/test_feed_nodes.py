"""What a node is sent, when it counts as showing it, and what if it fails or hangs."""

import asyncio

import msgspec
import pytest

from forewarn.replication import feed_client, nodes, portions, scopes, server
from forewarn.replication.feed_client import (
    FAILURES_MAX,
    FeedClient,
    NodeIdentity,
    connect,
    next_line,
)
from forewarn.replication.messages import (
    DocumentChange,
    Fact,
    FeedCurrent,
    FeedPortion,
    Follow,
    line_of,
    read_server_message,
)
from forewarn.replication.nodes import usual_pace
from forewarn.values import replace as moved_to
from tests.metadata.feeds import Feed, publication, run, until
from tests.metadata.live import VM_A, VM_C
from tests.waiting import LIMIT_S

BIG = 70_000
"""VMs whose whole is beyond 64 MiB."""


def test_node_that_is_away_still_counts(feed: Feed) -> None:
    """A node that lost its feed may serve what it had, until it is known to be over. M-4, L-7."""

    async def story() -> None:
        await feed.start()
        assert await feed.server.confirmed(1, LIMIT_S) == ()
        await feed.feed_client.stop()
        await until(lambda: feed.server.connected == 0)
        feed.server.apply(DocumentChange(2, publications=(publication(2),)))
        assert await feed.server.confirmed(2, 0.01) == ("node",)
        overdue = feed.server.confirmed(2, LIMIT_S)
        feed.server.nodes.dismiss("node")
        assert await overdue == ()
        await feed.server.stop()

    run(story())


def test_begin_waits_for_what_every_node_shows(feed: Feed) -> None:
    """A publication is confirmed once each node has acknowledged it, in whatever order. L-7."""

    async def story() -> None:
        await feed.start()
        other = FeedClient(feed.address, feed.told.append, identity=NodeIdentity("other"))
        other.start()
        await other.followed.wait()
        for sequence in (2, 3, 4):
            feed.server.apply(DocumentChange(sequence, publications=(publication(sequence),)))
        waits = [feed.server.confirmed(sequence, LIMIT_S) for sequence in (2, 3, 4)]
        assert not any(wait.done() for wait in waits)
        assert await asyncio.gather(*waits) == [(), (), ()]
        await other.stop()
        await feed.stop()

    run(story())


def test_node_takes_up_where_it_stopped(feed: Feed) -> None:
    """What a node missed is sent to it, not the whole, while it is kept. Source: M-1."""

    async def story() -> None:
        await feed.start()
        await feed.cut()
        for sequence in (2, 3):
            feed.server.apply(DocumentChange(sequence, publications=(publication(sequence),)))
        await feed.feed_client.followed.wait()
        assert [change.sequence for change in feed.told] == [1, 2, 3]
        assert [change.whole for change in feed.told] == [True, False, False]
        assert await feed.server.confirmed(3, LIMIT_S) == ()
        await feed.stop()

    run(story())


@pytest.mark.parametrize("how", ["log", "size", "whole", "doubt"])
def test_node_that_cannot_be_taken_up_is_sent_the_whole(
    feed: Feed, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too far behind, too large a change, a new whole, or a node that differs. Source: M-1."""
    if how == "log":
        monkeypatch.setattr(scopes, "KEPT_BYTES", 1)
    if how == "size":
        monkeypatch.setattr(server, "LOGGED_ITEMS_MAX", 0)

    async def story() -> None:
        await feed.start()
        await feed.cut()
        if how == "doubt":
            feed.feed_client._shows = moved_to(feed.feed_client._shows, checksum=7)
        for sequence in (2, 3):
            whole = how == "whole" and sequence == 2
            news = (publication(sequence),)
            feed.server.apply(
                DocumentChange(sequence, whole=whole, callers=(VM_A,), publications=news)
            )
        await feed.feed_client.followed.wait()
        callers = (VM_A,) if how == "whole" else (VM_A, VM_C)
        latest = DocumentChange(3, whole=True, callers=callers, publications=(publication(3),))
        assert feed.told[1:] == [latest]
        assert await feed.server.confirmed(3, LIMIT_S) == ()
        await feed.stop()

    run(story())


@pytest.mark.slow
def test_large_fleet_is_taken_over_in_portions(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole beyond 64 MiB reaches a node, with what changes meanwhile in order. Source: M-1."""
    facts: dict[str, Fact] = {"tags": "x" * 1000}
    callers = tuple(msgspec.structs.replace(VM_A, vm=f"vm-{n}", instance=facts) for n in range(BIG))
    feed.server.apply(
        DocumentChange(1, whole=True, callers=callers, publications=(publication(1),))
    )

    async def story() -> None:
        address = feed.address = await feed.server.start(feed.address)
        monkeypatch.setattr(feed_client, "LINE_BYTES_MAX", 4 * portions.PORTION_BYTES)
        slow, writer = await connect(address)  # reads nothing at first
        monkeypatch.undo()
        writer.write(line_of(Follow("slow")))
        await until(lambda: feed.server.connected == 1)
        (session,) = feed.server._sessions.values()
        await until(lambda: not session.idle)
        for sequence in range(2, 50):
            feed.server.apply(DocumentChange(sequence, publications=(publication(sequence),)))
        feed.feed_client._addresses = [address]
        feed.feed_client.start()
        await feed.feed_client.followed.wait()
        assert [change.sequence for change in feed.told[1:]] == list(
            range(feed.told[0].sequence + 1, 50)
        )
        assert len(feed.told[0].callers) == BIG
        assert session.writer.transport.get_write_buffer_size() < 2 * portions.PORTION_BYTES
        sizes, told = 0, []
        while not isinstance(
            message := read_server_message(line := await slow.readline()), FeedCurrent
        ):
            sizes += len(line)
            if isinstance(message, FeedPortion) and message.last:
                told.append(message.sequence)
        assert sizes > 64 * 1024 * 1024
        assert told == list(range(1, 50))
        writer.close()
        await feed.stop()

    run(story())


@pytest.mark.parametrize("fails", [1, FAILURES_MAX])
def test_node_that_fails_at_a_change_does_not_count_as_showing_it(fails: int) -> None:
    """It asks for everything again, and says so once it fails time and again. L-7, M-4."""
    told: list[DocumentChange] = []
    failures = iter([False] + [True] * fails)

    def apply(change: DocumentChange) -> None:
        if next(failures, False):
            raise ValueError("a bug")
        told.append(change)

    async def story() -> None:
        feed = Feed("127.0.0.1:0", apply)
        await feed.start()
        feed.server.apply(DocumentChange(2, publications=(publication(2),)))
        confirmed = feed.server.confirmed(2, LIMIT_S)
        await until(lambda: not feed.feed_client.followed.is_set())
        assert not confirmed.done()
        assert feed.server.nodes.shown("node") == 1
        assert await confirmed == ()
        assert [(change.sequence, change.whole) for change in told] == [(1, True), (2, True)]
        assert feed.feed_client.failed.is_set() == (fails == FAILURES_MAX)
        await feed.stop()

    run(story())


@pytest.mark.parametrize("stopped", ["node", "server"])
def test_end_that_hangs_is_given_up(stopped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end takes the other for hung after a silence, and says who it was. Source: L-7."""
    monkeypatch.setattr(nodes, "SILENT_S_MAX", 0.1)
    monkeypatch.setattr(nodes, "HEARTBEAT_S", 0.01)
    silent: list[str] = []

    async def story() -> None:
        feed = Feed("127.0.0.1:0")
        feed.server.on_silent = silent.append
        if stopped == "node":
            address = await feed.server.start(feed.address)
            reader, writer = await connect(address)
            writer.write(line_of(Follow("mute")))
            while await reader.readline():
                pass
            await until(lambda: bool(silent))
            assert silent[0] == "mute"
            writer.close()
        else:
            kept: list[asyncio.StreamWriter] = []
            hung = await asyncio.start_server(lambda _, end: kept.append(end), "127.0.0.1", 0)
            port = hung.sockets[0].getsockname()[1]
            reader, writer = await connect(f"127.0.0.1:{port}")
            with pytest.raises(TimeoutError):
                await next_line(reader, usual_pace().silent_s_max)
            for end in (writer, *kept):
                end.close()
            hung.close()
        await feed.server.stop()

    run(story())
