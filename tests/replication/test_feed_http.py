"""The feed by HTTP: parts, tags, confirmations, waits, and who may read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from forewarn_core.requests import EnableRequest
from forewarn_metadata.replication import feed_client, server
from forewarn_metadata.replication.feed_client import FeedClient, FeedRoute, NodeIdentity, connect
from forewarn_metadata.replication.feed_tag import FeedTag, read_tag
from forewarn_metadata.replication.http_stream import HttpStream, Streams
from forewarn_metadata.replication.messages import (
    PART_BYTES_MAX,
    DocumentChange,
    FeedUnreadable,
    PollReport,
    encoded,
)
from forewarn_metadata.replication.pace import (
    CLOCK,
    INSTANCE,
    PACE,
    FeedPace,
    pace_for,
    read_pace,
)
from forewarn_metadata.replication.scopes import digest_of
from forewarn_metadata.replication.server import StoreHistory
from tests.metadata.feeds import run, until
from tests.replication.rig import DB_0, READER, WEB_0, WEB_1, WHOLE, Feed, Node, shown, token_of
from tests.waiting import LIMIT_S

DB_2 = DocumentChange(2, publications=(shown("db", 2),))
WEB_2 = DocumentChange(2, publications=(shown("web", 2),))
ONLY_N2 = DocumentChange(1, whole=True, callers=(WEB_1,), publications=(shown("web", 1),))


def test_part_has_a_tag_and_is_not_sent_again(tmp_path: Path) -> None:
    """An equal tag gets 304; after a change, the whole part of the node and no other. M-1."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        first = await feed.http("n1", instance="i")
        body = json.loads(first.body)
        assert first.status == 200
        assert [vm["vm"] for vm in body["vms"]] == ["db_0", "web_0"]
        assert [each["view"] for each in body["documents"]] == ["db", "web"]
        tag = first.headers["etag"]
        again = await feed.http("n1", instance="i", If_None_Match=tag)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        feed.server.apply(DB_2)
        assert (await feed.http("n1", instance="i", If_None_Match=tag)).status == 200
        other = await feed.http("n2", instance="i")
        assert [vm["vm"] for vm in json.loads(other.body)["vms"]] == ["web_1"]
        await feed.stop()

    run(story())


def test_node_keeps_its_connection_after_an_answer_without_a_part(tmp_path: Path) -> None:
    """With TLS a new connection for each long poll would cost a handshake."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        stream = HttpStream(await connect(feed.address), feed.address, PART_BYTES_MAX)
        headers = {"Authorization": f"Bearer {token_of('n1')}", INSTANCE: "i"}
        first = await stream.exchange("GET", "/feed/n1", headers)
        headers["If-None-Match"] = first.headers["etag"]
        for _ in range(2):
            assert (await stream.exchange("GET", "/feed/n1", headers)).status == 304
            assert stream.usable
        stream.close()
        await feed.stop()

    run(story())


def test_node_waits_longer_for_each_slow_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a rush of nodes a connection takes long; one that is given up too soon is in vain."""
    monkeypatch.setattr(feed_client, "PATIENCE_S", 1e-9)
    monkeypatch.setattr(feed_client, "RETRY_S", 1e-4)
    monkeypatch.setattr(feed_client, "RETRY_S_MAX", 1e-3)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")
        await node.stop()
        await feed.stop()

    run(story())


def test_next_request_confirms_what_the_node_shows(tmp_path: Path) -> None:
    """Neither the answer nor a person's request does, and not the process before. M-4."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        concerned = feed.server.apply(DB_2)
        assert concerned == frozenset({"n1"})
        waits = feed.server.confirmed(2, LIMIT_S, concerned)
        tag = (await feed.http("n1", instance="i")).headers["etag"]
        await feed.http("n1", token=READER, If_None_Match=tag)
        await feed.http("n1", If_None_Match=tag)
        assert not waits.done()
        await feed.http("n1", instance="i", If_None_Match=tag)
        assert await waits == ()
        await feed.stop()

    run(story())


def test_waiting_node_is_answered_at_a_change_and_at_the_end_of_its_wait(tmp_path: Path) -> None:
    """Its own changes alone end the wait. Source: M-1, M-6."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        tag = (await feed.http("n2", instance="i")).headers["etag"]
        late = await feed.http("n2", query="?wait=0.05", instance="i", If_None_Match=tag)
        assert late.status == 304
        poll = feed.http("n2", query="?wait=25", instance="i", If_None_Match=tag)
        waiting = asyncio.ensure_future(poll)
        await until(lambda: any(each.waiting for each in feed.server._connected.values()))
        feed.server.apply(DB_2)
        await asyncio.sleep(0)
        assert not waiting.done()
        feed.server.apply(DocumentChange(3, publications=(shown("web", 2),)))
        answer = await waiting
        assert (answer.status, read_tag(answer.headers["etag"]).sequence) == (200, 3)
        await feed.stop()

    run(story())


def test_person_reads_a_part_and_counts_as_nobody(tmp_path: Path) -> None:
    """`curl` with a token for the fleet, or with the node's, follows nothing. M-4, M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        assert (await feed.http("n1", token=READER)).status == 200
        assert (await feed.http("n1")).status == 200
        assert (await feed.http("n9", token=READER)).status == 403
        assert (await feed.http("n1", token=READER, instance="i")).status == 403
        assert (await feed.http("n1", method="POST", body=b"{}")).status == 404
        assert (feed.server.connected, feed.server.nodes.names) == (0, ())
        await feed.stop()

    run(story())


def test_person_reads_no_part_of_a_name_that_nothing_has(tmp_path: Path) -> None:
    """With a node for each host, an empty part would look like a host without VMs. M-5."""

    async def story() -> None:
        feed = Feed(tmp_path)
        feed.hosts = ("*",)
        await feed.restart(WHOLE)
        assert (await feed.http("h1", token=READER)).status == 200
        assert (await feed.http("h77", token=READER)).status == 403
        await feed.stop()

    run(story())


def test_unproved_callers_leave_one_sentence_of_our_own(tmp_path: Path) -> None:
    """Otherwise anybody who reaches the port could fill what operators read. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        for number in range(5):
            assert (await feed.http(f"n{number}-is-mine", token="x")).status == 403
        [told] = feed.server.troubles().refused
        assert told == (
            "A caller at the feed is refused: no certificate or token proves the node's name."
        )
        await feed.stop()

    run(story())


def test_person_does_not_change_which_hosts_a_node_serves(tmp_path: Path) -> None:
    """Otherwise the waiting node would confirm a change that it was not sent. Source: M-4."""

    async def story() -> None:
        feed = await Feed(tmp_path).start(ONLY_N2)
        tag = (await feed.http("n2", query="?hosts=h2", instance="i")).headers["etag"]
        await feed.http("n2", query="?hosts=h2", instance="i", If_None_Match=tag)
        poll = feed.http("n2", query="?hosts=h2&wait=25", instance="i", If_None_Match=tag)
        waiting = asyncio.ensure_future(poll)
        await until(lambda: any(each.waiting for each in feed.server._connected.values()))
        assert (await feed.http("n2", token=READER)).headers["etag"] == tag
        concerned = feed.server.apply(WEB_2)
        waits = feed.server.confirmed(2, LIMIT_S, concerned)
        assert (await waiting).status == 200
        assert not waits.done()
        await feed.stop()

    run(story())


def test_refused_clone_does_not_change_which_hosts_a_node_serves(tmp_path: Path) -> None:
    """A clone that asks for fewer hosts is still refused while the node answers. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start(ONLY_N2)
        node = await feed.node("n2")
        clone = await feed.http("n2", query="?hosts=h3", instance="clone")
        assert (clone.status, b"another machine" in clone.body) == (403, True)
        assert await feed.shows(WEB_2) == ()
        assert node.incarnation("web") == 2
        await node.stop()
        await feed.stop()

    run(story())


def test_request_of_a_node_with_fewer_hosts_keeps_its_feed(tmp_path: Path) -> None:
    """A node states its hosts in its requests for VMs too. Source: M-3, M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start(ONLY_N2)
        node = Node(feed.address, "n2", tmp_path, hosts=("h2",))
        lost: list[None] = []
        node.feed_client.when_lost(lambda: lost.append(None))
        await node.start()
        assert (await feed.ask(node, EnableRequest("web_1"))).accepted
        assert await feed.shows(WEB_2) == ()
        assert (lost, node.incarnation("web")) == ([], 2)
        await node.stop()
        await feed.stop()

    run(story())


def test_key_belongs_to_one_request(tmp_path: Path) -> None:
    """Another request with the key, or without a key, gets no earlier answer. Source: M-3."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()

        async def enable(vm: str, **headers: str) -> int:
            body = encoded(EnableRequest(vm))
            return (await feed.http("n1", method="POST", body=body, instance="i", **headers)).status

        assert await enable("web_0", Idempotency_Key="k") == 200
        assert await enable("web_0", Idempotency_Key="k") == 200
        assert await enable("db_0", Idempotency_Key="k") == 422
        assert (await enable("web_0"), await enable("db_0")) == (200, 200)
        assert feed.control.enabled == ["web_0", "web_0", "db_0"]
        await feed.stop()

    run(story())


@pytest.mark.skipif(not shutil.which("curl"), reason="curl asks")
def test_curl_reads_a_part(tmp_path: Path) -> None:
    """The how-to shows it. Source: M-1."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        words = ["curl", "-s", "-H", f"Authorization: Bearer {READER}"]
        url = f"http://{feed.address}/feed/n1"
        said = await asyncio.to_thread(subprocess.check_output, [*words, url])
        assert json.loads(said)["vms"][0]["vm"] == "db_0"
        await feed.stop()

    run(story())


def test_answer_waits_until_its_change_is_shown(tmp_path: Path) -> None:
    """A VM that was answered 200 polls the document that says so. Source: A-6, L-7."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")

        def enabled(_vm: str) -> None:
            feed.server.apply(DB_2)

        feed.control.on_enable = enabled
        assert (await feed.ask(node, EnableRequest("db_0"))).accepted
        assert node.incarnation("db") == 2
        await node.stop()
        await feed.stop()

    run(story())


def test_answer_waits_for_the_very_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the answer overtakes the part on another connection. Source: A-6, M-1."""
    monkeypatch.setattr(feed_client, "SHOWN_S_MAX", LIMIT_S)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        wire = await SlowFeed(feed.address).start()
        node = await Node(wire.address, "n1", tmp_path).start()
        wire.parts.clear()

        def changed(_vm: str) -> None:
            feed.server.apply(DB_2)

        feed.control.on_enable = changed
        told: list[int | None] = []
        asked = node.feed_client.ask(EnableRequest("db_0"))
        asked.add_done_callback(lambda _: told.append(node.incarnation("db")))
        await until(lambda: wire.answered > 0)
        await feed.http("n1", instance="another")  # a round trip, in which the node has read it
        wire.parts.set()
        await asked
        await until(lambda: told != [])
        assert told == [2], f"A-6: answered while the node shows {told}, not the change before it"
        await node.stop()
        await wire.stop()
        await feed.stop()

    run(story())


class SlowFeed:
    """A way to a feed on which parts, on the first connection, wait for the test."""

    def __init__(self, feed: str) -> None:
        """Let everything pass, once it is started."""
        self.parts = asyncio.Event()
        self.parts.set()
        #: Bytes of answers on all other connections.
        self.answered = 0
        self.address = ""
        self._feed = feed
        self._open: list[asyncio.Future[None]] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> SlowFeed:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1")
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def stop(self) -> None:
        """Accept nothing more, once the node has left."""
        assert self._server is not None
        self._server.close()
        await asyncio.gather(*self._open)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        has_parts, over = not self._open, asyncio.get_running_loop().create_future()
        self._open.append(over)
        host, _, port = self._feed.rpartition(":")
        answers, requests = await asyncio.open_connection(host, int(port))

        async def hand_on_answers() -> None:
            while octets := await answers.read(65_536):
                if has_parts:
                    await self.parts.wait()
                else:
                    self.answered += len(octets)
                writer.write(octets)

        task = asyncio.get_running_loop().create_task(hand_on_answers())
        with contextlib.suppress(OSError):
            while octets := await reader.read(65_536):
                requests.write(octets)
        task.cancel()
        for each in (requests, writer):
            each.close()
            with contextlib.suppress(OSError):
                await each.wait_closed()
        over.set_result(None)


def test_node_that_equals_its_source_is_sent_nothing(tmp_path: Path) -> None:
    """Another process has other numbers, and the same content. Source: M-1."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")
        assert await feed.shows(DB_2) == ()
        same = (shown("db", 2), shown("web", 1))
        await feed.restart(DocumentChange(9, whole=True, callers=(WEB_0, DB_0), publications=same))
        await until(lambda: feed.server.nodes.counts("n1"))
        assert [change.sequence for change in node.told] == [1, 2]
        assert await feed.shows(DocumentChange(10, publications=(shown("db", 3),))) == ()
        assert node.told[-1].publications == (shown("db", 3),)
        await node.stop()
        await feed.stop()

    run(story())


def test_node_refuses_a_part_that_is_older_or_damaged(tmp_path: Path) -> None:
    """No incarnation goes back, from one feed to another. Source: M-1, L-7."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")
        assert await feed.shows(DB_2) == ()
        client, body = node.feed_client, b'{"vms":[],"documents":[]}'
        with pytest.raises(feed_client.FeedOlder):
            client._take_part(FeedTag("epoch", 1, digest_of(body)), body)
        with pytest.raises(FeedUnreadable):
            client._take_part(FeedTag("epoch", 9, "another"), body)
        assert (node.incarnation("db"), client.sequence) == (2, 2)
        await node.stop()
        await feed.stop()

    run(story())


def test_follower_that_lags_behind_a_node_sends_it_nothing(tmp_path: Path) -> None:
    """It waits for the commit that the node knows. Source: H-4, H-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        tag = FeedTag("epoch", 7, "elsewhere").text()
        behind = await feed.http("n1", instance="i", If_None_Match=tag)
        assert (behind.status, "followed the store" in behind.body.decode()) == (503, True)
        feed.server.record_commit(7)
        caught_up = await feed.http("n1", instance="i", If_None_Match=tag)
        assert (caught_up.status, read_tag(caught_up.headers["etag"]).sequence) == (200, 7)
        await feed.stop()

    run(story())


@pytest.mark.parametrize("shows_it", [False, True], ids=["200", "304"])
def test_node_leaves_information_that_is_old(tmp_path: Path, *, shows_it: bool) -> None:
    """The age is in each answer, also where nothing is new; another one is asked. H-3, H-5."""

    async def story() -> None:
        old, good = await Feed(tmp_path / "a").start(), await Feed(tmp_path / "b").start()
        if shows_it:
            await (await old.node("n1")).stop()
        old.server.state_age(lambda: 60_000)
        assert (await old.http("n1", instance="i")).headers["age"] == "60"
        both = f"{old.address}, {good.address}"
        node = Node(both, "n1", old.directory)
        await node.start()
        followed = node.feed_client.address
        assert followed == good.address, "H-5: the node follows information of 60 s ago"
        await node.stop()
        await old.stop()
        await good.stop()

    run(story())


def test_repeated_whole_of_one_number_is_confirmed_again(tmp_path: Path) -> None:
    """A failed publication is repeated under its number: what was shown before is not it. M-4."""
    again = replace(WHOLE, publications=(shown("web", 1), shown("db", 2)))

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        tag = (await feed.http("n1", instance="i")).headers["etag"]
        await feed.http("n1", instance="i", If_None_Match=tag)
        assert feed.server.nodes.shown("n1") == WHOLE.sequence
        feed.server.apply(again)
        waits = feed.server.confirmed(again.sequence, LIMIT_S, ["n1"])
        assert not waits.done(), "M-4: what the node showed before confirms the repetition"
        new = await feed.http("n1", instance="i", If_None_Match=tag)
        assert (new.status, waits.done()) == (200, False), "M-4: the old tag confirms the new part"
        await feed.http("n1", instance="i", If_None_Match=new.headers["etag"])
        assert await waits == ()
        await feed.stop()

    run(story())


def test_commit_that_the_store_lacks_gets_nothing(tmp_path: Path) -> None:
    """The tag carries the history that the node knows. Source: H-10."""
    heard: list[tuple[str, str]] = []

    async def lacks(commit: str, node: str) -> bool:
        heard.append((commit, node))
        return False

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        feed.server._history = StoreHistory(lambda: "a/commit.7")
        tag = (await feed.http("n1", instance="i")).headers["etag"]
        feed.server._history = StoreHistory(lambda: "a/commit.7", lacks)
        assert (await feed.http("n1", instance="i", If_None_Match=tag)).status == 304
        assert heard == [], "this process said so itself"
        await feed.restart(WHOLE)
        feed.server._history = StoreHistory(check_commit=lacks)
        assert (await feed.http("n1", instance="i", If_None_Match=tag)).status == 503
        assert heard == [("a/commit.7", "n1")]
        await feed.stop()

    run(story())


def test_polls_age_on_their_way(tmp_path: Path) -> None:
    """The node repeats the control plane's clock: what is late is old. Source: F-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        clock = (await feed.http("n1", instance="i")).headers[CLOCK]
        process, _, now_ms = clock.rpartition(".")
        report = encoded(PollReport({"db": 1000}))
        for said in (f"{process}.{int(now_ms) - 5000}", "another.1", ""):
            await feed.http(
                "n1", method="POST", body=report, instance="i", **{CLOCK.replace("-", "_"): said}
            )
        assert feed.control.ages_ms[0] >= 6000
        assert feed.control.ages_ms[1:] == [31_000, 31_000]
        await feed.stop()

    run(story())


def test_poll_keeps_its_age_at_the_node(tmp_path: Path) -> None:
    """What a worker of the node tells late is reported as old as it is. Source: F-5, B-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")
        node.feed_client.tell(PollReport({"db": 600_000}))
        await until(lambda: feed.control.ages_ms != [])
        assert feed.control.ages_ms[0] >= 600_000, f"F-5: reported as {feed.control.ages_ms} ms old"
        await node.stop()
        await feed.stop()

    run(story())


def test_part_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with too many VMs gets an error that names the limit. Source: M-6."""
    monkeypatch.setattr(server, "PART_BYTES_MAX", 100)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        for _ in range(2):
            refused = await feed.http("n1", instance="i")
            assert (refused.status, b"node-part-too-large" in refused.body) == (507, True)
        assert (await feed.http("n1", token=READER)).status == 507
        await feed.stop()

    run(story())


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [("", 5.0), ("wait=7", 7.0), ("wait=nan, x", 5.0), ("wait=1e9", 5.0), ("wait=99", 25.0)],
)
def test_stated_pace_stays_within_limits(text: str, wait_s: float) -> None:
    """Whatever a control plane says, nodes come back, and not all at once. Source: H-5."""
    assert read_pace(text).wait_s == wait_s


def test_pace_depends_on_the_number_of_nodes() -> None:
    """More nodes ask more rarely, and return over a longer time. Source: H-5, M-6."""
    few, many = pace_for(10), pace_for(10_000)
    assert (few.wait_s, few.report_s, few.return_s < 0.1) == (5.0, 1.0, True)
    assert (many.wait_s, many.report_s, many.return_s) == (25.0, 25.0, 10.0)
    assert read_pace(many.text()) == many
    assert pace_for(10_000, is_tls=True).return_s == 25.0


def test_failed_returns_take_the_stated_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of nodes that all try every few seconds would keep it busy with that. H-5."""
    monkeypatch.setattr(feed_client, "RETRY_S", 0.001)
    monkeypatch.setattr(feed_client, "RETRY_S_MAX", 0.002)
    tries_s: list[float] = []

    async def connect(address: str, tls: object) -> Streams:
        assert tls is None
        tries_s.append(asyncio.get_running_loop().time())
        return await feed_client.connect(address)

    async def story() -> None:
        feed = Feed(tmp_path)
        feed.pace = FeedPace(wait_s=25.0, report_s=0.0, return_s=0.5)
        await feed.start()
        route = FeedRoute(connect)
        identity = NodeIdentity("n1", token=token_of("n1"))
        node = FeedClient(feed.address, lambda _: None, identity=identity, route=route)
        node.start()
        await node.followed.wait()
        await feed.stop()
        await until(lambda: len(tries_s) > 3 and tries_s[-1] - tries_s[-2] > 0.1)
        await node.stop()

    run(story())


def test_node_states_its_hosts_in_each_request(tmp_path: Path) -> None:
    """It may serve fewer than it is permitted. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        answer = await feed.http("n2", query="?hosts=h3", instance="i")
        assert json.loads(answer.body) == {"vms": [], "documents": []}
        assert answer.headers[PACE].startswith("wait=")
        await feed.stop()

    run(story())


def test_tag_is_read_as_it_was_written() -> None:
    """Whatever epochs and commits contain; other texts name nothing. Source: M-1."""
    tag = FeedTag('an "epoch".', 12, "ab", "a/b.c%")
    assert read_tag(tag.text()) == read_tag(f"W/{tag.text()}") == tag
    for text in ("", "*", '"a.b"', '"a.x.b.c"', '"' + "a" * 2000 + '"'):
        assert read_tag(text) == FeedTag()
