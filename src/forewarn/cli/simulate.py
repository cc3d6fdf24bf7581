"""`forewarn simulate`: random worlds and transcripts, and their results.

Nothing is simulated in here.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.exit_codes import INTERRUPTED, OK, REFUSED, USAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forewarn.cli.parsing import Commands
    from forewarn.cli.simulation_report import Summary
    from forewarn.simulator.runs import WorldResult
    from forewarn.simulator.world.world import WorldPlan

RUNS_MAX = 1_000_000
HOSTS_MAX = 500
VMS_MAX = 20_000
DAYS_MAX = 366
RATE_MAX = 60
JOBS_MAX = 64
THOROUGH_RUNS = 100
"""Worlds after which a rule that was never tested is a failure."""
LIMITS: dict[str, tuple[int, int]] = {
    "runs": (1, RUNS_MAX),
    "hosts": (1, HOSTS_MAX),
    "vms": (1, VMS_MAX),
    "days": (0, DAYS_MAX),
    "rate": (1, RATE_MAX),
    "jobs": (1, JOBS_MAX),
}
"""What the numbers of random worlds are between."""
NUMBERS: dict[str, int | float] = {
    "seed": 1,
    "runs": 1,
    "hosts": 20,
    "vms": 200,
    "days": 7.0,
    "rate": 1,
    "jobs": 1,
}
"""What they are where they are not given."""
DEFAULTS: dict[str, object] = {**NUMBERS, "without": "", "no_shrink": False}
"""Every option of random worlds; beside a FILE none of them may be given."""
FAULTS = (
    "crash, failover, store, wire, cut, lag, publish, clock, host, silence, drivers, disk, odd,"
    " node"
)
ACTIVITIES = (
    "routine, orders, prediction, users, evictions, changes, meddling, maintenances, policies,"
    " steering"
)
"""Kinds that can be left out: named here, too, so that the help needs no simulator."""


def add_commands(commands: Commands) -> None:
    """Add `simulate`."""
    parser = commands.command("simulate", run=simulate, remote=False)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("file", metavar="FILE", nargs="?", type=Path, help="a transcript to play")
    what.add_argument(
        "--random", action="store_true", help="worlds drawn from seeds, with faults, then healed"
    )
    numbers = (
        ("seed", "of the first world; the others follow"),
        ("runs", "how many worlds"),
        ("hosts", "hosts in a world"),
        ("vms", "virtual machines in a world"),
        ("days", "days of faults; healing comes after them"),
        ("rate", "how many times as often as usual everything happens"),
        ("jobs", "worlds at a time, each on a processor of its own"),
    )
    for name, text in numbers:
        low, high = LIMITS.get(name, (0, 0))
        limits = f"; {low} to {high:,}" if high else ""
        parser.add_argument(
            f"--{name}",
            metavar="N",
            type=type(NUMBERS[name]),
            default=argparse.SUPPRESS,
            help=f"{text}{limits} (default: {NUMBERS[name]:g})",
        )
    parser.add_argument(
        "--without",
        metavar="KIND,…",
        default=argparse.SUPPRESS,
        help=f"kinds to leave out; of faults: {FAULTS}, or `faults` for all of them; "
        f"of what people do: {ACTIVITIES}; or `shells`: VMs ask without connections, which is "
        "faster",
    )
    parser.add_argument(
        "--no-shrink",
        action="store_true",
        default=argparse.SUPPRESS,
        help="do not look for a shorter run that breaks the same promise",
    )


def simulate(arguments: argparse.Namespace) -> int:
    """Simulate what was asked for; the status says whether every promise was kept."""
    given = [name for name in DEFAULTS if hasattr(arguments, name)]
    for name, default in DEFAULTS.items():
        setattr(arguments, name, getattr(arguments, name, default))
    problem = _problem(arguments) if arguments.random else _misplaced(given)
    if problem:
        print(f"forewarn simulate: {problem}", file=sys.stderr)
        return USAGE
    if arguments.random:
        return _worlds(arguments)
    from forewarn.cli.transcript import play_file  # noqa: PLC0415 - a short command starts fast

    return play_file(arguments.file, json=arguments.json)


def _misplaced(given: list[str]) -> str:
    """What is wrong with options of random worlds beside a transcript; empty without any."""
    names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
    verb = "belongs" if len(given) == 1 else "belong"
    return f"{names} {verb} to --random; a transcript is played as it stands" if given else ""


# --- worlds --------------------------------------------------------------------------------


def _problem(arguments: argparse.Namespace) -> str:
    from forewarn.simulator.runs import SHELLS  # noqa: PLC0415
    from forewarn.simulator.world.faults import KINDS  # noqa: PLC0415
    from forewarn.simulator.world.people import OPTIONAL  # noqa: PLC0415

    for name, (low, high) in LIMITS.items():
        if not low <= getattr(arguments, name) <= high:
            return f"--{name} is {getattr(arguments, name):g}; give {low} to {high}"
    known = {*KINDS, *OPTIONAL, "faults", SHELLS}
    unknown = [kind for kind in _without(arguments) if kind not in known]
    if unknown:
        return f"--without {unknown[0]}: there is {', '.join(sorted(known))}"
    return ""


def _without(arguments: argparse.Namespace) -> list[str]:
    return [kind for kind in arguments.without.split(",") if kind]


def _plans(arguments: argparse.Namespace) -> Iterator[WorldPlan]:
    from forewarn.simulator.runs import SHELLS  # noqa: PLC0415
    from forewarn.simulator.world.faults import KINDS  # noqa: PLC0415
    from forewarn.simulator.world.world import WorldPlan  # noqa: PLC0415

    left_out = frozenset(_without(arguments))
    without = left_out - {"faults", SHELLS}
    if "faults" in left_out:
        without |= frozenset(KINDS)
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        yield WorldPlan(
            seed,
            arguments.hosts,
            arguments.vms,
            arguments.days,
            without,
            rate=arguments.rate,
            shells=SHELLS not in left_out,
        )


def _worlds(arguments: argparse.Namespace) -> int:
    from forewarn.cli.simulation_report import Summary, print_violation  # noqa: PLC0415

    jobs = min(arguments.jobs, arguments.runs)
    summary = Summary(arguments.runs, jobs, progress=not arguments.json)
    interrupted = False
    try:
        for result in _results(arguments):
            summary.add(result)
            if not result.invariant:
                continue
            summary.end_progress()
            summary.broke(result)
            print_violation(result)
            if not arguments.no_shrink:
                _shrink(result, summary)
    except KeyboardInterrupt:
        interrupted = True
    summary.end_progress()
    summary.print(json=arguments.json)
    if summary.broken:
        return REFUSED
    if interrupted:
        return INTERRUPTED
    return REFUSED if _is_thorough(arguments) and summary.untested() else OK


def _is_thorough(arguments: argparse.Namespace) -> bool:
    """Whether so much is run that each rule must have had a chance to be broken."""
    return arguments.runs >= THOROUGH_RUNS and set(_without(arguments)) <= {"shells"}


def _shrink(found: WorldResult, summary: Summary) -> None:
    """Look for a shorter run; report what is known by then however the search ends."""
    from forewarn.cli.simulation_report import print_violation  # noqa: PLC0415
    from forewarn.simulator.runs import shrinking  # noqa: PLC0415
    from forewarn.simulator.world.faults import KINDS  # noqa: PLC0415
    from forewarn.simulator.world.people import OPTIONAL  # noqa: PLC0415

    print("looking for a shorter run that breaks the same promise …", file=sys.stderr)
    best = found
    try:
        for tried, best in shrinking(found, (*KINDS, *OPTIONAL)):
            summary.shorter(best, tried)
    finally:
        summary.end_progress()
        if best is not found:
            print("a shorter run that breaks the same promise:", file=sys.stderr)
            print_violation(best)
        else:
            print("no shorter run was found", file=sys.stderr)


def _results(arguments: argparse.Namespace) -> Iterator[WorldResult]:
    from forewarn.simulator.runs import run_many, run_world  # noqa: PLC0415

    jobs = min(arguments.jobs, arguments.runs)
    if jobs == 1:
        yield from run_many(_plans(arguments))
        return
    import multiprocessing  # noqa: PLC0415
    import signal  # noqa: PLC0415

    # Ctrl-C ends this process, which ends the others: they would each print where they were.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pool = multiprocessing.get_context("spawn").Pool(jobs)
    finally:
        signal.signal(signal.SIGINT, before)
    with pool:
        yield from pool.imap(run_world, _plans(arguments))
