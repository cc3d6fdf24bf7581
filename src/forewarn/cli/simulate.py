"""`forewarn simulate`: random worlds and transcripts, and what they come to.

Nothing is simulated in here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.exits import INTERRUPTED, OK, REFUSED, USAGE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from forewarn.cli.parsing import Commands
    from forewarn.sim.runs import Result
    from forewarn.sim.world import Plan

RUNS_MAX = 1_000_000
HOSTS_MAX = 500
VMS_MAX = 20_000
DAYS_MAX = 366
RATE_MAX = 60
JOBS_MAX = 64


def add_commands(commands: Commands) -> None:
    """Add `simulate`."""
    parser = commands.command("simulate", run=simulate, remote=False)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("file", metavar="FILE", nargs="?", type=Path, help="a transcript to play")
    what.add_argument(
        "--random", action="store_true", help="worlds drawn from seeds, with faults, then healed"
    )
    numbers: tuple[tuple[str, type[int | float], float, str], ...] = (
        ("--seed", int, 1, "of the first world; the others follow"),
        ("--runs", int, 1, "how many worlds"),
        ("--hosts", int, 20, "hosts in a world"),
        ("--vms", int, 200, "virtual machines in a world"),
        ("--days", float, 7, "days of faults; healing comes after them"),
        ("--rate", int, 1, "how many times as often as usual everything happens"),
        ("--jobs", int, 1, "worlds at a time, each on a processor of its own"),
    )
    for name, kind, default, text in numbers:
        parser.add_argument(
            name, metavar="N", type=kind, default=default, help=f"{text} (default: {default:g})"
        )
    parser.add_argument(
        "--without",
        metavar="KIND,…",
        default="",
        help="kinds of faults and activities to leave out, or `faults` for all faults",
    )
    parser.add_argument(
        "--no-shrink",
        action="store_true",
        help="do not look for a shorter run that breaks the same promise",
    )


def simulate(arguments: argparse.Namespace) -> int:
    """Simulate what was asked for; the status says whether every promise was kept."""
    if not arguments.random:
        return _play(arguments)
    problem = _problem(arguments)
    if problem:
        print(f"forewarn simulate: {problem}", file=sys.stderr)
        return USAGE
    return _worlds(arguments)


# --- transcripts ---------------------------------------------------------------------------


def _play(arguments: argparse.Namespace) -> int:
    from forewarn.cli.table import print_json  # noqa: PLC0415 - a short command starts fast
    from forewarn.sim.crash import Violation  # noqa: PLC0415
    from forewarn.sim.script import parse, play  # noqa: PLC0415

    try:
        transcript = parse(arguments.file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        print(f"forewarn simulate: {arguments.file} cannot be read: {reason}", file=sys.stderr)
        return USAGE
    told = []
    broken = ""
    try:
        for block in play(transcript):
            told.append(block)
            if not arguments.json:
                _print_block(block.block.commands, block.lines)
                if not block.agrees and block.block.expected:
                    _print_block(("expected instead:",), block.block.expected)
    except Violation as violation:
        broken = str(violation)
    expects = any(block.block.expected for block in told)
    agrees = not broken and (not expects or all(block.agrees for block in told))
    if arguments.json:
        blocks = [
            {
                "line": block.block.line,
                "commands": block.block.commands,
                "lines": block.lines,
                "agrees": block.agrees,
            }
            for block in told
        ]
        print_json(
            {"title": transcript.title, "blocks": blocks, "agrees": agrees, "violation": broken}
        )
    elif broken:
        print(f"broken promise: {broken}", file=sys.stderr)
    return OK if agrees else REFUSED


def _print_block(commands: Sequence[str], lines: Sequence[str]) -> None:
    for command in commands:
        print(command if command.startswith(("#", "expected")) else f"> {command}")
    for line in lines:
        print(f"  {line}")
    print()


# --- worlds --------------------------------------------------------------------------------


def _problem(arguments: argparse.Namespace) -> str:
    from forewarn.sim.faults import KINDS  # noqa: PLC0415
    from forewarn.sim.people import ACTIVITIES  # noqa: PLC0415

    limits = (
        ("runs", 1, RUNS_MAX),
        ("hosts", 1, HOSTS_MAX),
        ("vms", 1, VMS_MAX),
        ("days", 0, DAYS_MAX),
        ("rate", 1, RATE_MAX),
        ("jobs", 1, JOBS_MAX),
    )
    for name, low, high in limits:
        if not low <= getattr(arguments, name) <= high:
            return f"--{name} is {getattr(arguments, name):g}; give {low} to {high}"
    known = {*KINDS, *ACTIVITIES, "faults"}
    unknown = [kind for kind in _without(arguments) if kind not in known]
    if unknown:
        return f"--without {unknown[0]}: there is {', '.join(sorted(known))}"
    return ""


def _without(arguments: argparse.Namespace) -> list[str]:
    return [kind for kind in arguments.without.split(",") if kind]


def _plans(arguments: argparse.Namespace) -> Iterator[Plan]:
    from forewarn.sim.faults import KINDS  # noqa: PLC0415
    from forewarn.sim.world import Plan  # noqa: PLC0415

    without = frozenset(_without(arguments))
    if "faults" in without:
        without = without - {"faults"} | frozenset(KINDS)
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        yield Plan(
            seed, arguments.hosts, arguments.vms, arguments.days, without, rate=arguments.rate
        )


def _worlds(arguments: argparse.Namespace) -> int:
    from forewarn.cli.simulation_report import Summary, print_violation  # noqa: PLC0415
    from forewarn.sim.faults import KINDS  # noqa: PLC0415
    from forewarn.sim.people import ACTIVITIES  # noqa: PLC0415
    from forewarn.sim.runs import shrink  # noqa: PLC0415

    summary = Summary(arguments.runs, progress=not arguments.json)
    interrupted = False
    try:
        for result in _results(arguments):
            summary.add(result)
            if not result.invariant:
                continue
            summary.end_progress()
            summary.broke(result)
            if not arguments.no_shrink:
                print("broken promise; looking for a shorter run …", file=sys.stderr)
                summary.broken[-1] = shrink(result, (*KINDS, *ACTIVITIES))
            print_violation(summary.broken[-1])
    except KeyboardInterrupt:
        interrupted = True
    summary.end_progress()
    summary.print(json=arguments.json)
    if summary.broken:
        return REFUSED
    return INTERRUPTED if interrupted else OK


def _results(arguments: argparse.Namespace) -> Iterator[Result]:
    from forewarn.sim.runs import run_many, run_world  # noqa: PLC0415

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
