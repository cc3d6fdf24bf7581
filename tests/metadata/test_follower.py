"""Nodes that follow a feed: they show what it says, hand requests on, and survive its loss."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from forewarn.protocol.documents import Document
from forewarn.replication import change_log, follower, nodes, portions, server
from forewarn.replication.follower import FAILURES_MAX, FeedLost, Follower, connect
from forewarn.replication.messages import (
    ApprovalAnswer,
    ApprovalRequest,
    DocumentChange,
    Fact,
    FeedCurrent,
    FeedPortion,
    Follow,
    Publication,
    line_of,
    read_told,
)
from forewarn.replication.server import FeedServer
from tests.metadata.live import EVENTS, FREEZE, VM_A, VM_C, WAIT_S, Control, Raw, approval, request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

BIG = 70_000
"""VMs whose whole is beyond 64 MiB."""

ASKED = ApprovalRequest("vm-a", ("A",), "127.0.0.1")


def publication(incarnation: int, *, view: str = "group-1") -> Publication:
    """Return a document of a view."""
    return Publication(view, enabled=True, document=Document(incarnation, (FREEZE,)))


WHOLE = DocumentChange(1, whole=True, callers=(VM_A, VM_C), publications=(publication(1),))


def run(story: Coroutine[object, object, None]) -> None:
    """Run one story on a loop of its own, not for ever."""

    async def bounded() -> None:
        await asyncio.wait_for(story, WAIT_S)

    asyncio.run(bounded())


async def until(true: Callable[[], bool]) -> None:
    """Let everything else run until something is true."""
    for _ in range(1_000_000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


class Feed:
    """A feed server, a follower and what the follower was told."""

    def __init__(self, address: str, apply: Callable[[DocumentChange], None] | None = None) -> None:
        self.address = address
        self.control = Control()
        self.told: list[DocumentChange] = []
        self.server = FeedServer(self.control)
        self.follower = Follower(address, apply or self.told.append)

    async def start(self) -> None:
        """Start both ends and wait until they have met."""
        self.server.apply(WHOLE)
        self.address = await self.server.start(self.address)
        self.follower._address = self.address
        self.follower.start()
        await self.follower.followed.wait()

    async def cut(self) -> None:
        """Break the connection, and wait until both ends know."""
        for session in tuple(self.server._sessions):
            session.writer.transport.abort()
        await until(lambda: not self.follower.followed.is_set() and not self.server.connected)

    async def stop(self) -> None:
        """Stop both ends."""
        await self.follower.stop()
        await self.server.stop()

    async def restart_server(self) -> None:
        """Come back with a new feed server, as after a crash of the control process."""
        self.server = FeedServer(self.control)
        self.server.apply(WHOLE)
        await self.server.start(self.address)

    async def lose(self) -> None:
        """Stop the feed server and wait until the follower knows."""
        await self.server.stop()
        await until(lambda: not self.follower.followed.is_set())


@pytest.fixture(params=["unix", "tcp"])
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Feed:
    """Both ends of a feed, not started."""
    return Feed(f"unix:{tmp_path}/feed" if request.param == "unix" else "127.0.0.1:0")


def test_follower_is_told_the_whole_then_each_change(feed: Feed) -> None:
    """A node begins with the whole truth and gets every change after it. Source: L-7, S-1."""

    async def story() -> None:
        await feed.start()
        feed.server.apply(DocumentChange(2, publications=(publication(2),)))
        assert await feed.server.confirmed(2, WAIT_S) == ()
        assert feed.told == [WHOLE, DocumentChange(2, publications=(publication(2),))]
        assert feed.server.connected == 1
        feed.server.apply(DocumentChange(3, gone=("vm-c",)))
        late = Follower(feed.address, feed.told.append, name="late")
        late.start()
        await late.followed.wait()
        newest = DocumentChange(3, whole=True, callers=(VM_A,), publications=(publication(2),))
        assert feed.told[-1] == newest
        await late.stop()
        await feed.follower.stop()
        await feed.server.stop()

    run(story())


def test_node_that_is_away_still_counts(feed: Feed) -> None:
    """A node that lost its feed may serve what it had, until it is known to be over. M-4, L-7."""

    async def story() -> None:
        await feed.start()
        assert await feed.server.confirmed(1, WAIT_S) == ()
        await feed.follower.stop()
        await until(lambda: feed.server.connected == 0)
        feed.server.apply(DocumentChange(2, publications=(publication(2),)))
        assert await feed.server.confirmed(2, 0.01) == ("node",)
        overdue = feed.server.confirmed(2, WAIT_S)
        feed.server.nodes.dismiss("node")
        assert await overdue == ()
        await feed.server.stop()

    run(story())


def test_begin_waits_for_what_every_node_shows(feed: Feed) -> None:
    """A publication is confirmed once each node has acknowledged it, in whatever order. L-7."""

    async def story() -> None:
        await feed.start()
        other = Follower(feed.address, feed.told.append, name="other")
        other.start()
        await other.followed.wait()
        for sequence in (2, 3, 4):
            feed.server.apply(DocumentChange(sequence, publications=(publication(sequence),)))
        waits = [feed.server.confirmed(sequence, WAIT_S) for sequence in (2, 3, 4)]
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
        await feed.follower.followed.wait()
        assert [change.sequence for change in feed.told] == [1, 2, 3]
        assert [change.whole for change in feed.told] == [True, False, False]
        assert await feed.server.confirmed(3, WAIT_S) == ()
        await feed.stop()

    run(story())


@pytest.mark.parametrize("how", ["log", "size", "whole", "doubt"])
def test_node_that_cannot_be_taken_up_is_sent_the_whole(
    feed: Feed, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too far behind, too large a change, a new whole, or a node that differs. Source: M-1."""
    if how == "log":
        monkeypatch.setattr(change_log, "KEPT_BYTES", 1)
    if how == "size":
        monkeypatch.setattr(server, "LOGGED_ITEMS_MAX", 0)

    async def story() -> None:
        await feed.start()
        await feed.cut()
        if how == "doubt":
            feed.follower._shows = msgspec.structs.replace(feed.follower._shows, checksum=7)
        for sequence in (2, 3):
            whole = how == "whole" and sequence == 2
            news = (publication(sequence),)
            feed.server.apply(
                DocumentChange(sequence, whole=whole, callers=(VM_A,), publications=news)
            )
        await feed.follower.followed.wait()
        callers = (VM_A,) if how == "whole" else (VM_A, VM_C)
        latest = DocumentChange(3, whole=True, callers=callers, publications=(publication(3),))
        assert feed.told[1:] == [latest]
        assert await feed.server.confirmed(3, WAIT_S) == ()
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
        monkeypatch.setattr(follower, "LINE_BYTES_MAX", 4 * portions.PORTION_BYTES)
        slow, writer = await connect(address)  # reads nothing at first
        monkeypatch.undo()
        writer.write(line_of(Follow("slow")))
        await until(lambda: feed.server.connected == 1)
        (session,) = feed.server._sessions
        await until(lambda: not session.idle)
        for sequence in range(2, 50):
            feed.server.apply(DocumentChange(sequence, publications=(publication(sequence),)))
        feed.follower._address = address
        feed.follower.start()
        await feed.follower.followed.wait()
        assert [change.sequence for change in feed.told[1:]] == list(
            range(feed.told[0].sequence + 1, 50)
        )
        assert len(feed.told[0].callers) == BIG
        assert session.writer.transport.get_write_buffer_size() < 2 * portions.PORTION_BYTES
        sizes, told = 0, []
        while not isinstance(message := read_told(line := await slow.readline()), FeedCurrent):
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
        confirmed = feed.server.confirmed(2, WAIT_S)
        await until(lambda: not feed.follower.followed.is_set())
        assert not confirmed.done()
        assert feed.server.nodes.behind(2) == ("node",)
        assert await confirmed == ()
        assert [(change.sequence, change.whole) for change in told] == [(1, True), (2, True)]
        assert feed.follower.failed.is_set() == (fails == FAILURES_MAX)
        await feed.stop()

    run(story())


@pytest.mark.parametrize("stopped", ["node", "server"])
def test_end_that_hangs_is_given_up(stopped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end takes the other for hung after a silence, and says who it was. Source: L-7."""
    monkeypatch.setattr(nodes if stopped == "node" else follower, "SILENT_S_MAX", 0.1)
    monkeypatch.setattr(server, "HEARTBEAT_S", 0.01)
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
            kept: list[object] = []
            hung = await asyncio.start_server(lambda *ends: kept.append(ends), "127.0.0.1", 0)
            port = hung.sockets[0].getsockname()[1]
            reader, writer = await connect(f"127.0.0.1:{port}")
            with pytest.raises(TimeoutError):
                await follower._next_line(reader)
            writer.close()
            hung.close()
        await feed.server.stop()

    run(story())


def test_requests_travel_to_the_control_plane_and_back(feed: Feed) -> None:
    """Approvals, enabling and poll marks arrive as they were made. Source: A-6, B-1, B-2."""

    async def story() -> None:
        await feed.start()
        assert await feed.follower.approve(ASKED) == ApprovalAnswer(True)
        feed.control.answer = ApprovalAnswer(False, "No.")
        assert await feed.follower.approve(ASKED) == ApprovalAnswer(False, "No.")
        assert feed.control.approvals == [ASKED, ASKED]
        await feed.follower.enable("vm-a")
        assert feed.control.enabled == ["vm-a"]
        feed.follower.polled(frozenset({"b", "a"}))
        feed.control.answer = ApprovalAnswer(True)
        await feed.follower.approve(ASKED)
        assert feed.control.groups == [frozenset({"a", "b"})]
        feed.control.enables = False
        enabling = feed.follower.enable("vm-c")
        feed.control.answer = None
        slow, broken = feed.follower.approve(ASKED), feed.follower.approve(ASKED)
        await until(lambda: bool(feed.control.waiting[1:] and feed.control.enabling[1:]))
        feed.control.waiting[0].set_result(ApprovalAnswer(True))
        feed.control.waiting[1].set_exception(RuntimeError())
        feed.control.enabling[1].cancel()
        assert (await slow).accepted
        with pytest.raises(FeedLost):
            await broken
        with pytest.raises(FeedLost):
            await enabling
        await feed.follower.stop()
        await feed.server.stop()

    run(story())


def test_requests_wait_for_a_lost_feed(feed: Feed) -> None:
    """What is asked while the feed is away is asked when it is back. Source: A-6, L-7."""

    async def story() -> None:
        await feed.start()
        await feed.lose()
        waiting = feed.follower.approve(ASKED)
        enabling = feed.follower.enable("vm-a")
        feed.follower.polled(frozenset({"a"}))
        feed.follower.polled(frozenset({"b"}))
        given_up = feed.follower.approve(ASKED)
        given_up.cancel()
        await asyncio.sleep(0)
        await feed.restart_server()
        assert (await waiting).accepted
        await enabling
        assert feed.control.groups == [frozenset({"a", "b"})]
        assert len(feed.control.approvals) == 1
        assert feed.told == [WHOLE, WHOLE]
        await feed.follower.stop()
        await feed.server.stop()

    run(story())


def test_follower_that_stops_fails_what_waits(feed: Feed) -> None:
    """Requests without an answer fail in the end, none is called approved. Source: A-6."""

    async def story() -> None:
        await feed.start()
        await feed.lose()
        approving, enabling = feed.follower.approve(ASKED), feed.follower.enable("vm-a")
        await feed.follower.stop()
        with pytest.raises(FeedLost):
            await approving
        with pytest.raises(FeedLost):
            await enabling

    run(story())


@pytest.mark.parametrize(
    "line", [b"x", b'["portion"]', b'["follow","n"]', b'["start","e",9,9,false]',
             b'["portion",2,true,7,[[],[],[]]]', b'["fly",1]', b'["ack","x"]',
             b'["approve",1,["a"]]', b'["approve",1,["a","x",""]]', b'["enable",1,5]',
             b'["polled",3]'],
)  # fmt: skip
def test_peer_that_talks_nonsense_is_hung_up_on(feed: Feed, line: bytes) -> None:
    """Each end hangs up on nonsense, and the other nodes go on. Source: L-7."""

    async def story() -> None:
        await feed.start()
        feed.follower._writer.write(line + b"\n")  # type: ignore[union-attr]
        await until(lambda: not feed.follower.followed.is_set())
        await feed.follower.followed.wait()
        assert feed.told == [WHOLE]
        (node,) = feed.server._sessions
        node.writer.write(line + b"\n")
        await until(lambda: not feed.follower.followed.is_set())
        await feed.follower.followed.wait()
        await feed.follower.stop()
        await feed.server.stop()

    run(story())


def ask(port: int, octets: bytes) -> tuple[int, bytes]:
    """Send one request and return status and body."""
    with Raw(socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)) as raw:
        raw.send(octets)
        reply = raw.reply()
        return reply.status, reply.body


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="workers share a port")
def test_workers_serve_through_the_loss_of_their_feed(tmp_path: Path) -> None:
    """Worker processes share a port, answer, hand on, and answer on without a feed. S-1, A-6."""

    async def story() -> None:
        control = Control()
        server = FeedServer(control)
        server.apply(WHOLE)
        address = await server.start(f"unix:{tmp_path}/feed")
        port = free_port()
        workers = [await start_worker(address, port, str(n)) for n in range(2)]
        assert await server.confirmed(1, WAIT_S) == ()
        for _ in range(4):
            status, body = await asyncio.to_thread(ask, port, request(EVENTS))
            assert (status, json.loads(body)["DocumentIncarnation"]) == (200, 1)
        posted = request(EVENTS, method="POST", body=approval("a"))
        assert (await asyncio.to_thread(ask, port, posted))[0] == 200
        assert control.approvals[0].event_ids == ("A",)
        await server.stop()
        assert (await asyncio.to_thread(ask, port, request(EVENTS)))[0] == 200
        held = asyncio.create_task(asyncio.to_thread(ask, port, posted))
        again = FeedServer(control)
        again.apply(DocumentChange(7, whole=True, callers=(VM_A,), publications=(publication(2),)))
        await again.start(address)
        assert (await held)[0] == 200
        workers[0].send_signal(signal.SIGTERM)
        workers[1].stdin.close()  # type: ignore[union-attr]
        assert [await worker.wait() for worker in workers] == [0, 0]
        await again.stop()

    run(story())


IMPOSSIBLE = tuple(
    msgspec.structs.replace(VM_C, vm=f"vm-{n}", addresses=("fe80::\0",))
    for n in range(FAILURES_MAX)
)
"""VMs that no node can take over, one after another; the control plane would not either."""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="workers share a port")
def test_worker_that_cannot_show_a_change_ends(tmp_path: Path) -> None:
    """It does not serve for ever what it had: it ends, and counts until that is known. L-7."""

    async def story() -> None:
        server = FeedServer(Control())
        server.apply(WHOLE)
        address = await server.start(f"unix:{tmp_path}/feed")
        port = free_port()
        worker = await start_worker(address, port, "only")
        assert await server.confirmed(1, WAIT_S) == ()
        assert (await asyncio.to_thread(ask, port, request(EVENTS)))[0] == 200
        server.apply(DocumentChange(2, callers=IMPOSSIBLE))
        assert await worker.wait() == 1
        assert server.nodes.behind(2) == ("only",)
        await server.stop()

    run(story())


async def start_worker(feed: str, port: int, name: str) -> asyncio.subprocess.Process:
    """Start a worker and wait until it serves."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        *(
            "-m",
            "forewarn.metadata.worker_process",
            "--feed",
            feed,
            "--listen",
            f"127.0.0.1:{port}",
            "--name",
            name,
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(os.environ),
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(b'{"rate_per_s": 0, "proxy_addresses": ["10.0.0.1"]}\n')
    said = json.loads(await worker.stdout.readline())
    assert said == {"metadata": [f"127.0.0.1:{port}"]}
    return worker


def free_port() -> int:
    """Return a port nobody has at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
