"""Nodes that follow a feed: they show what it says, hand requests on, and survive its loss."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from forewarn.replication.feed_client import FAILURES_MAX, FeedClient, FeedLost, NodeIdentity
from forewarn.replication.messages import ApprovalRequest, DocumentChange, RequestAnswer
from forewarn.replication.server import FeedServer
from tests.agent.programs import free_port
from tests.metadata.feeds import WHOLE, Feed, publication, run, until
from tests.metadata.live import EVENTS, VM_A, VM_C, Control, Raw, approval, request
from tests.waiting import LIMIT_S

ASKED = ApprovalRequest("vm-a", ("A",), "127.0.0.1")
HOUR_MS = 3_600_000


def test_feed_client_is_told_the_whole_then_each_change(feed: Feed) -> None:
    """A node begins with the whole truth and gets every change after it. Source: L-7, S-1."""

    async def story() -> None:
        await feed.start()
        feed.server.apply(DocumentChange(2, publications=(publication(2),)))
        assert await feed.server.confirmed(2, LIMIT_S) == ()
        assert feed.told == [WHOLE, DocumentChange(2, publications=(publication(2),))]
        assert feed.server.connected == 1
        feed.server.apply(DocumentChange(3, gone=("vm-c",)))
        late = FeedClient(feed.address, feed.told.append, identity=NodeIdentity("late"))
        late.start()
        await late.followed.wait()
        newest = DocumentChange(3, whole=True, callers=(VM_A,), publications=(publication(2),))
        assert feed.told[-1] == newest
        await late.stop()
        await feed.feed_client.stop()
        await feed.server.stop()

    run(story())


def test_requests_travel_to_the_control_plane_and_back(feed: Feed) -> None:
    """Approvals, enabling and poll marks arrive as they were made. Source: A-6, B-1, B-2."""

    async def story() -> None:
        await feed.start()
        assert await feed.feed_client.approve(ASKED) == RequestAnswer(True)
        feed.control.answer = RequestAnswer(False, "No.")
        assert await feed.feed_client.approve(ASKED) == RequestAnswer(False, "No.")
        assert feed.control.approvals == [ASKED, ASKED]
        await feed.feed_client.enable("vm-a")
        assert feed.control.enabled == ["vm-a"]
        feed.feed_client.polled(frozenset({"b", "a"}))
        feed.control.answer = RequestAnswer(True)
        await feed.feed_client.approve(ASKED)
        assert feed.control.groups == [frozenset({"a", "b"})]
        feed.control.enables = False
        enabling = feed.feed_client.enable("vm-c")
        feed.control.answer = None
        slow, broken = feed.feed_client.approve(ASKED), feed.feed_client.approve(ASKED)
        await until(lambda: bool(feed.control.waiting[1:] and feed.control.enabling[1:]))
        feed.control.waiting[0].set_result(RequestAnswer(True))
        feed.control.waiting[1].set_exception(RuntimeError())
        feed.control.enabling[1].cancel()
        assert (await slow).accepted
        with pytest.raises(FeedLost):
            await broken
        with pytest.raises(FeedLost):
            await enabling
        await feed.feed_client.stop()
        await feed.server.stop()

    run(story())


def test_requests_wait_for_a_lost_feed(feed: Feed) -> None:
    """What is asked while the feed is away is asked when it is back. Source: A-6, L-7."""

    async def story() -> None:
        await feed.start()
        await feed.lose()
        waiting = feed.feed_client.approve(ASKED)
        enabling = feed.feed_client.enable("vm-a")
        feed.feed_client.polled(frozenset({"a", "b"}), age_ms=HOUR_MS)
        feed.feed_client.polled(frozenset({"a"}))
        given_up = feed.feed_client.approve(ASKED)
        given_up.cancel()
        await asyncio.sleep(0)
        await feed.restart_server()
        assert (await waiting).accepted
        await enabling
        assert feed.control.groups == [frozenset({"a"}), frozenset({"b"})]
        assert feed.control.ages_ms[0] < HOUR_MS <= feed.control.ages_ms[1], "F-5: when it asked"
        assert len(feed.control.approvals) == 1
        assert feed.told == [WHOLE, WHOLE]
        await feed.feed_client.stop()
        await feed.server.stop()

    run(story())


def test_feed_client_that_stops_fails_what_waits(feed: Feed) -> None:
    """Requests without an answer fail in the end, none is called approved. Source: A-6."""

    async def story() -> None:
        await feed.start()
        await feed.lose()
        approving, enabling = feed.feed_client.approve(ASKED), feed.feed_client.enable("vm-a")
        await feed.feed_client.stop()
        with pytest.raises(FeedLost):
            await approving
        with pytest.raises(FeedLost):
            await enabling

    run(story())


@pytest.mark.parametrize(
    "line", [b"x", b'["portion"]', b'["follow","n"]', b'["start","e",9,9,false]',
             b'["portion",2,true,7,[[],[],[]]]', b'["fly",1]', b'["ack","x"]',
             b'["approve",1,["a"]]', b'["approve",1,["a","x",""]]', b'["enable",1,5]',
             b'["polled",3]', b'["polled",["a"],-1]'],
)  # fmt: skip
def test_peer_that_talks_nonsense_is_hung_up_on(feed: Feed, line: bytes) -> None:
    """Each end hangs up on nonsense, and the other nodes go on. Source: L-7."""

    async def story() -> None:
        await feed.start()
        feed.feed_client._writer.write(line + b"\n")  # type: ignore[union-attr]
        await until(lambda: not feed.feed_client.followed.is_set())
        await feed.feed_client.followed.wait()
        assert feed.told == [WHOLE]
        (node,) = feed.server._sessions.values()
        node.writer.write(line + b"\n")
        await until(lambda: not feed.feed_client.followed.is_set())
        await feed.feed_client.followed.wait()
        await feed.feed_client.stop()
        await feed.server.stop()

    run(story())


def ask(port: int, octets: bytes) -> tuple[int, bytes]:
    """Send one request and return status and body."""
    with Raw(socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)) as raw:
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
        assert await server.confirmed(1, LIMIT_S) == ()
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
        assert await server.confirmed(1, LIMIT_S) == ()
        assert (await asyncio.to_thread(ask, port, request(EVENTS)))[0] == 200
        server.apply(DocumentChange(2, callers=IMPOSSIBLE))
        assert await worker.wait() == 1
        assert server.nodes.shown("only") == 1
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
