"""The node in the service's process, with the bridge and the service's end of the feed.

Nodes away from it have the other end (`far_node.py`), and nothing else of it reaches them.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import cast

from starlette.types import Receive, Scope, Send

from forewarn_base.settings import MetadataSettings
from forewarn_base.values import value
from forewarn_metadata.connection_table import ConnectionTable, TrackedConnection
from forewarn_metadata.replication.access import NodeAccess
from forewarn_metadata.replication.messages import DocumentChange, PublishResult, Upstream
from forewarn_metadata.replication.pace import FeedPace
from forewarn_metadata.replication.server import FeedServer
from forewarn_metadata.replication.worker_streams import LINE_BYTES_MAX
from forewarn_server.api.feed_endpoint import REQUEST_S_MAX, FeedConnection, FeedEndpoint
from forewarn_server.api.uvicorn_adapter import EmbeddedServer
from forewarn_server.control.run_loop import ControlLoop
from forewarn_server.service.bridge import Bridge
from tests.simulator.world.control_process import SimulatedControl
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.feed_wire import WireEnd
from tests.simulator.world.metadata_node import SimulatedNode

EPOCH = "the store of the world"
#: Interval of signs of life of workers, rarer than in life: they would be most of a world.
HEARTBEAT_S = 30
#: How often nodes ask.
PACE = FeedPace(wait_s=25.0, report_s=1.0, return_s=0.2)


@value
class FeedTerms:
    """How the service serves its feed."""

    #: Which nodes may have which hosts; None: each has all.
    access: NodeAccess | None


@value
class Observers:
    """Who sees what nodes do."""

    #: Brings a change to a node, under everybody's eyes.
    show: Callable[[SimulatedNode, DocumentChange], None]
    #: Called with the groups that asked, and how long ago in ms, as the service hears of it.
    polled: Callable[[frozenset[str], int], None]


class OwnNode(SimulatedNode):
    """The node in the service's process, with the bridge and the feed beside it."""

    def __init__(
        self,
        name: str,
        settings: MetadataSettings,
        service: SimulatedControl,
        *,
        queue: EventQueue,
        terms: FeedTerms,
        observers: Observers,
    ) -> None:
        """Begin with nothing to show."""
        self._terms = terms
        self._observers = observers
        self._feed_ends: list[WireEnd] = []
        super().__init__(name, settings, service, queue=queue, new_upstream=self._new_bridge)

    def clear(self) -> None:
        """End the process, with its ends of the feed."""
        ends, self._feed_ends = self._feed_ends, []
        super().clear()
        for end in ends:
            end.die()

    def publish(self, change: DocumentChange) -> Future[PublishResult]:
        """Publish over the bridge, which waits until the nodes away from here show it, too."""
        shown = self.loop.run(self.bridge.publish, change)
        # The control plane hears before that, and then has something to do.
        shown.add_done_callback(lambda _: self._queue.after(0, self.service.turn))
        return shown

    def accept_feed(self, end: WireEnd, *, of_worker: bool) -> None:
        """Serve a node or a worker on a connection that was made."""
        self._feed_ends = [each for each in self._feed_ends if not each.is_closing()]
        self._feed_ends.append(end)
        self.loop.call_soon(self._serve_worker if of_worker else self._serve_node, end)

    def _serve_worker(self, end: WireEnd) -> None:
        serve = self.feed.workers.serve(*end.streams(LINE_BYTES_MAX))
        self.loop.create_task(serve).add_done_callback(_raise)

    def _serve_node(self, end: WireEnd) -> None:
        tracked = TrackedConnection(ConnectionTable(1, 4, fds_max=0), ("10.0.0.1", 1))
        end.attach(FeedConnection(self._http, tracked, REQUEST_S_MAX))

    def _new_bridge(self, _: SimulatedNode) -> Upstream:
        bridge = self.bridge = Bridge(self.loop)
        terms = self._terms
        self.feed = FeedServer(
            bridge,
            epoch=EPOCH,
            access=terms.access,
            pace=lambda _: PACE,
            heartbeat_s=HEARTBEAT_S,
        )
        if terms.access is not None:
            self._http = EmbeddedServer(CheckedEndpoint(self.feed), 1)
        shown = _Shown(self, self._observers.show)
        control = cast("ControlLoop", self.service)
        bridge.connect(control, shown, far=self.feed, on_polled=self._observers.polled)
        return bridge


class _Shown:
    """The node as its bridge sees it."""

    def __init__(
        self, node: SimulatedNode, show: Callable[[SimulatedNode, DocumentChange], None]
    ) -> None:
        """Bring changes to this node."""
        self._node = node
        self._show = show

    def apply(self, change: DocumentChange) -> None:
        """Show what this change says."""
        self._show(self._node, change)

    def group_of(self, vm: str) -> str:
        """Return the group of a VM; empty if there is none of that name."""
        return self._node.server.group_of(vm)

    def note_polls(self, polls: object) -> None:
        """Forget them: nobody lists VMs here."""


class CheckedEndpoint(FeedEndpoint):
    """The feed's application; what ends it by a bug ends the world."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        After the process was killed, Python closes the coroutine without a running loop, or in that
        of another process: what its `finally` then raises belongs to the loop that is over.
        """
        loop = asyncio.get_running_loop()
        try:
            await super().__call__(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - uvicorn would only log it
            loop.call_soon(_raise_it, error)


def _raise_it(error: Exception) -> None:
    raise error


def _raise(served: asyncio.Task[None]) -> None:
    """Let what ended a node's session by a bug end the world."""
    if not served.cancelled():
        served.result()
