"""What AKS reports on a node, served to clients on the same machine."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn import Client
from forewarn.agent.cli import main
from forewarn.agent.config import ConfigInvalid, read_config
from forewarn.agent.sdk.dialogue import RequestRejected
from forewarn_base import exit_codes
from forewarn_base.errors import ForewarnError, PeerError
from tests.agent.programs import free_port, running
from tests.agent.test_kubernetes_rights import right_of
from tests.kubernetes.small_cluster import Cluster, served
from tests.waiting import wait_until

PATIENCE_S = 0.5
NODE = "/api/v1/nodes/h1"
ID = "40B7BD88-C56E-44E4-93F6-75CEDACE2869"
SCHEDULED = f"Redeploy Scheduled: Wed, 26 Feb 2025 10:13:13 GMT. EventId: {ID}"
TABLE = """
[kubernetes]
events_listen = "{address}"
node = "{node}"
server = "{url}"
token_file = "{token}"
"""


class Relay:
    """The program that serves a node's events, and a client of it."""

    def __init__(self, directory: Path, url: str, node: str = "h1") -> None:
        """Write its configuration."""
        self.address = f"127.0.0.1:{free_port()}"
        self.endpoint = f"http://{self.address}"
        self.config = directory / "relay.toml"
        self.log = directory / "relay.log"
        (directory / "token").write_text("right")
        self.table = TABLE.format(
            address=self.address, node=node, url=url, token=directory / "token"
        )
        agent = f'[agent]\nhooks_dir = "{directory}/hooks"\n'
        self.config.write_text(agent + self.table)
        words = ("-m", "forewarn.agent", "node-events", "--config", str(self.config))
        self.command = (sys.executable, *words)

    def client(self) -> Client:
        """Return a client that does not wait long for an answer."""
        return Client(self.endpoint, patience_s=PATIENCE_S)

    def seen(self) -> list[tuple[str, str]] | None:
        """Return the types and statuses of the events; None: no answer yet."""
        with self.client() as client:
            try:
                return [(each.event_type, each.status) for each in client.get().events]
            except ForewarnError:
                return None

    def until(self, *events: tuple[str, str]) -> None:
        """Wait until exactly these events are seen."""
        wait_until(lambda: self.seen() == list(events), what=lambda: f"{self.seen()}")


@pytest.fixture
def cluster() -> Cluster:
    """Give a cluster."""
    return Cluster()


@pytest.fixture
def relay(cluster: Cluster, tmp_path: Path) -> Iterator[Relay]:
    """Run the program beside a cluster."""
    with served(cluster) as url:
        made = Relay(tmp_path, url)
        with running(*made.command, log=made.log):
            yield made


def report(cluster: Cluster, message: str, kind: str = "VMEventScheduled") -> None:
    """Report an event as AKS does; without a message there is none any more."""
    condition = {"type": kind, "status": "True" if message else "False", "message": message}
    node = cluster.objects[NODE]
    cluster.put(NODE, **{**node, "status": {"conditions": [condition]}})


def test_client_follows_what_aks_reports(cluster: Cluster, relay: Relay) -> None:
    """From the condition to its end, through a lost watch. Source: K-5."""
    relay.until()
    report(cluster, SCHEDULED)
    relay.until(("Redeploy", "Scheduled"))
    with relay.client() as client:
        before = client.get()
        assert (before.events[0].event_id, before.events[0].resources) == (ID, ("h1",))
        assert client.instance_name() == "h1"
        cluster.forget()
        report(cluster, f"Redeploy Started. EventId: {ID}")
        relay.until(("Redeploy", "Started"))
        assert client.get().incarnation > before.incarnation
    report(cluster, "")
    relay.until()
    assert {right_of(*each) for each in cluster.requests} == {("", "", "nodes", "get")}


def test_approval_is_refused(cluster: Cluster, relay: Relay) -> None:
    """No condition of a node could carry it to Azure. Source: K-5."""
    report(cluster, SCHEDULED)
    relay.until(("Redeploy", "Scheduled"))
    with relay.client() as client, pytest.raises(RequestRejected, match="approved here"):
        client.approve(ID)


def test_unknown_node_has_no_document(tmp_path: Path) -> None:
    """An empty document would say that nothing is scheduled. Source: K-5."""
    cluster = Cluster()
    with served(cluster) as url:
        relay = Relay(tmp_path, url, node="h7")
        with running(*relay.command, log=relay.log):
            wait_until(lambda: "node-unread" in relay.log.read_text())
            with relay.client() as client, pytest.raises(PeerError, match="no such node"):
                client.get()


def test_command_needs_an_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the setting, nothing says where clients would look. Source: K-5."""
    path = tmp_path / "agent.toml"
    path.write_text(f'[agent]\nhooks_dir = "{tmp_path}"\n')
    assert main(["node-events", "--config", str(path)]) == exit_codes.USAGE
    assert "has no [kubernetes] events_listen" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('events_listen = "0.0.0.0:8472"', "of this machine"),
        ('events_listen = "8472"', "of this machine"),
        ('[kubernetes.event_types]\nVMEventScheduled = "reboot"', "must be one of message"),
    ],
)
def test_settings_are_checked(tmp_path: Path, line: str, reason: str) -> None:
    """Events of a node are for this machine only. Source: K-5."""
    path = tmp_path / "agent.toml"
    path.write_text(f'[agent]\nhooks_dir = "{tmp_path}"\n[kubernetes]\n{line}\n')
    with pytest.raises(ConfigInvalid, match=reason):
        read_config(str(path))
