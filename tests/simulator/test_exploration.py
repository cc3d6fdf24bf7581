"""Every interleaving in small worlds, as many as take seconds; `make explore` visits the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator.exploration.explorer import Explorer
from tests.simulator.exploration.worlds import WORLDS, SmallWorld

ROOT = Path(__file__).resolve().parents[2]
STATES = 5000
NOTICED = (
    ("one-group-forgotten", "exploration routine: 1"),
    ("second-fault-domain-at-the-start", "exploration failures: 5"),
    ("coupling-dropped", "exploration deletions: 1"),
    ("own-document-of-a-gpu-vm-shows-all", "exploration fleet: 13"),
)
"""Breakages of the table of `mutate.py`, and what the exploration has to say of each."""


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_small_world_keeps_every_promise(world: SmallWorld) -> None:
    """No order of requests, reads, approvals, crashes and time breaks a promise. Source: L-7."""
    found = Explorer(world).explore(STATES)
    assert found.violation is None, "\n".join([str(found.violation), *found.path])
    assert found.states >= STATES
    assert found.refused


def test_exploration_is_repeatable() -> None:
    """The same world gives the same states, moves and steps."""
    one, other = (Explorer(WORLDS[0]).explore(500) for _ in range(2))
    assert (one.states, one.moves, one.steps) == (other.states, other.moves, other.steps)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "noticed"), NOTICED, ids=[name for name, _ in NOTICED])
def test_exploration_notices_a_breakage(name: str, noticed: str) -> None:
    """A breakage of the core is found where all orders are tried. Source: L-1, S-3, A-8, G-1."""
    command = [sys.executable, "-m", "tests.simulator.mutate", name, "--try", noticed]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.strip() == noticed, done.stderr[-2000:]
