"""Random work on nodes in virtual time, while agents, services and the API server fail.

`SEED=2 pytest -s -m nightly FILE`, with the path of this file, runs 10,000 others; `LIFECYCLES=N`
runs as many.
"""

import os
from pathlib import Path

import pytest

from kubernetes_tests.virtual_nodes import DOWN_TICKS_MAX, TICK_MS, TURN_TICKS, virtual_nodes

SEED = int(os.environ.get("SEED", "1"))
COUNT = int(os.environ.get("LIFECYCLES", "10000"))


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, pytest.param(COUNT, marks=pytest.mark.nightly)])
def test_nodes_are_right_within_30_virtual_seconds(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is wrong for longer once everything is back, and nothing is left. Source: K-1."""
    world = virtual_nodes(tmp_path, monkeypatch, SEED, hosts=4, vms=4)
    while world.begun < count:
        world.tick(kills=True, begins=True)
    while world.work or not all(map(world.is_up, ("API server", "service", "follower"))):
        world.tick(kills=False, begins=False)
    for _ in range(DOWN_TICKS_MAX + 2 * TURN_TICKS + 60 // (TICK_MS // 1000)):
        world.tick(kills=False, begins=False)
    assert world.left() == []
    print(f"{world.begun} lifecycles, {world.kills} kills: wrong for {world.longest_ms / 1000} s")
