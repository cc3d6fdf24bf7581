"""The tidy checks that need the whole tree: modules nobody uses, imports that weigh too much."""

import ast
import builtins
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator

from tests.tidy.house import ROOT, Finding, Source
from tools.product import PYTHONPATH

ENTRY_POINTS = {
    "forewarn": "what `import forewarn` gives",
    "forewarn_server.cli.main": "the command",
    "forewarn.testing": "tests of other people import it",
    "forewarn.emulator.options": "the same",
    "forewarn.job": "applications import it",
    "forewarn_core.fleet.history": "replay, against which tests and the simulator hold the state",
}

#: What the agent imports. Every mebibyte here is paid once in every VM of a fleet.
LIGHT_MODULES = (
    "forewarn",
    "forewarn_base.clock",
    "forewarn_base.errors",
    "forewarn_base.ids",
    "forewarn_base.protocol.approvals",
    "forewarn_base.protocol.documents",
)

#: What those may not pull in; resident memory on 3.11: `http.client` 6 MiB, `asyncio` 9 on its own,
#: `dataclasses` 1.7, `typing` 0.7, `datetime` 0.5, over 10.4 for socket and json.
HEAVY_MODULES = (
    "argparse",
    "asyncio",
    "dataclasses",
    "datetime",
    "email",
    "http.client",
    "inspect",
    "logging",
    "pathlib",
    "ssl",
    "threading",
    "typing",
    "urllib.request",
)


def dead_modules(sources: Iterable[Source]) -> list[Finding]:
    """Find modules of the product that no other module of the product imports.

    One that is named in a text of its own room is loaded late, by that name.
    """
    modules = {source.module: source for source in sources if source.module}
    imported: set[str] = {*ENTRY_POINTS, *_registered()}
    late: set[tuple[str, str]] = set()
    for module, source in modules.items():
        imported |= {name for name in _imported_names(source) if name != module}
        late |= {(_room(module), text) for text in _texts(source)}
    return [
        Finding(source.path, 1, "no other module imports this one", module)
        for module, source in modules.items()
        if module not in imported
        and (_room(module), module.rpartition(".")[2]) not in late
        and not source.path.endswith("__init__.py")
    ]


def _registered() -> Iterator[str]:
    """Yield the modules that packages register as entry points."""
    for file in (ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml")):
        groups = tomllib.loads(file.read_text("utf-8"))["project"].get("entry-points", {})
        yield from (line.partition(":")[0] for group in groups.values() for line in group.values())


def unknown_errors(sources: Iterable[Source]) -> list[Finding]:
    """Find names under "Raises:" that are not those of exceptions, as after a class was renamed."""
    sources = list(sources)
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for source in sources
        for node in source.walk(ast.ClassDef)
    }
    return [
        Finding(source.path, node.lineno, f"{name} is not an exception", name)
        for source in sources
        for node in source.functions()
        for name in _raised(ast.get_docstring(node) or "")
        if not _is_error(name, bases) and (name in bases or name not in _used_names(source))
    ]


def _used_names(source: Source) -> set[str]:
    """Return the last part of every name that a module's code uses or imports."""
    imported = {name.rpartition(".")[2] for _, name in source.imports()}
    return imported | {node.attr for node in source.walk(ast.Attribute)}


_RAISED = re.compile(r"^Raises:\n((?: .*\n?|\n)*)", re.MULTILINE)


def _raised(docstring: str) -> list[str]:
    """Return the names that a docstring says are raised."""
    found = _RAISED.search(docstring)
    lines = re.findall(r"^ {4}(\w+(?:, \w+)*):", found[1], re.MULTILINE) if found else []
    return [name for line in lines for name in line.split(", ")]


def _is_error(name: str, bases: dict[str, set[str]]) -> bool:
    """Whether a class is an exception: Python's own, or made of one."""
    known = getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, BaseException):
        return True
    return any(_is_error(base, bases) for base in bases.get(name, ()))


#: What a bare install must be able to import: agent and SDK.
CLIENT_ROOMS = ("forewarn.agent", "forewarn_base.protocol")


def unimportable(modules: Iterable[str]) -> list[str]:
    """Import each module in an interpreter without packages; return those that fail, with why."""
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    try: importlib.import_module(name)\n"
        "    except ImportError as error: print(f'{name}: {error}')\n"
    )
    return subprocess.run(
        [sys.executable, "-S", "-c", program, *modules],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()


def heavy_imports(module: str, heavy: Iterable[str] = HEAVY_MODULES) -> list[str]:
    """Import `module` in a bare interpreter; return what of `heavy` came with it."""
    program = f"import {module}, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return sorted(set(heavy).intersection(loaded))


def _imported_names(source: Source) -> set[str]:
    names = {name for _, name in source.imports()}
    return names | {name.rpartition(".")[0] for name in names} | _texts(source)


def _texts(source: Source) -> set[str]:
    """Return every text in a module, which may name a module to load late: `MODULE:ATTRIBUTE`."""
    texts = {node.value for node in source.walk(ast.Constant) if isinstance(node.value, str)}
    return texts | {text.partition(":")[0] for text in texts}


def _room(module: str) -> str:
    """Return the room a module is in: `forewarn.agent` of `forewarn.agent.preparations.consul`."""
    return ".".join(module.split(".")[:2])
