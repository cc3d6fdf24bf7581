"""Random worlds: no promise is broken, everything heals, and a seed is a seed everywhere.

A longer hunt is `make sim SEED=1 N=1000`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.sim.faults import KINDS
from forewarn.sim.runs import command, run_world
from forewarn.sim.world import Plan

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"hosts": 6, "vms": 40, "days": 2.0}
PYTHONS = sorted(Path("~/.pyenv/versions").expanduser().glob("3.1[1-9]*/bin/python"))
TIMEOUT_S = 60
DIGEST = (
    "from forewarn.sim.runs import run_world; from forewarn.sim.world import Plan;"
    "print(run_world(Plan(5, 6, 40, 0.5)).digest)"
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 13))
def test_small_world_keeps_every_promise(seed: int) -> None:
    """Invariants 1 to 14 hold under faults and after healing. Source: L-7, L-8, D-1, A-6."""
    result = run_world(Plan(seed, **SMALL))  # type: ignore[arg-type]
    assert not result.invariant, f"{result.text}\nrepeat it with: {command(result.plan)}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_world_where_everything_happens_at_once(seed: int) -> None:
    """Invariants hold where things happen twelve times as often. Source: L-7, L-8, G-1."""
    result = run_world(Plan(seed, 6, 40, 0.5, rate=12))
    assert not result.invariant, f"{result.text}\nrepeat it with: {command(result.plan)}"


@pytest.mark.slow
def test_world_of_full_size_keeps_every_promise() -> None:
    """So does a day of 20 hosts and 200 VMs. Source: L-2, S-4, G-1."""
    result = run_world(Plan(1001, days=1))
    assert not result.invariant, f"{result.text}\nrepeat it with: {command(result.plan)}"
    assert sum(result.operations.values()) > 20


def test_world_without_faults_approves_early() -> None:
    """With nobody hurt, work is approved, starts early and succeeds. Source: L-1, A-1."""
    result = run_world(Plan(1, 6, 40, 1.0, frozenset(KINDS)))
    assert not result.invariant
    assert not any(result.faults.values())
    assert any(early for _, early, _ in result.waits.values())


def test_every_kind_of_fault_comes() -> None:
    """A week brings every kind of fault. Source: L-7."""
    assert all(run_world(Plan(1, 4, 12, 9.0)).faults.values())


def test_seed_repeats_to_the_byte() -> None:
    """The same seed gives the same history, another seed another one."""
    first, again, other = (run_world(Plan(seed, 6, 40, 0.5)).digest for seed in (3, 3, 4))
    assert first == again != other


@pytest.mark.slow
def test_seed_repeats_on_every_python() -> None:
    """A history depends neither on Python's version nor on the order of its hashes."""
    found = {}
    for python in (Path(sys.executable), *PYTHONS):
        for hash_seed in ("1", "2"):
            environment = {
                **os.environ,
                "PYTHONPATH": str(ROOT / "src"),
                "PYTHONHASHSEED": hash_seed,
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            done = subprocess.run(
                [python, "-c", DIGEST],
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=True,
            )
            found[f"{python} {hash_seed}"] = done.stdout.strip()
    assert len(set(found.values())) == 1, found
