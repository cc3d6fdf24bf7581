"""Commands of other packages: their words, their exit status, and what is wrong with them."""

from pathlib import Path

import pytest

from forewarn_server.cli.installed_commands import COMMANDS
from forewarn_server.cli.main import main
from tests.packages import install

CODE = """
import argparse

def main(words):
    print(*words, sep=",")
    return len(words)

def reads(words):
    argparse.ArgumentParser(prog="forewarn reads").parse_args(words)

def fails(words):
    raise ZeroDivisionError("no boats")

def stops(words):
    raise KeyboardInterrupt
"""


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Install a package with commands."""
    names = {"boat": "main", "reads": "reads", "fails": "fails", "stops": "stops", "host": "main"}
    lines = "\n".join(f"{noun} = some_commands:{name}" for noun, name in names.items())
    entry_points = {COMMANDS.entry_points: f"{lines}\nlost = no_such_package:main"}
    install(
        monkeypatch, tmp_path / "packages", "some_commands", code=CODE, entry_points=entry_points
    )


def test_command_of_a_package_gets_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Options before it follow its words; its exit status is that of the program."""
    assert main(["--json", "boat", "a", "b"]) == 3
    assert capsys.readouterr().out == "a,b,--json\n"


def test_package_cannot_replace_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Forewarn's own nouns are found first."""
    assert main(["host", "--help"]) == 0
    assert "physical machines" in capsys.readouterr().out.lower()


def test_command_may_end_by_itself() -> None:
    """A parser of arguments exits, and Ctrl-C interrupts."""
    with pytest.raises(SystemExit) as ended:
        main(["reads", "--colour"])
    assert ended.value.code == 2
    assert main(["reads"]) == 0
    assert main(["stops"]) == 130


@pytest.mark.parametrize(
    ("noun", "reason"),
    [("fails", "ZeroDivisionError: no boats"), ("lost", "No module named 'no_such_package'")],
)
def test_command_that_fails_names_its_package(
    noun: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whose fault it is stands in the error."""
    assert main([noun]) == 1
    told = capsys.readouterr().err
    assert f"The command {noun} of the package some_commands 1.0 cannot be used" in told
    assert reason in told


def test_unknown_command_is_still_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """The search of packages changes nothing of the error."""
    assert main(["yacht"]) == 2
    assert "There is no command 'yacht'" in capsys.readouterr().err
