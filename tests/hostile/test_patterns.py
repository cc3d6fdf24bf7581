"""Every regular expression of the product needs linear time, whatever it is applied to.

`re` holds the interpreter while it searches, so a slow pattern stops every VM's polls.
"""

import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import Any

import pytest

from forewarn_azure.app import every_route as every_azure_route
from forewarn_azure.routes import ArmTable
from forewarn_cli import file_lines
from forewarn_server.api import app
from tests.hostile.growth import GROWTH_MAX, RATIO_MAX, RUNS, growth, thread_time_s
from tests.hostile.patterns import Hostile, hidden_imports, uses
from tools.product import files, module_of

pytestmark = pytest.mark.slow

#: Lengths of the hostile texts: exponential time shows at the first, quadratic time later.
SIZES = (20, 64, 512, 4096)
#: Time for each character, in seconds, above which the growth is measured.
SUSPECT_S = 1e-6

#: The patterns of modules whose patterns are made of values that exist only later.
MADE_LATER: dict[str, Callable[[], Iterable["re.Pattern[Any]"]]] = {
    "forewarn_server.api.app": lambda: [app._pattern([each.path for each in app.every_route()])],
    "forewarn_azure.routes": lambda: [
        pattern for rows in ArmTable(every_azure_route())._rows.values() for pattern, _ in rows
    ],
    "forewarn_cli.file_lines": lambda: [file_lines._key("name")],
    # The pattern of each `Text(…)`, which `uses` finds.
    "forewarn_base.validation.fields": list,
    # A story of the conformance suite edits the suite's own document.
    "forewarn_conformance.client_server": lambda: [re.compile(rb'"NotBefore":"[^"]+"')],
}

#: Shell patterns of the settings, applied to names of our own actions.
FNMATCH = ["forewarn_server.outbox.delivery: from fnmatch import fnmatchcase"]

#: Modules that may make a pattern. To read their syntax takes seconds, which collecting lacks.
MODULES = sorted(
    module_of(path)
    for path in files()
    if (text := path.read_text("utf-8")) and ("re." in text or "Text(" in text)
)


def scan(pattern: "re.Pattern[Any]") -> Callable[[Any], object]:
    """Return the search for every match."""
    return lambda text: sum(1 for _ in pattern.finditer(text))


def slow_shapes(pattern: "re.Pattern[Any]", methods: Iterable[str]) -> list[object]:
    """Return the texts with which a pattern needs more than linear time, at most one."""
    hostile = Hostile(pattern)
    for method, shape in product(sorted(methods), hostile.shapes):
        call = scan(pattern) if method == "scan" else getattr(pattern, method)
        for size in SIZES:
            spent_s = thread_time_s(call, hostile.text(*shape, size))
            if spent_s < size * SUSPECT_S + 50e-6:
                continue
            quarter = hostile.text(*shape, size // 4)
            if spent_s < RATIO_MAX * min(thread_time_s(call, quarter) for _ in range(RUNS)):
                continue
            if growth(call, partial(hostile.text, *shape), size // 2) > GROWTH_MAX:
                return [(method, *shape)]
    return []


@pytest.mark.parametrize("module", MODULES)
def test_pattern_needs_linear_time(module: str) -> None:
    """No text made of a pattern's own pieces makes it try a character again and again."""
    for use in uses():
        if use.module == module and use.pattern is not None:
            assert not slow_shapes(use.pattern, use.methods), use.source


@pytest.mark.parametrize("module", MADE_LATER)
def test_pattern_made_at_run_time_needs_linear_time(module: str) -> None:
    """Patterns made of routes are applied to every path, those of keys to files."""
    for pattern in MADE_LATER[module]():
        assert not slow_shapes(pattern, ["fullmatch", "search"]), pattern


def test_every_pattern_is_found() -> None:
    """A pattern is a constant of its module, or its module is listed with what makes it."""
    later = {each.module for each in uses() if each.pattern is None}
    assert later == set(MADE_LATER)
    assert {each.module for each in uses()} <= set(MODULES)
    assert hidden_imports() == FNMATCH


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r'"(?:[^"\\]|\\.)*"', "scan"),
        (r"\s*(?:\w+)", "scan"),
        (r"1?\s*(Day|Week)s?\s*([A-Za-z, ]*)", "fullmatch"),
        (r":[^/@]+@", "search"),
        (r"(a|a)*b", "fullmatch"),
        (r"x*y", "search"),
        (r"(?:key)\w*=", "search"),
        (r"(\d+)+$", "match"),
        (r"<.*>.*<", "search"),
    ],
)
def test_slow_pattern_is_seen(pattern: str, method: str) -> None:
    """The generator finds a hostile text for patterns that are known to be slow."""
    assert slow_shapes(re.compile(pattern), [method])
