"""The architecture's table of the rules has the figures of the tool that counts."""

import re
from functools import cache
from pathlib import Path

from tools.rule_files import RULES, RULES_OF, naming_files

named = cache(naming_files)
WRITTEN = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text("utf-8")


def test_the_architecture_says_how_many_files_name_each_rule() -> None:
    """A rule that spreads over more files, or over fewer, changes the table."""
    facts = named(with_facts=True)
    counted = {
        rule.replace("_", " "): (str(len(facts[rule])), str(len(files)))
        for rule, files in named(with_facts=False).items()
    }
    rows = re.findall(r"^\| ([a-z ]+) \| \d+ \| \d+ \| (\d+) \| (\d+) \|$", WRITTEN, re.MULTILINE)
    assert {rule: tuple(figures) for rule, *figures in rows} == counted


def test_every_rule_is_counted_in_its_own_module() -> None:
    """A rule that moves to another module is still counted."""
    files = named(with_facts=False)
    assert all(f"{RULES_OF}/{rule.module}.py" in files[rule.module] for rule in RULES)
