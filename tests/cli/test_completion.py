"""Completion as the shells themselves do it; a shell that is not installed is skipped."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn_server.cli.nouns import NOUNS
from tests.cli.conftest import Run
from tests.waiting import LIMIT_S

#: How a shell completes `$line` with the file `$script`: one word on a line, its meaning behind it.
ASKED = {
    "bash": """
        source "$script"
        found=$(complete -p forewarn) found=${found#*-F }
        COMP_WORDS=($line) COMP_LINE=$line COMP_POINT=${#line}
        [ "${line% }" = "$line" ] || COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        ${found%% *} forewarn "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "fish": "source $script; complete -C$line",
}
BARE = {"bash": "--norc", "fish": "--no-config", "zsh": "-f"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own: fish writes there."""
    monkeypatch.setenv("HOME", str(tmp_path))


def shell_says(shell: str, commands: str, *, script: str, line: str = "") -> list[str]:
    """Return the words a real shell prints."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    file = Path(os.environ["HOME"], "script")  # too long for an argument
    file.write_text(script)
    ran = subprocess.run(
        [program, BARE[shell], "-c", commands],
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "FOREWARN_SERVER": os.environ["FOREWARN_SERVER"],
            "HOME": os.environ["HOME"],
            "script": str(file),
            "line": line,
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return [word.partition("\t")[0].strip() for word in ran.stdout.splitlines()]


@pytest.mark.parametrize("shell", ASKED)
def test_completion_knows_every_command(run: Run, shell: str) -> None:
    """The first word is completed by every command."""
    script = run("completion", shell).out
    found = shell_says(shell, ASKED[shell], script=script, line="forewarn ")
    assert set(NOUNS) <= set(found)


@pytest.mark.parametrize("shell", ASKED)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ser", {"serve"}),
        ("emulator clock ", {"show", "advance", "speed", "stop", "start"}),
        ("--json host reb", {"reboot"}),
        ("vm reboot v --source ", {"Platform", "User"}),
        ("host update --net", {"--network-only"}),
        ("history list --action operation.sta", {"operation.started"}),
        ("host show h", {"h1", "h2"}),
        ("vm reboot web-0 d", {"db-0"}),
        ("vm list --group w", {"web"}),
        ("host add h", set()),
    ],
)
def test_shell_completes_what_is_typed(run: Run, shell: str, line: str, words: set[str]) -> None:
    """A real shell offers the commands, actions, options and choices that fit."""
    script = run("completion", shell).out
    found = shell_says(shell, ASKED[shell], script=script, line=f"forewarn {line}")
    assert {word for word in found if word} == words


@pytest.mark.parametrize("shell", ASKED)
def test_shell_completes_files(run: Run, shell: str, tmp_path: Path) -> None:
    """Where a file is to be named, files are offered."""
    fleet = tmp_path / "fleet.toml"
    fleet.touch()
    script = run("completion", shell).out
    line = f"forewarn topology apply {tmp_path}/fl"
    assert shell_says(shell, ASKED[shell], script=script, line=line) == [str(fleet)]


def test_zsh_takes_the_script(run: Run) -> None:
    """What is printed for zsh registers itself there."""
    script = run("completion", "zsh").out
    commands = 'autoload -Uz compinit; compinit -D; eval "$(<$script)"; print $_comps[forewarn]'
    assert shell_says("zsh", commands, script=script) == ["_forewarn"]
