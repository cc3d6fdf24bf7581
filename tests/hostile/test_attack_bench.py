"""The benchmark of floods runs; its figures are for a quiet machine."""

import subprocess
import sys

import pytest

from bench.attack.__main__ import SMOKE, broken
from bench.attack.bystanders import Phase
from bench.attack.floods import FLOODS
from tests.waiting import LIMIT_S


@pytest.mark.nightly
def test_attack_benchmark_runs_to_its_end() -> None:
    """The shortest form starts services, floods them, and prints the times of all phases."""
    run = subprocess.run(
        [sys.executable, "-m", "bench.attack", "--smoke"],
        capture_output=True,
        text=True,
        timeout=10 * LIMIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for name in SMOKE:
        assert run.stdout.count(name) >= 3, run.stdout
    assert '{"413": ' in run.stderr, "the text is refused"
    assert '{"200": ' in run.stderr, "the query is answered"


def test_slow_poll_breaks_the_limit() -> None:
    """A poll above the limit is named with the yardstick; failed polls and calls are named."""
    quiet, slow = Phase([0.001, 0.002]), Phase([0.001, 0.051])
    assert not broken("flood", {"before": quiet, "during": quiet, "after": quiet})
    found = broken("flood", {"before": quiet, "during": slow, "after": Phase([0.001], [], 1, 2)})
    assert len(found) == 3
    assert "50 ms during it; 2 ms before it" in found[0]


def test_both_floods_of_texts_are_there() -> None:
    """Quotes with backslashes in every format that was slow, and spaces in a query."""
    texts = [each for each in FLOODS if "backslashes" in each or "spaces" in each]
    assert len(texts) == 3
