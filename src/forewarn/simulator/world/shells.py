"""How the processes of a world that runs the product's shells reach each other.

The service's process has the product's bridge and its end of the feed; a node away from it has
the other end, and nothing else of the service reaches it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from forewarn.replication.follower import Follower, NodeIdentity
from forewarn.replication.nodes import FeedPace
from forewarn.replication.route import FeedRoute
from forewarn.replication.server import FeedServer
from forewarn.service.bridge import Bridge
from forewarn.simulator.world.crash_points import Violation
from forewarn.simulator.world.shell_node import ShellNode

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from forewarn.control.engine import ControlEngine
    from forewarn.replication.messages import DocumentChange, PublishResult, Upstream
    from forewarn.settings import MetadataSettings
    from forewarn.simulator.world.control_process import SimulatedControl
    from forewarn.simulator.world.event_queue import EventQueue
    from forewarn.simulator.world.feed_wire import FeedWire, WireEnd

EPOCH = "the store of the world"
PACE = FeedPace(heartbeat_s=30, silent_s_max=90)
"""Signs of life, rarer than in life: one a second for each node would be most of a world."""


class OwnNode(ShellNode):
    """The node in the service's process, with the bridge and the feed beside it."""

    def __init__(
        self,
        name: str,
        settings: MetadataSettings,
        service: SimulatedControl,
        *,
        queue: EventQueue,
        show: Callable[[ShellNode, DocumentChange], None],
        polled: Callable[[frozenset[str]], None],
    ) -> None:
        """Begin with nothing to show; `show` brings a change to it, under everybody's eyes."""
        self._show_seen = show
        self._polled_seen = polled
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
        # The control plane is told before that, and then has something to do.
        shown.add_done_callback(lambda _: self._queue.after(0, self.service.turn))
        return shown

    def accept_feed(self, end: WireEnd) -> None:
        """Serve a node on a connection that was made."""
        self._feed_ends = [each for each in self._feed_ends if not each.is_closing()]
        self._feed_ends.append(end)
        self.loop.call_soon(self._serve_feed, end)

    def _serve_feed(self, end: WireEnd) -> None:
        self.loop.create_task(self.feed.serve(end.reader, end.writer))

    def _new_bridge(self, _: ShellNode) -> Upstream:
        bridge = self.bridge = Bridge(self.loop)
        self.feed = FeedServer(bridge, epoch=EPOCH, pace=PACE)
        shown = _Shown(self, self._show_seen)
        bridge.connect(cast("ControlEngine", self.service), shown, far=self.feed)
        bridge.on_polled = self._polled_seen
        return bridge


class _Shown:
    """The node as its bridge sees it."""

    def __init__(self, node: ShellNode, show: Callable[[ShellNode, DocumentChange], None]) -> None:
        """Bring changes to this node."""
        self._node = node
        self._show = show

    def apply(self, change: DocumentChange) -> None:
        """Show what this change says."""
        self._show(self._node, change)


class FarNode(ShellNode):
    """A node's process away from the service, which follows its feed."""

    def __init__(
        self,
        name: str,
        settings: MetadataSettings,
        service: SimulatedControl,
        *,
        queue: EventQueue,
        wire: FeedWire,
        show: Callable[[ShellNode, DocumentChange], None],
    ) -> None:
        """Begin with nothing to show; `show` brings a change to it, under everybody's eyes."""
        self._wire = wire
        self._show_seen = show
        super().__init__(name, settings, service, queue=queue, new_upstream=self._new_follower)

    def clear(self) -> None:
        """End the process; the next one looks for the feed."""
        super().clear()
        self.loop.call_soon(self._follower.start)

    @property
    def is_cut(self) -> bool:
        """Whether it cannot reach the service."""
        return self._wire.is_cut

    def cut(self) -> None:
        """Cut it off from the service."""
        self._wire.cut()

    def join(self) -> None:
        """Let it reach the service again."""
        self._wire.join()

    def follows(self, own: ShellNode) -> bool:
        """Whether it is up to date with the feed of this process."""
        return self._follower.followed.is_set() and self._wire.leads_to(own.loop)

    def _new_follower(self, _: ShellNode) -> Upstream:
        identity, route = NodeIdentity(self.name), FeedRoute(self._wire.connect, PACE)
        self._follower = Follower("the service", self._take, identity=identity, route=route)
        return self._follower

    def _take(self, change: DocumentChange) -> None:
        """Show a change; what is wrong with it is not for the product to survive."""
        try:
            self._show_seen(self, change)
        except Violation as broken:
            self._queue.after(0, partial(_raise, broken))


def _raise(broken: Violation) -> None:
    raise broken
