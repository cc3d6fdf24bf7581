"""Runs random worlds and transcripts: `python -m tests.simulator [FILE] [--seed N …]`.

`make sim` calls it. Without a file, worlds are drawn from seeds.
"""

import argparse
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from forewarn_base.exit_codes import INTERRUPTED, OK, REFUSED, USAGE
from tests.simulator.runs import WorldResult, run_world
from tests.simulator.simulation_report import Summary, print_violation
from tests.simulator.transcript_report import play_file
from tests.simulator.transcripts.transcript import TranscriptInvalid
from tests.simulator.world.faults import KINDS
from tests.simulator.world.people import OPTIONAL
from tests.simulator.world.world import WorldPlan

#: Worlds after which a rule that was never tested is a failure.
THOROUGH_RUNS = 100
KNOWN = frozenset({*KINDS, *OPTIONAL, "faults"})


def main(words: Sequence[str] | None = None) -> int:
    """Simulate what was asked for; the status says whether every promise was kept."""
    arguments = _parser().parse_args(words)
    if not arguments.file:
        return _worlds(arguments)
    try:
        return play_file(arguments.file)
    except TranscriptInvalid as error:
        print(error, file=sys.stderr)
        return USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="a transcript to play")
    numbers = (
        ("seed", 1, 1 << 62, 1, "of the first world; the others follow"),
        ("runs", 1, 1_000_000, 1, "how many worlds"),
        ("hosts", 1, 500, 20, "hosts in a world"),
        ("vms", 1, 20_000, 200, "virtual machines in a world"),
        ("days", 0, 366, 7.0, "days of faults; healing comes after them"),
        ("rate", 1, 60, 1, "how many times as often as usual everything happens"),
        ("jobs", 1, 64, 1, "worlds at a time, each on a processor of its own"),
    )
    for name, low, high, default, text in numbers:
        number = _between(low, high, type(default))
        parser.add_argument(
            f"--{name}", metavar="N", type=number, default=default, help=f"{text} (%(default)g)"
        )
    parser.add_argument(
        "--without", metavar="KIND,…", type=_kinds, default=frozenset[str](),
        help=f"kinds to leave out, of {', '.join(sorted(KNOWN))}",
    )  # fmt: skip
    parser.add_argument(
        "--no-shrink", action="store_true", help="no effect, for older commands: no world is shrunk"
    )
    return parser


def _between(low: int, high: int, kind: type[int | float]) -> Callable[[str], int | float]:
    def number(text: str) -> int | float:
        if not low <= (value := kind(text)) <= high:
            raise argparse.ArgumentTypeError(f"give {low} to {high}")
        return value

    return number


def _kinds(text: str) -> frozenset[str]:
    kinds = frozenset(text.split(","))
    if unknown := kinds - KNOWN:
        raise argparse.ArgumentTypeError(f"no kind is called {', '.join(sorted(unknown))}")
    return kinds


def _plans(arguments: argparse.Namespace) -> Iterator[WorldPlan]:
    without = arguments.without - {"faults"}
    if "faults" in arguments.without:
        without |= frozenset(KINDS)
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        yield WorldPlan(
            seed, arguments.hosts, arguments.vms, arguments.days, without, rate=arguments.rate
        )


def _worlds(arguments: argparse.Namespace) -> int:
    jobs = min(arguments.jobs, arguments.runs)
    summary = Summary(arguments.runs, jobs)
    interrupted = False
    try:
        for result in _results(arguments, jobs):
            summary.add(result)
            if not result.invariant:
                continue
            summary.end_progress()
            print_violation(result)
    except KeyboardInterrupt:
        interrupted = True
    summary.end_progress()
    summary.print()
    if summary.broken:
        return REFUSED
    if interrupted:
        return INTERRUPTED
    thorough = arguments.runs >= THOROUGH_RUNS and not arguments.without
    return REFUSED if thorough and summary.untested() else OK


def _results(arguments: argparse.Namespace, jobs: int) -> Iterator[WorldResult]:
    if jobs == 1:
        yield from map(run_world, _plans(arguments))
        return
    # Ctrl-C ends this process, which ends the others: they would each print where they were.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pool = multiprocessing.get_context("spawn").Pool(jobs)
    finally:
        signal.signal(signal.SIGINT, before)
    with pool:
        yield from pool.imap(run_world, _plans(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
