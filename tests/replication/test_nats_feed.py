"""The feed over a real nats-server, with the users and permissions of the manual. M-7."""

import asyncio
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from ssl import SSLContext

import pytest

from forewarn import nats_client
from forewarn.replication.access import NodeAccess, TlsFiles
from forewarn.replication.carrier import Broker, BrokerRoute
from forewarn.replication.channel import Frame, Kind
from forewarn.replication.feed_client import FeedClient, FeedRoute, NodeIdentity
from forewarn.replication.messages import ApprovalRequest, Caller, DocumentChange
from forewarn.replication.server import FeedServer
from forewarn.replication.tls import client_context
from tests.e2e.certificates import make_certificates
from tests.metadata.feeds import run, until
from tests.metadata.live import Control
from tests.replication.nats_credentials import write_credentials
from tests.replication.nats_server import CONTROL, NatsServer
from tests.replication.rig import shown
from tests.waiting import LIMIT_S

LOSS = (
    'mappings = { "forewarn-feed.to.h1": [ { destination: "forewarn-feed.to.h1", weight: 50% } ] }'
)


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A server whose users have passwords."""
    server = NatsServer(tmp_path)
    yield server
    server.kill()


def whole(incarnation: int, *nodes: str) -> DocumentChange:
    """Return a VM on the host of each node, all of one group."""
    callers = tuple(Caller(f"vm-{name}", "web", "web", host=name) for name in nodes)
    publications = (shown("web", incarnation),)
    return DocumentChange(incarnation, whole=True, callers=callers, publications=publications)


class Site:
    """A control plane and nodes of one NATS server."""

    def __init__(self, nats: NatsServer, tls: dict[str, SSLContext] | None = None) -> None:
        self.nats = nats
        self.tls = tls or {}
        self.control = Control()
        self.clients: dict[str, FeedClient] = {}
        self.routes: list[BrokerRoute] = []
        self.incarnations: dict[str, list[int]] = {}

    def serve(self, incarnation: int = 1, epoch: str = "epoch") -> FeedServer:
        """Be the control plane from now on."""
        self.server = FeedServer(self.control, epoch=epoch, access=NodeAccess(["*"]))
        self.server.apply(whole(incarnation, "h1", "h2"))
        self.server.start_broker(lambda: self.nats.connect(CONTROL, self.tls.get(CONTROL)))
        return self.server

    def node(self, name: str, user: str = "") -> FeedClient:
        """Start a node; it logs in as `user`."""

        async def connect(_address: str, _tls: SSLContext | None) -> Broker:
            return await self.nats.connect(user or name, self.tls.get(name))

        def apply(change: DocumentChange) -> None:
            seen = self.incarnations.setdefault(name, [])
            seen += [each.document.incarnation for each in change.publications]

        route = BrokerRoute(name, connect)
        client = FeedClient(
            "nats", apply, identity=NodeIdentity(name), route=FeedRoute(route.connect)
        )
        client.start()
        self.routes.append(route)
        self.clients[name] = client
        return client

    async def show(self, incarnation: int, *nodes: str) -> None:
        """Show a change, and wait until these nodes show it."""
        change = DocumentChange(incarnation, publications=(shown("web", incarnation),))
        self.server.apply(change)
        assert await self.server.confirmed(incarnation, LIMIT_S, nodes) == ()

    async def stop(self) -> None:
        """Stop everything but the broker."""
        for client in self.clients.values():
            await client.stop()
        for route in self.routes:
            await route.close()
        await self.server.stop()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificates")
def test_nodes_follow_over_nats_by_certificate(tmp_path: Path) -> None:
    """The manual's configuration serves nodes: start, change and approval. Source: M-7, A-6."""
    names = {"server": "IP:127.0.0.1", "h1": "DNS:h1", "h2": "DNS:h2", "c": f"DNS:{CONTROL}"}
    make_certificates(tmp_path, **names)
    nats = NatsServer(tmp_path, tls=True)
    files = {name: tmp_path / name for name in ("h1", "h2")} | {CONTROL: tmp_path / "c"}
    tls = {
        name: client_context(TlsFiles(f"{file}.pem", f"{file}.key", str(tmp_path / "ca.pem")))
        for name, file in files.items()
    }

    async def story() -> None:
        site = Site(nats, tls)
        site.serve()
        for name in ("h1", "h2"):
            await site.node(name).followed.wait()
        await site.show(2, "h1", "h2")
        assert site.incarnations == {"h1": [1, 2], "h2": [1, 2]}
        answer = await site.clients["h1"].approve(ApprovalRequest("vm-h1", ("E",), ""))
        assert answer.accepted
        assert site.control.approvals[0].vm == "vm-h1"
        await site.stop()

    try:
        run(story())
    finally:
        nats.kill()


def test_credentials_files_prove_names(tmp_path: Path) -> None:
    """Each side logs in by user JWT and seed, as `nsc` writes them. Source: M-5, M-7."""
    control = {CONTROL: ("forewarn-feed.to.>", "forewarn-feed.from.>")}
    node = {"h1": ("forewarn-feed.from.h1", "forewarn-feed.to.h1")}
    nats = NatsServer(tmp_path, write_credentials(tmp_path, **control, **node))

    async def story() -> None:
        site = Site(nats)
        site.serve()
        await site.node("h1").followed.wait()
        await site.show(2, "h1")
        await site.stop()

    try:
        run(story())
    finally:
        nats.kill()


def test_loss_in_nats_is_repaired(tmp_path: Path) -> None:
    """The server drops half of what a node is sent; the node asks for it. Source: M-7."""
    nats = NatsServer(tmp_path, LOSS)

    async def story() -> None:
        site = Site(nats)
        site.serve()
        await site.node("h1").followed.wait()
        for incarnation in range(2, 8):
            change = DocumentChange(incarnation, publications=(shown("web", incarnation),))
            site.server.apply(change)
        assert await site.server.confirmed(7, LIMIT_S, ["h1"]) == ()
        assert site.incarnations["h1"] == sorted(site.incarnations["h1"])
        await site.stop()

    try:
        run(story())
    finally:
        nats.kill()


def test_repeated_and_altered_messages_change_nothing(nats: NatsServer) -> None:
    """Somebody sends a node everything again later, also damaged. Source: M-7."""

    async def story() -> None:
        site = Site(nats)
        site.serve()
        tester = await nats.connect("tester")
        copies: list[bytes] = []

        def copy(_subject: str, body: bytes) -> None:
            copies.append(body)

        await tester.subscribe("forewarn-feed.to.h1", copy)
        await site.node("h1").followed.wait()
        await site.show(2, "h1")
        recorded = tuple(reversed(copies))
        for body in recorded:
            tester.publish("forewarn-feed.to.h1", body[:-1] + b"?")
            tester.publish("forewarn-feed.to.h1", body)
        await until(lambda: site.routes[0].figures.refused == len(recorded))
        await site.show(3, "h1")
        assert site.incarnations["h1"] == [1, 2, 3]
        await tester.close()
        await site.stop()

    run(story())


def test_node_catches_up_after_nats_was_killed(nats: NatsServer) -> None:
    """What changed while the server was away is shown once it is back. Source: M-7."""

    async def story() -> None:
        site = Site(nats)
        site.serve()
        node = site.node("h1")
        await node.followed.wait()
        nats.kill()
        await until(lambda: not node.followed.is_set())
        site.server.apply(DocumentChange(2, publications=(shown("web", 2),)))
        nats.start()
        await node.followed.wait()
        assert site.incarnations["h1"] == [1, 2]
        await site.stop()

    run(story())


def test_node_cannot_use_the_subjects_of_another(nats: NatsServer) -> None:
    """The server refuses a node that subscribes or publishes as another. Source: M-5, M-7."""

    async def story() -> None:
        site = Site(nats)
        site.serve()
        thief = await nats.connect("h2")
        refused: list[str] = []
        received: list[bytes] = []
        thief.on_refused = refused.append

        def receive(_subject: str, body: bytes) -> None:
            received.append(body)

        await thief.subscribe("forewarn-feed.to.h1", receive)
        await thief.subscribe("forewarn-feed.>", receive)
        thief.publish("forewarn-feed.from.h1", Frame(Kind.HELLO, bytes(16)).encoded())
        thief.publish("forewarn-feed.to.h1", Frame(Kind.ANNOUNCE).encoded())
        await until(lambda: len(refused) == 4)
        await site.node("h1").followed.wait()
        assert received == []
        await thief.close()
        await site.stop()

    run(story())


def test_node_with_a_foreign_name_learns_why_it_is_refused(
    nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of a node says that its user may not have the subject. Source: M-5."""

    async def story() -> None:
        site = Site(nats)
        site.serve()
        site.node("h1", user="h2")
        await until(lambda: "the broker refuses the node" in caplog.text)
        assert site.server.connected == 0
        await site.stop()

    run(story())


@pytest.mark.parametrize("epoch", ["epoch", "another"])
def test_nodes_go_to_the_control_plane_that_takes_over(nats: NatsServer, epoch: str) -> None:
    """A new control plane calls the nodes of one that never said goodbye. Source: H-5, M-7."""

    async def story() -> None:
        site = Site(nats)
        before = site.serve()
        await site.node("h1").followed.wait()
        before._suspended = True  # it does not close its sessions: it hangs
        site.serve(3, epoch)
        await until(lambda: site.incarnations["h1"] == [1, 3])
        await site.show(4, "h1")
        assert site.incarnations["h1"] == [1, 3, 4]
        await site.stop()
        await before.stop()

    run(story())


def test_node_learns_at_once_that_no_control_plane_is_there(
    nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """NATS reports that nobody takes requests: the node need not wait for an answer."""

    async def story() -> None:
        site = Site(nats)
        node = site.node("h1")
        await until(lambda: "no control plane is connected" in caplog.text)
        site.serve()
        await node.followed.wait()
        await site.stop()

    run(story())


def test_large_documents_travel_over_nats(nats: NatsServer) -> None:
    """A document may be larger than what NATS takes in a message. Source: M-7."""

    async def story() -> None:
        site = Site(nats)
        site.serve()
        await site.node("h1").followed.wait()
        names = tuple(f"vm-{number:0100}" for number in range(20_000))
        callers = tuple(Caller(name, "web", "web", host="h1") for name in names)
        site.server.apply(DocumentChange(2, callers=callers, publications=(shown("web", 2),)))
        assert await site.server.confirmed(2, LIMIT_S, ["h1"]) == ()
        await site.stop()

    run(story())


def test_silent_server_is_named_with_the_time_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that takes the connection and says nothing; operators see no name of a class."""
    monkeypatch.setattr(nats_client, "CONNECT_S_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        connecting = nats_client.connect_nats(server, nats_client.NatsLogin(), name="t")
        with pytest.raises(nats_client.NatsUnreachable, match=r"no answer within 0\.2 s"):
            asyncio.run(connecting)
