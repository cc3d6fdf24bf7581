"""A control plane and a metadata node as processes, with nats-server between them. Source: M-7."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.node_processes import FLEET, Cloud
from tests.e2e.test_metadata_node import event_ids, incarnation
from tests.replication.nats_server import NatsServer
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificates"),
]
SPOOL = "[node]\nmax_spooled_approvals = 10\n"


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """A control plane whose feed is reached over NATS alone; each side has its certificate."""
    cloud = Cloud(tmp_path)
    for end in ("pem", "key"):
        shutil.copy(tmp_path / f"control.{end}", tmp_path / f"server.{end}")
    nats = NatsServer(tmp_path, tls=True, control="localhost")
    serve = tmp_path / "serve.toml"
    over_nats = f'nats = ["{nats.url}"]\nnats_ca = "{tmp_path}/ca.pem"'
    serve.write_text(serve.read_text().replace(f'listen = "127.0.0.1:{cloud.feed}"', over_nats))
    (tmp_path / "spool.toml").write_text(SPOOL)
    cloud.follow = ("--follow", nats.url)
    yield cloud
    cloud.stop()
    nats.kill()


def test_approval_counts_over_nats_and_through_an_outage(cloud: Cloud) -> None:
    """A VM approves; the control plane is killed; the node shows and takes on. M-2, M-3, M-7."""
    control = cloud.control()
    cloud.order("/v1/topology", FLEET, "PUT")
    node = cloud.node("h1", "--config", "spool.toml").serving()
    assert (incarnation(node, "web_0"), incarnation(node, "db_0")) == (0, 0)
    cloud.order("/v1/hosts/h1/update", {})
    [event] = event_ids(node, "web_0")
    assert node.ask("web_0", "POST", {"StartRequests": [{"EventId": event}]})[0] == 200
    [other] = event_ids(node, "db_0")
    control.kill()
    node.logged("no control plane is connected")
    assert node.ask("db_0", "POST", {"StartRequests": [{"EventId": other}]})[0] == 200
    cloud.control()
    node.logged("the stored approval of db_0 was delivered: it counts")
    wait_until(lambda: event_ids(node, "web_0") == [])
