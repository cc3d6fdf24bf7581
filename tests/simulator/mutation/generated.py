"""Breakages that are made by rule: each changes one operator, comparison, call or number.

Nothing is run in here: `server.py` runs each in a process of its own.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from tools.product import folder_of, module_of

ROOT = Path(__file__).resolve().parents[3]
#: What a score is given for, and its packages.
PACKAGES: dict[str, tuple[str, ...]] = {
    "core": ("forewarn_core.fleet",),
    "access": ("forewarn_core.access",),
    "rules": ("forewarn_core.rules",),
    "agent/core": ("forewarn.agent.core",),
    "control": ("forewarn_server.control",),
    "metadata": ("forewarn_metadata.endpoint", "forewarn_metadata.endpoint.http"),
    "store": ("forewarn_store",),
    "planning": ("forewarn_core.planning",),
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
#: In place of a change's number: nothing is broken, and nobody may notice anything.
SOUND = -1
#: Names whose calls are left as they are: nobody promises what is logged.
UNHEARD = {"log", "_LOG", "logging"}
#: What runs on this system alone is left as it is: no test runs there.
ELSEWHERE = "win32"


@dataclass(frozen=True, slots=True)
class Breakage:
    """One change of one module."""

    module: str
    #: Which of the module's possible changes, counted in the order of the text.
    number: int
    line: int
    #: What is changed, as text: `<` to `<=`.
    what: str
    #: The line as it was, and the line before it.
    text: str
    before: str
    path: str
    #: The lines of the smallest statement around it; of a compound one, those of its head.
    lines: range
    #: Whether it is in the body of a function, and so can be changed after the module is loaded.
    is_in_function: bool

    def __str__(self) -> str:
        """Return where it is and what is changed."""
        return f"{self.path}:{self.line}: {self.what}: {self.text}"

    @property
    def keys(self) -> set[str]:
        """What it is known by wherever its line is moved; any number of a line is one more.

        The line before tells equal lines apart: `record.gone = True; self._mark()`.
        """
        whats = {self.what, "one more"} if re.match(r"\d", self.what) else {self.what}
        texts = (self.text, f"{self.before}; {self.text}")
        return {f"{self.module} | {what} | {text}" for what in whats for text in texts}


def breakages(package: str) -> list[Breakage]:
    """Return every breakage of a package, in the order of its modules."""
    found = []
    for folder in PACKAGES[package]:
        for path in sorted(folder_of(folder).glob("*.py")):
            module = module_of(path)
            lines = path.read_text(encoding="utf-8").splitlines()
            tree = ast.parse("\n".join(lines))
            smallest, in_functions = _around(tree)
            where = str(path.relative_to(ROOT))
            for number, (node, what) in enumerate(_places(tree)):
                line: int = node.lineno  # type: ignore[attr-defined]
                text = lines[line - 1].strip()
                around = smallest.get(line, range(line, line + 1)), line in in_functions
                before = lines[line - 2].strip()
                found.append(Breakage(module, number, line, what, text, before, where, *around))
    return found


def _around(tree: ast.Module) -> tuple[dict[int, range], set[int]]:
    """Return the smallest statement around each line, and the lines in bodies of functions."""
    smallest: dict[int, range] = {}
    in_functions: set[int] = set()
    for each in ast.walk(tree):  # what is inside comes after what is around it
        if not isinstance(each, ast.stmt):
            continue
        end = (each.end_lineno or each.lineno) + 1
        body = getattr(each, "body", None)
        head = range(each.lineno, max(each.lineno + 1, body[0].lineno) if body else end)
        smallest.update(dict.fromkeys(head, head))
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            in_functions.update(range(each.body[0].lineno, end))
    return smallest, in_functions


def broken(text: str, number: int) -> ast.Module:
    """Return a module's tree with one of its possible changes made."""
    tree = ast.parse(text)
    for place, (node, what) in enumerate(_places(tree)):
        if place == number:
            _change(tree, node, what)
            return ast.fix_missing_locations(tree)
    raise IndexError(number)


def _places(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield what may be changed, and how, in an order that does not depend on the change."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if _is_out_of_reach(node):
            continue
        yield from ((node, what) for what in _changes_of(node))
        stack += reversed(node.orelse if _is_elsewhere(node) else list(_children(node)))


def _is_elsewhere(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether a statement's body is run on another operating system alone."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == f"sys.platform == {ELSEWHERE!r}"


def _is_out_of_reach(node: ast.AST) -> bool:
    """Whether nothing in a node can be wrong for anybody: assertions, types, texts for people.

    Nor how a value is shown to whoever looks for a bug of ours (`repr=False`).
    """
    if isinstance(node, ast.keyword):
        return node.arg == "repr"
    if isinstance(node, ast.Expr) and _is_unheard(node.value):
        return True
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        return isinstance(node.value.func, ast.Name) and node.value.func.id in {
            "TypeVar",
            "NewType",
        }
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and node.targets[0].id == "TYPE_CHECKING"
    return isinstance(node, (ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    skipped = {"annotation", "returns", "decorator_list", "bases"}
    for name, held in ast.iter_fields(node):
        if name in skipped:
            continue
        for each in held if isinstance(held, list) else [held]:
            if isinstance(each, ast.AST):
                yield each


def _changes_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[op]):
            yield f"{type(op).__name__} to {COMPARISONS[type(op)].__name__}"
        case ast.BoolOp():
            yield "and to or" if isinstance(node.op, ast.And) else "or to and"
        case ast.BinOp() | ast.AugAssign() if type(node.op) in OPERATORS:
            yield f"{type(node.op).__name__} to {OPERATORS[type(node.op)].__name__}"
        case ast.UnaryOp(op=ast.Not()):
            yield "not dropped"
        case ast.Constant(value=bool(truth)):
            yield f"{truth} to {not truth}"
        case ast.Constant(value=int(number)):
            yield f"{number} to {number + 1}"
        case ast.Expr(value=ast.Call()):
            yield "call dropped"
        case ast.Call(args=[first, second, *_]) if ast.dump(first) != ast.dump(second):
            is_starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
            if not is_starred and not _is_in_any_order(node.func):
                yield "arguments swapped"


def _is_in_any_order(function: ast.expr) -> bool:
    """Whether swapping its arguments changes nothing."""
    return ast.unparse(function) in {"min", "max", "contextlib.suppress"}


def _is_unheard(call: ast.expr) -> bool:
    if not isinstance(call, ast.Call):
        return False
    name = call.func
    while isinstance(name, ast.Attribute):
        name = name.value
    return isinstance(name, ast.Name) and name.id in UNHEARD


def _change(tree: ast.Module, node: ast.AST, what: str) -> None:
    match node:
        case ast.Compare():
            node.ops = [COMPARISONS[type(node.ops[0])]()]
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.BinOp() | ast.AugAssign():
            node.op = OPERATORS[type(node.op)]()
        case ast.UnaryOp():
            _replace(tree, node, node.operand)
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int(number)):
            node.value = number + 1
        case ast.Expr():
            node.value = ast.Constant(value=None)
        case ast.Call():
            node.args[0], node.args[1] = node.args[1], node.args[0]
        case _:
            raise TypeError(what)


def _replace(tree: ast.Module, node: ast.AST, by: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, held in ast.iter_fields(parent):
            if held is node:
                setattr(parent, name, copy.copy(by))
            elif isinstance(held, list) and node in held:
                held[held.index(node)] = by
