"""Nodes with several control planes: kills at random moments, and a balancer before them."""

import asyncio
import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from forewarn_core.requests import ApprovalRequest, Request, RequestAnswer
from forewarn_metadata.replication.access import NodeAccess
from forewarn_metadata.replication.messages import DocumentChange, Publication
from forewarn_metadata.replication.pace import FeedPace
from forewarn_metadata.replication.server import FeedServer
from forewarn_metadata.replication.spool import Spool
from forewarn_server.api.feed_endpoint import FeedPort
from tests.agent.programs import free_port, program
from tests.metadata.feeds import run, until
from tests.metadata.live import FREEZE, Control
from tests.replication.rig import HOSTS, WEB_0, Node, proves, shown
from tests.waiting import LIMIT_S

KILLS = 50
PACE = FeedPace(wait_s=2.0, report_s=0.0, return_s=0.0)


class Store(Control):
    """What all control planes share: the documents, and each approval's effect."""

    def __init__(self) -> None:
        """Begin with one document."""
        super().__init__()
        self.sequence, self.incarnation = 1, 1
        #: Approval -> how often it arrived.
        self.arrived: Counter[str] = Counter()

    @property
    def documents(self) -> tuple[Publication, ...]:
        """The only document, with its event."""
        return (shown("web", self.incarnation),)

    def ask(self, request: Request) -> asyncio.Future[RequestAnswer]:
        """Take an approval."""
        if isinstance(request, ApprovalRequest):
            self.arrived[request.address] += 1
        return super().ask(request)


class Plane:
    """A control plane that can be killed, and started again at its address."""

    def __init__(self, store: Store) -> None:
        """Start later."""
        self._store, self.address = store, "127.0.0.1:0"
        self.server: FeedServer | None = None

    async def start(self) -> None:
        """Read the store, and listen."""
        server = FeedServer(
            self._store,
            epoch="e",
            access=NodeAccess(HOSTS, proves),
            pace=lambda _: PACE,
        )
        store = self._store
        server.apply(DocumentChange(store.sequence, whole=True, callers=(WEB_0,),
                                    publications=store.documents))  # fmt: skip
        self._port = FeedPort()
        await self._port.start(server, self.address)
        self.address, self.server = self._port.address, server

    async def kill(self) -> None:
        """End it in the middle of whatever it does: nobody is answered any more."""
        server, self.server = self.server, None
        assert server is not None
        for each in self._port._servers:
            each._server.abort_connections()
        await self._port.stop()
        await server.stop()

    def change(self) -> None:
        """Show the store's document."""
        if self.server is not None:
            change = DocumentChange(self._store.sequence, publications=self._store.documents)
            self.server.apply(change)


@pytest.mark.slow
def test_kills_of_control_planes_lose_and_double_no_request(tmp_path: Path) -> None:
    """A node with three addresses goes on: M-3, H-5, invariants 2 and 11. Source: M-4."""
    chance = random.Random(45)

    async def story() -> None:
        store = Store()
        planes = [Plane(store) for _ in range(3)]
        for plane in planes:
            await plane.start()
        node = Node(",".join(plane.address for plane in planes), "n1", tmp_path)
        spool = Spool(node.feed_client, node.store.files, size_max=1000)
        await node.start()
        asked: list[asyncio.Future[RequestAnswer]] = []
        for number in range(KILLS):
            for _ in range(3):
                request = ApprovalRequest("web_0", (FREEZE.event_id,), f"10.0.0.{len(asked)}")
                asked.append(spool.ask(request))
            store.sequence, store.incarnation = store.sequence + 1, store.incarnation + 1
            for plane in planes:
                plane.change()
            victim = chance.choice(planes)
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
            await victim.kill()
            if number % 3 == 0:
                await node.feed_client.followed.wait()
            await victim.start()
        answers = await asyncio.gather(*asked)
        await until(lambda: spool.waiting == 0)
        assert [answer.accepted for answer in answers] == [True] * (3 * KILLS)
        assert len(store.arrived) == 3 * KILLS, "none is lost"
        await until(lambda: node.incarnation("web") == store.incarnation)
        seen = [each.document.incarnation for told in node.told for each in told.publications]
        assert seen == sorted(seen), "no document goes back"
        await spool.stop()
        await node.stop()
        for plane in planes:
            await plane.kill()

    run(story())


HAPROXY = """
defaults
    mode tcp
    timeout connect 1s
    timeout client 60s
    timeout server 60s
frontend feed
    bind 127.0.0.1:{port}
    default_backend followers
backend followers
    option redispatch
    balance source
    server one {one} check inter 100ms fall 1 rise 1
    server two {two} check inter 100ms fall 1 rise 1
"""


def test_balancer_before_several_feeds(tmp_path: Path) -> None:
    """HAProxy leads a node to a control plane, and to the other one after a kill. M-6, H-4."""
    haproxy = program("haproxy")

    async def story() -> None:
        store = Store()
        planes = [Plane(store), Plane(store)]
        for plane in planes:
            await plane.start()
        port = free_port()
        config = tmp_path / "haproxy.cfg"
        one, two = (plane.address for plane in planes)
        config.write_text(HAPROXY.format(port=port, one=one, two=two))
        balancer = await asyncio.create_subprocess_exec(
            haproxy, "-db", "-f", str(config), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            node = Node(f"127.0.0.1:{port}", "n1", tmp_path)
            await node.start()
            [first] = [each for each in planes if each.server and each.server.connected]
            await first.kill()
            store.sequence, store.incarnation = 2, 2
            for plane in planes:
                plane.change()
            await until(lambda: node.incarnation("web") == 2)
            answer = await asyncio.wait_for(
                node.feed_client.ask(ApprovalRequest("web_0", ("A",), "10.0.0.1")), LIMIT_S
            )
            assert answer.accepted
            await node.stop()
        finally:
            balancer.terminate()
            await balancer.wait()
        for plane in planes:
            if plane.server is not None:
                await plane.kill()

    run(story())
