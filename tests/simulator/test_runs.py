"""Results, the command that repeats them, and the shrinker."""

from __future__ import annotations

import gc

import pytest

from forewarn.core import handlers
from forewarn.core.draft import Draft
from forewarn.core.stimulus import DriverBegun
from tests.simulator.runs import WorldResult, breaks_the_same, command, run_world, shrinking
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.event_queue import DAY_MS, HOUR_MS
from tests.simulator.world.faults import KINDS
from tests.simulator.world.people import ACTIVITIES, OPTIONAL, STEADY
from tests.simulator.world.world import World, WorldPlan


def test_command_repeats_a_plan() -> None:
    """Only what differs from the usual world is named."""
    assert command(WorldPlan(7)) == "python -m tests.simulator --seed 7"
    plan = WorldPlan(7, 3, 9, 0.5, frozenset({"store", "crash"}), rate=3)
    assert command(plan) == (
        "python -m tests.simulator --seed 7 --hosts 3 --vms 9 --days 0.5 --rate 3"
        " --without crash,store"
    )


def forget(draft: Draft, report: DriverBegun) -> tuple[int, ...]:
    """A product with a bug: it falls over whenever a driver has begun."""
    raise RuntimeError("a bug for the shrinker")


@pytest.mark.nightly
def test_broken_promise_is_told_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A violation has its step and last history; a shorter run breaks the same. Source: L-8."""
    monkeypatch.setattr(handlers, "begun", forget)
    found = run_world(WorldPlan(1, 6, 40, 2.0))
    assert (found.invariant, found.steps > 0, len(found.last)) == ("bug", True, 12)
    assert "a bug for the shrinker" in found.text
    *_, (tried, small) = shrinking(found, (*KINDS, *OPTIONAL))
    assert tried > 3
    assert small.invariant == "bug"
    assert (small.plan.vms, small.plan.hosts) < (found.plan.vms, found.plan.hosts)
    assert small.plan.days < found.plan.days
    assert small.plan.without
    again = run_world(small.plan)
    assert (again.text, again.last) == (small.text, small.last)


@pytest.mark.nightly
def test_shrinker_halves_days_of_what_healing_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found after the hurt days may have begun in the first of them."""
    monkeypatch.setattr(World, "heal", always_violated)
    found = run_world(WorldPlan(1, 4, 8, 2.0))
    assert found.lasted_ms > found.plan.days * DAY_MS - HOUR_MS
    *_, (_, small) = shrinking(found, ())
    assert small.plan.days < 0.1


def always_violated(world: World) -> None:
    """A check that finds something wrong as soon as a world heals."""
    raise Violation("13", f"op-{world.queue.steps} is running for ever")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("invariant 1: op-7 started without approval of 00FF-12", True),
        ("invariant 1: op-7 counts as approved", False),
    ],
    ids=["names", "words"],
)
def test_other_names_are_the_same_promise(text: str, same: bool) -> None:
    """A shorter run names other operations; another sentence tells of something else."""
    known = "invariant 1: op-4711 started without approval of 31AB-9"
    one, other = (
        WorldResult(WorldPlan(1), 0, 0, "", invariant="1", text=each) for each in (known, text)
    )
    assert breaks_the_same(one, other) is same


def test_other_exception_is_another_bug() -> None:
    """Two bugs are the same only where the same error is raised."""
    first, second = "KeyError: 'g7' (turn, line 1)", "KeyError: 'g9' (turn, line 1)"
    bugs = [
        WorldResult(WorldPlan(1), 0, 0, "", invariant="bug", text=text) for text in (first, second)
    ]
    assert breaks_the_same(*bugs)
    other = WorldResult(
        WorldPlan(1), 0, 0, "", invariant="bug", text="ValueError: 'g9' (turn, line 1)"
    )
    assert not breaks_the_same(bugs[0], other)


@pytest.mark.nightly
def test_steady_activities_cannot_be_left_out() -> None:
    """Nothing heals where nobody looks after what is stuck. Source: L-8."""
    assert {*OPTIONAL, *STEADY} == set(ACTIVITIES)
    assert not set(OPTIONAL) & STEADY
    plan = WorldPlan(1, 4, 20, 1.0)
    without = run_world(WorldPlan(1, 4, 20, 1.0, without=STEADY))
    assert without.digest == run_world(plan).digest


def test_nothing_of_a_world_is_left() -> None:
    """A thousand worlds, one after another, take the memory of one."""

    def worlds() -> int:
        return sum(isinstance(each, World) for each in gc.get_objects())

    gc.collect()
    before = worlds()
    run_world(WorldPlan(1, 4, 8, days=1 / 24))
    gc.collect()  # tasks that were under way have been closed, and can go
    assert worlds() <= before
