"""Loads a module broken, in the process that runs the tests and in those that they start.

The latter find `children/sitecustomize.py` on their path, which Python runs first.
"""

import importlib.machinery
import os
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
        if fullname != self._module:
            return None
        number = self._number

        class Broken(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType:
                source = Path(self.get_filename(fullname))
                tree = broken(source.read_text(encoding="utf-8"), number)
                return compile(tree, str(source), "exec", dont_inherit=True)

        spec = importlib.machinery.PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]
        assert spec is not None
        assert spec.origin is not None
        spec.loader = Broken(fullname, spec.origin)
        return spec
