"""Results, the command that repeats them, and the shrinker."""

from __future__ import annotations

import pytest

from forewarn.core import acts
from forewarn.core.state import Draft
from forewarn.core.stimulus import Begun
from forewarn.sim.faults import KINDS
from forewarn.sim.people import ACTIVITIES
from forewarn.sim.runs import command, run_world, shrink
from forewarn.sim.world import Plan


def test_command_repeats_a_plan() -> None:
    """Only what differs from the usual world is named."""
    assert command(Plan(7)) == "forewarn simulate --random --seed 7"
    plan = Plan(7, 3, 9, 0.5, frozenset({"store", "crash"}), rate=3)
    assert command(plan) == (
        "forewarn simulate --random --seed 7 --hosts 3 --vms 9 --days 0.5 --rate 3"
        " --without crash,store"
    )


def forget(draft: Draft, report: Begun) -> tuple[int, ...]:
    """A product with a bug: it falls over whenever a driver has begun."""
    raise RuntimeError("a bug for the shrinker")


def test_broken_promise_is_told_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A violation has its step and last history; a shorter run breaks the same. Source: L-8."""
    monkeypatch.setattr(acts, "begun", forget)
    found = run_world(Plan(1, 6, 40, 2.0))
    assert (found.invariant, found.steps > 0, len(found.last)) == ("bug", True, 12)
    assert "a bug for the shrinker" in found.text
    small = shrink(found, (*KINDS, *ACTIVITIES))
    assert small.invariant == "bug"
    assert (small.plan.vms, small.plan.hosts) < (found.plan.vms, found.plan.hosts)
    assert small.plan.days < found.plan.days
    assert small.plan.without
    again = run_world(small.plan)
    assert (again.text, again.last) == (small.text, small.last)
