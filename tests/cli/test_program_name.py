"""What users are told to type."""

import os
from pathlib import Path

import pytest

from forewarn_server.cli.main import main
from forewarn_server.cli.program_name import typed_name


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment below the working directory, with the program in it."""
    program = tmp_path / "my venv" / "bin" / "forewarn"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.defpath)
    return program


@pytest.mark.parametrize("typed", ["my venv/bin/forewarn", "{}/my venv/bin/forewarn"])
def test_program_off_the_path_is_named_by_its_path(
    installed: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    """What is shown can be typed as it stands, and is short."""
    monkeypatch.setattr("sys.argv", [typed.format(Path.cwd()), "emulate"])
    assert typed_name() == "'my venv/bin/forewarn'"
    monkeypatch.chdir("/")
    monkeypatch.setattr("sys.argv", [str(installed)])
    assert typed_name().endswith("my venv/bin/forewarn'")


def test_program_on_the_path_is_named_by_its_name(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `forewarn` is this very program, that is what to type; another one of that name no."""
    monkeypatch.setattr("sys.argv", [str(installed)])
    monkeypatch.setenv("PATH", str(installed.parent))
    assert typed_name() == "forewarn"
    other = installed.parents[2] / "other" / "forewarn"
    other.parent.mkdir()
    other.touch(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert typed_name() == "'my venv/bin/forewarn'"


def test_module_is_named_as_if_it_were_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started in another way, it has no other name."""
    monkeypatch.setattr("sys.argv", ["/usr/lib/forewarn/cli/main.py"])
    assert typed_name() == "forewarn"


def test_advice_can_be_typed(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Advice names the program as the banner does."""
    monkeypatch.setattr("sys.argv", [str(installed)])
    main(["--server", f"unix:{installed.parent}/nothing", "host", "list"])
    assert "(`'my venv/bin/forewarn' emulate` or" in capsys.readouterr().err
