"""Runs one broken product: `python -m tests.sim.mutate NAME` in a process of its own.

Prints who noticed, one a line: `world SEED: INVARIANT` or `transcript NAME`. With `--try WHO`
only that is tried. Nothing is written anywhere.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import sys
from pathlib import Path
from types import CodeType

from tests.sim import mutants_around, mutants_core
from tests.sim.mutant import Mutant

MUTANTS = (*mutants_core.MUTANTS, *mutants_around.MUTANTS)
TRANSCRIPTS = Path(__file__).resolve().parents[1] / "transcripts"
SEEDS = range(1, 9)
HOSTS, VMS, DAYS = 8, 60, 2.0


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

    def __init__(self, mutant: Mutant) -> None:
        """Break what the mutant says."""
        self._edits: dict[str, tuple[tuple[str, str], ...]] = {}
        for module, old, new in mutant.edits:
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
    from forewarn.sim.runs import run_world
    from forewarn.sim.world import Plan

    return run_world(Plan(seed, HOSTS, VMS, DAYS)).invariant


def noticed_in_transcript(name: str) -> bool:
    """Whether a transcript comes out otherwise."""
    from forewarn.sim.crash import Violation
    from forewarn.sim.script import parse, play

    text = (TRANSCRIPTS / f"{name}.txt").read_text(encoding="utf-8")
    try:
        return not all(told.agrees for told in play(parse(text)))
    except (Violation, Exception):  # noqa: BLE001 - whatever happens, it was noticed
        return True


def everybody() -> list[str]:
    """Everybody who could notice, transcripts first."""
    names = [f"transcript {path.stem}" for path in sorted(TRANSCRIPTS.glob("*.txt"))]
    return [*(f"world {seed}" for seed in SEEDS), *names]


def main(arguments: list[str]) -> None:
    """Run the mutant that is named first."""
    mutant = next(each for each in MUTANTS if each.name == arguments[0])
    sys.meta_path.insert(0, _Finder(mutant))
    logging.disable(logging.CRITICAL - 1)
    logging.getLogger("forewarn").setLevel(logging.ERROR)
    logging.disable(logging.NOTSET)
    chosen = arguments[2:] if arguments[1:2] == ["--try"] else everybody()
    for who in chosen:
        kind, _, name = who.partition(" ")
        if kind == "transcript":
            if noticed_in_transcript(name):
                print(who, flush=True)
        else:
            invariant = noticed_in_world(int(name.partition(":")[0]))
            if invariant:
                print(f"world {name.partition(':')[0]}: {invariant}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
