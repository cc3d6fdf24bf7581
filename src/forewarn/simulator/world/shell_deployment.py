"""A deployment whose nodes are processes of the product, joined by its feed; or stand-ins for them.

Without the shells a node is the product's responder alone, and changes come to it by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from forewarn.settings import MetadataSettings
from forewarn.simulator.world.deployment import Deployment
from forewarn.simulator.world.dice import Dice
from forewarn.simulator.world.feed_wire import FeedWire
from forewarn.simulator.world.shell_network import PROXY, SECRET, ShellNetwork
from forewarn.simulator.world.shells import FarNode, OwnNode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from forewarn.core.policy import Policy
    from forewarn.drivers import Driver
    from forewarn.replication.messages import DocumentChange, PublishResult
    from forewarn.simulator.world.control_process import SimulatedControl
    from forewarn.simulator.world.metadata_node import SimulatedNode
    from forewarn.simulator.world.network import Network
    from forewarn.simulator.world.shell_node import ShellNode

ENABLE_DELAYS_S = (0, 5, 30)
"""How long the first answer to a group is held, in worlds with the shells."""
CONNECTIONS_MAX = 400
"""Open connections of a node: fewer than any machine's file descriptors allow."""


class ShellDeployment(Deployment):
    """The service and its nodes, as processes where `shells` is set."""

    def __init__(
        self,
        seed: int,
        policy: Policy,
        *,
        nodes: int,
        drivers: Mapping[str, Driver],
        shells: bool,
    ) -> None:
        """Join the parts; nothing is started."""
        self.seed = seed
        self._shells = shells
        super().__init__(seed, policy, nodes=nodes, drivers=drivers)
        if shells:  # without, the service waits for its own node alone
            self.checker.far_nodes = self.nodes[1:]
            self.checker.clients.polls_are_marked = True

    def new_network(self, seed: int) -> Network:
        """Return what joins machines and nodes: connections, where the shells run."""
        if not self._shells:
            return super().new_network(seed)
        return ShellNetwork(self.queue, self.checker, Dice(seed, "wires"), seed=seed)

    def new_node(self, number: int) -> SimulatedNode:
        """Return a node: a process with the product's service, where the shells run."""
        if not self._shells:
            return super().new_node(number)
        delay_s = Dice(self.seed, "enabling").pick(ENABLE_DELAYS_S)
        self.checker.clients.enable_delay_ms = delay_s * 1000
        settings = MetadataSettings(
            enable_delay_s=delay_s,
            max_connections=CONNECTIONS_MAX,
            proxy_addresses=(PROXY,),
            proxy_secret=SECRET,
        )
        name, service = f"node-{number}", self.service
        if number:
            dice = Dice(self.seed, f"wire of {name}")
            wire = FeedWire(self.queue, dice, lambda: cast("OwnNode", self.nodes[0]))
            return FarNode(
                name, settings, service, queue=self.queue, wire=wire, show=self._show_far
            )
        return OwnNode(
            name,
            settings,
            service,
            queue=self.queue,
            show=self.apply,
            polled=lambda groups: self.checker.clients.marked(groups, service.clock.now_ms()),
        )

    def show_own(self, service: SimulatedControl, change: DocumentChange) -> Future[PublishResult]:
        """Have the node in a service's process show a change: over its bridge, if it has one."""
        node = self.node_of(service)
        return (
            node.publish(change) if isinstance(node, OwnNode) else super().show_own(service, change)
        )

    def _show_far(self, node: ShellNode, change: DocumentChange) -> None:
        """A node has heard of a change; until it is up to date that may be old."""
        if not self.follows(node):
            self.note_trouble()
        self.apply(node, change)

    def hand_on(self, change: DocumentChange) -> None:
        """Bring a change to the nodes away from the service: over their feed, if they have one."""
        if not self._shells:
            super().hand_on(change)
            return
        self.missed += sum(node.is_cut for node in self.nodes[1:])

    def tell_all(self, node: SimulatedNode) -> None:
        """Tell a follower everything, unless it asks for that itself."""
        if not self._shells:
            super().tell_all(node)

    def follows(self, node: SimulatedNode) -> bool:
        """Whether changes of the service reach a node, and it is up to date."""
        known = not isinstance(node, FarNode) or node.follows(cast("OwnNode", self.nodes[0]))
        return known and super().follows(node)
