"""Worlds in which the product's connections and service answer VMs, over bytes in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing

import pytest

from forewarn.settings import MetadataSettings
from tests.simulator.checkers.premises import PREMISES
from tests.simulator.runs import command, run_world
from tests.simulator.world.dice import Dice
from tests.simulator.world.event_queue import START_MS, EventQueue
from tests.simulator.world.faults import KINDS
from tests.simulator.world.feed_wire import SLOW_MS, FeedWire, WireEnd
from tests.simulator.world.http_line import HttpAnswer, HttpLine
from tests.simulator.world.node_faults import NODE_EFFECTS
from tests.simulator.world.virtual_loop import VirtualLoop
from tests.simulator.world.world import World, WorldPlan

SMALL = WorldPlan(1, 6, 40, 0.5)
NODE_SEEDS_MAX = 12
POLL = (
    b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
    b"Host: 169.254.169.254\r\nMetadata: true\r\n\r\n"
)


def test_loop_keeps_simulated_time() -> None:
    """Tasks, timeouts and sleeps of the standard library run in the queue's time."""
    queue = EventQueue()
    loop = VirtualLoop(queue)  # type: ignore[abstract]
    seen: list[float] = []

    async def wait() -> None:
        event = asyncio.Event()
        loop.call_later(3.5, event.set)
        try:
            async with asyncio.timeout(1):
                await event.wait()
        except TimeoutError:
            seen.append(loop.time())
        await event.wait()
        seen.append(loop.time())

    task = loop.run(lambda: loop.create_task(wait()))
    while queue.step(START_MS + 10_000):
        pass
    assert task.done()
    assert seen == [1.0, 3.5]


class Sender:
    """A process that sends each node some lines, as fast as the wire takes them."""

    listens = True

    def __init__(self, loop: VirtualLoop, count: int) -> None:
        """Send nothing yet."""
        self.loop = loop
        self._count = count

    def accept_feed(self, end: WireEnd) -> None:
        """Serve a connection."""
        self.loop.run(lambda: self.loop.create_task(self._send(end)))

    async def _send(self, end: WireEnd) -> None:
        for _ in range(self._count):
            end.writer.write(b"x" * 250)
            await end.writer.drain()


@pytest.mark.parametrize(("lines", "slow"), [(8, False), (100, True)])
def test_wire_is_slow_while_it_carries_much(lines: int, *, slow: bool) -> None:
    """A node is not held to be up to date while more comes than its wire carries. Source: E-9."""
    queue = EventQueue()
    loop = VirtualLoop(queue)  # type: ignore[abstract]
    sender = Sender(VirtualLoop(queue), lines)  # type: ignore[abstract]
    wire = FeedWire(queue, Dice(1, "wire"), lambda: sender)
    loop.run(lambda: loop.create_task(wire.connect("", None)))
    while queue.step(START_MS + SLOW_MS + 1):
        pass
    assert wire.is_slow is slow
    while queue.step(START_MS + 60_000):
        pass
    assert not wire.is_slow


def test_kinds_of_clients_meet_what_they_can() -> None:
    """No promise is broken where requests are bytes, and what only they can show is shown.

    Source: E-6, E-7, E-9, A-6.
    """
    world = World(SMALL)
    with closing(world.disk):
        world.run()
    premises = world.checker.premises
    assert premises["E-6: a VM asks too often"]
    assert premises["E-7: a document is not sent again"]
    assert premises["E-9: a long poll hears of a change"]


def test_machine_that_asks_as_its_connection_grows_idle_is_answered() -> None:
    """A connection that the server has closed by then is opened again, as every client does."""
    world = World(WorldPlan(1, 6, 40, 0.1, frozenset(KINDS)))
    answers: list[HttpAnswer] = []
    with closing(world.disk):
        world.run()
        queue, node, machine = world.queue, world.nodes[0], next(iter(world.machines.values()))
        line = HttpLine(queue)
        idle_ms = int(MetadataSettings().idle_timeout_s * 1000)
        for late_ms in range(-1000, 2000, 100):
            line.ask(
                node, machine.profile.address, ((0, POLL),), timeout_ms=1000, then=answers.append
            )
            until_ms = queue.now_ms + idle_ms + late_ms
            while queue.step(until_ms - 1):
                pass
            queue.now_ms = until_ms
    assert {answer.status for answer in answers} == {200}


@pytest.mark.nightly
def test_nodes_on_hypervisors_keep_every_promise() -> None:
    """Nodes that serve some hosts are killed, cut off and lie; VMs move from one to another.

    All of that happens in a few worlds, and every rule has something to be held against.
    Source: M-1, M-2, M-3, M-4, M-5.
    """
    met: Counter[str] = Counter()
    for seed in range(1, NODE_SEEDS_MAX):
        result = run_world(WorldPlan(seed, 8, 40, 1.0, rate=6))
        assert not result.invariant, f"{result.text}\nrepeat it with: {command(result.plan)}"
        met.update({name: result.premises[name] for name in PREMISES if name.startswith("M-")})
        met.update({effect: result.faults["node", effect] for effect in NODE_EFFECTS})
        if all(met.values()):
            break
    assert [name for name, count in met.items() if not count] == []


def test_world_of_nodes_by_host_moves_vms_between_them() -> None:
    """A VM asks the node of the host it is on, and no node knows others' VMs. Source: M-5."""
    world = World(WorldPlan(4, 8, 24, 0.5, frozenset(KINDS), rate=6))
    with closing(world.disk):
        world.run()
    assert world.by_host
    assert world.checker.premises["M-2: a VM runs where another node answers"]
    for name, vm in world.topology.vms.items():
        node = world.network.node_of(name)
        assert node is world.node_of_host(vm.host)
        assert name in node.readers[world.topology.view_of(name)]
    for node in world.nodes_by_host:
        known = {name for readers in node.readers.values() for name in readers}
        assert known == {name for host in node.hosts or () for name in world.topology.vms_on(host)}
