"""Runs one generated breakage: `python -m tests.simulator.mutation.attempt PACKAGE MODULE NUMBER`.

Prints who noticed it first, or `nobody`: the exploration of small worlds, a test, a transcript.
Nothing is written anywhere.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
from pathlib import Path
from types import CodeType

import pytest

from tests.simulator.mutation.generated import broken

STATES = 700
CPU_S_MAX = 150
"""Processor time after which a breakage counts as noticed: it does not come to an end."""
TESTS: dict[str, tuple[str, ...]] = {
    "core": ("tests/core", "tests/transcripts", "tests/planning"),
    "agent/core": (
        "tests/agent/test_core.py",
        "tests/agent/test_core_documents.py",
        "tests/agent/test_core_together.py",
        "tests/agent/test_core_undoing.py",
        "tests/agent/test_coordination.py",
        "tests/agent/test_rules.py",
        "tests/agent/test_journal.py",
        "tests/agent/test_core_worlds.py",
        "tests/agent/test_doubt.py",
        "tests/agent/test_wild_documents.py",
        "tests/transcripts",
    ),
    "control": ("tests/control", "tests/transcripts"),
    "metadata": ("tests/metadata", "tests/protocol"),
    "store": ("tests/store",),
}
"""What is run for each package, in this order, until something notices."""
OPTIONS = (
    *("-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"),
    "--assert=plain",  # pytest would load the product itself, unbroken, to rewrite its assertions
    *("-m", "not slow and not postgres"),
)
EXPLORED = {"core"}
SOUND = -1
"""In place of a change's number: nothing is broken, and nobody may notice anything."""


class _Finder:
    """Finds the module that is to be broken, and loads it broken."""

    def __init__(self, module: str, number: int) -> None:
        """Break a module in one way."""
        self._module, self._number = module, number

    def find_spec(
        self,
        fullname: str,
        path: object = None,
        target: object = None,  # noqa: ARG002 - the interface has it
    ) -> object:
        """Return the spec of the broken module."""
        from importlib.machinery import PathFinder, SourceFileLoader

        if fullname != self._module:
            return None
        number = self._number

        class Broken(SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType:
                source = Path(self.get_filename(fullname))
                tree = broken(source.read_text(encoding="utf-8"), number)
                return compile(tree, str(source), "exec", dont_inherit=True)

        spec = PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]
        assert spec is not None
        assert spec.origin is not None
        spec.loader = Broken(fullname, spec.origin)
        return spec


class _First:
    """Notes which test fails first."""

    def __init__(self) -> None:
        """Begin with none."""
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that fails."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that cannot even be read."""
        if report.failed and not self.failed:
            self.failed = report.nodeid or "collection"


def noticed(package: str) -> str:
    """Who notices first that the product is broken; empty if nobody does."""
    if package in EXPLORED:
        with multiprocessing.get_context("fork").Pool(
            1
        ) as pool:  # pytest wants to import it itself
            found = pool.apply(explored)
        if found:
            return found
    first = _First()
    code = pytest.main([*OPTIONS, *TESTS[package]], plugins=[first])
    return first.failed or ("" if code == 0 else f"pytest ends with {code}")


def explored() -> str:
    """What the exploration of a few states of each small world has to say; empty if nothing."""
    try:
        from tests.simulator.exploration.explorer import Explorer
        from tests.simulator.exploration.worlds import WORLDS

        for world in WORLDS:
            violation = Explorer(world).explore(STATES).violation
            if violation is not None:
                return f"exploration {world.name}: {violation.invariant}"
    except Exception as error:  # noqa: BLE001 - however it fails, it is noticed
        return f"exploration: {error!r}"
    return ""


def main(arguments: list[str]) -> None:
    """Break the product, and say who notices."""
    package, module, number = arguments
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
    if int(number) != SOUND:
        sys.meta_path.insert(0, _Finder(module, int(number)))  # type: ignore[arg-type]
    print(f"\nNOTICED {noticed(package) or 'nobody'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
