"""What a tidy check is: a function over one file that yields findings, with its own samples.

`code.py` holds the checks of Python, `text.py` those of any text.
"""

import ast
import fnmatch
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TypeVar, cast

Node = TypeVar("Node", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef

ROOT = Path(__file__).resolve().parents[2]


def in_package(path: str) -> str:
    """Return a path below its package, as `src/…` for `packages/NAME/src/…`."""
    return re.sub(r"^packages/[^/]+/", "", path)


@dataclass(frozen=True)
class Source:
    """One file of the tree; `path` is relative to the root, with forward slashes."""

    path: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Its lines, without line ends."""
        return self.text.split("\n")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree; only for Python."""
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> dict[type[ast.AST], list[ast.AST]]:
        """The nodes of its tree by their type."""
        nodes: dict[type[ast.AST], list[ast.AST]] = {}
        for node in ast.walk(self.tree):
            nodes.setdefault(type(node), []).append(node)
        return nodes

    @property
    def module(self) -> str:
        """The dotted name of a module under a `src/`, else an empty string."""
        path = in_package(self.path)
        if not path.startswith("src/"):
            return ""
        return path[4:].removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def walk(self, kind: type[Node]) -> Iterator[Node]:
        """Yield the nodes of one kind."""
        for found, nodes in self.nodes.items():
            if issubclass(found, kind):
                yield from cast("list[Node]", nodes)

    def functions(self) -> Iterator[Function]:
        """Yield every function and method, however deep."""
        yield from self.walk(ast.FunctionDef)
        yield from self.walk(ast.AsyncFunctionDef)

    def imports(self) -> Iterator[tuple[int, str]]:
        """Yield line and dotted name of all imports; `from a import b` gives `a.b`."""
        for plain in self.walk(ast.Import):
            yield from ((plain.lineno, alias.name) for alias in plain.names)
        for chosen in self.walk(ast.ImportFrom):
            yield from ((chosen.lineno, f"{chosen.module}.{alias.name}") for alias in chosen.names)


@dataclass(frozen=True, order=True)
class Finding:
    """One thing to fix, as one sentence that names the way out."""

    path: str
    line: int
    sentence: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.sentence}"


#: Line, sentence and, where the thing has one, its name, by which an exception may know it.
Found = Iterator[tuple[int, str] | tuple[int, str, str]]


@dataclass(frozen=True)
class Check:
    """A rule, the files it is for, and one sample that breaks it and one that keeps it."""

    find: Callable[[Source], Found]
    where: tuple[str, ...]
    bad: str
    good: str
    sample_path: str

    @property
    def name(self) -> str:
        """The rule's name, as the exceptions use it."""
        return self.find.__name__

    def applies(self, path: str) -> bool:
        """Tell whether the rule is for this file."""
        return any(fnmatch.fnmatch(in_package(path), pattern) for pattern in self.where)

    def findings(self, source: Source) -> Iterator[Finding]:
        """Yield what the rule finds in one file."""
        for line, sentence, *name in self.find(source):
            yield Finding(source.path, line, sentence, name[0] if name else "")


CHECKS: list[Check] = []


def check(
    *where: str, bad: str, good: str, at: str = "src/forewarn/sample.py"
) -> Callable[[Callable[[Source], Found]], Callable[[Source], Found]]:
    """Register a check; without both samples there is no check."""

    def register(find: Callable[[Source], Found]) -> Callable[[Source], Found]:
        CHECKS.append(Check(find, where, bad, good, at))
        return find

    return register


@lru_cache(maxsize=1)
def paths() -> tuple[str, ...]:
    """Return every text that git knows or would take, sorted; a picture is none."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    return tuple(
        sorted(
            path
            for path in set(listed)
            if path
            and not path.endswith((".png", ".webp", ".db", ".dump"))
            and (ROOT / path).is_file()
        )
    )


@cache
def read(path: str) -> Source:
    """Return one file; bytes that are not UTF-8 become U+FFFD, which a check refuses."""
    return Source(path, (ROOT / path).read_bytes().decode("utf-8", errors="replace"))
