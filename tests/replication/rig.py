"""A feed for nodes of some hosts, on loopback, with the planes in the test's hands."""

from __future__ import annotations

from pathlib import Path

from forewarn_base.protocol.documents import Document
from forewarn_core.requests import Request, RequestAnswer
from forewarn_metadata.replication.access import NodeAccess
from forewarn_metadata.replication.feed_client import FeedClient, NodeIdentity, connect
from forewarn_metadata.replication.http_stream import HttpAnswer, HttpStream
from forewarn_metadata.replication.messages import (
    PART_BYTES_MAX,
    Caller,
    DocumentChange,
    Publication,
)
from forewarn_metadata.replication.node_files import NodeDirectory
from forewarn_metadata.replication.node_store import NodeStore
from forewarn_metadata.replication.pace import INSTANCE, FeedPace
from forewarn_metadata.replication.server import FeedServer
from forewarn_server.api.feed_endpoint import FeedPort
from tests.metadata.live import FREEZE, Control

READER = "a person's token"
HOSTS = ("n1=h1", "n2=h2,h3", "n3=h4")


def token_of(name: str) -> str:
    """Return the token of a node."""
    return f"the-token-of-node-{name}"


def proves(name: str, token: str) -> bool:
    """Whether a token is a node's."""
    return token == token_of(name) and name in {"n1", "n2", "n3"}


def caller(vm: str, host: str, group: str = "", destinations: tuple[str, ...] = ()) -> Caller:
    """Return a VM on a host; its group is the first part of its name."""
    group = group or vm.partition("_")[0]
    return Caller(vm, group, group, host=host, destinations=destinations)


def shown(view: str, incarnation: int) -> Publication:
    """Return a document of a view."""
    return Publication(view, enabled=True, document=Document(incarnation, (FREEZE,)))


WEB_0, WEB_1, DB_0 = caller("web_0", "h1"), caller("web_1", "h2"), caller("db_0", "h1")
WHOLE = DocumentChange(
    1,
    whole=True,
    callers=(WEB_0, WEB_1, DB_0),
    publications=(shown("web", 1), shown("db", 1)),
)


class Node:
    """A node that keeps what it is told."""

    def __init__(
        self,
        address: str,
        name: str,
        directory: Path,
        *,
        token: str = "",
        hosts: tuple[str, ...] = (),
    ) -> None:
        """Take possession of its directory."""
        self.told: list[DocumentChange] = []
        self.store = NodeStore(NodeDirectory(directory / name))
        identity = NodeIdentity(name, hosts=hosts, token=token or token_of(name))
        self.feed_client = FeedClient(
            address, self.told.append, identity=identity, store=self.store
        )

    @property
    def vms(self) -> set[str]:
        """The VMs it serves."""
        return set(self.feed_client.state.callers)

    def incarnation(self, view: str) -> int | None:
        """Return what it shows of a view; None: nothing."""
        shows = self.feed_client.state.publications.get(view)
        return shows.document.incarnation if shows else None

    async def start(self) -> Node:
        """Follow, and wait until it is up to date."""
        self.feed_client.take_up()
        self.feed_client.start()
        await self.feed_client.followed.wait()
        return self

    async def stop(self) -> None:
        """End it; what it keeps stays."""
        await self.feed_client.stop()
        self.store.close()


class Feed:
    """A control plane's feed for nodes, and its nodes."""

    pace = FeedPace(wait_s=25.0, report_s=0.0, return_s=0.0)

    def __init__(self, directory: Path, *, epoch: str = "epoch") -> None:
        """Start nothing yet."""
        self.directory = directory
        self.epoch = epoch
        self.hosts: tuple[str, ...] = HOSTS
        self.control = Control()
        self.address = "127.0.0.1:0"
        self.server = self._new()
        self.port = FeedPort()

    def _new(self) -> FeedServer:
        access = NodeAccess(self.hosts, proves, lambda token: token == READER)
        return FeedServer(self.control, epoch=self.epoch, access=access, pace=lambda _: self.pace)

    async def start(self, whole: DocumentChange = WHOLE) -> Feed:
        """Listen, and know a fleet."""
        self.server.apply(whole)
        self.port = FeedPort()
        await self.port.start(self.server, self.address)
        self.address = self.port.address
        return self

    async def stop(self) -> None:
        """End it, as its process does."""
        await self.server.stop()
        await self.port.stop()

    async def restart(self, whole: DocumentChange) -> None:
        """Come back as another process that has read its store."""
        await self.stop()
        self.server = self._new()
        await self.start(whole)

    async def node(self, name: str) -> Node:
        """Start a node."""
        return await Node(self.address, name, self.directory).start()

    async def shows(self, change: DocumentChange) -> tuple[str, ...]:
        """Apply a change and wait until the nodes show it; return which do not."""
        concerned = self.server.apply(change)
        return await self.server.confirmed(change.sequence, 5.0, concerned)

    async def ask(self, node: Node, request: Request) -> RequestAnswer:
        """Have a node hand on a request."""
        return await node.feed_client.ask(request)

    async def http(
        self,
        name: str,
        *,
        method: str = "GET",
        query: str = "",
        body: bytes = b"",
        instance: str = "",
        token: str | None = None,
        **headers: str,
    ) -> HttpAnswer:
        """Be any program that speaks HTTP; say who you are, or nothing."""
        stream = HttpStream(await connect(self.address), self.address, PART_BYTES_MAX)
        said = {each.replace("_", "-"): text for each, text in headers.items()}
        said["Authorization"] = f"Bearer {token_of(name) if token is None else token}"
        if instance:
            said[INSTANCE] = instance
        try:
            return await stream.exchange(method, f"/feed/{name}{query}", said, body=body)
        finally:
            stream.close()
