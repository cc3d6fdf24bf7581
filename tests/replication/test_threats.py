"""What somebody with bad intentions meets on the feed; docs/explanation/nodes.md lists it all."""

import asyncio
import contextlib
import logging
import shutil
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forewarn.replication import node_session, nodes, server
from forewarn.replication.access import NodeAccess, TlsFiles
from forewarn.replication.feed_client import connect
from forewarn.replication.messages import (
    ApprovalRequest,
    ApproveMessage,
    Follow,
    PollMessage,
    Pong,
    line_of,
)
from forewarn.replication.server import FeedServer
from forewarn.replication.tls import TlsFilesInvalid, client_context, server_context
from forewarn.service.metadata_node import check_node
from forewarn.service.settings_check import check_settings
from forewarn.settings import FeedSettings, NodeSettings, SettingInvalid, Settings
from tests.e2e.certificates import make_certificates
from tests.metadata.feeds import run, until
from tests.metadata.live import Control
from tests.replication.rig import WHOLE, Feed, token_of

NODE = NodeSettings(follow="127.0.0.1:1", store="/nowhere", token="t")


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the connection ends, however it does."""
    with contextlib.suppress(OSError):
        return await reader.read()
    return b""


async def said_to(address: str, tls: ssl.SSLContext) -> bytes:
    """Return what a node is told there, and by whom it would follow."""
    try:
        reader, writer = await connect(address, tls)
    except OSError:
        return b""
    writer.write(line_of(Follow("h1")))
    said = await rest_of(reader)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return said


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
        server = FeedServer(Control(), access=NodeAccess(["*"]))
        server.apply(WHOLE)
        address = await server.start_network("127.0.0.1:0", server_context(files))
        ca = str(ours / "ca.pem")
        mine = TlsFiles(str(ours / "h1.pem"), str(ours / "h1.key"), ca)
        tls = client_context(mine)
        assert await said_to(address.replace("127.0.0.1", "localhost"), tls) == b""
        assert server.connected == 0
        await server.stop()

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
        FeedSettings(nats=("nats://10.0.0.1:4222",)),
        FeedSettings(nats=("127.0.0.1:4222",)),
    ],
    ids=["no-tls", "no-key", "no-hosts", "no-address", "nats-no-tls", "nats-no-scheme"],
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
        {"follow": "nats://127.0.0.1:4222,127.0.0.1:1"},
        {"follow": "nats://127.0.0.1:4222", "name": "h1..example"},
    ],
    ids=["follow", "store", "tls", "key", "proof", "hosts", "nats-tls", "nats-mixed", "subject"],
)
def test_node_needs_protection_beyond_this_machine(wrong: dict[str, Any]) -> None:
    """A node sends its token to nobody it does not know. Source: M-5."""
    check_node(Settings(node=NODE))
    with pytest.raises(SettingInvalid):
        check_node(Settings(node=replace(NODE, **wrong)))


@pytest.mark.parametrize("how", ["requests", "line", "rubbish", "twice"])
def test_flood_ends_the_connection(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a node may ask at a time, and how long a line may be, is bounded. Source: M-5."""
    monkeypatch.setattr(node_session, "REQUESTS_MAX", 10)
    hello = line_of(Follow("n1", token=token_of("n1")))
    asked = line_of(ApproveMessage(1, ApprovalRequest("web_0", ("A",), "")))
    flood = {
        "requests": asked * 11,
        "line": b"x" * (2 * node_session.ASKED_LINE_BYTES_MAX),
        "rubbish": b'["start"]\n',
        "twice": hello,
    }

    async def story() -> None:
        feed = Feed(tmp_path)
        feed.control.answer = None
        await feed.start()
        reader, writer = await connect(feed.address)
        writer.write(hello)
        await until(lambda: feed.server.connected == 1)
        writer.write(flood[how])
        await rest_of(reader)
        await until(lambda: feed.server.connected == 0)
        assert len(feed.control.approvals) <= 10
        writer.close()
        await feed.server.stop()

    run(story())


def test_silent_connections_keep_no_node_out(tmp_path: Path) -> None:
    """Who has not proved a name holds no place of a node. Source: M-5."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        silent = [await connect(feed.address) for _ in range(16 * server.UNPROVED_MAX)]
        node = await feed.node("n1")
        assert feed.server.connected == 1
        for _, writer in silent:
            writer.transport.abort()
        await node.stop()
        await feed.server.stop()

    run(story())


def test_node_beyond_the_limit_is_refused_where_people_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named to operators, and its own process says why it shows nothing. Source: M-6."""
    monkeypatch.setattr(server, "NODES_MAX", 1)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        node = await feed.node("n1")
        reader, writer = await connect(feed.address)
        writer.write(line_of(Follow("n2", token=token_of("n2"))))
        assert b"1 nodes are connected" in await rest_of(reader)
        assert any("n2" in text for text in feed.server.troubles().refused)
        writer.close()
        await node.stop()
        await feed.server.stop()

    run(story())


@pytest.mark.parametrize("first", [b"", b"x" * (node_session.GREETING_BYTES_MAX + 1)])
def test_first_line_is_short_and_comes_soon(
    tmp_path: Path, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept for a name that is not proved. Source: M-5."""
    monkeypatch.setattr(server, "GREETING_S_MAX", 0.05 if not first else 60)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        reader, writer = await connect(feed.address)
        writer.write(first)
        assert await rest_of(reader) == b""
        writer.close()
        await feed.server.stop()

    run(story())


def test_guessed_tokens_are_limited(tmp_path: Path) -> None:
    """Above the limit a token is not looked at, but for nodes that came from there. Source: M-5."""

    async def told(feed: Feed, name: str, token: str) -> bytes:
        reader, writer = await connect(feed.address)
        writer.write(line_of(Follow(name, token=token)))
        line = await reader.readline()
        writer.transport.abort()
        return line

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        assert b"start" in await told(feed, "n1", token_of("n1"))
        for _ in range(20):
            assert b"no certificate or token" in await told(feed, "n2", "guess")
        assert b"too many wrong tokens" in await told(feed, "n2", token_of("n2"))
        assert b"start" in await told(feed, "n1", token_of("n1"))
        await feed.server.stop()

    run(story())


def test_node_is_cut_off_when_its_token_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a node was given is good until it is revoked, not until it leaves. Source: P-4."""

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        reader, writer = await connect(feed.address)
        writer.write(line_of(Follow("n1", token=token_of("n1"))))
        await until(lambda: feed.server.connected == 1)
        assert feed.server._access is not None
        monkeypatch.setattr(feed.server._access, "prove", lambda *_: False)
        async with asyncio.timeout(5):
            assert b"the node's token is no longer valid" in await rest_of(reader)
        writer.close()
        await feed.server.stop()

    run(story())


@pytest.mark.parametrize("said", [Pong(), PollMessage(("db",))], ids=["pong", "polled"])
def test_node_that_never_stops_is_cut_off(
    tmp_path: Path,
    said: Pong | PollMessage,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may say so much, on all its connections; the log has a line of it. Source: M-5."""
    monkeypatch.setattr(nodes, "COST_MAX", 100)
    monkeypatch.setattr(nodes, "COST_PER_S", 1)

    async def story() -> None:
        feed = await Feed(tmp_path).start()
        for _ in range(9):
            reader, writer = await connect(feed.address)
            writer.write(line_of(Follow("n2", token=token_of("n2"))) + line_of(said) * 200)
            await rest_of(reader)
            writer.close()
        assert len(feed.control.groups) <= 100
        await feed.server.stop()

    with caplog.at_level(logging.WARNING):
        run(story())
    assert len({each.getMessage() for each in caplog.records}) == len(caplog.records) <= 2
