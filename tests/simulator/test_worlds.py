"""Random worlds: no promise is broken, everything heals, and a seed is a seed everywhere.

A longer hunt is `make sim SEED=1 N=1000`.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.simulator.runs import command, run_world
from tests.simulator.world.crash_points import POINTS
from tests.simulator.world.faults import KINDS
from tests.simulator.world.world import WorldPlan
from tools.product import PYTHONPATH

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"hosts": 6, "vms": 40, "days": 2.0}
NEWER = ("3.12", "3.13", "3.14")
TIMEOUT_S = 60
DIGEST = (
    "from tests.simulator.runs import run_world;"
    "from tests.simulator.world.world import WorldPlan;"
    "print(run_world(WorldPlan(5, 6, 40, 0.5)).digest)"
)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 13))
def test_small_world_keeps_every_promise(seed: int) -> None:
    """Invariants 1 to 14 hold under faults and after healing. Source: L-7, L-8, D-1, A-6."""
    result = run_world(WorldPlan(seed, **SMALL))  # type: ignore[arg-type]
    assert not result.invariant, f"{result.text}\nrepeat it with: {command(result.plan)}"


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 4))
def test_world_where_everything_happens_at_once(seed: int) -> None:
    """Invariants hold where things happen twelve times as often. Source: L-7, L-8, G-1."""
    result = run_world(WorldPlan(seed, 6, 40, 0.5, rate=12))
    assert not result.invariant, f"{result.text}\nrepeat it with: {command(result.plan)}"


@pytest.mark.nightly
def test_world_of_full_size_keeps_every_promise() -> None:
    """So does a day of 20 hosts and 200 VMs. Source: L-2, S-4, G-1."""
    result = run_world(WorldPlan(1001, days=1))
    assert not result.invariant, f"{result.text}\nrepeat it with: {command(result.plan)}"
    assert result.operations > 20


def test_world_without_faults_approves_early() -> None:
    """With nobody hurt, work is approved, starts early and succeeds. Source: L-1, A-1."""
    result = run_world(WorldPlan(1, 4, 12, 0.15, frozenset(KINDS), rate=4))
    assert not result.invariant
    assert not any(result.faults.values())
    assert result.started_early


@pytest.mark.nightly
def test_every_fault_does_everything_it_can() -> None:
    """A few worlds meet each fault's effects, and every rule's premise. Source: L-7."""
    met = _Met()
    for plan in _varied():
        result = run_world(plan)
        met.effects.update(result.faults)
        met.habits.update(result.habits)
        met.premises.update(result.premises)
        if not met.missing():
            break
    assert met.missing() == []
    assert {kind for kind, _ in met.effects} == set(KINDS)
    assert {*(point for kind, point in met.effects if kind == "crash")} > set(POINTS)


@dataclass
class _Met:
    """What worlds have met so far: what the faults did, what machines did by habit, premises."""

    effects: Counter[tuple[str, str]] = field(default_factory=Counter)
    habits: Counter[str] = field(default_factory=Counter)
    premises: Counter[str] = field(default_factory=Counter)

    def missing(self) -> list[object]:
        """What no world has met."""
        counters: tuple[Counter[Any], ...] = (self.effects, self.habits, self.premises)
        return [name for counter in counters for name, count in counter.items() if not count]


def _varied() -> Iterator[WorldPlan]:
    """Worlds of many kinds: three are enough as a rule, and the rarest rule takes some more."""
    quiet = frozenset(KINDS) - {"silence"}  # groups fall silent, and the service hears of it
    for seed, more in ((11, 2), (8, 5), (9, 7)):
        yield WorldPlan(seed, 6, 40, 5.0, rate=2)
        yield WorldPlan(more, 6, 40, 4.0, quiet, rate=2)
    yield from (WorldPlan(seed, 6, 40, 5.0, rate=2) for seed in range(12, 40))


def test_seed_repeats_to_the_byte() -> None:
    """The same seed gives the same history, another seed another one."""
    plans = (WorldPlan(seed, 4, 12, 0.05, rate=4) for seed in (3, 3, 4))
    first, again, other = (run_world(plan).digest for plan in plans)
    assert first == again != other


def _pythons() -> list[str]:
    """This interpreter, and others of its kind: of pyenv, and on the PATH."""
    found = [sys.executable]
    found += map(str, sorted(Path("~/.pyenv/versions").expanduser().glob("3.1[1-9]*/bin/python")))
    found += filter(None, (shutil.which(f"python{version}") for version in NEWER))
    works = filter(_version, dict.fromkeys(found))
    return [python for python in works if _packages(python).is_dir()]


def _packages(python: str) -> Path:
    """Where `tools/setup` has put what the simulator imports, if it has for this version."""
    return ROOT / ".build/packages" / ".".join(map(str, _version(python)))


def _version(python: str) -> tuple[int, ...]:
    """The version of an interpreter; empty where it does not run, as a shim without one."""
    ask = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run(
        [python, "-c", ask], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return tuple(map(int, done.stdout.split())) if not done.returncode else ()


@pytest.mark.nightly
def test_seed_repeats_on_every_python() -> None:
    """A history depends neither on Python's version nor on the order of its hashes."""
    pythons = _pythons()
    assert pythons, "`make setup` gets what is needed"
    found = {}
    for python in pythons:
        for hash_seed in ("1", "2"):
            environment = {
                **os.environ,
                "PYTHONPATH": f"{PYTHONPATH}{os.pathsep}{_packages(python)}",
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
    if len({_version(python) for python in pythons}) == 1:
        pytest.skip("hashes do not matter; there is no second version of Python to compare with")
