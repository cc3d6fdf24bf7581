"""Worlds in which the product's connections and service answer VMs, over bytes in memory."""

import asyncio
from collections import Counter
from contextlib import closing
from types import SimpleNamespace
from typing import cast

import pytest

from forewarn_metadata.replication.server import FeedServer
from forewarn_server.api.feed_endpoint import CONNECTION
from tests.simulator.checkers.premises import PREMISES
from tests.simulator.runs import command, run_world
from tests.simulator.world.event_queue import EventQueue
from tests.simulator.world.faults import KINDS
from tests.simulator.world.node_faults import NODE_EFFECTS
from tests.simulator.world.own_node import CheckedEndpoint
from tests.simulator.world.virtual_loop import VirtualLoop
from tests.simulator.world.world import World, WorldPlan

SMALL = WorldPlan(1, 6, 40, 0.2)
NODE_SEEDS_MAX = 12


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


@pytest.mark.nightly
def test_nodes_on_hypervisors_keep_every_promise() -> None:
    """Nodes that serve some hosts are killed, cut off and lie; VMs move from one to another.

    All of that happens in a few worlds, and every rule has something to be held against.
    Source: M-1, M-2, M-3, M-4, M-5, H-7.
    """
    met: Counter[str] = Counter()
    for seed in range(1, NODE_SEEDS_MAX):
        result = run_world(WorldPlan(seed, 8, 40, 1.0, rate=6))
        assert not result.invariant, f"{result.text}\nrepeat it with: {command(result.plan)}"
        rules = [name for name in PREMISES if name.startswith(("M-", "H-7"))]
        met.update({name: result.premises[name] for name in rules})
        met.update({effect: result.faults["node", effect] for effect in NODE_EFFECTS})
        if all(met.values()):
            break
    assert [name for name, count in met.items() if not count] == []


def test_world_of_nodes_by_host_moves_vms_between_them() -> None:
    """A VM asks the node of the host it is on, and no node knows others' VMs. Source: M-5."""
    world = World(WorldPlan(4, 8, 24, 0.15, frozenset(KINDS), rate=6))
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


class Waiting(CheckedEndpoint):
    """A feed that waits for ever, and wants a loop when its request ends."""

    async def _answer(self, *_: object) -> None:  # type: ignore[override]
        loop = asyncio.get_running_loop()
        try:
            await loop.create_future()
        finally:
            assert asyncio.get_running_loop() is loop


def test_request_of_a_killed_process_ends_without_a_loop() -> None:
    """Python closes what waited in it, at any time: the world must not end with that."""
    loop = VirtualLoop(EventQueue())  # type: ignore[abstract]
    server = cast("FeedServer", SimpleNamespace(access=object()))
    scope = {"state": {CONNECTION: SimpleNamespace(source="10.0.0.1")}}
    request = Waiting(server)(scope, None, None)  # type: ignore[arg-type]
    loop.run(request.send, None)
    loop.end()
    request.close()
