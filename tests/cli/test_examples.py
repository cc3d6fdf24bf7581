"""The examples in the help of each command."""

import shlex

import pytest

from forewarn_server.cli.application import check
from forewarn_server.cli.examples import examples_of
from tests.cli.conftest import Run
from tools.docs.commands import every_name


@pytest.mark.parametrize("command", list(every_name()))
def test_command_has_two_examples_that_can_be_typed(command: str) -> None:
    """Every help shows how its command is typed, and each example is understood."""
    examples = examples_of(command)
    assert len(set(examples)) == 2
    for example in examples:
        assert example.startswith(f"forewarn {command}")
        check(shlex.split(example)[1:])


@pytest.mark.parametrize("words", ["host list", "maintenance", "emulator clock advance"])
def test_help_ends_with_examples(run: Run, words: str) -> None:
    """The examples are the last lines, those of a noun from its first commands."""
    lines = run(*words.split(), "--help").out.strip().splitlines()
    assert lines[-3] == "Examples:"
    assert all(line.startswith(f"  forewarn {words}") for line in lines[-2:])
