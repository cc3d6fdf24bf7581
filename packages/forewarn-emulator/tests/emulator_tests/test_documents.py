"""The emulator's documents say what is so: commands, options, steps of scenarios.

No behaviour is tested in here, only words.
"""

import re
import shlex
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from forewarn_emulator import scenario_files
from forewarn_emulator.faults import FaultKind
from forewarn_server.cli.application import check, run

DOCS = Path(__file__).resolve().parents[4] / "docs"
PAGES = ("howto/emulator.md", "howto/emulator-faults.md", "reference/scenarios.md")
#: Groups of words that other modules own and test.
ELSEWHERE = {"vm", "host"}


def commands(page: str) -> list[list[str]]:
    """Return the commands of a page, as words."""
    text = DOCS.joinpath(page).read_text("utf-8")
    typed = re.findall(r"^forewarn (.+)$", text, re.MULTILINE)
    typed += re.findall(r"`forewarn ([^`]+)`", text)
    return [shlex.split(line) for line in typed]


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_can_be_typed(page: str) -> None:
    """Every command that a page shows is one the command line understands."""
    found = [words for words in commands(page) if words[0] not in ELSEWHERE]
    assert found
    for words in found:
        if len(words) > 1 or words[0] == "emulate":
            check(words)


def test_every_option_of_emulate_is_explained() -> None:
    """An option that no page names is one nobody finds."""
    told = "".join(path.read_text("utf-8") for path in DOCS.glob("howto/*.md"))
    told += DOCS.joinpath("reference/scenarios.md").read_text("utf-8")
    missing = {word for word in re.findall(r"--[a-z-]+", emulate_help()) if word not in told}
    assert missing <= {"--help"}


def emulate_help() -> str:
    """Return what `forewarn emulate --help` prints."""
    with redirect_stdout(StringIO()) as text:
        run(["emulate", "--help"])
    return text.getvalue()


def test_every_fault_is_explained() -> None:
    """The page of faults has a row for each. Source: E-10."""
    text = DOCS.joinpath("howto/emulator-faults.md").read_text("utf-8")
    for kind in FaultKind:
        assert f"| `{kind.value}` |" in text


def test_every_step_and_key_is_explained() -> None:
    """The reference of scenarios names all that a step may say."""
    text = DOCS.joinpath("reference/scenarios.md").read_text("utf-8")
    for act, (keys, _) in scenario_files._ACTS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{act}` |"))
        assert all(f"`{key}`" in row for key in keys), act


def test_example_scenario_of_the_reference_can_be_read() -> None:
    """The file that the reference shows is a scenario."""
    text = DOCS.joinpath("reference/scenarios.md").read_text("utf-8")
    [example] = re.findall(r"```toml\n(.+?)```", text, re.DOTALL)
    assert len(scenario_files.read_scenario("example", example).steps) == 3
