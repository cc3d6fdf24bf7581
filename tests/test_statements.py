"""The contract and its citations agree, in both directions.

Each statement in force is cited by a test, and each citation names a statement that exists.
"""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tools.product import folder_of

ROOT = Path(__file__).resolve().parents[1]
CONTRACT = ROOT / "docs" / "reference" / "contract.md"
NUMBER = re.compile(r"\b([A-Z])-(\d{1,2})\b(?: to (?:[A-Z]-)?(\d+))?\b")
INVARIANT = re.compile(r"\b[Ii]nvariants? (\d+)(?: to (\d+))?")
ELSEWHERE = re.compile(r"Source: [^.]*\b(?:SPEC|DESIGN|STYLE|section \d)")
STATEMENT = re.compile(r'<a id="([a-z])-(\d+)"></a>\*\*([A-Z])-(\d+)\*\*( \*Planned\.\*)?')


def statements(*, planned: bool) -> set[str]:
    """Return the numbers of the statements in force, or of the planned ones.

    A whole chapter is planned where it says so at its head, a single statement behind its number.
    """
    chapters = re.split(r"^## ", CONTRACT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        f"{letter}-{number}"
        for chapter in chapters
        for _, _, letter, number, mark in STATEMENT.findall(chapter)
        if ("\n*Planned.*\n" in chapter or bool(mark)) is planned
    }


IN_FORCE, PLANNED = statements(planned=False), statements(planned=True)


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
def cited_by_tests() -> frozenset[str]:
    """Return what all tests cite, and all transcripts."""
    tests = ROOT / "tests"
    modules = [path for path in tests.rglob("test_*.py") if path != Path(__file__)]
    modules += ROOT.glob("packages/*/tests/**/test_*.py")
    texts = [docstrings_of_tests(path) for path in modules]
    texts += [path.read_text(encoding="utf-8") for path in (tests / "transcripts").rglob("*.txt")]
    return frozenset(cited_in("\n".join(texts)))


def tracked() -> list[Path]:
    """Return every file in which a citation may stand."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.js", "*.md", "*.txt", "*.toml"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    files = [ROOT / name for name in listed.stdout.splitlines() if "requirements/" not in name]
    return [path for path in files if path.exists() and path != Path(__file__)]


def test_every_statement_in_force_is_cited_by_a_test() -> None:
    """A statement that no test cites is a wish."""
    missing = IN_FORCE - cited_by_tests()
    assert not missing, sorted(missing)


def test_every_citation_names_a_statement_that_exists() -> None:
    """A citation of a statement that does not exist is a slip of the pen."""
    known = IN_FORCE | PLANNED
    letters = {number[0] for number in known}
    unknown = {
        f"{path.relative_to(ROOT)}: {one}"
        for path in tracked()
        for one in cited_in(path.read_text(encoding="utf-8"))
        if one[0] in letters and one not in known
    }
    assert not unknown, sorted(unknown)


def test_every_cited_invariant_exists() -> None:
    """The invariants are numbered in the contract, and nowhere else."""
    known = set(re.findall(r'<a id="invariant-(\d+)">', CONTRACT.read_text(encoding="utf-8")))
    cited = {
        number
        for path in tracked()
        for pair in INVARIANT.findall(path.read_text(encoding="utf-8"))
        for number in pair
        if number
    }
    assert known
    assert cited <= known, sorted(cited - known)


def test_no_source_lies_outside_the_repository() -> None:
    """What a source names can be read by whoever has a clone."""
    found = [
        f"{path.relative_to(ROOT)}: {cite}"
        for path in tracked()
        for cite in ELSEWHERE.findall(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_each_statement_has_its_own_number_and_anchor() -> None:
    """A link to `#n-3` leads to N-3, and no number is given twice."""
    found = STATEMENT.findall(CONTRACT.read_text(encoding="utf-8"))
    numbers = [f"{letter}-{number}" for _, _, letter, number, _ in found]
    assert [f"{a.upper()}-{b}" for a, b, *_ in found] == numbers
    assert len(set(numbers)) == len(numbers) > 100


#: Statements of sections 6 to 11 and 14 without a rule of their own in the pure packages.
NO_RULES = {
    "A-6": "the order of commit and answer: the engine's; invariant 11 checks it",
    "B-4": "a setting of the emulator",
    "B-5": "who listens is noted by the metadata service, and nothing is decided by it",
    "G-4": "names what a policy has; the rules are F-3, F-5 and F-7",
    "L-7": "the order of commit, publication and work: the engine's; worlds check it",
    "N-3": "follows from N-1 and L-1, which treat all work alike, and from the table of O-2",
    "O-2": "a table: `TRAITS`",
}
PURE = (
    *("forewarn_core.fleet", "forewarn_core.planning", "forewarn_core.rules"),
    "forewarn_base.protocol",
)
SECTIONS_WITH_RULES = (6, 7, 8, 9, 10, 11, 14)
RULE = re.compile(r"Source: ([^.]*)\.")


def rule_functions() -> dict[str, list[str]]:
    """Return the functions of the pure packages that are each statement's rule."""
    rules: dict[str, list[str]] = {}
    for package in PURE:
        for path in sorted(folder_of(package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    for sources in RULE.findall(ast.get_docstring(node) or ""):
                        for number in cited_in(sources):
                            rules.setdefault(number, []).append(f"{path.name}: {node.name}")
    return rules


def test_each_rule_is_one_function() -> None:
    """A rule's docstring says it, with `Source:`; what else cites a statement says `See`."""
    chapters = re.split(r"^## (\d+) ", CONTRACT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    numbers = {
        number
        for section, text in zip(chapters[1::2], chapters[2::2], strict=True)
        if int(section) in SECTIONS_WITH_RULES
        for number in re.findall(r"\*\*([A-Z]-\d+)\*\*", text)
    }
    rules = {number: names for number, names in rule_functions().items() if number in numbers}
    several = {number: names for number, names in rules.items() if len(names) > 1}
    assert not several
    assert rules.keys() | NO_RULES.keys() == numbers
    assert not rules.keys() & NO_RULES.keys()


@pytest.mark.parametrize("typed", ["Source: A-1 to A-3, N-2.", "A-1, A-2 and A-3; N-2"])
def test_citation_of_a_range_counts_each(typed: str) -> None:
    """`A-1 to A-3` cites three."""
    assert cited_in(typed) == {"A-1", "A-2", "A-3", "N-2"}
