"""What somebody with bad intentions meets on the feed; docs/explanation/nodes.md lists it all."""

import asyncio
import shutil
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forewarn_base.settings import FeedSettings, NodeSettings, SettingInvalid, Settings
from forewarn_core.requests import ApprovalRequest, RequestAnswer
from forewarn_metadata.replication import nodes, server
from forewarn_metadata.replication.access import NodeAccess, TlsFiles
from forewarn_metadata.replication.feed_client import connect
from forewarn_metadata.replication.http_stream import HttpAnswer
from forewarn_metadata.replication.messages import DocumentChange, encoded
from forewarn_metadata.replication.server import FeedServer
from forewarn_metadata.replication.tls import TlsFilesInvalid, client_context, server_context
from forewarn_server.api import feed_endpoint
from forewarn_server.api.feed_endpoint import FeedPort
from forewarn_server.service.metadata_node import check_node
from forewarn_server.service.settings_check import check_settings
from tests.e2e.certificates import make_certificates
from tests.metadata.feeds import run, until
from tests.metadata.live import Control
from tests.replication.rig import WHOLE, Feed, shown

NODE = NodeSettings(follow="127.0.0.1:1", store="/nowhere", token="t")


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificates")
@pytest.mark.parametrize("impostor", ["other-authority", "other-name"])
def test_node_follows_no_impostor(tmp_path: Path, impostor: str) -> None:
    """Who cannot prove to be the control plane cannot tell a node anything. Source: M-5."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for directory in (ours, theirs):
        directory.mkdir()
        make_certificates(directory, control="DNS:localhost", evil="DNS:elsewhere", h1="DNS:h1")
    made = {"other-authority": theirs / "control", "other-name": ours / "evil"}[impostor]
    files = TlsFiles(f"{made}.pem", f"{made}.key", str(ours / "ca.pem"))

    async def story() -> None:
        server, port = FeedServer(Control(), access=NodeAccess(["*"])), FeedPort()
        server.apply(WHOLE)
        await port.start(server, "127.0.0.1:0", server_context(files))
        mine = TlsFiles(str(ours / "h1.pem"), str(ours / "h1.key"), str(ours / "ca.pem"))
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(port.address.replace("127.0.0.1", "localhost"), client_context(mine))
        assert server.connected == 0
        await server.stop()
        await port.stop()

    run(story())


def test_tls_files_that_are_none_are_named(tmp_path: Path) -> None:
    """A certificate that cannot be read is said to be so. Source: M-5."""
    with pytest.raises(TlsFilesInvalid, match=r"nothing\.pem cannot be used"):
        client_context(TlsFiles(ca=str(tmp_path / "nothing.pem")))


@pytest.mark.parametrize(
    "feed",
    [
        FeedSettings(listen="10.0.0.1:8471"),
        FeedSettings(listen="127.0.0.1:8471", certificate="a", client_ca="b"),
        FeedSettings(listen="127.0.0.1:8471", hosts=("h1",)),
        FeedSettings(listen="everywhere"),
    ],
    ids=["no-tls", "no-key", "no-hosts", "no-address"],
)
def test_feed_needs_tls_beyond_this_machine(feed: FeedSettings) -> None:
    """Settings by which strangers could read the feed, or nobody, are refused. Source: M-5."""
    with pytest.raises(SettingInvalid):
        check_settings(Settings(feed=feed))


@pytest.mark.parametrize(
    "wrong",
    [
        {"follow": ""},
        {"store": ""},
        {"follow": "10.0.0.1:1"},
        {"certificate": "a"},
        {"token": ""},
        {"hosts": ("h" * 2049,)},
        {"follow": "nats://10.0.0.1:4222"},
        {"follow": "unix:/run/feed"},
    ],
    ids=["follow", "store", "tls", "key", "proof", "hosts", "nats", "unix"],
)
def test_node_needs_protection_beyond_this_machine(wrong: dict[str, Any]) -> None:
    """A node sends its token to nobody it does not know. Source: M-5."""
    check_node(Settings(node=NODE))
    with pytest.raises(SettingInvalid):
        check_node(Settings(node=replace(NODE, **wrong)))


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"x" * (2 * feed_endpoint.BODY_BYTES_MAX), 413), (b'{"type":"start"}', 400), (b"[", 400)],
    ids=["long", "rubbish", "half"],
)
def test_body_that_is_too_long_or_no_request_is_refused(
    tmp_path: Path, body: bytes, status: int
) -> None:
    """Nothing of it reaches the control plane. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        answer = await feed.http("n1", method="POST", body=body, instance="i")
        assert answer.status == status
        assert feed.control.approvals == []
        await feed.stop()

    run(story())


def test_requests_of_a_node_at_a_time_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood is refused, and costs nothing. Source: M-5."""
    monkeypatch.setattr(server, "REQUESTS_MAX", 3)
    asked = encoded(ApprovalRequest("web_0", ("A",), ""))

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        feed.control.answer = None

        def post(number: int) -> asyncio.Task[HttpAnswer]:
            posting = feed.http(
                "n1", method="POST", body=asked, instance="i", Idempotency_Key=str(number)
            )
            return asyncio.ensure_future(posting)

        held = [post(number) for number in range(3)]
        await until(lambda: len(feed.control.waiting) == 3)
        assert (await post(3)).status == 429
        for future in feed.control.waiting:
            future.set_result(RequestAnswer(accepted=True))
        assert [(await each).status for each in held] == [200] * 3
        await feed.stop()

    run(story())


def test_silent_connections_keep_no_node_out(tmp_path: Path) -> None:
    """Who has not proved a name holds no place of a node. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        silent = [await connect(feed.address) for _ in range(8 * feed_endpoint.UNPROVED_MAX)]
        node = await feed.node("n1")
        assert feed.server.connected == 1
        for _, writer in silent:
            writer.transport.abort()
        await node.stop()
        await feed.stop()

    run(story())


def test_node_beyond_the_limit_is_refused_where_people_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named to operators, and its own process says why it shows nothing. Source: M-6."""
    monkeypatch.setattr(server, "NODES_MAX", 1)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")
        assert b"1 nodes are connected" in (await feed.http("n2", instance="i")).body
        assert any("n2" in text for text in feed.server.troubles().refused)
        await node.stop()
        await feed.stop()

    run(story())


def test_guessed_tokens_are_limited(tmp_path: Path) -> None:
    """Above the limit a token is not looked at, but for nodes that came from there. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        assert (await feed.http("n1", instance="i")).status == 200
        for _ in range(20):
            assert b"no certificate or token" in (await feed.http("n2", token="guess")).body
        assert b"too many wrong tokens" in (await feed.http("n2", instance="i")).body
        assert (await feed.http("n1", instance="i")).status == 200
        await feed.stop()

    run(story())


def test_waiting_node_is_shown_nothing_once_its_token_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a node was given is good until it is revoked, not until it leaves. Source: P-4."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        tag = (await feed.http("n1", instance="i")).headers["etag"]
        waiting = asyncio.ensure_future(
            feed.http("n1", query="?wait=25", instance="i", If_None_Match=tag)
        )
        await until(lambda: any(each.waiting for each in feed.server._connected.values()))
        assert feed.server.access is not None
        monkeypatch.setattr(feed.server.access, "prove", lambda *_: False)
        feed.server.apply(DocumentChange(2, publications=(shown("db", 2),)))
        answer = await waiting
        assert (answer.status, b"no longer valid" in answer.body) == (403, True)
        await feed.stop()

    run(story())


def test_node_that_never_stops_is_slowed_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may ask so much, on all its connections. Source: M-5."""
    monkeypatch.setattr(nodes, "COST_MAX", 50)
    monkeypatch.setattr(nodes, "COST_PER_S", 1)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        answers = [await feed.http("n2", instance="i") for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 429, 429, 429]
        assert answers[-1].headers["retry-after"] == "1"
        await feed.stop()

    run(story())
