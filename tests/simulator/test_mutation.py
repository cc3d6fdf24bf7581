"""The generated breakages: how they are made, who is asked, and how a score is stated."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from forewarn.core import indexes
from tests.simulator.mutants import equivalents, interval
from tests.simulator.mutation import finder
from tests.simulator.mutation.generated import PACKAGES, SOUND, Breakage, breakages
from tests.simulator.mutation.recorded import Recorded
from tests.simulator.mutation.server import replaced


@pytest.fixture(scope="module")
def core() -> list[Breakage]:
    """Every breakage of the core."""
    return breakages("core")


def of_function(core: list[Breakage], what: str) -> Breakage:
    """Return a breakage of `is_placed_alike`, which is first in its module to use `and`."""
    name = indexes.is_placed_alike.__code__
    lines = range(name.co_firstlineno, name.co_firstlineno + 8)
    return next(
        each
        for each in core
        if each.module == indexes.__name__ and each.line in lines and each.what == what
    )


def test_breakage_takes_the_place_of_code_in_use(core: list[Breakage]) -> None:
    """A function that others have imported is broken, too."""
    function, sound = indexes.is_placed_alike, indexes.is_placed_alike.__code__
    try:
        assert replaced(of_function(core, "and to or"))
        assert function.__code__ != sound
    finally:
        function.__code__ = sound


def test_breakage_reaches_processes_that_tests_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of ours that is run by itself is broken, too, and others are not."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv(finder.MODULE, "")
    monkeypatch.setenv(finder.NUMBER, "")
    [nice] = [each for each in breakages("control") if each.text == "NICE = 10"]
    finder.break_children(nice)
    text = "from forewarn.control import planner_worker as p; print(p.NICE, p.OOM_SCORE)"
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["11", "1000"]
    held = Recorded({"starts it": 1.0}, {}, [])
    end = next(each for each in breakages("control") if each.text == "os._exit(1)")
    assert end.is_in_function
    assert not held.is_replaceable(end)
    assert held.tests(end) == ["starts it"]


def test_sound_product_is_not_changed(core: list[Breakage]) -> None:
    """The control run that must notice nothing runs the product as it is."""
    before = indexes.is_placed_alike.__code__
    assert replaced(replace(core[0], number=SOUND))
    assert indexes.is_placed_alike.__code__ is before


def test_tests_that_execute_a_line_are_run_fastest_first(core: list[Breakage]) -> None:
    """What does not reach the breakage is left out; what runs while loading makes it early."""
    breakage = of_function(core, "and to or")
    lines = {str(breakage.line): ["slow", "fast"]}
    held = Recorded({"slow": 2.0, "other": 0.5, "fast": 1.0}, {breakage.path: lines}, [])
    assert held.tests(breakage) == ["fast", "slow"]
    lines[str(breakage.line)].append("")
    assert not held.is_replaceable(breakage)
    assert held.tests(breakage) == ["other", "fast", "slow"]


def test_interval_is_wilsons() -> None:
    """A small sample says little, and a full score proves little."""
    low, high = interval(8, 12)
    assert (round(low, 3), round(high, 3)) == (0.391, 0.862)
    assert interval(40, 40)[0] < 0.92


def test_equivalents_are_breakages_that_can_be_made() -> None:
    """What is listed as unnoticeable is still there, once for each breakage it names."""
    known = Counter(key for room in PACKAGES for each in breakages(room) for key in each.keys)
    assert [key for key in equivalents() if not known[key]] == []
