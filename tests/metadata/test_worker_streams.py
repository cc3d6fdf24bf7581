"""Workers that follow their service: they show what it says, hand requests on, and survive it."""

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

from forewarn_core.requests import ApprovalRequest, EnableRequest, RequestAnswer
from forewarn_metadata.replication import worker_streams
from forewarn_metadata.replication.feed_client import FeedLost
from forewarn_metadata.replication.messages import (
    DocumentChange,
    Fact,
    Hello,
    Ping,
    PollReport,
    Shown,
    WorkerReport,
    line_of,
    read_to_worker,
)
from forewarn_metadata.replication.node_failures import FAILURES_MAX
from forewarn_metadata.replication.server import FeedServer
from forewarn_metadata.replication.worker_client import WorkerClient, connect_unix
from tests.agent.programs import free_port
from tests.metadata.feeds import WHOLE, Feed, publication, run, until
from tests.metadata.live import EVENTS, VM_A, VM_C, Control, Raw, approval, request
from tests.waiting import LIMIT_S

ASKED = ApprovalRequest("vm-a", ("A",), "127.0.0.1")
HOUR_MS = 3_600_000
#: VMs whose whole is beyond 64 MiB.
BIG = 70_000


def test_worker_is_told_the_whole_then_each_change(feed: Feed) -> None:
    """It begins with the whole truth and gets every change after it. Source: L-7, S-1."""

    async def story() -> None:
        await feed.start()
        feed.server.apply(DocumentChange(2, publications=(publication(2),)))
        assert await feed.server.confirmed(2, LIMIT_S) == ()
        assert feed.told == [WHOLE, DocumentChange(2, publications=(publication(2),))]
        feed.server.apply(DocumentChange(3, gone=("vm-c",)))
        late = WorkerClient(feed.path, "late", feed.told.append)
        late.start()
        await late.followed.wait()
        newest = DocumentChange(3, whole=True, callers=(VM_A,), publications=(publication(2),))
        assert feed.told[-1] == newest
        await late.stop()
        await feed.stop()

    run(story())


def test_requests_travel_to_the_control_plane_and_back(feed: Feed) -> None:
    """Approvals, enabling and polls arrive as they were made. Source: A-6, B-1, B-2."""

    async def story() -> None:
        await feed.start()
        worker, control = feed.worker, feed.control
        assert await worker.ask(ASKED) == RequestAnswer(True)
        control.answer = RequestAnswer(False, "No.")
        assert await worker.ask(ASKED) == RequestAnswer(False, "No.")
        assert (await worker.ask(EnableRequest("vm-a"))).accepted
        worker.tell(PollReport({"b": 0, "a": 0}))
        await until(lambda: control.groups == [frozenset({"a", "b"})])
        control.answer = None
        slow, broken = worker.ask(ASKED), worker.ask(ASKED)
        await until(lambda: bool(control.waiting[1:]))
        control.waiting[0].set_result(RequestAnswer(True))
        control.waiting[1].set_exception(RuntimeError())
        assert (await slow).accepted
        with pytest.raises(FeedLost):
            await broken
        assert (control.approvals, control.enabled) == ([ASKED] * 4, ["vm-a"])
        await feed.stop()

    run(story())


def test_requests_wait_for_a_lost_service(feed: Feed) -> None:
    """What is asked while it is away is asked when it is back. Source: A-6, L-7."""

    async def story() -> None:
        await feed.start()
        await feed.lose()
        waiting, enabling = feed.worker.ask(ASKED), feed.worker.ask(EnableRequest("vm-a"))
        feed.worker.tell(PollReport({"a": HOUR_MS, "b": HOUR_MS}))
        feed.worker.tell(PollReport({"a": 0}))
        feed.worker.ask(ASKED).cancel()
        await asyncio.sleep(0)
        await feed.restart_server()
        assert (await waiting).accepted
        assert (await enabling).accepted
        await until(lambda: len(feed.control.groups) == 2)
        ages_ms = dict(zip(feed.control.groups, feed.control.ages_ms, strict=True))
        assert ages_ms[frozenset("a")] < HOUR_MS <= ages_ms[frozenset("b")], "F-5: when it asked"
        assert len(feed.control.approvals) == 1
        assert feed.told == [WHOLE, WHOLE]
        await feed.stop()

    run(story())


def test_worker_that_stops_fails_what_waits(feed: Feed) -> None:
    """Requests without an answer fail in the end, none is called approved. Source: A-6."""

    async def story() -> None:
        await feed.start()
        await feed.lose()
        approving = feed.worker.ask(ASKED)
        await feed.worker.stop()
        with pytest.raises(FeedLost):
            await approving

    run(story())


@pytest.mark.parametrize(
    "line",
    [b"x", b'{"type":"part"', b'{"type":"fly"}', b'{"type":"hello","name":"n"}'],
)
def test_peer_that_talks_nonsense_is_hung_up_on(feed: Feed, line: bytes) -> None:
    """The service hangs up on nonsense, and the worker comes back. Source: L-7."""

    async def story() -> None:
        await feed.start()
        feed.worker._writer.write(line + b"\n")  # type: ignore[union-attr]
        await until(lambda: not feed.worker.followed.is_set())
        await feed.worker.followed.wait()
        await feed.stop()

    run(story())


def test_worker_that_is_away_still_counts(feed: Feed) -> None:
    """It may serve what it had, until it is known to be over. M-4, L-7."""

    async def story() -> None:
        await feed.start()
        assert await feed.server.confirmed(1, LIMIT_S) == ()
        await feed.worker.stop()
        feed.server.apply(DocumentChange(2, publications=(publication(2),)))
        assert await feed.server.confirmed(2, 0.01) == ("worker",)
        overdue = feed.server.confirmed(2, LIMIT_S)
        feed.server.nodes.dismiss("worker")
        assert await overdue == ()
        await feed.server.stop()

    run(story())


def test_worker_that_reads_too_slowly_is_sent_everything_again(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for it is bounded, and nothing is missing in the end. Source: M-1."""
    monkeypatch.setattr(worker_streams, "BEHIND_BYTES_MAX", 2000)

    async def story() -> None:
        await feed.start()
        for sequence in range(2, 30):
            feed.server.apply(DocumentChange(sequence, publications=(publication(sequence),)))
        assert await feed.server.confirmed(29, LIMIT_S) == ()
        last = feed.told[-1]
        assert (last.whole, last.publications) == (True, (publication(29),))
        await feed.stop()

    run(story())


@pytest.mark.slow
def test_large_fleet_is_taken_over_in_parts(feed: Feed) -> None:
    """A whole beyond 64 MiB reaches a worker, with what changes meanwhile in order. M-1."""
    facts: dict[str, Fact] = {"tags": "x" * 1000}
    callers = tuple(msgspec.structs.replace(VM_A, vm=f"vm-{n}", instance=facts) for n in range(BIG))
    whole = DocumentChange(1, whole=True, callers=callers, publications=(publication(1),))

    async def story() -> None:
        feed.server.apply(whole)
        await feed.server.workers.start(feed.path)
        feed.worker.start()
        await until(lambda: feed.server.workers.has("worker"))
        for sequence in range(2, 50):
            feed.server.apply(DocumentChange(sequence, publications=(publication(sequence),)))
            await asyncio.sleep(0)
        await feed.worker.followed.wait()
        assert await feed.server.confirmed(49, LIMIT_S) == ()
        assert len(feed.told[0].callers) == BIG
        numbers = [change.sequence for change in feed.told]
        assert numbers == list(range(numbers[0], 50))
        await feed.stop()

    run(story())


@pytest.mark.parametrize("fails", [1, FAILURES_MAX])
def test_worker_that_fails_at_a_change_does_not_count_as_showing_it(
    tmp_path: Path, fails: int
) -> None:
    """It asks for everything again, and says so once it fails time and again. L-7, M-4."""
    told: list[DocumentChange] = []
    failures = iter([False] + [True] * fails)

    def apply(change: DocumentChange) -> None:
        if next(failures, False):
            raise ValueError("a bug")
        told.append(change)

    async def story() -> None:
        feed = Feed(f"{tmp_path}/feed", apply)
        await feed.start()
        feed.server.apply(DocumentChange(2, publications=(publication(2),)))
        confirmed = feed.server.confirmed(2, LIMIT_S)
        await until(lambda: not feed.worker.followed.is_set())
        assert not confirmed.done()
        assert await confirmed == ()
        assert [(change.sequence, change.whole) for change in told] == [(1, True), (2, True)]
        assert feed.worker.failed.is_set() == (fails == FAILURES_MAX)
        await feed.stop()

    run(story())


def test_worker_that_hangs_is_named(tmp_path: Path) -> None:
    """The service takes it for hung after a silence, and says who it was. Source: L-7."""
    silent: list[str] = []

    async def story() -> None:
        server = FeedServer(Control(), heartbeat_s=0.01)
        server.apply(WHOLE)
        server.workers.when_silent(silent.append)
        await server.workers.start(f"{tmp_path}/feed")
        reader, writer = await connect_unix(f"{tmp_path}/feed")
        writer.write(line_of(Hello("mute")) + line_of(Shown(1)))
        while await reader.readline():
            pass
        await until(lambda: bool(silent))
        assert silent[0] == "mute"
        writer.close()
        await server.stop()

    run(story())


def test_polls_age_on_their_way(tmp_path: Path) -> None:
    """They are as old as what they may have been sent after, in whatever buffer. Source: F-5."""

    async def story() -> None:
        control, loop = Control(), asyncio.get_running_loop()
        server = FeedServer(control, heartbeat_s=0.01)
        await server.workers.start(f"{tmp_path}/feed")
        reader, writer = await connect_unix(f"{tmp_path}/feed")
        writer.write(line_of(Hello("w")))
        while not isinstance(ping := read_to_worker(await reader.readline()), Ping):
            pass
        clock, later_s = loop.time, 5
        loop.time = lambda: clock() + later_s  # type: ignore[method-assign]  # both stood still
        writer.write(line_of(WorkerReport(ping.clock_ms, PollReport({"g": 1000}))))
        await until(lambda: control.ages_ms != [])
        assert control.ages_ms[0] >= 6000
        writer.close()
        await server.stop()

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
        control, path = Control(), f"{tmp_path}/feed"
        server = FeedServer(control)
        server.apply(WHOLE)
        await server.workers.start(path)
        port = free_port()
        workers = [await start_worker(path, port, str(n)) for n in range(2)]
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
        await again.workers.start(path)
        assert (await held)[0] == 200
        workers[0].send_signal(signal.SIGTERM)
        workers[1].stdin.close()  # type: ignore[union-attr]
        assert [await worker.wait() for worker in workers] == [0, 0]
        await again.stop()

    run(story())


#: VMs that no node can take over, one after another; the control plane would not either.
IMPOSSIBLE = tuple(
    msgspec.structs.replace(VM_C, vm=f"vm-{n}", addresses=("fe80::\0",))
    for n in range(FAILURES_MAX)
)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="workers share a port")
def test_worker_that_cannot_show_a_change_ends(tmp_path: Path) -> None:
    """It does not serve for ever what it had: it ends, and counts until that is known. L-7."""

    async def story() -> None:
        server = FeedServer(Control())
        server.apply(WHOLE)
        await server.workers.start(f"{tmp_path}/feed")
        port = free_port()
        worker = await start_worker(f"{tmp_path}/feed", port, "only")
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
        *("-m", "forewarn_metadata.endpoint.worker_process", "--feed", feed),
        *("--listen", f"127.0.0.1:{port}", "--name", name),
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
