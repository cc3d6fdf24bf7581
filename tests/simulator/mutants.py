"""Breaks the product by rule, and gives a score: `make mutants ARGS="--sample 40 --package core"`.

Each breakage of the sample is run in a process of its own, and what was found is kept, so that a
run that was interrupted goes on where it stood. Prints a score for each package, and what nobody
noticed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.simulator.mutation.attempt import SOUND
from tests.simulator.mutation.generated import PACKAGES, ROOT, Breakage, breakages

RESULTS = ROOT / ".build" / "mutants.jsonl"
TIMEOUT_S = 1800
"""How long one breakage may take on a busy machine; its processor time is limited, too."""


def attempt(package: str, breakage: Breakage) -> str:
    """Who notices a breakage first; empty if nobody."""
    module = "tests.simulator.mutation.attempt"
    command = [sys.executable, "-m", module, package, breakage.module, str(breakage.number)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "no end"
    said = [line for line in done.stdout.splitlines() if line.startswith("NOTICED ")]
    if not said:
        return f"process ends with {done.returncode}"
    who = said[-1].removeprefix("NOTICED ")
    return "" if who == "nobody" else who


def known(results: Path) -> dict[str, str]:
    """What was found before, by the breakage and its line."""
    if not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return {row["key"]: row["noticed"] for row in rows}


def main(arguments: list[str]) -> int:
    """Run a sample of each package."""
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--package", choices=PACKAGES, action="append", help="all by default")
    parser.add_argument("--sample", type=int, default=40, help="breakages of each package; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="which sample")
    parser.add_argument("--jobs", type=int, default=1, help="at a time")
    parser.add_argument("--results", type=Path, default=RESULTS, help="what was found before")
    parser.add_argument("--list", action="store_true", help="only count what could be broken")
    options = parser.parse_args(arguments)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    found = known(options.results)
    for package in options.package or PACKAGES:
        every = breakages(package)
        if options.list:
            print(f"{package}: {len(every)} breakages")
            continue
        chosen = every
        if options.sample and options.sample < len(every):
            chosen = random.Random(options.seed).sample(every, options.sample)
        if attempt(package, replace(every[0], number=SOUND)):
            print(f"{package}: the tests do not pass on the sound product", flush=True)
            return 1
        missing = [each for each in chosen if f"{each.id} | {each.text}" not in found]
        with (
            ThreadPoolExecutor(options.jobs) as pool,
            options.results.open("a", encoding="utf-8") as kept,
        ):
            answers = pool.map(partial(attempt, package), missing)
            for each, noticed in zip(missing, answers, strict=True):
                key = f"{each.id} | {each.text}"
                found[key] = noticed
                print(json.dumps({"key": key, "noticed": noticed}), file=kept, flush=True)
        left = [each for each in chosen if not found[f"{each.id} | {each.text}"]]
        score = 100 * (len(chosen) - len(left)) / len(chosen)
        print(f"{package}: {len(chosen) - len(left)} of {len(chosen)} noticed, {score:.1f} %")
        print(f"  of {len(every)} that could be made", flush=True)
        for each in left:
            print(f"  nobody notices {each.id}: {each.text}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
