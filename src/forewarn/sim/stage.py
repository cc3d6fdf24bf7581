"""The stage: the real service, its store, nodes, wires and machines, joined as they are in life.

What happens on it is decided elsewhere: by a seed (`world.py`) or by a script (`script.py`).
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from forewarn import feed
from forewarn.ids import Ids
from forewarn.settings import MetadataSettings
from forewarn.sim.accord import Accord
from forewarn.sim.agenda import Agenda
from forewarn.sim.archive import Archive, Disk
from forewarn.sim.archive import Weather as DiskWeather
from forewarn.sim.crash import Fuse
from forewarn.sim.dice import Dice
from forewarn.sim.invariants import Judge
from forewarn.sim.node import Node
from forewarn.sim.peers import Peers
from forewarn.sim.service import BugLog, Service, Surroundings
from forewarn.sim.wires import Wires

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from concurrent.futures import Future

    from forewarn.core.policy import Policy
    from forewarn.core.state import Changes
    from forewarn.core.topology import Topology, Vm
    from forewarn.drivers import Driver
    from forewarn.sim.machine import Machine

FOLLOWER_LAG_MS = 120
GC_THRESHOLDS = (100_000, 20, 100)
"""A world keeps most of what it makes: the usual thresholds cost a seventh of the run."""


class Stage:
    """Everything that is there before anything happens; the service is not started yet."""

    def __init__(
        self, seed: int, policy: Policy, *, nodes: int, drivers: Mapping[str, Driver]
    ) -> None:
        """Join the parts; the first driver is the default one, the first node the service's."""
        self.show_lag_ms = 0
        self._lag_dice = Dice(seed, "lag")
        self.agenda = Agenda()
        self.fuse = Fuse()
        self.policy = policy
        self.judge = Judge(self.agenda, self.policy)
        self.machines: dict[str, Machine] = {}
        self.wires = Wires(self.agenda, self.judge, Dice(seed, "wires"))
        self.accord = Accord(self.agenda, self.judge, wires=self.wires, machines=self.machines)
        self.peers = Peers(self.agenda, Dice(seed, "peers"), wires=self.wires, accord=self.accord)
        self.disk_weather = DiskWeather(Dice(seed, "disk"))
        self.disk = Disk(self.disk_weather)
        self.archive = Archive(self.disk, self.fuse, self)
        self.bugs = BugLog()
        ids = Ids(seed)
        self.service = Service(
            self.agenda,
            self.fuse,
            Surroundings(
                open_archive=self._open_archive,
                policy=self.policy,
                new_guid=partial(ids.guid, "event"),
                drivers=drivers,
                default_driver=next(iter(drivers)),
                show=self._show,
                died=self.died,
                risen=self.risen,
                bugs=self.bugs,
            ),
        )
        settings = MetadataSettings()
        self.nodes = [Node(f"node-{n}", settings, self.service) for n in range(nodes)]
        self._delivered = [0] * nodes

    @property
    def topology(self) -> Topology:
        """The fleet as it durably is."""
        return self.judge.mirror.topology

    def build_machine(self, vm: Vm) -> None:
        """A VM was added to the fleet: build what stands for it."""
        raise NotImplementedError

    def digest(self) -> str:
        """SHA-256 of the whole history: the same for the same seed, everywhere."""
        found = hashlib.sha256()
        for recorded in self.archive.entries():
            entry = recorded.entry
            images = [(image.kind, image.key, image.row) for image in entry.images]
            line = (recorded.seq, entry.at_ms, entry.actor, entry.action, entry.text, images)
            found.update(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        return found.hexdigest()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take what the control plane logs: its bugs are violations, the rest is nobody's."""
        log = logging.getLogger("forewarn.control")
        before = log.propagate
        log.propagate = False
        log.addHandler(self.bugs)
        thresholds = gc.get_threshold()
        gc.set_threshold(*GC_THRESHOLDS)
        try:
            yield
        finally:
            gc.set_threshold(*thresholds)
            log.removeHandler(self.bugs)
            log.propagate = before

    # ---- the service ---------------------------------------------------------------------------

    def died(self, why: str) -> None:  # noqa: ARG002 - a death is a death
        """The control plane's process ended, and the node in it."""
        self.nodes[0].serves = False
        self.nodes[0].clear()
        self.judge.own_node_died()

    def _open_archive(self) -> Archive:
        self.archive = Archive(self.disk, self.fuse, self)
        return self.archive

    def risen(self, jumped_ms: int) -> None:
        """The process is up; its clock may be ahead of the one it had before."""
        self.judge.jumped_ms += jumped_ms

    def loaded(self) -> None:
        """The state was read from the store: a start, or a look after a lost commit."""
        self.judge.loads += 1

    def durable(self, changes: Changes) -> None:
        """A change is durable: the judge hears of it, machines come and go."""
        self.accord.durable(changes)
        self.judge.durable(changes)
        for name, vm in changes.vms.items():
            if vm is None:
                self.machines.pop(name).halt()
            elif name not in self.machines:
                self.build_machine(vm)

    # ---- showing -------------------------------------------------------------------------------

    def _show(self, change: feed.Change, shown: Future[None]) -> None:
        """Bring a change to every node; the service waits for its own only."""
        loop = self.service.loop
        if self.show_lag_ms:
            at_ms = self._in_order(0, self.show_lag_ms)
            self.agenda.at(at_ms, partial(self._show_late, loop, change, shown))
        else:
            self._delivered[0] = self.agenda.now_ms
            self._apply(self.nodes[0], change)
            shown.set_result(None)
        told = feed.decode(feed.encode(change))  # what travels is a line of the feed
        for number, node in enumerate(self.nodes[1:], start=1):
            if node.connected:
                at_ms = self._in_order(number, self._lag_dice.between(1, FOLLOWER_LAG_MS))
                self.agenda.at(at_ms, partial(self._deliver, node, told))

    def _in_order(self, number: int, lag_ms: int) -> int:
        self._delivered[number] = max(self._delivered[number], self.agenda.now_ms + lag_ms)
        return self._delivered[number]

    def _show_late(self, loop: object, change: feed.Change, shown: Future[None]) -> None:
        if self.service.loop is loop:
            self._apply(self.nodes[0], change)
            shown.set_result(None)
            self.service.turn()

    def _deliver(self, node: Node, change: feed.Change) -> None:
        if node.connected:
            self._apply(node, change)

    def _apply(self, node: Node, change: feed.Change) -> None:
        self.judge.publishes(change, own=node is self.nodes[0])
        changed = [
            publication.view
            for publication in change.publications
            if node.shows_otherwise(publication)
        ]
        node.apply(change)
        for view in changed:
            for name in node.readers.get(view, ()):
                machine = self.machines.get(name)
                if machine is not None and self.wires.node_of(name) is node:
                    machine.plan_poll()

    def cut(self, node: Node) -> None:
        """Cut a follower off from the service."""
        node.connected = False

    def join(self, node: Node) -> None:
        """Connect a follower again; it is told everything anew."""
        if node.connected:
            return
        node.connected = True
        if self.service.up:
            told = feed.decode(feed.encode(self.service.plane.whole()))
            at_ms = self._in_order(self.nodes.index(node), FOLLOWER_LAG_MS)
            self.agenda.at(at_ms, partial(self._deliver, node, told))
