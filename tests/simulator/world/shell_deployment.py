"""A deployment whose nodes are processes of the product, joined by its feed; or stand-ins for them.

Without the shells a node is the product's responder alone, and changes reach it directly.
With them, in some worlds, each node away from the service serves the VMs of its hosts alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from forewarn.replication.access import NodeAccess
from forewarn.replication.portions import PORTION_BYTES
from forewarn.settings import MetadataSettings
from tests.simulator.world.deployment import Deployment
from tests.simulator.world.dice import Dice
from tests.simulator.world.far_node import FarNode, FarPlace, Hypervisor
from tests.simulator.world.feed_wire import FeedWire
from tests.simulator.world.node_disk import NodeDisk
from tests.simulator.world.shell_network import PROXY, SECRET, ShellNetwork
from tests.simulator.world.shells import FeedTerms, Observers, OwnNode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from forewarn.core.policy import Policy
    from forewarn.drivers import Driver
    from forewarn.replication.messages import DocumentChange, PublishResult
    from tests.simulator.world.control_process import SimulatedControl
    from tests.simulator.world.metadata_node import SimulatedNode
    from tests.simulator.world.network import Network
    from tests.simulator.world.shell_node import ShellNode

ENABLE_DELAYS_S = (0, 5, 30)
"""How long the first answer to a group is held, in worlds with the shells."""
CONNECTIONS_MAX = 400
"""Open connections of a node: fewer than any machine's file descriptors allow."""
NODES, NODES_BY_HOST = 3, 4
"""Nodes of a world, the service's own among them: where all serve everything, and by host."""
BY_HOST_PERMILLE = 500
"""How often in a thousand nodes away from the service serve some hosts each. Source: M-1."""
PORTIONS_BYTES = (100, 1000, PORTION_BYTES)
"""Sizes of the feed's portions: small ones cut even a small fleet's changes."""
SPOOLS_MAX = (0, 2, 1000)
"""How many approvals a node may accept on its own. Source: M-3."""


class ShellDeployment(Deployment):
    """The service and its nodes, as processes where `shells` is set."""

    def __init__(
        self,
        seed: int,
        policy: Policy,
        *,
        hosts: int,
        drivers: Mapping[str, Driver],
        shells: bool,
    ) -> None:
        """Join the parts; nothing is started."""
        self.seed = seed
        self._shells = shells
        dice = self._node_dice = Dice(seed, "nodes by host")
        #: Whether nodes away from the service serve some hosts each, and keep what they show.
        self.by_host = shells and dice.chance(BY_HOST_PERMILLE) and hosts > 1
        count = min(NODES_BY_HOST, hosts) if self.by_host else NODES
        self._hosts_of = {
            f"node-{n}": frozenset(f"h{host}" for host in range(n, hosts, count))
            for n in range(1, count)
        }
        access = None
        if self.by_host:
            access = NodeAccess(
                [f"{name}={','.join(sorted(served))}" for name, served in self._hosts_of.items()],
                [f"{name}:{_token(name)}" for name in self._hosts_of],
            )
        self._terms = FeedTerms(access, dice.pick(PORTIONS_BYTES))
        super().__init__(seed, policy, nodes=count, drivers=drivers)
        #: Those that serve some hosts each.
        self.nodes_by_host: tuple[FarNode, ...] = ()
        if shells:  # without, the service waits for its own node alone
            far = tuple(cast("FarNode", node) for node in self.nodes[1:])
            self.checker.nodes.far = far
            self.checker.clients.polls_are_marked = True
            self.nodes_by_host = far if self.by_host else ()

    def node_of_host(self, host: str) -> SimulatedNode:
        """Return the node that VMs reach from a host."""
        return self.nodes[int(host.removeprefix("h")) % len(self.nodes)]

    def node_died(self, node: FarNode) -> None:
        """End a node's process, in the middle of what it writes or between two things."""
        raise NotImplementedError

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
            place = self._far_place(name)
            return FarNode(name, settings, service, queue=self.queue, place=place)
        observers = Observers(
            self.apply,
            lambda groups, age_ms: self.checker.hears_polls(groups, service.clock.now_ms(), age_ms),
        )
        terms = self._terms
        return OwnNode(name, settings, service, queue=self.queue, terms=terms, observers=observers)

    def _far_place(self, name: str) -> FarPlace:
        dice = Dice(self.seed, f"wire of {name}")
        wire = FeedWire(self.queue, dice, lambda: cast("OwnNode", self.nodes[0]))
        hypervisor = None
        if self.by_host:
            hypervisor = Hypervisor(
                self._hosts_of[name],
                _token(name),
                NodeDisk(Dice(self.seed, f"disk of {name}")),
                self._node_dice.pick(SPOOLS_MAX),
                self.node_died,
            )
        lost_feed = self.checker.nodes.lost_feed
        return FarPlace(wire, self._terms.pace, self._show_far, lost_feed, hypervisor)

    def show_own(self, service: SimulatedControl, change: DocumentChange) -> Future[PublishResult]:
        """Have the node in a service's process show a change: over its bridge, if it has one."""
        node = self.node_of(service)
        return (
            node.publish(change) if isinstance(node, OwnNode) else super().show_own(service, change)
        )

    def _show_far(self, node: ShellNode, change: DocumentChange) -> None:
        """A node has heard of a change; until it is up to date that may be old."""
        if not self.follows(node):
            self.note_trouble(node)
        self.apply(node, change)
        self.checker.nodes.takes(cast("FarNode", node), change)

    def hand_on(self, change: DocumentChange) -> None:
        """Bring a change to the nodes away from the service: over their feed, if they have one."""
        if not self._shells:
            super().hand_on(change)
            return
        self.missed += sum(node.is_cut for node in self.nodes[1:])

    def tell_all(self, node: SimulatedNode) -> None:
        """Send a follower everything, unless it asks for that itself."""
        if not self._shells:
            super().tell_all(node)

    def follows(self, node: SimulatedNode) -> bool:
        """Whether changes of the service reach a node, and it is up to date."""
        known = not isinstance(node, FarNode) or node.follows(cast("OwnNode", self.nodes[0]))
        return known and super().follows(node)


def _token(name: str) -> str:
    return f"the-token-of-{name}"
