"""The modules of the product: those of Forewarn and of its packages in `packages/`.

Tools find them in the tree, so a package that is new in the tree needs no installation first.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
#: Directories with the top-level packages of the product.
SOURCES = (ROOT / "src", *sorted(ROOT.glob("packages/*/src")))
#: Packages without which the service does not run; the others are reached by entry points.
PARTS = ("agent", "base", "core", "drivers", "metadata", "store")
#: Forewarn without its other packages, for the environment of a program.
PYTHONPATH = os.pathsep.join(
    map(str, (ROOT / "src", *(ROOT / "packages" / f"forewarn-{each}" / "src" for each in PARTS)))
)
sys.path += [str(each) for each in SOURCES if str(each) not in sys.path]


def files() -> Iterator[Path]:
    """Yield the files of all modules."""
    for folder in SOURCES:
        yield from sorted(folder.rglob("*.py"))


def module_of(path: Path) -> str:
    """Return the name of the module in a file."""
    folder = next(each for each in SOURCES if path.is_relative_to(each))
    return ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")


def folder_of(package: str) -> Path:
    """Return the folder of a package, such as `forewarn_core.rules`."""
    places = (source.joinpath(*package.split(".")) for source in SOURCES)
    return next(each for each in places if each.is_dir())


def modules() -> Iterator[ModuleType]:
    """Import and yield all modules, except programs."""
    names = (module_of(path) for path in files() if path.name != "__main__.py")
    return map(importlib.import_module, names)
