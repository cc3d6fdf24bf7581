"""Runs one broken product: `python -m tests.simulator.mutate NAME` in a process of its own.

Prints who noticed, one a line: `exploration WORLD: INVARIANT`, `world SEED: INVARIANT`,
`transcript NAME`, or `assertion NAME` for an assertion of the product itself while a transcript
was played. With `--try WHO` only that
is tried; with `--first WHO` that and then the others, until one notices. Nothing is written
anywhere.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import sys
from pathlib import Path
from types import CodeType

from tests.simulator.breakages import BREAKAGES, Breakage

TRANSCRIPTS = Path(__file__).resolve().parents[1] / "transcripts"
SEEDS = range(1, 17)
HOSTS, VMS, DAYS, RATE = 8, 40, 1.0, 6
STATES = 6000
"""How many states of a small world are visited at most to notice a breakage."""


class _Broken(importlib.machinery.SourceFileLoader):
    """Loads a module with edits."""

    edits: tuple[tuple[str, str], ...] = ()

    def get_code(self, fullname: str) -> CodeType:
        """Compile the edited source; nothing is cached."""
        path = self.get_filename(fullname)
        text = Path(path).read_text(encoding="utf-8")
        for old, new in self.edits:
            if text.count(old) != 1:
                raise SystemExit(f"{fullname}: the text to edit stands {text.count(old)} times")
            text = text.replace(old, new)
        return compile(text, path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are to be broken."""

    def __init__(self, breakage: Breakage) -> None:
        """Break what the breakage says."""
        self._edits: dict[str, tuple[tuple[str, str], ...]] = {}
        for module, old, new in breakage.edits:
            self._edits[module] = (*self._edits.get(module, ()), (old, new))

    def find_spec(
        self,
        fullname: str,
        path: object = None,
        target: object = None,  # noqa: ARG002 - the interface has it
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a broken module."""
        if fullname not in self._edits:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]
        assert spec is not None
        assert spec.origin is not None
        loader = _Broken(fullname, spec.origin)
        loader.edits = self._edits[fullname]
        spec.loader = loader
        return spec


def noticed_in_world(seed: int) -> str:
    """The invariant a small world finds broken; empty if none."""
    from tests.simulator.runs import run_world
    from tests.simulator.world.world import WorldPlan

    return run_world(WorldPlan(seed, HOSTS, VMS, DAYS, rate=RATE)).invariant


def noticed_in_transcript(name: str) -> str:
    """What notices that a transcript comes out otherwise; empty if nothing does."""
    from tests.simulator.transcripts.transcript import parse, play
    from tests.simulator.world.crash_points import Violation

    text = (TRANSCRIPTS / f"{name}.txt").read_text(encoding="utf-8")
    try:
        return "" if all(told.agrees for told in play(parse(text))) else "transcript"
    except Violation as violation:
        return "assertion" if isinstance(violation.__cause__, AssertionError) else "transcript"
    except AssertionError:
        return "assertion"


def noticed_in_exploration(name: str) -> str:
    """The invariant that is found broken where all states of a small world are visited."""
    from tests.simulator.exploration.explorer import Explorer
    from tests.simulator.exploration.worlds import WORLDS

    world = next(each for each in WORLDS if each.name == name)
    violation = Explorer(world).explore(STATES).violation
    return violation.invariant if violation is not None else ""


def everybody() -> list[str]:
    """Everybody who could notice, transcripts last."""
    from tests.simulator.exploration.worlds import WORLDS

    names = [f"transcript {path.stem}" for path in sorted(TRANSCRIPTS.glob("*.txt"))]
    explorations = [f"exploration {world.name}" for world in WORLDS]
    worlds = [f"world {seed}" for seed in SEEDS]
    return [*explorations, *worlds, *names]


def others_after(who: str) -> list[str]:
    """Who is asked until a breakage is noticed: this one, those of its kind, then the rest."""
    kind, _, name = who.partition(" ")
    place = f"{kind} {name.partition(':')[0]}"
    others = [each for each in everybody() if each != place]
    return [who, *sorted(others, key=lambda each: not each.startswith(kind))]


def main(arguments: list[str]) -> None:
    """Run the product with the breakage that is named first."""
    breakage = next(each for each in BREAKAGES if each.name == arguments[0])
    sys.meta_path.insert(0, _Finder(breakage))
    logging.disable(logging.CRITICAL - 1)
    logging.getLogger("forewarn").setLevel(logging.ERROR)
    logging.disable(logging.NOTSET)
    first = arguments[1:2] == ["--first"]
    for who in others_after(arguments[2]) if first else arguments[2:] or everybody():
        kind, _, name = who.partition(" ")
        if kind == "world":
            seed, _, _ = name.partition(":")
            invariant = noticed_in_world(int(seed))
            found = f"{kind} {seed}: {invariant}" if invariant else ""
        elif kind == "exploration":
            world, _, _ = name.partition(":")
            invariant = noticed_in_exploration(world)
            found = f"exploration {world}: {invariant}" if invariant else ""
        else:
            kind = noticed_in_transcript(name)
            found = f"{kind} {name}" if kind else ""
        if found:
            print(found, flush=True)
            if first:
                break


if __name__ == "__main__":
    main(sys.argv[1:])
