"""The real service, its store, nodes, network and machines, joined as they are in life.

Its nodes are processes of the product, joined by its feed. What happens in it is decided
elsewhere: by a seed (`world.py`) or by a script (`transcript.py`).
"""

import gc
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import cast

from forewarn_base.ids import Ids
from forewarn_base.settings import MetadataSettings
from forewarn_core.fleet.lifecycle import Operation
from forewarn_core.fleet.policy import NoticePolicy
from forewarn_core.fleet.state import Changes
from forewarn_core.fleet.topology import Topology, Vm
from forewarn_drivers import Driver
from forewarn_metadata.replication import messages as feed
from forewarn_server.control.driver_calls import Executor
from forewarn_server.control.gate_checks import Gate
from tests.simulator.checkers.coordination_checker import CoordinationChecker
from tests.simulator.checkers.invariants import InvariantChecker
from tests.simulator.world.control_process import BugLog, ProcessEnvironment, SimulatedControl
from tests.simulator.world.crash_points import CrashPoint, Violation
from tests.simulator.world.dice import Dice
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.far_node import FarNode, FarPlace, Hypervisor
from tests.simulator.world.feed_wire import FeedWire
from tests.simulator.world.machine import Machine
from tests.simulator.world.metadata_node import SimulatedNode
from tests.simulator.world.network import KINDS, Network
from tests.simulator.world.own_node import FeedTerms, Observers, OwnNode
from tests.simulator.world.peers import Peers
from tests.simulator.world.side_work import InlineExecutor
from tests.simulator.world.simulated_store import Disk, DiskFaultRates, SimulatedStore

#: Within which time the service publishes everything again: "up to every 30 s" (lifecycle.md).
REPUBLISHED_MS = 31_000
#: A world keeps most of what it makes: the usual thresholds cost a seventh of the run.
GC_THRESHOLDS = (100_000, 20, 100)


class Deployment:
    """Everything that is there before anything happens; the service is not started yet."""

    #: What the service's settings have of gates.
    gates: Mapping[str, Gate] = MappingProxyType({})
    #: Kinds of clients of its VMs.
    clients: Sequence[str] = KINDS
    #: How its nodes serve. How often is asked is the deployment's affair.
    settings = MetadataSettings(rate_per_s=0, enable_delay_s=2)
    #: How the service serves its feed.
    terms = FeedTerms(None)

    def __init__(
        self, seed: int, policy: NoticePolicy, *, nodes: int, drivers: Mapping[str, Driver]
    ) -> None:
        """Join the parts; the first driver is the default one, the first node the service's."""
        self.publish_lag_ms = self._trouble_ms = 0
        self._node_trouble_ms: dict[SimulatedNode, int] = {}
        #: Whether changes cannot be handed to nodes, and how many could not.
        self.publish_fails = False
        self.not_handed_on = 0
        #: Until when everything is due to be published again, true time in ms; 0: it is not.
        self._republished_by_ms = 0
        #: Changes that the service's own node showed late, and that a follower was not sent.
        self.shown_late = self.missed = 0
        self.seed = seed
        self.queue = EventQueue()
        self.crash_point = CrashPoint()
        self.policy = policy
        self.checker = InvariantChecker(self.queue, self.policy)
        self.machines: dict[str, Machine] = {}
        self.network = Network(self.queue, self.checker, seed=seed, kinds=self.clients)
        together = self.coordination_checker = CoordinationChecker(
            self.queue, self.checker, network=self.network, machines=self.machines
        )
        self.peers = Peers(
            self.queue, Dice(seed, "peers"), network=self.network, coordination_checker=together
        )
        self.disk_fault_rates = DiskFaultRates(Dice(seed, "disk"))
        self.disk = Disk(self.disk_fault_rates)
        self.store = SimulatedStore(self.disk, self.crash_point, self)
        self.bugs = BugLog()
        self._environment = ProcessEnvironment(
            open_store=self.open_store,
            policy=self.policy,
            new_guid=partial(Ids(seed).guid, "event"),
            drivers=drivers,
            default_driver=next(iter(drivers)),
            show=self._show,
            begins=self._begins,
            recovers=self.checker.recovers,
            process_ended=self._on_process_end,
            process_started=self._on_process_start,
            new_executor=self.new_executor,
            gates=self.gates,
            bugs=self.bugs,
        )
        self._boots = 0
        self.service = self.new_service()
        #: A writer that was replaced and does not know it yet, and the node in its process.
        self.replaced_writer: SimulatedControl | None = None
        self._replaced_node: SimulatedNode | None = None
        self.nodes: list[SimulatedNode] = [self._new_own_node()]
        self._late_until_ms = 0
        for number in range(1, nodes):
            self.add_far_node(f"node-{number}")
        self.checker.sound_since_ms = self.sound_since_ms

    def add_far_node(self, name: str) -> None:
        """Start a node away from the service, which follows its feed."""
        wire = FeedWire(self.queue, self.wire_dice(name), lambda: cast("OwnNode", self.nodes[0]))
        lost_feed, hypervisor = self.checker.nodes.lost_feed, self.hypervisor(name)
        place = FarPlace(wire, self._show_far, lost_feed, hypervisor)
        node = FarNode(name, self.settings, self.service, queue=self.queue, place=place)
        self.nodes.append(node)
        self.checker.nodes.far = (*self.checker.nodes.far, node)

    def wire_dice(self, name: str) -> Dice:
        """Return what decides how the feed of a node is carried."""
        return Dice(self.seed, f"wire of {name}")

    def hypervisor(self, name: str) -> Hypervisor | None:  # noqa: ARG002 - others need it
        """Return what a node of some hosts has there; None: it serves all, and keeps nothing."""
        return None

    def _new_own_node(self) -> OwnNode:
        service = self.service
        observers = Observers(
            self.apply,
            lambda groups, age_ms: self.checker.hears_polls(groups, service.clock.now_ms(), age_ms),
        )
        return OwnNode(
            "node-0",
            self.settings,
            service,
            queue=self.queue,
            terms=self.terms,
            observers=observers,
        )

    def new_executor(self, service: SimulatedControl) -> Executor:  # noqa: ARG002 - others need it
        """Return where a process has work done beside its loop."""
        return InlineExecutor()

    @property
    def topology(self) -> Topology:
        """The fleet as it durably is."""
        return self.checker.state.topology

    def build_machine(self, vm: Vm) -> None:
        """A VM was added to the fleet: build what stands for it."""
        raise NotImplementedError

    def digest(self) -> str:
        """SHA-256 of the whole history: the same for the same seed, everywhere."""
        return self.checker.history.digest(self.store)

    @contextmanager
    def captured_logs(self) -> Iterator[None]:
        """Take what the product logs: its bugs are violations, the rest is nobody's."""
        log = logging.getLogger("forewarn")
        propagates, log.propagate = log.propagate, False
        log.addHandler(self.bugs)
        thresholds = gc.get_threshold()
        gc.set_threshold(*GC_THRESHOLDS)
        try:
            yield
        finally:
            gc.set_threshold(*thresholds)
            log.removeHandler(self.bugs)
            log.propagate = propagates

    # ---- the service ---------------------------------------------------------------------------

    def process_ended(self, why: str) -> None:  # noqa: ARG002 - a death is a death
        """The control plane's process ended, and the node in it."""
        self.nodes[0].serves = False
        self.nodes[0].clear()
        self._late_until_ms = 0
        self.checker.own_node_died()

    def replaced(self, why: str | None) -> None:  # noqa: ARG002 - either way
        """A standby is the writer now, or, with the reason, the old one has ended, too."""
        self.note_trouble()

    def new_service(self) -> SimulatedControl:
        """A process that is down, on a machine of its own."""
        self._boots += 1
        return SimulatedControl(
            self.queue, self.crash_point, self._environment, boot=f"boot {self._boots}"
        )

    def open_store(self) -> SimulatedStore:
        """The store, as every process opens it for itself."""
        return SimulatedStore(self.disk, self.crash_point, self)

    def node_of(self, service: SimulatedControl) -> SimulatedNode:
        """The node in a service's own process."""
        return (
            self._replaced_node
            if service is self.replaced_writer and self._replaced_node
            else self.nodes[0]
        )

    def _on_process_end(self, service: SimulatedControl, why: str) -> None:
        if service is not self.replaced_writer:
            self.process_ended(why)
            return
        self.replaced_writer = None
        if self._replaced_node is not None:
            self._replaced_node.clear()
        self._take_addresses_over()
        self.replaced(why)

    def _on_process_start(self, service: SimulatedControl, jumped_ms: int) -> None:
        """A process has read its store; its clock may be ahead of that before it."""
        self.checker.jumped_ms += jumped_ms
        if service is not self.service:
            self._hand_over(service)

    def _hand_over(self, service: SimulatedControl) -> None:
        """A standby is the writer now; the old one, where it is still there, does not know."""
        old, old_node = self.service, self.nodes[0]
        self.service = service
        self.nodes[0] = self._new_own_node()
        self._late_until_ms = 0  # what the old one is sent late is not in its way
        self.checker.own_node_died()
        for node in self.nodes[1:]:
            node.service = service
        self._replaced_node = old_node
        self.replaced(None)
        if old.up:
            self.replaced_writer = old
        if not old.up or old.paused:
            self._take_addresses_over()

    def _take_addresses_over(self) -> None:
        """Let the VMs of the old writer's node ask the new one's."""
        if self._replaced_node is not None:
            for name in self.network.move(self._replaced_node, self.nodes[0]):
                if name in self.machines:
                    self.machines[name].plan_poll()
        if self.replaced_writer is None:
            self._replaced_node = None

    def _begins(self, service: SimulatedControl, operation: Operation) -> None:
        if service is self.replaced_writer:
            raise Violation("9", f"{operation.id} is begun by a writer that was replaced")

    def durable(self, changes: Changes) -> None:
        """A change is durable: the checker hears of it, machines come and go."""
        self.coordination_checker.durable(changes)
        self.checker.take(changes, self.service.clock.now_ms())
        for name, vm in changes.vms.items():
            if vm is None:
                self.machines.pop(name).scrap()
            elif name not in self.machines:
                self.build_machine(vm)

    def note_trouble(self, node: SimulatedNode | None = None) -> None:
        """Something is, or was until now, wrong that keeps changes from this node, or from all."""
        if node is None:
            self._trouble_ms = self.queue.now_ms
        else:
            self._node_trouble_ms[node] = self.queue.now_ms

    def sound_since_ms(self, node: SimulatedNode | None) -> int:
        """Since when a change reaches a node at once, true time in ms; now, where none does.

        Without a node, that of the service's own is meant.
        """
        service = self.service
        wrong = (
            not service.up
            or service.paused
            or self.publish_fails
            or self._republished_by_ms > self.queue.now_ms
            or self.publish_lag_ms
            or service.late_shows
            or self.disk_fault_rates.permille
            or self.replaced_writer is not None
            or (service.store is not None and service.store.cut)
        )
        if wrong:
            self.note_trouble()
        since_ms = max(self._trouble_ms, self.checker.recovered_ms)
        if node is None:
            return since_ms
        if not self.follows(node):
            self.note_trouble(node)
        return max(since_ms, self._node_trouble_ms.get(node, 0))

    def follows(self, node: SimulatedNode) -> bool:
        """Whether changes of the service reach a node, and it is up to date."""
        known = not isinstance(node, FarNode) or node.follows(self.nodes[0])
        return known and node.service is self.service and not node.is_cut

    # ---- showing -------------------------------------------------------------------------------

    def _show(
        self, service: SimulatedControl, change: feed.DocumentChange
    ) -> Future[feed.PublishResult]:
        """Bring a change to every node; the service waits for its own only."""
        if service is self.replaced_writer:
            raise Violation("8", "a writer that was replaced shows a change")
        if self.publish_fails:
            self.not_handed_on += 1
            self._republished_by_ms = self.queue.now_ms + REPUBLISHED_MS
            self.note_trouble()
            failed: Future[feed.PublishResult] = Future()
            failed.set_exception(OSError("the feed is broken"))
            return failed
        if change.whole and self._republished_by_ms:
            self._republished_by_ms = 0
            self.note_trouble()
        if self.publish_lag_ms or service.late_shows:  # one after another
            shown: Future[feed.PublishResult] = Future()
            service.late_shows += 1
            self.shown_late += 1
            show = partial(self._show_late, service, service.loop, change, shown)
            at_ms = max(self._late_until_ms, self.queue.now_ms + self.publish_lag_ms)
            self._late_until_ms = at_ms
            self.queue.at(at_ms, partial(service.once_awake, show))
        else:
            shown = self._show_own(service, change)
        self.missed += sum(node.is_cut for node in self.nodes[1:])
        return shown

    def _show_own(
        self, service: SimulatedControl, change: feed.DocumentChange
    ) -> Future[feed.PublishResult]:
        """Publish over the bridge of the node in a service's own process."""
        return cast("OwnNode", self.node_of(service)).publish(change)

    def _show_far(self, node: SimulatedNode, change: feed.DocumentChange) -> None:
        """A node has heard of a change; until it is up to date that may be old."""
        if not self.follows(node):
            self.note_trouble(node)
        self.apply(node, change)
        self.checker.nodes.takes(cast("FarNode", node), change)

    def _show_late(
        self,
        service: SimulatedControl,
        loop: object,
        change: feed.DocumentChange,
        shown: Future[feed.PublishResult],
    ) -> None:
        if service.loop is loop:
            service.late_shows -= 1
            self.note_trouble()
            self._show_own(service, change).add_done_callback(partial(_pass_on, service, shown))

    def apply(self, node: SimulatedNode, change: feed.DocumentChange) -> None:
        """Have a node show a change, and those who would see it ask it soon."""
        own = node is self.nodes[0]
        self.checker.publishes(change, own_ms=self.service.clock.now_ms() if own else None)
        changed = [
            publication.view
            for publication in change.publications
            if node.shows_otherwise(publication)
        ]
        node.apply(change)
        for view in changed:
            for name in node.readers.get(view, ()):
                machine = self.machines.get(name)
                if machine is not None and self.network.node_of(name) is node:
                    machine.plan_poll()

    def cut(self, node: SimulatedNode) -> None:
        """Cut a follower off from the service."""
        node.cut()

    def join(self, node: SimulatedNode) -> None:
        """Connect a follower again."""
        if node.is_cut:
            node.join()
            self.note_trouble(node)


def _pass_on(
    service: SimulatedControl,
    shown: Future[feed.PublishResult],
    done: Future[feed.PublishResult],
) -> None:
    """Report to the service what became of a publication that began late."""
    error = done.exception()
    if error is None:
        shown.set_result(done.result())
    else:
        shown.set_exception(error)
    service.turn()
