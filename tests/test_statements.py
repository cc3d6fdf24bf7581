"""Every statement of the contract has a test that cites it, by its number.

What the statements say may not be tested in here.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent
IDS = (TESTS / "statements" / "ids.txt").read_text(encoding="utf-8").split()
NUMBER = re.compile(r"\b([A-Z])-(\d+)(?: to (?:[A-Z]-)?(\d+))?\b")


def cited_in(text: str) -> set[str]:
    """Return the statements a text cites: `N-3`, `A-1, A-2`, and `A-1 to A-4`."""
    return {
        f"{letter}-{number}"
        for letter, first, last in NUMBER.findall(text)
        for number in range(int(first), int(last or first) + 1)
    }


def docstrings_of_tests(path: Path) -> str:
    """Return the docstrings of the tests, and of the classes they are in, of one module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [
        ast.get_docstring(node) or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name.lower().startswith("test")
    ]
    return "\n".join(found)


@cache
def every_citation() -> frozenset[str]:
    """Return what all tests cite, and all transcripts."""
    cited: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        if path != Path(__file__):
            cited |= cited_in(docstrings_of_tests(path))
    for path in (TESTS / "transcripts").rglob("*.txt"):
        cited |= cited_in(path.read_text(encoding="utf-8"))
    return frozenset(cited)


def test_every_statement_is_cited_by_a_test() -> None:
    """A statement that no test cites is a wish."""
    missing = [number for number in IDS if number not in every_citation()]
    assert not missing, f"{len(missing)} of {len(IDS)} without a test: {' '.join(missing)}"


def test_citations_name_statements_that_exist() -> None:
    """A citation of a statement that does not exist is a slip of the pen."""
    letters = {number[0] for number in IDS}
    unknown = {one for one in every_citation() if one[0] in letters} - set(IDS)
    assert not unknown - LATER, sorted(unknown - LATER)


LATER = {"G-3", "G-4"}
"""Statements about the planning of whole fleets; a test may cite them before they are due."""


def test_citation_of_a_range_counts_each() -> None:
    """`A-1 to A-3` cites three."""
    assert cited_in("Source: A-1 to A-3, N-2.") == {"A-1", "A-2", "A-3", "N-2"}
