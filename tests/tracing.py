"""Which files of the product run, by a profiler's trace: how much of the house an act passes.

Leaf modules, which import nothing of the product but other leaves, do not count: they are read
without the rest of the house. No test may go in here.
"""

from __future__ import annotations

import ast
import sys
import threading
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import forewarn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ROOT = Path(forewarn.__file__).parent


class Trace:
    """Notes the files in which code runs, on each thread that profiles with `note`."""

    def __init__(self, *, answered_by: str = "") -> None:
        """Note nothing yet.

        Args:
            answered_by: function after whose return its thread is noted no more; empty: none.
        """
        self._answered_by = answered_by
        self._seen: set[str] | None = None
        self._over: set[int] = set()

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take what the profiler says."""
        seen, code = self._seen, frame.f_code
        if seen is None or threading.get_ident() in self._over:
            return
        seen.add(code.co_filename)
        if event == "return" and code.co_qualname == self._answered_by:
            self._over.add(threading.get_ident())

    @contextmanager
    def files(self) -> Iterator[set[str]]:
        """Collect the files, but for leaves, until the block ends; the set is filled then."""
        self._over.clear()
        seen: set[str] = set()
        self._seen = seen
        found: set[str] = set()
        try:
            yield found
        finally:
            self._seen = None
            paths = [Path(name) for name in seen if name.startswith(str(ROOT))]
            found.update(str(path.relative_to(ROOT)) for path in paths if not is_leaf(path))


@contextmanager
def traced_threads(trace: Trace) -> Iterator[None]:
    """Have every thread that starts within this block profiled, for as long as it lives."""
    before = threading.getprofile()
    threading.setprofile(trace.note)
    try:
        yield
    finally:
        threading.setprofile(before)


def profile_this_thread(trace: Trace | None) -> None:
    """Have this thread profiled from now on, or no more."""
    sys.setprofile(trace.note if trace else None)


@cache
def is_leaf(path: Path) -> bool:
    """Tell whether a file imports nothing of the product that imports something of it."""
    for module in _imported(path):
        other = _file_of(module)
        assert other is not None
        if _imported(other):
            return False
    return True


def _imported(path: Path) -> set[str]:
    """Return what a file of the product imports of the product at run time."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:  # what only types need stands deeper
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        found.update(each for each in names if _file_of(each) is not None)
    return found


def _file_of(module: str) -> Path | None:
    """Return the file of a module of the product; None for packages and all else."""
    path = ROOT.parent / f"{module.replace('.', '/')}.py"
    return path if path.is_file() else None
