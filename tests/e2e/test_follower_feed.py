"""Metadata nodes follow the feed at any control plane. Source: H-4, H-5, L-7, M-3, M-4."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forewarn_base.protocol.documents import Document
from forewarn_base.protocol.identity import CallerIdentity
from forewarn_core.access.roles import Role
from forewarn_core.requests import ApprovalRequest, EnableRequest, RequestAnswer
from forewarn_metadata.replication.feed_client import FeedClient, NodeIdentity
from forewarn_metadata.replication.messages import DocumentChange
from tests.access import seed_token
from tests.agent.programs import free_port
from tests.e2e.planes import Plane
from tests.waiting import LIMIT_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

HOSTS = 10


def fleet(count: int) -> dict[str, object]:
    """A VM on each of some hosts."""
    numbers = range(count)
    vms = {
        f"v{n}": {"host": f"h{n}", "group": f"g{n}", "addresses": [f"10.0.0.{n + 1}"]}
        for n in numbers
    }
    hosts = {f"h{n}": {"fault_domain": n} for n in numbers}
    return {"hosts": hosts, "groups": {f"g{n}": {} for n in numbers}, "vms": vms}


#: Longer than a request may take: work that waited for a node to the end would fail the test.
SHOW_S = 300


class Region:
    """Control planes with a feed, on one PostgreSQL."""

    def __init__(self, folder: Path, address: str) -> None:
        """Start the active one."""
        self.folder, self.address = folder, address
        self.tokens = {
            name: seed_token(address, name, Role.NODE) for name in map("h{}".format, range(HOSTS))
        }
        seed_token(address, "tester", Role.ADMIN)
        self.planes: list[Plane] = []
        self.feeds: list[str] = []
        self.start(200, "/leader")

    def start(self, status: int, path: str) -> None:
        """Start one more, and wait until it answers."""
        feed, name = f"127.0.0.1:{free_port()}", f"plane{len(self.planes)}"
        more = f'[lifecycle]\nshow_timeout_s = {SHOW_S}\n[feed]\nlisten = "{feed}"\n'
        address = f"{self.address}&application_name={name}"
        plane = Plane(self.folder, address, name, more)
        self.planes.append(plane)
        self.feeds.append(feed)
        wait_until(lambda: plane.says(status, path))


@pytest.fixture
def region(tmp_path: Path, postgres_address: str) -> Iterator[Region]:
    """An active process and a follower of it."""
    region = Region(tmp_path, postgres_address)
    region.start(200, "/ready")
    yield region
    for each in region.planes:
        if each.process.poll() is None:
            os.kill(each.process.pid, signal.SIGCONT)
            each.end()


class Node:
    """A node of one host, which keeps what it was sent."""

    def __init__(self, region: Region, name: str, feeds: list[str]) -> None:
        """Follow."""
        self.shown: dict[str, Document] = {}
        self.seen: list[int] = []
        identity = NodeIdentity(name, token=region.tokens[name])
        self.feed_client = FeedClient(",".join(feeds), self.apply, identity=identity)
        self.feed_client.start()

    def apply(self, change: DocumentChange) -> None:
        """Show a change."""
        if change.whole:
            self.shown.clear()
        for each in change.publications:
            if each.enabled:
                self.shown[each.view] = each.document
            else:
                self.shown.pop(each.view, None)
        self.seen += [each.document.incarnation for each in change.publications]

    def approve(self, vm: str, address: str) -> asyncio.Future[RequestAnswer]:
        """Approve what its VM is shown."""
        [event] = [event for each in self.shown.values() for event in each.events]
        known = CallerIdentity(address)
        asked = ApprovalRequest(vm, (event.event_id,), address, known)
        return self.feed_client.ask(asked)


async def until(true: Callable[[], object]) -> None:
    """Wait until something is true, while the nodes go on."""
    await asyncio.to_thread(wait_until, true)


def test_node_of_a_follower_is_shown_and_approves(region: Region) -> None:
    """Work waits for that node as for one of the active process; its approval is durable."""

    async def story() -> None:
        active, feeds = region.planes[0], region.feeds
        node = Node(region, "h0", feeds[1:])
        await until(node.feed_client.followed.is_set)
        put = await asyncio.to_thread(active.ask, "PUT", "/v1/topology", fleet(1))
        assert put[0] == 200
        await node.feed_client.ask(EnableRequest("v0"))
        await until(lambda: "g0" in node.shown)
        form = {"cause": "host-reboot", "targets": ["h0"]}
        status, _ = await asyncio.to_thread(active.ask, "POST", "/v1/operations", form)
        assert status < 300
        assert len(node.shown["g0"].events) == 1
        forged = await asyncio.to_thread(active.ask, "POST", "/v1/relay", {"no": "token"})
        assert forged[0] == 403
        answer = await asyncio.wait_for(node.approve("v0", "10.0.0.1"), LIMIT_S)
        assert answer.accepted
        history = await asyncio.to_thread(active.ask, "GET", "/v1/history?limit=500")
        actions = [each["action"] for each in history[1]["entries"]]
        assert "event.approved" in actions or "operation.started" in actions, actions
        await node.feed_client.stop()

    asyncio.run(story())


def test_nodes_follow_a_new_leader_without_a_step_back(region: Region) -> None:
    """Those of the follower stay, those of the active process change over. H-5, invariant 2."""

    async def story() -> None:
        (active, follower), feeds = region.planes, region.feeds
        nodes = [Node(region, f"h{n}", feeds if n % 2 else feeds[::-1]) for n in range(HOSTS)]
        await until(lambda: all(each.feed_client.followed.is_set() for each in nodes))
        await asyncio.to_thread(active.ask, "PUT", "/v1/topology", fleet(HOSTS))
        for number, node in enumerate(nodes):
            await node.feed_client.ask(EnableRequest(f"v{number}"))
        active.end(signal.SIGKILL)
        await until(lambda: follower.says(200))
        await until(lambda: all(each.feed_client.followed.is_set() for each in nodes))
        form = {"cause": "host-reboot", "targets": ["h0", "h1"], "queue": True}
        status, answer = await asyncio.to_thread(follower.ask, "POST", "/v1/operations", form)
        assert status < 300, answer
        await until(lambda: nodes[0].shown["g0"].events and nodes[1].shown["g1"].events)
        for node in nodes:
            assert node.seen == sorted(node.seen)
            await node.feed_client.stop()

    asyncio.run(story())


def test_follower_that_may_be_old_closes_its_feed(region: Region) -> None:
    """Its nodes go to another process. Invariants 18 and 20."""

    async def story() -> None:
        active, feeds = region.planes[0], region.feeds
        probe = Node(region, "h1", feeds[1:])
        await until(probe.feed_client.followed.is_set)  # it serves the feed
        await probe.feed_client.stop()
        node = Node(region, "h0", feeds[::-1])
        await until(node.feed_client.followed.is_set)
        await asyncio.to_thread(active.ask, "PUT", "/v1/topology", fleet(1))
        assert node.feed_client.address == feeds[1]
        pids = await asyncio.to_thread(_sessions, region.address, "plane1")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            await until(lambda: node.feed_client.address == feeds[0])
            await until(node.feed_client.followed.is_set)
            await node.feed_client.ask(EnableRequest("v0"))
            await until(lambda: "g0" in node.shown)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        await node.feed_client.stop()

    asyncio.run(story())


def _sessions(address: str, name: str) -> list[int]:
    import psycopg

    with psycopg.connect(address) as asked:
        asking = "SELECT pid FROM pg_stat_activity WHERE application_name = %s"
        return [int(pid) for (pid,) in asked.execute(asking, (name,)).fetchall()]
