"""Breaks the product by rule, and gives a score: `make mutants ARGS="--sample 200 --room core"`.

Prints a line for each breakage that survives, then a table of all rooms. What is listed in
`equivalents.txt` cannot be noticed by anybody and is left out of the sample.
"""

import argparse
import math
import random
import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from tests.postgres import shared_postgres
from tests.simulator.mutation.generated import PACKAGES, breakages
from tests.simulator.mutation.recorded import recorded
from tests.simulator.mutation.rooms import POSTGRES
from tests.simulator.mutation.server import noticed_while_sound, verdicts

EQUIVALENTS = Path(__file__).parent / "mutation" / "equivalents.txt"
VERDICTS = ("killed", "timed out", "survived", "no coverage")
#: How many standard deviations around the mean hold 95 % of a normal distribution.
Z_95 = 1.96


def interval(noticed: int, of: int) -> tuple[float, float]:
    """Return Wilson's 95 % confidence interval of a share."""
    share, spread = noticed / of, Z_95**2 / of
    middle = share + spread / 2
    half = Z_95 * math.sqrt(share * (1 - share) / of + spread / (4 * of))
    return (middle - half) / (1 + spread), (middle + half) / (1 + spread)


def equivalents() -> set[str]:
    """Return the keys of the breakages that change nothing anybody could notice."""
    lines = EQUIVALENTS.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line and not line.startswith("#")]
    return {line.rpartition(" -- ")[0] for line in rows}


def score(room: str, sample: int, seed: int) -> str:
    """Try a sample of a room's breakages; return the room's row of the table."""
    every = breakages(room)
    chosen = random.Random(seed).sample(every, min(sample or len(every), len(every)))
    known = equivalents()
    tried = [each for each in chosen if known.isdisjoint(each.keys)]
    held = recorded(room)
    complaint = held.failed[0] if held.failed else noticed_while_sound(room, every[0], held)
    if complaint:
        raise SystemExit(f"{room}: something fails although nothing is broken: {complaint}")
    begun, counts = time.monotonic(), Counter[str]()
    for each, (verdict, who) in verdicts(room, tried, held):
        counts[verdict] += 1
        if verdict in {"survived", "no coverage"}:
            print(f"{verdict}  {each}", flush=True)
        done = f"{room} {counts.total()}/{len(tried)}"
        print(f"{done} {verdict} {who}  {each}", file=sys.stderr, flush=True)
    noticed = counts["killed"] + counts["timed out"]
    low, high = interval(noticed, len(tried))
    figures = " | ".join(str(counts[verdict]) for verdict in VERDICTS)
    return (
        f"| {room} | {len(every)} | {len(tried)} | {figures} | {len(chosen) - len(tried)} "
        f"| {100 * noticed / len(tried):.1f} % | {100 * low:.1f} to {100 * high:.1f} % "
        f"| {time.monotonic() - begun:.0f} s |"
    )


def main(arguments: list[str]) -> int:
    """Score each room that is asked for."""
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--room", choices=PACKAGES, action="append", help="all by default")
    parser.add_argument("--sample", type=int, default=200, help="breakages of each room; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="which sample")
    options = parser.parse_args(arguments)
    rows = []
    for room in options.room or PACKAGES:
        with shared_postgres() if room in POSTGRES else nullcontext():
            rows.append(score(room, options.sample, options.seed))
    print(
        f"| room | possible | tried | {' | '.join(VERDICTS)} | equivalent | score | 95 % | took |"
    )
    print("|" + "---|" * 10)
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
