"""A few worlds that nobody has seen, each time the tests run."""

from __future__ import annotations

import os
from collections import Counter
from itertools import chain, count, islice
from pathlib import Path

import pytest

from forewarn.values import replace
from tests.simulator.checkers.premises import TIGHT
from tests.simulator.hunt import SHAPES, SMALL, first_seed, keep, plans
from tests.simulator.runs import WorldResult, run_world
from tests.simulator.world.world import WorldPlan

WORLDS, WORLDS_MAX = 3, 40
RICH_SEEDS = (6000, 4000)
"""Worlds of maintenances that reach most tight situations; more are tried where these do not."""


@pytest.mark.slow
def test_new_worlds_keep_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    """Small worlds of a new seed violate nothing; FRESH_SEED repeats them. Source: L-7, L-8."""
    seed = int(os.environ.get("FRESH_SEED") or first_seed())
    with capsys.disabled():
        print(f"\nnew worlds: FRESH_SEED={seed}")
    for plan in islice(plans(seed, SMALL), WORLDS):
        result = run_world(plan)
        assert not result.invariant, keep(result)


@pytest.mark.nightly
def test_worlds_meet_every_tight_situation() -> None:
    """In a few worlds of maintenances each rule is in danger. Source: F-3, F-5, F-6."""
    premises: Counter[str] = Counter()
    rich = (next(plans(each, SMALL)) for each in chain(RICH_SEEDS, count(1)))
    for plan in islice(rich, WORLDS_MAX):
        result = run_world(plan)
        assert not result.invariant, keep(result)
        premises.update(result.premises)
        if all(premises[name] for name in TIGHT):
            break
    assert [name for name in TIGHT if not premises[name]] == []


def test_seed_gives_the_same_worlds() -> None:
    """A printed seed names its worlds, of every shape."""
    first, again = (list(islice(plans(7), len(SHAPES))) for _ in range(2))
    assert first == again
    assert len({replace(plan, seed=7) for plan in first}) == len(SHAPES)


def test_broken_promise_is_kept(tmp_path: Path) -> None:
    """What was found is in a file, with the command that repeats it."""
    plan = WorldPlan(7, 3, 6, 0.5, rate=60)
    result = WorldResult(plan, 0, 0, "", invariant="1", text="invariant 1: too early")
    assert keep(result, tmp_path) == (tmp_path / "7.txt").read_text("utf-8")
    assert "--seed 7 --hosts 3 --vms 6 --days 0.5 --rate 60" in keep(result, tmp_path)
