"""Runs worlds of a broken product: `python -m tests.simulator.mutate NAME`, in its own process.

Prints the world and the invariant that noticed the breakage. Nothing is written anywhere.
"""

import importlib.abc
import importlib.machinery
import logging
import sys
from pathlib import Path
from types import CodeType

from tests.simulator.breakages import BREAKAGES, Breakage

SEEDS = range(1, 17)
HOSTS, VMS, DAYS, RATE = 8, 40, 1.0, 6


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


def main(name: str) -> None:
    """Run worlds with the breakage of a name until one notices it, and print the invariant."""
    breakage = next(each for each in BREAKAGES if each.name == name)
    sys.meta_path.insert(0, _Finder(breakage))
    logging.disable(logging.CRITICAL - 1)
    logging.getLogger("forewarn").setLevel(logging.ERROR)
    logging.disable(logging.NOTSET)
    first, _ = breakage.caught_by
    for seed in (first, *SEEDS):
        invariant = noticed_in_world(seed)
        if invariant:
            print(f"world {seed}: {invariant}")
            return


if __name__ == "__main__":
    main(sys.argv[1])
