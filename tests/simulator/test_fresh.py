"""A few worlds that nobody has seen, each time the tests run."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from tests.simulator.hunt import SHAPES, first_seed, keep, plans
from tests.simulator.runs import WorldResult, run_world
from tests.simulator.world.world import WorldPlan

WORLDS = 3


@pytest.mark.slow
def test_new_worlds_keep_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    """Worlds of a new seed violate nothing; FRESH_SEED repeats a run. Source: L-7, L-8."""
    seed = int(os.environ.get("FRESH_SEED") or first_seed())
    with capsys.disabled():
        print(f"\nnew worlds: FRESH_SEED={seed}")
    small = (plan for plan in plans(seed) if plan.vms <= 40)
    found = [result for result in map(run_world, islice(small, WORLDS)) if result.invariant]
    assert not found, "\n".join(keep(result) for result in found)


def test_seed_gives_the_same_worlds() -> None:
    """A printed seed names its worlds, of every shape."""
    first, again = (list(islice(plans(7), len(SHAPES))) for _ in range(2))
    assert first == again
    assert len({(plan.hosts, plan.vms, plan.days, plan.rate) for plan in first}) == len(SHAPES)


def test_broken_promise_is_kept(tmp_path: Path) -> None:
    """What was found is in a file, with the command that repeats it."""
    plan = WorldPlan(7, 3, 6, 0.5, rate=60)
    result = WorldResult(plan, 0, 0, "", invariant="1", text="invariant 1: too early")
    assert keep(result, tmp_path) == (tmp_path / "7.txt").read_text("utf-8")
    assert "--seed 7 --hosts 3 --vms 6 --days 0.5 --rate 60" in keep(result, tmp_path)
