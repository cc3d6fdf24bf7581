"""Approvals a node accepts on its own: durable, bounded, delivered, once to effect."""

import asyncio
import errno
import os
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from forewarn_base.protocol.approvals import UnknownEvent
from forewarn_base.protocol.documents import Document
from forewarn_core.requests import ApprovalRequest, RequestAnswer
from forewarn_metadata.replication.messages import DocumentChange, Publication, encoded
from forewarn_metadata.replication.spool import FILE, Spool
from tests.metadata.feeds import run, until
from tests.metadata.live import FREEZE, PREEMPT
from tests.replication.rig import WHOLE, Feed, Node, caller, shown

OWN = ApprovalRequest("web_0", (FREEZE.event_id,), "10.0.0.1")
ACCEPTED = RequestAnswer(accepted=True)


def spool_of(node: Node, *, size_max: int = 10) -> Spool:
    """Let a node accept approvals."""
    return Spool(node.feed_client, node.store.files, size_max=size_max)


async def away(directory: Path) -> tuple[Feed, Node, Spool]:
    """Return a node whose control plane has just gone away."""
    feed = await Feed(directory).start()
    node = await feed.node("n1")
    spool = spool_of(node)
    await feed.stop()
    await until(lambda: not node.feed_client.followed.is_set())
    return feed, node, spool


def test_approval_outlives_node_and_outage(tmp_path: Path) -> None:
    """What was answered 200 is delivered once the control plane is back. Source: M-3, A-6."""

    async def story() -> None:
        feed, node, spool = await away(tmp_path)
        assert [await spool.ask(OWN), await spool.ask(OWN)] == [ACCEPTED] * 2
        await spool.stop()
        await node.stop()
        await feed.restart(WHOLE)
        node = Node(feed.address, "n1", tmp_path)
        node.feed_client.take_up()
        spool = spool_of(node)
        assert spool.waiting == 1
        node.feed_client.start()
        await until(lambda: spool.waiting == 0)
        assert feed.control.approvals == [OWN]
        assert (tmp_path / "n1" / FILE).stat().st_size == 0
        await spool.stop()
        await node.stop()
        await feed.stop()

    run(story())


@pytest.mark.parametrize("shown", [True, False], ids=["was-shown-it", "never-was-there"])
def test_approval_of_a_vm_that_moved_away_is_judged_by_where_it_was(
    tmp_path: Path, *, shown: bool
) -> None:
    """It counts after a restart of both, if the VM was there; else it waits no more. M-3, M-5."""

    async def story() -> None:
        feed, node, spool = await away(tmp_path)
        other = ApprovalRequest("db_0", OWN.event_ids, "10.0.0.2")
        assert [await spool.ask(OWN), await spool.ask(other)] == [ACCEPTED] * 2
        await spool.stop()
        await node.stop()
        if shown:
            feed.control.left.add((OWN.vm, frozenset({"h1"})))
        moved = replace(WHOLE, sequence=2, callers=(caller("web_0", "h2"), *WHOLE.callers[1:]))
        await feed.restart(moved)
        node = Node(feed.address, "n1", tmp_path)
        node.feed_client.take_up()
        spool = spool_of(node)
        node.feed_client.start()
        await until(lambda: spool.waiting == 0)
        assert feed.control.approvals == ([OWN] if shown else []) + [other]
        assert len(feed.server.troubles().refused) == (not shown)
        await spool.stop()
        await node.stop()
        await feed.stop()

    run(story())


def test_approval_that_cannot_be_handed_on_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control plane fails at one for now: those behind it are delivered. Source: M-3."""
    monkeypatch.setattr("forewarn_metadata.replication.spool.RETRY_S", 0.0)

    async def story() -> None:
        feed, node, spool = await away(tmp_path)
        other = ApprovalRequest("db_0", OWN.event_ids, "10.0.0.2")
        assert [await spool.ask(OWN), await spool.ask(other)] == [ACCEPTED] * 2
        feed.control.failing.add(OWN.vm)
        await feed.restart(WHOLE)
        await until(lambda: spool.waiting == 1)
        assert feed.control.approvals == [other]
        assert (tmp_path / "n1" / FILE).stat().st_size > 0, "it outlasts a restart"
        feed.control.failing.clear()
        await until(lambda: spool.waiting == 0)
        assert feed.control.approvals == [other, OWN]
        await spool.stop()
        await node.stop()
        await feed.stop()

    run(story())


def test_approval_under_way_is_taken_over(tmp_path: Path) -> None:
    """The control plane dies before it has answered: the node answers. Source: M-3."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        feed.control.answer = None
        node = await feed.node("n1")
        spool = spool_of(node)
        asked = spool.ask(OWN)
        await until(lambda: feed.control.approvals != [])
        await feed.stop()
        assert await asked == ACCEPTED
        assert spool.waiting == 1
        await spool.stop()
        await node.stop()

    run(story())


@pytest.mark.parametrize(
    "request_",
    [
        ApprovalRequest("db_9", OWN.event_ids, ""),
        ApprovalRequest("web_1", OWN.event_ids, ""),
        ApprovalRequest("web_0", ("NONE",), ""),
    ],
    ids=["nobody", "foreign", "no-event"],
)
def test_node_accepts_only_what_its_vms_are_shown(
    tmp_path: Path, request_: ApprovalRequest
) -> None:
    """It refuses what the control plane would refuse, in its words. Source: A-3, S-4, M-5."""

    async def story() -> None:
        _, node, spool = await away(tmp_path)
        error = str(UnknownEvent(event_id=request_.event_ids[0]))
        assert await spool.ask(request_) == RequestAnswer(accepted=False, error=error)
        assert spool.waiting == 0
        await spool.stop()
        await node.stop()

    run(story())


def test_node_accepts_no_event_of_another_document(tmp_path: Path) -> None:
    """An event that other VMs of the node are shown is unknown to this VM. Source: S-4, M-3."""

    async def story() -> None:
        other = Publication("db", enabled=True, document=Document(1, (PREEMPT,)))
        whole = replace(WHOLE, publications=(shown("web", 1), other))
        feed = await Feed(tmp_path).start(whole)
        node = await feed.node("n1")
        spool = spool_of(node)
        await feed.stop()
        await until(lambda: not node.feed_client.followed.is_set())
        answers = [
            (await spool.ask(ApprovalRequest(vm, (PREEMPT.event_id,), ""))).accepted
            for vm in ("web_0", "db_0")
        ]
        assert answers == [False, True], f"S-4: web_0 and db_0 approve an event of db: {answers}"
        await spool.stop()
        await node.stop()

    run(story())


def test_full_spool_accepts_nothing(tmp_path: Path) -> None:
    """Bounded: beyond that nobody is told 200. Source: M-3."""

    async def story() -> None:
        _, node, spool = await away(tmp_path)
        spool._size_max = 1
        other = ApprovalRequest("db_0", OWN.event_ids, "")
        assert await spool.ask(OWN) == ACCEPTED
        assert spool.ask(other).cancelled()
        await spool.stop()
        await node.stop()

    run(story())


def test_full_disk_accepts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An approval that is not on the disk is not answered 200. Source: M-3, A-6."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def story() -> None:
        _, node, spool = await away(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr("forewarn_metadata.replication.node_files.os.fsync", full)
            assert spool.ask(OWN).cancelled()
        assert spool.waiting == 0
        assert (tmp_path / "n1" / FILE).stat().st_size == 0
        assert await spool.ask(OWN) == ACCEPTED
        await spool.stop()
        again = spool_of(node)
        assert again.waiting == 1
        await again.stop()
        await node.stop()

    run(story())


def test_half_a_line_was_never_answered(tmp_path: Path) -> None:
    """A crash while an approval is written leaves those before it. Source: M-3."""

    async def story() -> None:
        _, node, spool = await away(tmp_path)
        assert await spool.ask(OWN) == ACCEPTED
        await spool.stop()
        path = tmp_path / "n1" / FILE
        path.write_bytes(path.read_bytes() + b'{"type":"app')
        again = spool_of(node)
        assert again.waiting == 1
        assert path.read_bytes().count(b"\n") == 1
        await again.stop()
        await node.stop()

    run(story())


def test_approval_goes_to_the_control_plane_while_it_is_there(tmp_path: Path) -> None:
    """A node accepts nothing on its own then, and what came too late is let go. Source: M-3."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        feed.control.answer = RequestAnswer(accepted=False, error="late")
        node = await feed.node("n1")
        spool = spool_of(node)
        assert await spool.ask(OWN) == feed.control.answer
        assert spool.waiting == 0
        assert await feed.shows(DocumentChange(2, publications=(shown("db", 2),))) == ()
        await spool.stop()
        await node.stop()
        await feed.stop()

    run(story())


def test_what_was_written_and_not_synced_is_synced_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process killed between the two leaves a line that a loss of power takes. Source: M-3."""
    synced: list[int] = []

    async def story() -> None:
        _, node, spool = await away(tmp_path)
        assert await spool.ask(OWN) == ACCEPTED
        await spool.stop()
        with monkeypatch.context() as patch:
            patch.setattr("forewarn_metadata.replication.node_files.os.fsync", synced.append)
            again = spool_of(node)
        assert synced
        assert await again.ask(OWN) == ACCEPTED
        assert (tmp_path / "n1" / FILE).read_bytes().count(b"\n") == 1
        await again.stop()
        await node.stop()

    run(story())


def test_approval_of_a_node_with_the_earlier_feed_is_delivered(tmp_path: Path) -> None:
    """It was answered 200 before the node was upgraded. Source: M-3, H-8."""
    (tmp_path / "n1").mkdir()
    line = f'["approve",0,["web_0",["{FREEZE.event_id}"],"10.0.0.1",["10.0.0.1","",""]]]\n'
    (tmp_path / "n1" / FILE).write_text(line)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = Node(feed.address, "n1", tmp_path)
        spool = spool_of(node)
        node.feed_client.start()
        await until(lambda: spool.waiting == 0)
        assert [request.vm for request in feed.control.approvals] == ["web_0"]
        await spool.stop()
        await node.stop()
        await feed.stop()

    run(story())


def test_repeated_request_with_one_key_is_asked_once(tmp_path: Path) -> None:
    """The connection ended before its answer: the repetition gets the same one. Source: M-3."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        post = partial(
            feed.http,
            "n1",
            method="POST",
            body=encoded(OWN),
            instance="i",
            Idempotency_Key="key-1",
        )
        answers = await asyncio.gather(post(), post())
        assert [answer.status for answer in answers] == [200, 200]
        assert (await post()).body == answers[0].body
        assert feed.control.approvals == [OWN]
        await feed.stop()

    run(story())
