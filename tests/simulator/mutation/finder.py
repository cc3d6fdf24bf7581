"""Loads a module broken, in the process that runs the tests and in those that they start.

The latter find `children/sitecustomize.py` on their path, which Python runs first.
"""

import ast
import importlib.machinery
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import CodeType

from tests.simulator.mutation.generated import ROOT, Breakage, broken

CHILDREN = Path(__file__).parent / "children"
MODULE, NUMBER = "FOREWARN_BROKEN_MODULE", "FOREWARN_BROKEN_NUMBER"


def break_children(breakage: Breakage) -> None:
    """Have every Python that this process starts break the same."""
    os.environ[MODULE], os.environ[NUMBER] = breakage.module, str(breakage.number)
    path = (str(CHILDREN), str(ROOT), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))


class Finder:
    """Finds the modules that are to be broken, and loads each from what it is broken into."""

    def __init__(self, broken: Mapping[str, Callable[[str], ast.Module | str]]) -> None:
        """Take, for each module, the function that breaks its source."""
        self._broken = broken

    def find_spec(
        self,
        fullname: str,
        path: object = None,
        target: object = None,  # noqa: ARG002 - the interface has it
    ) -> object:
        """Return the spec of a broken module."""
        if fullname not in self._broken:
            return None
        broken = self._broken[fullname]

        class Broken(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType:
                source = Path(self.get_filename(fullname))
                return compile(
                    broken(source.read_text(encoding="utf-8")),
                    str(source),
                    "exec",
                    dont_inherit=True,
                )

        spec = importlib.machinery.PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]
        assert spec is not None
        assert spec.origin is not None
        spec.loader = Broken(fullname, spec.origin)
        return spec


def finder_of(module: str, number: int) -> Finder:
    """Return what breaks a module in one of the ways that are made by rule."""
    return Finder({module: partial(broken, number=number)})
