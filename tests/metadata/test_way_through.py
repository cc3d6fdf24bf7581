"""How many files a request passes through, by a trace of the event loop's thread.

Leaf modules, which import nothing of the product but other leaves, do not count: they are read
without the rest of the house.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import forewarn
from tests.metadata.live import EVENTS, FREEZE, approval, request, serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from tests.metadata.live import Live

ROOT = Path(forewarn.__file__).parent


def imported(path: Path) -> set[str]:
    """Return what a file of the product imports of the product at run time."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:  # what only types need stands deeper
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        found.update(each for each in names if file_of(each) is not None)
    return found


def file_of(module: str) -> Path | None:
    """Return the file of a module of the product; None for packages and all else."""
    path = ROOT.parent / f"{module.replace('.', '/')}.py"
    return path if path.is_file() else None


@cache
def is_leaf(path: Path) -> bool:
    """Tell whether a file imports nothing of the product that imports something of it."""
    for module in imported(path):
        other = file_of(module)
        assert other is not None
        if imported(other):
            return False
    return True


def passed(live: Live, act: Callable[[], None]) -> set[str]:
    """Return the files the server's thread ran code of while something was done."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        seen.add(frame.f_code.co_filename)

    live.call(lambda: sys.setprofile(note))
    act()
    live.call(lambda: sys.setprofile(None))
    paths = [Path(name) for name in seen if name.startswith(str(ROOT))]
    return {str(path.relative_to(ROOT)) for path in paths if not is_leaf(path)}


def test_warm_poll_passes_three_files(portable: bool) -> None:
    """A poll that is answered from memory needs next to nothing of the house. Source: E-1."""
    with serving(portable=portable) as live, live.connect() as raw:

        def poll() -> None:
            raw.send(request(EVENTS))
            assert raw.reply().status == 200

        poll()
        files = passed(live, poll)
        assert len(files) <= 3, files


def test_approval_passes_nine_files_of_the_metadata_service(portable: bool) -> None:
    """So that twenty suffice to its 200, the control plane's included. Source: A-6."""
    with serving(portable=portable) as live, live.connect() as raw:
        octets = request(EVENTS, method="POST", body=approval(FREEZE.event_id))

        def approve() -> None:
            raw.send(octets)
            assert raw.reply().status == 200

        approve()
        files = passed(live, approve)
        assert len(files) <= 9, files
