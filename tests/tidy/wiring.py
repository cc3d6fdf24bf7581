"""Attributes that hold callables get them from their own class: nothing is wired from outside."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.tidy.house import Finding, Source

#: Names of the types of callables.
_CALLABLES = frozenset({"Callable", "ASGIApp", "Receive", "Send", "partial"})


def assigned_outside(sources: Iterable[Source]) -> Iterator[Finding]:
    """Parts are connected by their constructors, so that a reader sees what each is given.

    An attribute that holds a callable, such as a listener, is assigned only by its own class.
    """
    read = list(sources)
    classes = [kind for source in read for kind in source.walk(ast.ClassDef)]
    of_class = {kind: set(_holders_of(kind)) for kind in classes}
    holders = set().union(*of_class.values())
    for source in read:
        inside = {
            each
            for kind in source.walk(ast.ClassDef)
            for each in _assignments(kind)
            if each[1] in of_class[kind]
        }
        for line, name in set(_assignments(source.tree)) - inside:
            if name in holders:
                what = f"`.{name}` holds a callable and is assigned outside its class"
                yield Finding(source.path, line, what, name)


def _holders_of(kind: ast.ClassDef) -> Iterator[str]:
    for node in kind.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _holders_in(node)
        elif isinstance(node, ast.AnnAssign) and _is_called(node.annotation):
            assert isinstance(node.target, ast.Name), "a field of the class"
            yield node.target.id


def _holders_in(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    arguments = [*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]
    given = {each.arg for each in arguments if each.annotation and _is_called(each.annotation)}
    for node in ast.walk(method):
        if isinstance(node, ast.AnnAssign):
            called = _is_called(node.annotation)
        elif isinstance(node, ast.Assign):
            value = node.value
            called = isinstance(value, ast.Lambda)
            called = called or (isinstance(value, ast.Name) and value.id in given)
        else:
            continue
        if called:
            yield from (each.attr for each in _targets(node) if _is_own(each))


def _is_called(annotation: ast.expr) -> bool:
    """Whether a type is that of a callable, or of a callable or None."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        return _is_called(annotation.left) or _is_called(annotation.right)
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
    return name in _CALLABLES


def _assignments(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the attributes of other objects that are assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from ((node.lineno, each.attr) for each in _targets(node) if not _is_own(each))


def _targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[ast.Attribute]:
    """Yield the attributes that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        several = target.elts if isinstance(target, ast.Tuple) else [target]
        yield from (each for each in several if isinstance(each, ast.Attribute))


def _is_own(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id in {"self", "cls"}
