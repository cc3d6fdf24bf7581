"""Runs worlds of a broken product: `python -m tests.simulator.mutate NAME`, in its own process.

Prints the world and the invariant that noticed the breakage. Nothing is written anywhere.
"""

import logging
import sys
from collections.abc import Sequence
from functools import partial

from tests.simulator.breakages import BREAKAGES, Edit
from tests.simulator.mutation.finder import Finder

SEEDS = range(1, 17)
HOSTS, VMS, DAYS, RATE = 8, 40, 1.0, 6


def _edited(module: str, edits: Sequence[Edit], text: str) -> str:
    """Return a module's source with its edits made."""
    for _, old, new in edits:
        if text.count(old) != 1:
            raise SystemExit(f"{module}: the text to edit stands {text.count(old)} times")
        text = text.replace(old, new)
    return text


def noticed_in_world(seed: int) -> str:
    """The invariant a small world finds broken; empty if none."""
    from tests.simulator.runs import run_world
    from tests.simulator.world.world import WorldPlan

    return run_world(WorldPlan(seed, HOSTS, VMS, DAYS, rate=RATE)).invariant


def main(name: str) -> None:
    """Run worlds with the breakage of a name until one notices it, and print the invariant."""
    breakage = next(each for each in BREAKAGES if each.name == name)
    edits: dict[str, list[Edit]] = {}
    for edit in breakage.edits:
        edits.setdefault(edit.module, []).append(edit)
    finder = Finder({module: partial(_edited, module, each) for module, each in edits.items()})
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    logging.disable(logging.CRITICAL - 1)
    logging.getLogger("forewarn").setLevel(logging.ERROR)
    logging.disable(logging.NOTSET)
    for seed in (breakage.seed, *SEEDS):
        invariant = noticed_in_world(seed)
        if invariant:
            print(f"world {seed}: {invariant}")
            return


if __name__ == "__main__":
    main(sys.argv[1])
