"""What holds for every plan of any small world. One rule at a time is tested in its own module."""

from dataclasses import replace

import pytest
from hypothesis import given

from forewarn_core.planning.checker import check
from forewarn_core.planning.plan import FleetState, Plan
from forewarn_core.planning.planner import plan
from tests.planning.worlds import HOUR_MS, NOW_MS, World, worlds


def planned(world: World, now_ms: int = NOW_MS) -> Plan:
    """Plan a world."""
    fleet, state, policy, request = world
    return plan(fleet, state, policy, now_ms=now_ms, request=request)


@pytest.mark.slow
@given(worlds())
def test_plan_passes_the_checker(world: World) -> None:
    """A plan breaks no rule that the independent checker knows. Source: F-3."""
    fleet, state, policy, _ = world
    found = check(planned(world), fleet, state=state, policy=policy)
    assert not found, found


@pytest.mark.slow
@given(worlds())
def test_child_plan_passes_the_checker(world: World) -> None:
    """So does the plan that follows when the first wave is announced and another is done."""
    fleet, state, policy, request = world
    if request.move_s:
        return  # a test of its own puts the VMs where they went
    first = planned(world)
    if not first.waves:
        return
    middle = first.waves[len(first.waves) // 2]
    done = tuple(entry.host for entry in first.entries if entry.wave < middle.number)
    child_state = replace(state, in_force=first, done=(*done, *middle.hosts))
    now_ms = middle.latest_start_ms
    child = planned((fleet, child_state, policy, request), now_ms)
    found = check(child, fleet, state=child_state, policy=policy)
    assert not found, found
    assert {entry.host for entry in child.entries}.isdisjoint(child_state.done)


@pytest.mark.slow
@given(worlds())
def test_plan_is_the_same_twice(world: World) -> None:
    """The same world and seed give the same plan. Source: F-2."""
    assert planned(world) == planned(world)


@pytest.mark.slow
@given(worlds())
def test_replanning_keeps_waves_together(world: World) -> None:
    """When nothing has changed but the time, hosts stay with those of their wave. Source: F-2."""
    fleet, state, policy, request = world
    first = planned((fleet, state, policy, replace(request, move_s=0)))
    again_state: FleetState = replace(state, in_force=first)
    request = replace(request, move_s=0, deadline_ms=0)
    again = planned((fleet, again_state, policy, request), NOW_MS + HOUR_MS // 4)
    before = {frozenset(wave.hosts) for wave in first.waves}
    still = {entry.host for entry in first.entries}
    after = {frozenset(wave.hosts) & still for wave in again.waves} - {frozenset()}
    assert after == before
