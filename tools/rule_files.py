"""Counts the source files that name each rule of maintenances: `python -m tools.rule_files`.

A file *names a rule* if its code, without comments and docstrings, contains one of:

- the rule's module (`rules.owner_rest`), from which its codes come, or a public function or class
  of that module;
- a word of its blockers or of its waiver (`"owner-rest"`);
- a member of its policy, by the attribute (`owner_rest_s`) or by its name in the file;
- one of the functions that judged the rule before it had a module, listed below.

Facts alone do not count: when an owner was last disturbed, which work is live, when the pause of a
maintenance ends, which postponements were granted. Until 2026-11-29 the facts of a pause and of a
postponement counted, though those of an owner's rest did not, and so did three things that only
share a word with a rule: `MaintenanceMove.PAUSE`, a local `pause_s` of the watch, and
`_start_of_opening` of the command line. `--with-facts` counts as before.
`-v` lists the files.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
#: Packages that know maintenances.
KNOWING = ("azure", "base", "cli", "core", "metadata", "store")
SOURCES = (ROOT / "src", *(ROOT / "packages" / f"forewarn-{each}" / "src" for each in KNOWING))
RULES_OF = "forewarn_core/rules"


#: Functions that every rule has.
COMMON = {"blockers", "choosing", "earliest", "depends_on_waves"}


class Naming(NamedTuple):
    """How code names one rule."""

    #: The module of `rules/`.
    module: str
    #: Words of its blockers and of its waiver.
    words: tuple[str, ...]
    #: Regular expressions of its policy members and of functions that judge it.
    names: tuple[str, ...]
    #: Those of its facts, and of what only shares a word with it.
    facts: tuple[str, ...] = ()


RULES = (
    Naming(
        "fault_domain",
        ("fault-domain",),
        (r"_other_fault_domain_disturbed", r"obstacles\(", r"_zone_of_group"),
    ),
    Naming(
        "host_busy",
        ("host-busy", "vm-busy", "arrivals"),
        (r"_work_at_its_places", r"_work_on_its_vms", r"_CODE_AT", r"obstacles\("),
    ),
    Naming(
        "budget",
        ("budget",),
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
        ("window", "window-too-short"),
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
            r"\b_opening\(",
        ),
    ),
    Naming(
        "pause",
        ("pause",),
        (r"\.pause_s\b", r"\bpause_s[=:]", r"'pause_s'"),
        (r"rests_until_ms", r"paused_until_ms", r"(?<!_)\bpause_s\b", r"^    PAUSE = 'pause'"),
    ),
    Naming(
        "owner_rest",
        ("owner-rest",),
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
        ("capacity", "own-moves"),
        (r"lack_of_room", r"\bown_moves\b", r"UNSIZED", r"NO_OTHER_HOST", r"_why_not_empty"),
    ),
    Naming(
        "postponement",
        ("postponed",),
        (
            r"postpone_max_s",
            r"'postponing'",
            r"\b_why_postponed",
        ),
        (r"\.postponed\b", r"postponed_by"),
    ),
    Naming("previous_wave", ("previous-wave",), ()),
    Naming(
        "notice",
        ("notice",),
        (
            r"(policy|base|applied|given)\.notice_s\b(?!\[)",
            r"\bnotice_s: int = 900",
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
    name = f"{RULES_OF}/{module}.py"
    if name not in _paths():
        return []
    body = ast.parse(_paths()[name].read_text(encoding="utf-8")).body
    names = [each.name for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    return [name for name in names if not name.startswith("_") and name not in COMMON]


def pattern_of(rule: Naming, *, with_facts: bool = False) -> re.Pattern[str]:
    """Return the expression that finds a name of a rule in code."""
    parts = [f"'{word}'" for word in rule.words if "-" in word]
    parts += [rf"\bcode_of\('{word}'\)" for word in rule.words]
    parts += [
        rf"\brules\.{rule.module}\b",
        rf"from forewarn_core\.rules import .*\b{rule.module}\b",
    ]
    parts += [rf"\b{name}\b" for name in exported(rule.module)]
    parts += [*rule.names, *(rule.facts if with_facts else ())]
    return re.compile("|".join(parts), re.MULTILINE)


#: Rooms of these packages that know no maintenance.
LEFT_OUT = (
    "forewarn_metadata/replication/",
    "forewarn_server/outbox/",
    "forewarn_server/service/",
    "forewarn_server/web/",
)


@cache
def _paths() -> dict[str, Path]:
    """Return each file by its path below the sources of its package."""
    found = {
        path.relative_to(source).as_posix(): path
        for source in SOURCES
        for path in sorted(source.rglob("*.py"))
    }
    return {name: path for name, path in found.items() if not name.startswith(LEFT_OUT)}


@cache
def _texts() -> dict[str, str]:
    """Return the text of each file with one kind of quotes."""
    return {name: path.read_text("utf-8").replace('"', "'") for name, path in _paths().items()}


@cache
def _code(name: str) -> str:
    return code_of(_paths()[name])


def naming_files(*, with_facts: bool = False) -> dict[str, list[str]]:
    """Return the files that name each rule, relative to the package.

    Only a file whose text contains a name, or a list of imported rules, is parsed.
    """
    found: dict[str, list[str]] = {}
    for rule in RULES:
        pattern, own = pattern_of(rule, with_facts=with_facts), f"{RULES_OF}/{rule.module}.py"
        found[rule.module] = [
            path
            for path, text in _texts().items()
            if path == own
            or (
                (pattern.search(text) or "from forewarn_core.rules import (" in text)
                and pattern.search(_code(path))
            )
        ]
    return found


def main() -> int:
    """Print a line for each rule."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="list the files")
    parser.add_argument("--with-facts", action="store_true", help="count facts, too")
    options = parser.parse_args()
    for module, files in naming_files(with_facts=options.with_facts).items():
        more = f"  {' '.join(files)}" if options.verbose else ""
        print(f"{module:14} {len(files):3}{more}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
