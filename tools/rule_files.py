"""Counts the source files that name each rule of maintenances: `python -m tools.rule_files`.

A file *names a rule* if its code, without comments and docstrings, contains one of:

- a constant of the rule's blockers (`Code.OWNER_REST`) or their words (`"owner-rest"`);
- a member of its policy, by the attribute (`owner_rest_s`) or by its name in the file;
- a function or class of the rule's module, or that module itself (`rules.owner_rest`);
- one of the functions that judged the rule before it had a module, listed below.

Facts alone do not count: when an owner was last disturbed, or which work is live.
`-v` lists the files.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "forewarn"


#: Functions that every rule has.
COMMON = {"blockers", "earliest", "depends_on_waves"}


class Naming(NamedTuple):
    """How code names one rule."""

    #: The module of `rules/`.
    module: str
    #: Constants of `Code`.
    codes: tuple[str, ...]
    #: Regular expressions of its policy members and of functions that judge it.
    names: tuple[str, ...]


RULES = (
    Naming(
        "fault_domain",
        ("FAULT_DOMAIN",),
        (r"_other_fault_domain_disturbed", r"obstacles\(", r"_zone_of_group"),
    ),
    Naming(
        "host_busy",
        ("HOST_BUSY", "VM_BUSY", "ARRIVALS"),
        (r"_work_at_its_places", r"_work_on_its_vms", r"_CODE_AT", r"obstacles\("),
    ),
    Naming(
        "budget",
        ("BUDGET",),
        (
            r"'budgets'",
            r"\.budgets\b",
            r"\bBudget\b",
            r"BudgetLimits",
            r"budgets_text",
            r"read_budgets",
            r"_shortage\b",
            r"announce_shortage",
            r"_number_limits",
            r"_room_after",
        ),
    ),
    Naming(
        "window",
        ("WINDOW", "WINDOW_TOO_SHORT"),
        (
            r"\bpolicy\.windows",
            r"'freezes'",
            r"\.freezes\b",
            r"\bfreezes\b",
            r"windows_of",
            r"open_spans_of",
            r"\._is_open\((operation|self)|\.is_open\(words",
            r"closed_since",
            r"_has_opening",
            r"\bclosed\(",
            r"_opening\(",
        ),
    ),
    Naming("pause", ("PAUSE",), (r"(?<!_)\bpause_s\b", r"rests_until_ms", r"paused_until_ms")),
    Naming(
        "owner_rest",
        ("OWNER_REST",),
        (
            r"owner_rest(_s)?\b",
            r"_resting\((self, )?host",
            r"_rest_ends_ms",
            r"_rest_before_start",
            r"_disturbed_by_wave\(draft, maintenance",
            r"\b_rests\b",
            r"self\._rested\b",
        ),
    ),
    Naming(
        "capacity",
        ("CAPACITY", "OWN_MOVES"),
        (r"lack_of_room", r"\bown_moves\b", r"UNSIZED", r"NO_OTHER_HOST", r"_crowded"),
    ),
    Naming(
        "postponement",
        ("POSTPONED",),
        (
            r"postpone_max_s",
            r"'postponing'",
            r"\b_why_postponed",
            r"\.postponed\b",
            r"postponed_by",
        ),
    ),
    Naming("previous_wave", ("PREVIOUS_WAVE",), ()),
    Naming(
        "notice",
        ("NOTICE",),
        (
            r"(maintenance_policy|base|applied|self\.policy|_terms\.policy)\.notice_s",
            r"'notice_s', 'max_failures'",
            r"\bnotice_s: int = 900",
            r"'notice': 'notice_s'",
            r"_notice_s\(base",
        ),
    ),
)


def code_of(path: Path) -> str:
    """Return a file's code without comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [each for each in body if not _is_text(each)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def exported(module: str) -> list[str]:
    """Return the public functions and classes of a rule's module."""
    path = SOURCE / "rules" / f"{module}.py"
    if not path.exists():
        return []
    body = ast.parse(path.read_text(encoding="utf-8")).body
    names = [each.name for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    return [name for name in names if not name.startswith("_") and name not in COMMON]


def pattern_of(rule: Naming) -> re.Pattern[str]:
    """Return the expression that finds a name of a rule in code."""
    words = [code.lower().replace("_", "-") for code in rule.codes]
    parts = [rf"\bCode\.{code}\b" for code in rule.codes]
    parts += [rf"^    {code} = '{word}'" for code, word in zip(rule.codes, words, strict=True)]
    parts += [f"'{word}'" for word in words if "-" in word]
    parts += [rf"\brules\.{rule.module}\b", rf"from forewarn\.rules import .*\b{rule.module}\b"]
    parts += [rf"\b{name}\b" for name in exported(rule.module)]
    return re.compile("|".join((*parts, *rule.names)), re.MULTILINE)


def naming_files(rule: Naming, codes: dict[Path, str]) -> list[str]:
    """Return the files that name a rule, relative to the package."""
    pattern = pattern_of(rule)
    return [
        str(path.relative_to(SOURCE))
        for path, code in codes.items()
        if path == SOURCE / "rules" / f"{rule.module}.py" or pattern.search(code)
    ]


def main() -> int:
    """Print a line for each rule."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="list the files")
    options = parser.parse_args()
    left_out = (
        "agent",
        "conformance",
        "drivers",
        "outbox",
        "replication",
        "service",
        "web",
    )  # they know no maintenance
    codes = {
        path: code_of(path)
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in left_out
    }
    for rule in RULES:
        files = naming_files(rule, codes)
        more = f"  {' '.join(files)}" if options.verbose else ""
        print(f"{rule.module:14} {len(files):3}{more}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
