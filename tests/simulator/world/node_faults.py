"""What happens to nodes away from the service: killed at any moment, without power, a full disk.

A node's supervisor starts its process again. No promise may be checked here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from forewarn_core.requests import ApprovalRequest
from tests.simulator.world.dice import Dice
from tests.simulator.world.event_queue import HOUR_MS, MINUTE_MS, SECOND_MS
from tests.simulator.world.node_disk import NODE_POINTS

if TYPE_CHECKING:
    import asyncio
    from collections import Counter

    from forewarn_core.requests import RequestAnswer
    from forewarn_metadata.replication.messages import DocumentChange
    from tests.simulator.world.far_node import FarNode
    from tests.simulator.world.metadata_node import SimulatedNode
    from tests.simulator.world.random_fleet import RandomFleet

#: How often some VM of each node asks it, whatever has changed.
LOOK_MS = 10 * MINUTE_MS
#: Within which time a node's process runs again.
BACK_MS = (SECOND_MS, MINUTE_MS, 20 * MINUTE_MS)
FULL_MS_MAX = 30 * MINUTE_MS
#: How often in a thousand a node ends with the power of its machine.
POWER_PERMILLE = 400
#: How often in a thousand a disk is full, a node is cut off when VMs are about to approve what it
#: shows, asks for what is not its own, or is killed at once; else it is killed in what it writes.
FULL_PERMILLE, CUT_PERMILLE, LIES_PERMILLE, KILLED_PERMILLE = 150, 250, 100, 200
#: How often in a thousand it is killed before it is joined again.
KILLED_THEN_PERMILLE = 500
#: How long a node waits for an answer to that: later the VM may be its own.
LIE_MS = 2000
#: Within which time after an event was shown.
CUT_MS_MAX = (100, 5000, 60_000)

#: What can happen to them, as it is counted.
NODE_EFFECTS = (
    "killed",
    "power lost",
    *(f"killed {point}" for point in NODE_POINTS),
    "cut off under an event",
    "asked for another's VM",
    "write lost",
    "torn write kept",
    "not kept",
    "came back",
)


class NodeFaults:
    """Hurts the nodes of one world, if each serves some hosts."""

    def __init__(self, world: RandomFleet, fault_counts: Counter[tuple[str, str]]) -> None:
        """Let VMs ask from time to time."""
        self._world = world
        self._counts = fault_counts
        self._over = False
        self._dice = Dice(world.seed, "nodes by host come back")
        #: Nodes that are cut off once they have shown an event.
        self._cut_next: set[str] = set()
        if world.by_host:
            world.queue.after(LOOK_MS, self._ask)

    def strike(self, dice: Dice) -> None:
        """Hurt a node."""
        nodes = self._world.nodes_by_host
        if not nodes:
            return
        node = dice.pick(nodes)
        drawn, disk = dice.below(1000), node.disk
        if drawn < FULL_PERMILLE:
            disk.full = True
            self._world.queue.after(dice.between(1, FULL_MS_MAX), partial(_free, node))
        elif drawn < FULL_PERMILLE + CUT_PERMILLE:
            self._cut_next.add(node.name)
        elif drawn < FULL_PERMILLE + CUT_PERMILLE + LIES_PERMILLE:
            self._lie(node, dice)
        elif drawn >= FULL_PERMILLE + CUT_PERMILLE + LIES_PERMILLE + KILLED_PERMILLE:
            disk.armed = dice.pick(NODE_POINTS)
        else:
            self._kill(node)

    def shows(self, node: SimulatedNode, change: DocumentChange) -> None:
        """A node shows a change: it may be cut off before its VMs have approved that."""
        for far in self._world.nodes_by_host:
            hit = far is node and any(each.document.events for each in change.publications)
            if hit and far.name in self._cut_next:
                self._cut_next.discard(far.name)
                delay_ms = self._dice.between(1, self._dice.pick(CUT_MS_MAX))
                self._world.queue.after(delay_ms, partial(self._cut, far))

    def _lie(self, node: FarNode, dice: Dice) -> None:
        """Have a node approve for a VM that never was on its hosts. Source: M-5."""
        world, state = self._world, self._world.checker.state
        records = world.checker.nodes.records
        lies = [
            (vm, event.id)
            for event in state.events.values()
            for vm in event.resources
            if vm in state.topology.vms and node.hosts and not records.ever(vm, node.hosts)
        ]
        if not (node.up and lies):
            return
        vm, event_id = dice.pick(lies)
        self._counts["node", "asked for another's VM"] += 1

        def answered(done: asyncio.Future[RequestAnswer]) -> None:
            if not done.cancelled():  # the service had it
                accepted = not done.exception() and done.result().accepted
                world.queue.after(0, partial(self._lied, node, vm, accepted=accepted))

        lie = node.lie(ApprovalRequest(vm, (event_id,), ""))
        lie.add_done_callback(answered)
        world.queue.after(LIE_MS, partial(_give_up, lie))

    def _lied(self, node: FarNode, vm: str, *, accepted: bool) -> None:
        self._world.checker.nodes.asks_for_others(node, vm, accepted=accepted)

    def _cut(self, node: FarNode) -> None:
        if self._over or node.is_cut:
            return
        self._counts["node", "cut off under an event"] += 1
        self._world.cut(node)
        back_ms = self._dice.between(MINUTE_MS, self._dice.pick((5 * MINUTE_MS, HOUR_MS)))
        self._world.queue.after(back_ms, lambda: self._world.join(node))
        if self._dice.chance(KILLED_THEN_PERMILLE):
            self._world.queue.after(self._dice.between(1, back_ms), partial(self._kill, node))

    def _kill(self, node: FarNode) -> None:
        if node.up and not self._over:
            self._counts["node", "killed"] += 1
            self.dies(node)

    def dies(self, node: FarNode) -> None:
        """A node's process ends here and now, alone or with its machine."""
        power = self._dice.chance(POWER_PERMILLE)
        self._counts["node", "power lost"] += power
        node.die(power=power)
        self._world.note_trouble(node)
        self._world.checker.nodes.died(node)
        back_ms = self._dice.between(1, self._dice.pick(BACK_MS))
        self._world.queue.after(back_ms, partial(self._start, node))

    def heal(self) -> None:
        """Let everything be written from now on, and nobody die of it."""
        self._over = True
        self._cut_next.clear()
        for node in self._world.nodes_by_host:
            node.disk.full, node.disk.armed = False, ""

    def service_ended(self) -> None:
        """The service is away: somebody asks each node soon. Source: M-2."""
        for node in self._world.nodes_by_host:
            self._ask_at(node)

    def _start(self, node: FarNode) -> None:
        if not node.start():
            return  # it died in that, and was noted
        self._counts["node", "came back"] += 1
        self._world.note_trouble(node)
        self._world.checker.nodes.restarted(node)
        for name, machine in self._world.machines.items():
            if self._world.network.node_of(name) is node:
                machine.plan_poll()

    def _ask(self) -> None:
        for node in self._world.nodes_by_host:
            self._ask_at(node)
        self._world.queue.after(LOOK_MS, self._ask)

    def _ask_at(self, node: FarNode) -> None:
        world = self._world
        names = [name for name in world.machines if world.network.node_of(name) is node]
        if names:
            world.machines[self._dice.pick(names)].plan_poll()


def _free(node: FarNode) -> None:
    node.disk.full = False


def _give_up(lie: asyncio.Future[RequestAnswer]) -> None:
    lie.cancel()
