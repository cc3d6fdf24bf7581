"""Writes the tables of packages and of rooms in `ARCHITECTURE.md`: lines, imports, libraries."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tools.docs.reference import table
from tools.product import ROOT, SOURCES

FILE = ROOT / "ARCHITECTURE.md"
#: The row that every package and room has: its name, perhaps as a link, and its lines.
_LINES = re.compile(r"^\| \[?`?([\w.-]+)`?(?:\]\([^)]*\))? \| ([\d,]+) \|", re.MULTILINE)
#: Share by which lines may differ before a table is written again, so that a change of one module
#: changes no table.
TOLERANCE = 0.05
#: Rooms with fewer lines are not listed.
ROOM_LINES_MIN = 300
#: Packages whose parts are rooms.
WITH_ROOMS = (
    *("forewarn_server", "forewarn_core", "forewarn_metadata"),
    *("forewarn", "forewarn_base"),
)


def architecture_page() -> str:
    """Return the page with both tables; the rest of it is written by hand."""
    text = FILE.read_text("utf-8")
    known = {name: int(lines.replace(",", "")) for name, lines in _LINES.findall(text)}
    for heading, rows in (
        (("package", "lines", "packages of Forewarn", "libraries"), _packages(known)),
        (("room", "lines", "libraries"), _rooms(known)),
    ):
        new = table(heading, rows)
        old = re.compile(rf"^{re.escape(new[0])}\n(?:\|.*\n)+", re.MULTILINE)
        assert len(old.findall(text)) == 1, f"ARCHITECTURE.md needs one table {new[0]}"
        start, end = next(each.span() for each in old.finditer(text))
        text = text[:start] + "\n".join((*new, "")) + text[end:]
    return text


def _packages(known: dict[str, int]) -> Iterator[tuple[str, ...]]:
    for source in SOURCES:
        folder = source.parent
        name, modules = _name(folder), sorted(source.rglob("*.py"))
        imported = _imports(modules)
        title = f"`{name}`" if folder == ROOT else f"[{name}](packages/{name}/README.md)"
        yield (
            title,
            _lines(name, modules, known),
            ", ".join(sorted(_homes(imported) - {name})),
            ", ".join(sorted(_others(imported))),
        )


def _rooms(known: dict[str, int]) -> Iterator[tuple[str, ...]]:
    tops = {place.name: place for source in SOURCES for place in source.iterdir()}
    for top in WITH_ROOMS:
        for folder in sorted(tops[top].iterdir()):
            modules, name = sorted(folder.rglob("*.py")), f"{top}.{folder.name}"
            if _count(modules) >= ROOM_LINES_MIN:
                others = ", ".join(sorted(_others(_imports(modules))))
                yield f"`{name}`", _lines(name, modules, known), others


def _lines(name: str, modules: Iterable[Path], known: dict[str, int]) -> str:
    """Return the lines of modules to the next ten, or the known number if it is near."""
    count, old = _count(modules), known.get(name, 0)
    near = abs(count - old) <= TOLERANCE * count
    return f"{old if near else round(count, -1):,}"


def _count(modules: Iterable[Path]) -> int:
    return sum(path.read_text("utf-8").count("\n") for path in modules)


def _name(folder: Path) -> str:
    """Return the name of a folder's distribution."""
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    return str(project["project"]["name"])


def _homes(imported: Iterable[str]) -> set[str]:
    """Return the distributions of imported modules of Forewarn."""
    tops = {each.partition(".")[0] for each in imported}
    return {
        _name(source.parent)
        for source in SOURCES
        if tops & {place.parent.name for place in source.glob("*/__init__.py")}
    }


def _imports(modules: Iterable[Path]) -> set[str]:
    """Return the names of all imported modules."""
    found: set[str] = set()
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
    return found


def _others(imported: Iterable[str]) -> set[str]:
    """Return the packages that are neither Python's nor Forewarn's, by the names of imports."""
    names = {each.partition(".")[0] for each in imported}
    return {each for each in names - sys.stdlib_module_names if not each.startswith("forewarn")}
