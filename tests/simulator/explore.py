"""Explores all interleavings in small worlds: `make explore`, or with ARGS="--quick" for less.

Prints what each world came to; ends with 1 if a promise is broken.
"""

import argparse
import sys

from tests.simulator.exploration.explorer import Explorer, Found
from tests.simulator.exploration.worlds import WORLDS

#: Distinct states that are visited, of all worlds together; each has its share.
LIMIT, QUICK = 10_000_000, 100_000


def report(found: Found) -> str:
    """One line for people."""
    rate = found.states / max(found.took_s, 0.001)
    whole = "all" if found.exhausted else "not all"
    return (
        f"{found.world:10} {found.states:>9,} states ({whole}), {found.moves:,} moves,"
        f" {found.situations:,} situations of the core, {found.steps:,} steps"
        f" ({found.refused:,} refused), depth {found.depth},"
        f" {found.took_s:.0f} s of a processor, {rate:,.0f} states/s"
    )


def main(arguments: list[str]) -> int:
    """Explore the worlds that are named, or all."""
    parser = argparse.ArgumentParser(prog="make explore")
    parser.add_argument("worlds", nargs="*", help=", ".join(world.name for world in WORLDS))
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} states")
    parser.add_argument("--limit", type=int, default=0, help="states")
    options = parser.parse_args(arguments)
    limit = options.limit or (QUICK if options.quick else LIMIT)
    broken = states = 0
    for world in WORLDS:
        if options.worlds and world.name not in options.worlds:
            continue
        found = Explorer(world).explore(limit * world.share // 100)
        print(report(found), flush=True)
        states += found.states
        if found.violation is not None:
            broken += 1
            print(f"  {found.violation}", *found.path, sep="\n    ", flush=True)
    print(f"{states:,} distinct states, {broken} broken promises")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
