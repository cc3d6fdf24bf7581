"""Finds the regular expressions of the product, and makes texts that are hostile to each.

A pattern is hostile to itself: whatever it repeats, repeated by a text that then does not match,
makes a backtracking engine try again from every position. The texts are therefore made of the
pattern's own pieces, read with the parser of `re`.
"""

# ruff: noqa: ANN401 - the trees of Python's parser of patterns have no types
import ast
import importlib
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tools.product import files, module_of

FUNCTIONS = frozenset(
    ("compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn")
)
#: Methods that look for every match.
SCANS = frozenset(("split", "findall", "finditer", "sub", "subn", "scanner"))
#: Pieces of a pattern that are repeated, the shortest first.
PIECES_MAX = 60
_parser: Any = importlib.import_module("re._parser")


@dataclass(frozen=True)
class Use:
    """A place where the product makes a regular expression."""

    module: str
    line: int
    #: The call that makes it.
    source: str
    #: The variable that has the pattern; empty if the pattern has no name.
    name: str
    #: None: the pattern is made of values that exist only later.
    pattern: "re.Pattern[Any] | None"
    #: How it is applied: `search`, `match`, `fullmatch`, or `scan` to find every match.
    methods: frozenset[str]

    def __str__(self) -> str:
        """Return the place."""
        return f"{self.module}:{self.line} {self.name}".strip()


@cache
def uses() -> list[Use]:
    """Return every place of the product that makes a regular expression."""
    modules = [_Module(path, tree) for path, tree in _trees().items()]
    everywhere = _methods_by_name(_trees().values())
    return [use for each in modules for use in each.uses(everywhere)]


@cache
def _trees() -> dict[Path, ast.Module]:
    """Return the syntax trees of all modules."""
    texts = {path: path.read_text("utf-8") for path in files()}
    return {path: ast.parse(text) for path, text in texts.items()}


def hidden_imports() -> list[str]:
    """Return imports by which a pattern could escape `uses`."""
    return [
        f"{module_of(path)}: {ast.unparse(node)}"
        for path, tree in _trees().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and node.module in {"re", "regex", "fnmatch"})
        or (isinstance(node, ast.Import) and {each.name for each in node.names} & {"regex"})
        or (
            isinstance(node, ast.Import)
            and any(each.asname for each in node.names if each.name == "re")
        )
    ]


def _methods_by_name(trees: Iterable[ast.Module]) -> dict[str, frozenset[str]]:
    """Return the methods that are called on each name; a name that is passed on is missing."""
    applied: dict[str, set[str]] = {}
    passed: set[str] = set()
    for tree in trees:
        nodes = list(ast.walk(tree))
        inside = {id(node.value): node.attr for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                if id(node) in inside:
                    applied.setdefault(node.id, set()).add(inside[id(node)])
                else:
                    passed.add(node.id)
    return {name: frozenset(methods) for name, methods in applied.items() if name not in passed}


class _Module:
    """A module of the product."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.tree = tree
        self._name = module_of(path)
        self._outer = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }

    def uses(self, everywhere: dict[str, frozenset[str]]) -> Iterator[Use]:
        """Yield the calls that make a pattern."""
        here = _methods_by_name([self.tree])
        for node in ast.walk(self.tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)):
                continue
            made = ast.unparse(node.func)
            if made == "Text" and (pattern := _argument(node, 1, "pattern")):
                yield self._use(node, "", pattern, None, {"fullmatch"})
            elif made in {f"re.{each}" for each in FUNCTIONS}:
                pattern = _argument(node, 0, "pattern")
                flags = _argument(node, 1 if made == "re.compile" else 9, "flags")
                outer, name, methods = self._outer[node], "", {made.removeprefix("re.")}
                if made == "re.compile" and isinstance(outer, ast.Attribute):
                    methods = {outer.attr}
                elif made == "re.compile":
                    name = self._assigned(node)
                    known = here if name.startswith("_") else everywhere
                    methods = {*known.get(name, FUNCTIONS)}
                yield self._use(node, name, pattern, flags, methods)

    def _use(
        self,
        node: ast.Call,
        name: str,
        pattern: ast.expr | None,
        flags: ast.expr | None,
        methods: set[str],
    ) -> Use:
        kinds = {"scan" if each in SCANS else each for each in methods & (FUNCTIONS | SCANS)}
        kinds = kinds - {"compile"} or {"search", "match", "fullmatch", "scan"}
        made = self._made(pattern, flags)
        return Use(self._name, node.lineno, ast.unparse(node), name, made, frozenset(kinds))

    def _made(self, pattern: ast.expr | None, flags: ast.expr | None) -> "re.Pattern[Any] | None":
        """Return the pattern of a call whose arguments exist once the module is loaded."""
        names = vars(importlib.import_module(self._name))
        try:
            given = [eval(ast.unparse(each), names) for each in (pattern, flags) if each]
            return re.compile(*given)
        except (NameError, AttributeError, SyntaxError):
            return None

    def _assigned(self, node: ast.expr) -> str:
        """Return the variable to which a call's result is assigned."""
        outer = self._outer[node]
        assignment = self._outer.get(outer)
        if isinstance(outer, ast.Tuple) and isinstance(assignment, ast.Assign):
            target = assignment.targets[0]
            if isinstance(target, ast.Tuple):
                return ast.unparse(target.elts[outer.elts.index(node)])
        if isinstance(outer, ast.Assign):
            return ast.unparse(outer.targets[0])
        return ""


def _argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    named = {each.arg: each.value for each in call.keywords}
    return call.args[place] if place < len(call.args) else named.get(name)


# --- hostile texts -----------------------------------------------------------------------------


class Hostile:
    """Texts that are hostile to one pattern."""

    def __init__(self, pattern: "re.Pattern[Any]") -> None:
        """Read the pattern."""
        self._pattern = pattern
        self._tree = _parser.parse(pattern.pattern, pattern.flags)
        self._starts: list[str] = [""]
        self._pieces: list[str] = []
        self._collect(self._tree, "")

    def text(self, start: str, piece: str, end: str, size: int) -> Any:
        """Return one text in the pattern's type."""
        text = start + piece * (size // len(piece)) + end
        return text if isinstance(self._pattern.pattern, str) else text.encode("latin-1")

    @cached_property
    def shapes(self) -> list[tuple[str, str, str]]:
        """A beginning, a piece that is repeated, and an end."""
        letters = self._letters()
        pairs = ["".join(pair) for pair in itertools.permutations(letters, 2)]
        pieces = sorted({*self._pieces} - {""}, key=len)[:PIECES_MAX]
        ends = ["", "\x00", *([pieces[0]] if pieces else [])]
        every = dict.fromkeys([*letters, *pieces, *pairs])
        starts = dict.fromkeys(self._starts)
        return list(itertools.product(starts, every, dict.fromkeys(ends)))

    def _collect(self, tree: Any, before: str) -> str:
        """Note what a sequence repeats and how it begins; return a text that it matches."""
        text = ""
        for item in tree:
            sample = self._sample(item, before + text)
            text += sample
            self._pieces.append(text)
            self._pieces.append(sample)
        return text

    def _sample(self, item: Any, before: str) -> str:
        kind, value = str(item[0]), item[1]
        if kind in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
            least, most, inner = value
            self._starts.append(before)
            sample = self._collect(inner, before)
            return sample * max(int(least), 1 if int(most) else 0)
        if kind == "SUBPATTERN":
            return self._collect(value[-1], before)
        if kind == "ATOMIC_GROUP":
            return self._collect(value, before)
        if kind in {"ASSERT", "ASSERT_NOT"}:
            self._collect(value[1], before)
            return ""
        if kind == "BRANCH":
            return next(iter([self._collect(each, before) for each in value[1]]))
        if kind == "GROUPREF_EXISTS":
            return self._collect(value[1], before)
        if kind in {"AT", "GROUPREF"}:
            return ""
        return _member(item)

    def _letters(self) -> list[str]:
        """Return a character for each group that no repeated part of the pattern tells apart."""
        classes = [re.compile(each, self._pattern.flags) for each in _classes(self._tree)]
        groups: dict[tuple[bool, ...], str] = {}
        for letter in map(chr, (*range(33, 127), 32, 9, 10, 13, 0, 0xE9)):
            groups.setdefault(tuple(bool(each.match(letter)) for each in classes), letter)
        return list(groups.values())


def _member(item: Any) -> str:
    """Return a character that matches an item of one character."""
    kind, value = str(item[0]), item[1]
    if kind == "LITERAL":
        return chr(value)
    pattern = re.compile(_source(item), re.DOTALL)
    letters = map(chr, (*range(97, 123), *range(33, 127), 32, 9, 10, 13, *range(128, 256)))
    return next((each for each in letters if pattern.match(each)), "")


def _classes(tree: Any) -> set[str]:
    """Return the source of each repeated item of one character."""
    found: set[str] = set()

    def look(item: Any, *, repeated: bool = False) -> None:
        if isinstance(item, tuple) and len(item) == 2 and str(item[0]) in _ONE:
            found.update([_source(item)] if repeated else [])
        elif isinstance(item, tuple | list) or type(item).__name__ == "SubPattern":
            for each in item:
                look(each, repeated=repeated or "_REPEAT" in str(item[0]))

    look(list(tree))
    return found


_ONE = {"LITERAL", "NOT_LITERAL", "IN", "ANY"}
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


def _source(item: Any) -> str:
    """Return the source of an item of one character."""
    kind, value = str(item[0]), item[1]
    if kind == "ANY":
        return "."
    if kind == "LITERAL":
        return re.escape(chr(value))
    if kind == "NOT_LITERAL":
        return f"[^{re.escape(chr(value))}]"
    parts: list[str] = []
    for each, what in value:
        if str(each) == "NEGATE":
            parts.insert(0, "^")
        elif str(each) == "LITERAL":
            parts.append(re.escape(chr(what)))
        elif str(each) == "RANGE":
            parts.append(f"{re.escape(chr(what[0]))}-{re.escape(chr(what[1]))}")
        else:
            parts.append(_CATEGORIES[str(what)])
    return f"[{''.join(parts)}]"
