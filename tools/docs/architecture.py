"""Writes the tables of packages and of rooms in `ARCHITECTURE.md`: lines, imports, requirements.

Imports of single modules of Forewarn, such as `errors` and `clock`, are left out.
"""

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
_LINES = re.compile(r"^\| \[?`?([\w-]+)`?(?:\]\([^)]*\))? \| ([\d,]+) \|", re.MULTILINE)
#: Share by which lines may differ before a table is written again, so that a change of one module
#: changes no table.
TOLERANCE = 0.05
#: Rooms with fewer lines are not listed.
ROOM_LINES_MIN = 300


def architecture_page() -> str:
    """Return the page with both tables; the rest of it is written by hand."""
    text = FILE.read_text("utf-8")
    known = {name: int(lines.replace(",", "")) for name, lines in _LINES.findall(text)}
    for heading, rows in (
        (("package", "lines", "rooms of `forewarn`", "to install"), _packages(known)),
        (("room", "lines", "packages of others"), _rooms(known)),
    ):
        new = table(heading, rows)
        old = re.compile(rf"^{re.escape(new[0])}\n(?:\|.*\n)+", re.MULTILINE)
        assert len(old.findall(text)) == 1, f"ARCHITECTURE.md needs one table {new[0]}"
        start, end = next(each.span() for each in old.finditer(text))
        text = text[:start] + "\n".join((*new, "")) + text[end:]
    return text


def _packages(known: dict[str, int]) -> Iterator[tuple[str, ...]]:
    extras: dict[str, list[str]] = _project(ROOT)["optional-dependencies"]
    for source in SOURCES:
        folder = source.parent
        project, modules = _project(folder), sorted(source.rglob("*.py"))
        name, imported = project["name"], _imports(modules)
        rooms = sorted({each.split(".")[1] for each in imported if each.startswith("forewarn.")})
        rooms = [each for each in rooms if (ROOT / "src/forewarn" / each).is_dir()]
        if folder == ROOT:
            yield f"`{name}`", _lines(name, modules, known), "", "nothing for agent and SDK"
            continue
        required = [f"`{each.partition('==')[0]}`" for each in project["dependencies"]]
        useful = sorted(_extras(extras, _others(imported)) - {"cli", "server"})
        more = [f"`{each}`" for each in useful if f"`forewarn[{each}]`" not in required]
        needs = ", ".join(required) + (f"; extras {', '.join(more)}" if more else "")
        title = f"[{name}](packages/{name}/README.md)"
        yield title, _lines(name, modules, known), ", ".join(rooms), needs


def _rooms(known: dict[str, int]) -> Iterator[tuple[str, ...]]:
    for folder in sorted((ROOT / "src/forewarn").iterdir()):
        modules = sorted(folder.rglob("*.py"))
        if _count(modules) >= ROOM_LINES_MIN:
            others = ", ".join(sorted(_others(_imports(modules))))
            yield folder.name, _lines(folder.name, modules, known), others


def _lines(name: str, modules: Iterable[Path], known: dict[str, int]) -> str:
    """Return the lines of modules to the next ten, or the known number if it is near."""
    count, old = _count(modules), known.get(name, 0)
    near = abs(count - old) <= TOLERANCE * count
    return f"{old if near else round(count, -1):,}"


def _count(modules: Iterable[Path]) -> int:
    return sum(path.read_text("utf-8").count("\n") for path in modules)


def _project(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    return dict(project["project"])


def _imports(modules: Iterable[Path]) -> set[str]:
    """Return the names of all imported modules."""
    found: set[str] = set()
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module == "forewarn":
                found |= {f"forewarn.{each.name}" for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
    return found


def _others(imported: Iterable[str]) -> set[str]:
    """Return the packages that are neither Python's nor Forewarn's, by the names of imports."""
    names = {each.partition(".")[0] for each in imported}
    return {each for each in names - sys.stdlib_module_names if not each.startswith("forewarn")}


def _extras(extras: dict[str, list[str]], imported: Iterable[str]) -> set[str]:
    """Return the extras that bring packages; `libvirt` is imported from `libvirt-python`."""
    return {
        name
        for name, requirements in extras.items()
        if any(each.startswith(one) for each in requirements for one in imported)
    }
