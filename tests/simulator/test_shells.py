"""Worlds in which the product's connections and service answer VMs, over bytes in memory."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing

import pytest

from forewarn.cli.main import main
from forewarn.simulator.checkers.premises import SHELL_PREMISES
from forewarn.simulator.runs import run_world
from forewarn.simulator.world.event_queue import START_MS, EventQueue
from forewarn.simulator.world.virtual_loop import VirtualLoop
from forewarn.simulator.world.world import World, WorldPlan

SMALL = WorldPlan(1, 6, 40, 0.5, shells=True)


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


def test_shells_keep_every_promise() -> None:
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


def test_simulate_leaves_the_shells_out_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    """Random worlds have connections, and `--without shells` those without them."""
    size = ["--hosts", "3", "--vms", "9", "--days", "0.1", "--json"]
    rules = []
    for options in ([], ["--without", "shells"]):
        assert main(["simulate", "--random", *size, *options]) == 0
        rules.append(set(json.loads(capsys.readouterr().out)["premises"]))
    assert rules[0] - rules[1] == set(SHELL_PREMISES)


def test_shells_repeat_a_seed() -> None:
    """The same seed gives the same history, with connections as without."""
    plan = WorldPlan(3, 6, 40, 0.1, shells=True)
    first, again = (run_world(plan).digest for _ in range(2))
    assert first == again
