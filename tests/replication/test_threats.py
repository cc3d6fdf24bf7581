"""What somebody with bad intentions meets on the feed; docs/explanation/nodes.md lists it all."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from forewarn.replication import node_session
from forewarn.replication.access import NodeAccess, TlsFiles
from forewarn.replication.messages import (
    ApprovalRequest,
    ApproveMessage,
    Follow,
    line_of,
)
from forewarn.replication.route import connect
from forewarn.replication.server import FeedServer
from forewarn.replication.tls import TlsFilesInvalid, client_context, server_context
from forewarn.service.metadata_node import check_node
from forewarn.service.settings_check import check_settings
from forewarn.settings import FeedSettings, NodeSettings, SettingInvalid, Settings
from tests.e2e.certificates import make_certificates
from tests.metadata.feeds import run, until
from tests.metadata.live import Control
from tests.replication.rig import WHOLE, Feed

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

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
@pytest.mark.parametrize("impostor", ["other-authority", "other-name", "nobody"])
def test_node_follows_no_impostor(tmp_path: Path, impostor: str) -> None:
    """Who cannot prove to be the control plane cannot tell a node anything. Source: M-5."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for directory in (ours, theirs):
        directory.mkdir()
        make_certificates(directory, control="DNS:localhost", evil="DNS:elsewhere", h1="DNS:h1")
    made = {"other-authority": theirs / "control", "other-name": ours / "evil"}.get(
        impostor, ours / "control"
    )
    files = TlsFiles(f"{made}.pem", f"{made}.key", str(ours / "ca.pem"))

    async def story() -> None:
        server = FeedServer(Control(), access=NodeAccess(["*"]))
        server.apply(WHOLE)
        address = await server.start_network("127.0.0.1:0", server_context(files, tokens=False))
        ca = str(ours / "ca.pem")
        mine = TlsFiles(str(ours / "h1.pem"), str(ours / "h1.key"), ca)
        tls = client_context(TlsFiles(ca=ca) if impostor == "nobody" else mine)
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
        FeedSettings(listen="10.0.0.1:8471", tokens=("h1:t",)),
        FeedSettings(listen="127.0.0.1:8471"),
        FeedSettings(listen="127.0.0.1:8471", certificate="a", client_ca="b"),
        FeedSettings(listen="127.0.0.1:8471", tokens=("h1",)),
        FeedSettings(listen="127.0.0.1:8471", tokens=("h1:t",), hosts=("h1",)),
        FeedSettings(listen="everywhere", tokens=("h1:t",)),
    ],
    ids=["no-tls", "no-proof", "no-key", "no-token", "no-hosts", "no-address"],
)
def test_feed_needs_tls_beyond_this_machine(feed: FeedSettings) -> None:
    """Settings by which strangers could read the feed, or nobody, are refused. Source: M-5."""
    with pytest.raises(SettingInvalid):
        check_settings(Settings(feed=feed))


@pytest.mark.parametrize(
    "wrong",
    [{"follow": ""}, {"store": ""}, {"follow": "10.0.0.1:1"}, {"certificate": "a"}, {"token": ""}],
    ids=["follow", "store", "tls", "key", "proof"],
)
def test_node_needs_protection_beyond_this_machine(wrong: dict[str, str]) -> None:
    """A node sends its token to nobody it does not know. Source: M-5."""
    check_node(Settings(node=NODE))
    with pytest.raises(SettingInvalid):
        check_node(Settings(node=replace(NODE, **wrong)))  # type: ignore[arg-type]  # texts all


@pytest.mark.parametrize("how", ["requests", "line", "rubbish", "twice"])
def test_flood_ends_the_connection(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a node may ask at a time, and how long a line may be, is bounded. Source: M-5."""
    monkeypatch.setattr(node_session, "REQUESTS_MAX", 10)
    hello = line_of(Follow("n1", token="t1"))
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
