"""Every deliberate breakage of the product is noticed.

A row names the world that is tried first; if it no longer notices, the others are tried.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator.breakages import BREAKAGES, Breakage
from tests.simulator.mutants import equivalents
from tests.simulator.mutate import noticed_in_world
from tests.simulator.mutation.generated import PACKAGES, breakages
from tools.product import files, module_of

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 600
WORLDS = sorted({each.seed for each in BREAKAGES})

every_breakage = pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda each: each.name)


@pytest.mark.nightly
@every_breakage
def test_breakage_is_noticed(breakage: Breakage) -> None:
    """A checker notices each breakage; which one is not pinned. Source: L-7."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulator.mutate", breakage.name],
        cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("world "), done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("world", WORLDS)
def test_unbroken_product_violates_nothing(world: int) -> None:
    """A world that notices breakages has nothing to say of the sound product. Source: L-7."""
    assert noticed_in_world(world) == ""


@every_breakage
def test_breakage_applies(breakage: Breakage) -> None:
    """What a breakage edits stands in its module, once."""
    for module, old, _ in breakage.edits:
        [path] = [each for each in files() if module_of(each) == module]
        assert path.read_text("utf-8").count(old) == 1


def test_listed_equivalent_is_a_possible_breakage() -> None:
    """A line whose source text was changed is judged again: it may be noticeable now."""
    possible = {key for room in PACKAGES for each in breakages(room) for key in each.keys}
    assert sorted(equivalents() - possible) == []
