"""Runs: a world from its plan to a result, many of them, and their results together.

Nothing is printed in here, and no real time is read.
"""

import gc
import re
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import field, replace

from forewarn.values import value
from tests.simulator.checkers.premises import PREMISES
from tests.simulator.transcripts.time_spans import moment
from tests.simulator.world.agent_habits import HABIT_EFFECTS
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.event_queue import HOUR_MS, START_MS
from tests.simulator.world.world import World, WorldPlan

LAST_ENTRIES = 12
"""Entries of history shown with a violation."""
SHRINK_RUNS_MAX = 80
"""Worlds a shrinker may run before it settles for what it has."""
DAYS_MIN = 1 / 24
"""Shortest world a shrinker tries, in days."""
LISTED = r"\[[^]]*\]|\{[^}]*\}|\([^)]*\)"
"""Lists, sets and tuples in the text of a violation."""
DEFAULTS = WorldPlan(seed=1)


@value
class WorldResult:
    """What became of one world."""

    plan: WorldPlan
    #: Simulated milliseconds, the healing included.
    lasted_ms: int
    steps: int
    digest: str
    #: (cause, how it ended) -> how many operations.
    operations: dict[tuple[str, str], int] = field(default_factory=dict)
    #: Cause -> (operations that started after notice, of them before NotBefore, summed wait in
    #: true s).
    waits: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    #: (kind of fault, what it did) -> how often.
    faults: dict[tuple[str, str], int] = field(default_factory=dict)
    #: What machines did by habit -> how often.
    habits: dict[str, int] = field(default_factory=dict)
    #: Rule -> how often there was something to hold it against.
    premises: dict[str, int] = field(default_factory=dict)
    #: The violated invariant; empty if none was.
    invariant: str = ""
    text: str = ""
    last: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that repeats it."""
        return command(self.plan)


def run_world(plan: WorldPlan) -> WorldResult:
    """Run one world to its end, or to the first broken promise; nothing of it is left."""
    result = _run(plan)
    gc.collect()  # else a long run keeps the worlds before: all that they have refers to all
    return result


def _run(plan: WorldPlan) -> WorldResult:
    world = World(plan)
    with closing(world.disk):
        invariant, text = _broken(world)
        return WorldResult(
            plan,
            world.queue.now_ms - START_MS,
            world.queue.steps,
            world.digest(),
            operations=_operations(world),
            waits=_waits(world),
            faults=world.faults.effects(),
            habits={effect: world.habit_counts[effect] for effect in HABIT_EFFECTS},
            premises={name: world.checker.premises[name] for name in PREMISES},
            invariant=invariant,
            text=text,
            last=_last_entries(world) if invariant else (),
        )


def run_many(plans: Iterable[WorldPlan]) -> Iterator[WorldResult]:
    """Run worlds one after another."""
    for plan in plans:
        yield run_world(plan)


def command(plan: WorldPlan) -> str:
    """The command that repeats a world."""
    words = [f"python -m tests.simulator --seed {plan.seed}"]
    if plan.hosts != DEFAULTS.hosts:
        words.append(f"--hosts {plan.hosts}")
    if plan.vms != DEFAULTS.vms:
        words.append(f"--vms {plan.vms}")
    if plan.days != DEFAULTS.days:
        words.append(f"--days {plan.days:.12g}")
    if plan.rate != DEFAULTS.rate:
        words.append(f"--rate {plan.rate}")
    if plan.without:
        words.append(f"--without {','.join(sorted(plan.without))}")
    return " ".join(words)


def shrinking(found: WorldResult, kinds: Iterable[str]) -> Iterator[tuple[int, WorldResult]]:
    """Make a run that breaks a promise shorter and plainer, while it breaks the same one.

    Args:
        found: the result to shrink.
        kinds: kinds of faults and activities that may be left out.

    Yields:
        after each world that was tried, how many were and the shortest run known by then.
    """
    best, tried = found, 0
    plans = _smaller(best, kinds)
    while tried < SHRINK_RUNS_MAX:
        plan = next(plans, None)
        if plan is None:
            return
        tried += 1
        again = run_world(plan)
        if breaks_the_same(again, found):
            best = again
            plans = _smaller(best, kinds)
        yield tried, best


def breaks_the_same(one: WorldResult, other: WorldResult) -> bool:
    """Whether two worlds break the same promise in the same way: other names, the same words."""
    same = one.invariant and one.invariant == other.invariant
    return bool(same) and _shape(one.text) == _shape(other.text)


def _shape(text: str) -> str:
    """What is said of a violation without what differs from world to world: names and lists."""
    return " ".join(re.sub(r"[\w.:-]*\d[\w.:-]*", "#", re.sub(LISTED, "[]", text)).split())


def _smaller(result: WorldResult, kinds: Iterable[str]) -> Iterator[WorldPlan]:
    """Plans that are a little smaller, the most promising first."""
    plan = result.plan
    days = (result.lasted_ms // HOUR_MS + 1) / 24
    if days < plan.days:
        yield replace(plan, days=days)
    if plan.days > DAYS_MIN:  # what comes while a world heals may have begun early
        yield replace(plan, days=max(plan.days / 2, DAYS_MIN))
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
        Counter((each.cause.value, each.state.value) for each in world.checker.operations.values())
    )


def _waits(world: World) -> dict[str, tuple[int, int, int]]:
    waits: dict[str, tuple[int, int, int]] = {}
    for number, waited_ms in world.checker.waited_ms.items():
        each = world.checker.operations[number]
        count, early, waited_s = waits.get(each.cause.value, (0, 0, 0))
        waits[each.cause.value] = (
            count + 1,
            early + ((each.execution.started_ms or 0) < each.not_before_ms),
            waited_s + waited_ms // 1000,
        )
    return waits


def _last_entries(world: World) -> tuple[str, ...]:
    entries = [recorded.entry for recorded in world.store.entries()]
    return tuple(
        f"{moment(entry.at_ms)}  {entry.actor}: {entry.text}" for entry in entries[-LAST_ENTRIES:]
    )
