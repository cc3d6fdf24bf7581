"""Runs: a world from its plan to a result, many of them, and what they come to together.

Nothing is printed in here, and no real time is read.
"""

from __future__ import annotations

import traceback
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from forewarn.sim.agenda import START_MS
from forewarn.sim.crash import Violation
from forewarn.sim.faults import HOUR_MS
from forewarn.sim.spans import moment
from forewarn.sim.world import Plan, World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LAST_ENTRIES = 12
"""Entries of history shown with a violation."""
SHRINK_RUNS_MAX = 80
"""Worlds a shrinker may run before it settles for what it has."""
DEFAULTS = Plan(seed=1)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one world."""

    plan: Plan
    #: Simulated milliseconds, the healing included.
    lasted_ms: int
    steps: int
    digest: str
    #: (cause, how it ended) -> how many operations.
    operations: dict[tuple[str, str], int] = field(default_factory=dict)
    #: Cause -> (operations that started after notice, of them before NotBefore, summed wait in
    #: true s).
    waits: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    #: The violated invariant; empty if none was.
    invariant: str = ""
    text: str = ""
    last: tuple[str, ...] = ()


def run_world(plan: Plan) -> Result:
    """Run one world to its end, or to the first broken promise."""
    world = World(plan)
    with closing(world.disk):
        invariant, text = _broken(world)
        return Result(
            plan,
            world.agenda.now_ms - START_MS,
            world.agenda.steps,
            world.digest(),
            operations=_operations(world),
            waits=_waits(world),
            faults=dict(world.faults.counts),
            invariant=invariant,
            text=text,
            last=_last_entries(world) if invariant else (),
        )


def run_many(plans: Iterable[Plan]) -> Iterator[Result]:
    """Run worlds one after another."""
    for plan in plans:
        yield run_world(plan)


def command(plan: Plan) -> str:
    """The command that repeats a world."""
    words = [f"forewarn simulate --random --seed {plan.seed}"]
    if plan.hosts != DEFAULTS.hosts:
        words.append(f"--hosts {plan.hosts}")
    if plan.vms != DEFAULTS.vms:
        words.append(f"--vms {plan.vms}")
    if plan.days != DEFAULTS.days:
        words.append(f"--days {plan.days:g}")
    if plan.rate != DEFAULTS.rate:
        words.append(f"--rate {plan.rate}")
    if plan.without:
        words.append(f"--without {','.join(sorted(plan.without))}")
    return " ".join(words)


def shrink(found: Result, kinds: Iterable[str]) -> Result:
    """Make a run that breaks a promise shorter and plainer, while it breaks the same one.

    Args:
        found: the result to shrink.
        kinds: kinds of faults and activities that may be left out.
    """
    best, runs = found, 0
    for _ in range(SHRINK_RUNS_MAX):
        for plan in _smaller(best, kinds):
            runs += 1
            again = run_world(plan)
            if again.invariant == found.invariant:
                best = again
                break
            if runs >= SHRINK_RUNS_MAX:
                return best
        else:
            return best
    return best


def _smaller(result: Result, kinds: Iterable[str]) -> Iterator[Plan]:
    """Plans that are a little smaller, the most promising first."""
    plan = result.plan
    hours = result.lasted_ms // HOUR_MS + 1
    if hours / 24 < plan.days:
        yield replace(plan, days=hours / 24)
    if plan.vms > 4:
        yield replace(plan, vms=plan.vms // 2)
    if plan.hosts > 3:
        yield replace(plan, hosts=max(plan.hosts // 2, 3))
    for kind in kinds:
        if kind not in plan.without:
            yield replace(plan, without=plan.without | {kind})


def _broken(world: World) -> tuple[str, str]:
    """Run a world; return the invariant it broke and how, or nothing."""
    try:
        world.run()
    except Violation as violation:
        return violation.invariant, str(violation)
    except Exception as bug:  # noqa: BLE001 - whatever the product raises here is a finding
        where = traceback.extract_tb(bug.__traceback__)[-1]
        return "bug", f"{type(bug).__name__}: {bug} ({where.name}, line {where.lineno})"
    return "", ""


def _operations(world: World) -> dict[tuple[str, str], int]:
    return dict(
        Counter((each.cause.value, each.state.value) for each in world.judge.operations.values())
    )


def _waits(world: World) -> dict[str, tuple[int, int, int]]:
    waits: dict[str, tuple[int, int, int]] = {}
    for number, waited_ms in world.judge.waited_ms.items():
        each = world.judge.operations[number]
        count, early, waited_s = waits.get(each.cause.value, (0, 0, 0))
        waits[each.cause.value] = (
            count + 1,
            early + (each.started_ms < each.not_before_ms),
            waited_s + waited_ms // 1000,
        )
    return waits


def _last_entries(world: World) -> tuple[str, ...]:
    entries = [recorded.entry for recorded in world.archive.entries()]
    return tuple(
        f"{moment(entry.at_ms)}  {entry.actor}: {entry.text}" for entry in entries[-LAST_ENTRIES:]
    )
