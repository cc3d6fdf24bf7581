"""A metadata node's process away from the service: it follows the feed, dies, and comes back.

One that serves the VMs of some hosts keeps what it shows on a disk, as a node on a hypervisor
does; the others keep nothing, as the service's own workers do. When it dies is decided elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from forewarn_base.ids import Ids
from forewarn_base.settings import MetadataSettings
from forewarn_base.values import value
from forewarn_core.requests import ApprovalRequest, RequestAnswer
from forewarn_metadata.replication.feed_client import FeedClient, FeedRoute, NodeIdentity
from forewarn_metadata.replication.messages import DocumentChange, Upstream
from forewarn_metadata.replication.node_store import NodeStore
from forewarn_metadata.replication.spool import FILE as SPOOLED
from forewarn_metadata.replication.spool import Spool
from forewarn_metadata.replication.worker_client import WorkerClient
from forewarn_metadata.replication.worker_streams import SILENT_BEATS
from tests.simulator.world.control_process import SimulatedControl
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.feed_wire import FeedWire
from tests.simulator.world.metadata_node import SimulatedNode
from tests.simulator.world.node_disk import NodeDisk, NodeDiskFiles
from tests.simulator.world.own_node import HEARTBEAT_S
from tests.simulator.world.virtual_loop import ProcessKilled


@value
class Hypervisor:
    """What a node of some hosts has there."""

    hosts: frozenset[str]
    token: str
    disk: NodeDisk
    #: How many approvals it may accept on its own; 0: none. Source: M-3.
    spooled_max: int
    #: Called when its process ended in the middle of what it wrote.
    died: Callable[[FarNode], None]


@value
class FarPlace:
    """How a node reaches the service, and who sees what it is sent."""

    wire: FeedWire
    show: Callable[[SimulatedNode, DocumentChange], None]
    #: Called when a node finds a feed lost that it followed.
    lost_feed: Callable[[FarNode], None]
    #: None: it may serve every VM, and keeps nothing.
    hypervisor: Hypervisor | None = None


class FarNode(SimulatedNode):
    """A node's process away from the service, which follows its feed."""

    def __init__(
        self,
        name: str,
        settings: MetadataSettings,
        service: SimulatedControl,
        *,
        queue: EventQueue,
        place: FarPlace,
    ) -> None:
        """Begin with nothing to show."""
        self._place = place
        self._spool: Spool | None = None
        self._processes = 0
        #: Shows what its disk has; None: it has none.
        self._take_up: Callable[[], bool] | None = None
        self._files: NodeDiskFiles | None = None
        #: Whether its process runs, and since when it does or does not, true time in ms.
        self.up = True
        self.since_ms = queue.now_ms
        super().__init__(name, settings, service, queue=queue, new_upstream=self._new_upstream)

    @property
    def hosts(self) -> frozenset[str] | None:
        """The hosts whose VMs it serves; None: all."""
        hypervisor = self._place.hypervisor
        return hypervisor.hosts if hypervisor is not None else None

    def clear(self) -> None:
        """End the process; the next one shows what is kept, and looks for the feed. M-2."""
        self._serves = False
        super().clear()
        if self._take_up is not None:
            self.loop.run(self._take_up)
        self.loop.call_soon(self._feed_client.start)

    def start(self) -> bool:
        """Start its process again; False if it died in that."""
        assert not self.up
        self.up, self.since_ms = True, self._queue.now_ms
        with suppress(ProcessKilled):
            self.clear()
        return self.up

    def die(self, *, power: bool) -> None:
        """End the process where it stands; with its machine's power its disk loses something."""
        assert self.up
        self.up, self.since_ms = False, self._queue.now_ms
        self._serves = False
        self.loop.end()
        self._feed_client.when_lost(None)  # clearing its memory away has no effect
        for transport in tuple(self._open):
            transport.cut()
        self._place.wire.die(silent=power)
        if self._files is not None:
            self._files.end()
        if power and self._place.hypervisor is not None:
            self._place.hypervisor.disk.lose_power()

    @property
    def listens(self) -> bool:
        """Whether connections are taken."""
        return self.up and self._serves

    @property
    def spooled(self) -> list[bytes]:
        """The approvals it has accepted, as they are on its disk whatever happens. Source: M-3."""
        hypervisor = self._place.hypervisor
        return hypervisor.disk.safe_lines(SPOOLED) if hypervisor and self._spool else []

    @property
    def disk(self) -> NodeDisk:
        """The disk of its machine, if it keeps anything."""
        assert self._place.hypervisor is not None
        return self._place.hypervisor.disk

    @property
    def may_come_back_empty(self) -> bool:
        """Whether nothing on its disk can be expected, since that has refused to keep it."""
        hypervisor = self._place.hypervisor
        return hypervisor is None or bool(hypervisor.disk.refused)

    @property
    def believes(self) -> bool:
        """Whether it takes itself for connected to the service."""
        return self.up and self._feed_client.followed.is_set()

    @property
    def waits_to_deliver(self) -> int:
        """How many approvals it has still to hand on."""
        return self._spool.waiting if self._spool is not None else 0

    @property
    def is_cut(self) -> bool:
        """Whether it cannot reach the service."""
        return self._place.wire.is_cut

    def cut(self) -> None:
        """Cut it off from the service."""
        self._place.wire.cut()

    def join(self) -> None:
        """Let it reach the service again."""
        self._place.wire.join()

    def follows(self, own: SimulatedNode) -> bool:
        """Whether it is up to date with the feed of this process."""
        wire = self._place.wire
        return self.believes and wire.leads_to(own.loop) and not wire.is_slow

    def lie(self, request: ApprovalRequest) -> asyncio.Future[RequestAnswer]:
        """Ask for what no VM asked it, as a node does that was taken over. Source: M-5."""
        return self.loop.run(self._feed_client.ask, request)

    def _new_upstream(self, _: SimulatedNode) -> Upstream:
        place, hypervisor = self._place, self._place.hypervisor
        if hypervisor is None:
            worker = WorkerClient(
                "the service",
                self.name,
                self._take,
                connect=place.wire.connect_worker,
                silent_s_max=HEARTBEAT_S * SILENT_BEATS,
                ids=Ids(seed=0),
            )
            worker.when_lost(partial(self._lose_feed, _nothing))
            self._feed_client = worker
            return worker
        files = self._files = NodeDiskFiles(hypervisor.disk, partial(hypervisor.died, self))
        identity = NodeIdentity(self.name, token=hypervisor.token)
        self._processes += 1
        route = FeedRoute(place.wire.connect, Ids(seed=self._processes))
        client = FeedClient(
            "the service", self._take, identity=identity, store=NodeStore(files), route=route
        )
        self._feed_client, self._take_up = client, client.take_up
        upstream: Upstream = client
        if hypervisor.spooled_max:
            upstream = self._spool = Spool(client, files, size_max=hypervisor.spooled_max)
        then = self._spool.take_over if self._spool is not None else _nothing
        client.when_lost(partial(self._lose_feed, then))
        return upstream

    _feed_client: FeedClient | WorkerClient

    def _lose_feed(self, then: Callable[[], None]) -> None:
        self._place.lost_feed(self)
        then()

    def _take(self, change: DocumentChange) -> None:
        """Show a change; what is wrong with it is not for the product to survive."""
        try:
            self._place.show(self, change)
        except Violation as broken:
            self._queue.after(0, partial(_raise, broken))


def _nothing() -> None:
    """Do nothing."""


def _raise(broken: Violation) -> None:
    raise broken
