"""The house style as tests: every check over the whole tree, and each check on two samples."""

import ast
import gc
from collections.abc import Iterable, Iterator
from functools import cache
from posixpath import dirname

import pytest

from tests.tidy import code, text  # noqa: F401  # importing them registers their checks
from tests.tidy.circles import import_circles
from tests.tidy.exceptions import EXCEPTIONS, UNREAD
from tests.tidy.house import CHECKS, Check, Finding, Source, in_package, paths, read
from tests.tidy.tree import (
    CLIENT_ROOMS,
    LIGHT_MODULES,
    dead_modules,
    heavy_imports,
    unimportable,
    unknown_errors,
)
from tests.tidy.wiring import assigned_outside


@pytest.fixture(scope="module", autouse=True)
def _syntax_trees() -> Iterator[None]:
    """Keep the trees of all files for these tests only.

    They have millions of nodes without cycles, which the garbage collector would visit again and
    again.
    """
    gc.disable()
    yield
    read.cache_clear()
    gc.enable()


by_name = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)


@cache
def findings(check: Check) -> tuple[Finding, ...]:
    """Return everything a check finds in the tree."""
    return tuple(
        finding for path in paths() if check.applies(path) for finding in check.findings(read(path))
    )


def unexcused(found: Iterable[Finding], check: str) -> list[str]:
    """Return what is found, without what has its reason."""
    return [
        str(one)
        for one in found
        if (check, one.path, one.name) not in EXCEPTIONS
        and not (check.startswith("plain_") and {one.path, dirname(one.path)} & UNREAD)
    ]


@by_name
def test_tree_keeps_every_rule(check: Check) -> None:
    """Every file keeps every rule that is for it, or says why not."""
    left = unexcused(findings(check), check.name)
    assert not left, "\n".join([check.find.__doc__ or "", *left])


@by_name
def test_check_sees_its_bad_sample(check: Check) -> None:
    """A check that finds nothing in its bad sample would protect nobody."""
    assert list(check.findings(Source(check.sample_path, check.bad)))


@by_name
def test_check_passes_its_good_sample(check: Check) -> None:
    """A check that finds something in its good sample would be in the way."""
    assert not list(check.findings(Source(check.sample_path, check.good)))


def test_every_exception_is_still_needed() -> None:
    """An exception goes when the thing it excuses has gone."""
    found = {(check.name, one.path, one.name) for check in CHECKS for one in findings(check)}
    found |= {("dead_modules", one.path, one.name) for one in dead_modules(python_sources())}
    found |= {("assigned_outside", one.path, one.name) for one in outside()}
    assert set(EXCEPTIONS) <= found, f"stale: {set(EXCEPTIONS) - found}"


def test_unread_prose_is_still_to_be_read() -> None:
    """A directory leaves the list once its prose is plain."""
    paths = {one.path for check in CHECKS if "plain_" in check.name for one in findings(check)}
    left = UNREAD - paths - {dirname(path) for path in paths}
    assert not left, f"delete from UNREAD: {left}"


def python_sources() -> list[Source]:
    """Return the product's modules."""
    return [
        read(path)
        for path in paths()
        if in_package(path).startswith("src/") and path.endswith(".py")
    ]


@cache
def outside() -> tuple[Finding, ...]:
    """Return the attributes that are assigned outside their class."""
    return tuple(assigned_outside(python_sources()))


def test_no_module_is_dead() -> None:
    """A module that no other one imports, and that nobody starts, goes."""
    dead = unexcused(dead_modules(python_sources()), "dead_modules")
    assert not dead, "\n".join(dead)


def test_parts_are_connected_by_their_constructors() -> None:
    """An attribute that holds a callable is assigned by its own class alone."""
    left = unexcused(outside(), "assigned_outside")
    assert not left, "\n".join([assigned_outside.__doc__ or "", *left])


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("part.on_end = print", 1),
        ("parts.one.on_end, other = print, 2", 1),
        ("part.size = 2", 0),
        ("self.on_end = print", 0),
    ],
)
def test_assignment_from_outside_is_seen(statement: str, count: int) -> None:
    """Whichever way the attribute is known to hold a callable, and in whichever module."""
    called = "Callable[[], None]"
    annotated = f"class Part:\n    def __init__(self):\n        self.on_end: {called} = f\n"
    given = f"class Part:\n    def __init__(self, f: {called} | None):\n        self.on_end = f\n"
    field = f"class Part:\n    on_end: '{called}' = print\n"
    for shape in (annotated, given, field):
        part = Source("src/forewarn/part.py", shape)
        wiring = Source("src/forewarn/wiring.py", statement)
        assert len([*assigned_outside([part, wiring])]) == count


def test_docstrings_name_exceptions_that_exist() -> None:
    """Who reads "Raises:" catches what stands there."""
    unknown = [str(finding) for finding in unknown_errors(python_sources())]
    assert not unknown, "\n".join(unknown)


def test_no_imports_run_in_a_circle() -> None:
    """Modules that import each other cannot be understood one by one."""
    circles = import_circles(python_sources())
    assert not circles, "\n".join(" <- ".join(circle) for circle in circles)


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_what_the_agent_imports_stays_light(module: str) -> None:
    """The modules of the agent pull in nothing that weighs more than they do."""
    assert not heavy_imports(module)


def test_client_side_needs_no_package() -> None:
    """Agent, SDK and command line are imported with nothing but Python."""
    modules = [one.module for one in python_sources() if one.module.startswith(CLIENT_ROOMS)]
    assert unimportable(modules) == []


def test_every_check_has_a_docstring() -> None:
    """A failing check explains the rule with its docstring."""
    for check in CHECKS:
        assert check.find.__doc__, check.name


def test_public_class_names_are_unique() -> None:
    """A name means one thing in the whole product."""
    homes: dict[str, list[str]] = {}
    for source in python_sources():
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(source.module)
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}
