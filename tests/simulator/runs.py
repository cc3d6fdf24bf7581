"""Runs a world from its plan to a result.

Nothing is printed in here, and no real time is read.
"""

import gc
import traceback
from contextlib import closing
from dataclasses import field

from forewarn_base.values import value
from forewarn_core.fleet.lifecycle import Operation
from tests.simulator.checkers.premises import PREMISES
from tests.simulator.transcripts.time_spans import moment
from tests.simulator.world.agent_habits import HABIT_EFFECTS
from tests.simulator.world.crash_points import Violation
from tests.simulator.world.event_queue import START_MS
from tests.simulator.world.world import World, WorldPlan

#: Entries of history shown with a violation.
LAST_ENTRIES = 12
DEFAULTS = WorldPlan(seed=1)


@value
class WorldResult:
    """What became of one world."""

    plan: WorldPlan
    #: Simulated milliseconds, the healing included.
    lasted_ms: int
    steps: int
    digest: str
    #: How many operations there were, and how many of them started before NotBefore.
    operations: int = 0
    started_early: int = 0
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
            operations=len(world.checker.operations),
            started_early=sum(map(_is_early, world.checker.operations.values())),
            faults=world.faults.effects(),
            habits={effect: world.habit_counts[effect] for effect in HABIT_EFFECTS},
            premises={name: world.checker.premises[name] for name in PREMISES},
            invariant=invariant,
            text=text,
            last=_last_entries(world) if invariant else (),
        )


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


def _is_early(operation: Operation) -> bool:
    started_ms, due_ms = operation.execution.started_ms, operation.notice.not_before_ms
    return started_ms is not None and due_ms is not None and started_ms < due_ms


def _last_entries(world: World) -> tuple[str, ...]:
    entries = [recorded.entry for recorded in world.store.entries()]
    return tuple(
        f"{moment(entry.at_ms)}  {entry.actor}: {entry.text}" for entry in entries[-LAST_ENTRIES:]
    )
