"""The agent runs and trusts only what nobody else can write, with all directories on the way."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn.agent.cli import main
from forewarn.agent.config import read_config
from forewarn.agent.permissions import (
    ConfigWritable,
    own_code,
    refuse_open_state,
    refuse_writable,
)
from forewarn.agent.startup import NotUsable, load
from forewarn_base import errors

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files have no mode there")
NOBODY = 65534
AS_ROOT = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away"
)


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    """Write a program that only its owner can write."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def config(directory: Path, command: list[str], more: str = "") -> str:
    """Write a configuration with one step."""
    path = directory / "agent.toml"
    agent = f'[agent]\nstate_dir = "{directory}/state"\nhooks_dir = "{directory}/hooks"\n'
    path.write_text(f"{agent}{more}\n[step.drain]\nprepare = {command}\n", "utf-8")
    return str(path)


@pytest.mark.parametrize("mode", [0o757, 0o775, 0o777], ids=oct)
@pytest.mark.parametrize("what", ["drain", "."], ids=["program", "its directory"])
def test_program_of_a_step_that_others_can_write_is_refused(
    tmp_path: Path, what: str, mode: int
) -> None:
    """Whoever can write it, or replace it, runs commands as the agent."""
    drain = program(tmp_path / "bin" / "drain")
    path = config(tmp_path, [str(drain)])
    assert read_config(path)["steps"]
    (drain.parent / what).chmod(mode)
    with pytest.raises(ConfigWritable) as caught:
        read_config(path)
    assert str(caught.value).endswith(
        f"can write {drain}." if what == "drain" else f"{drain.parent}, on the way to {drain}."
    )
    assert read_config(config(tmp_path, [str(drain)], "check_permissions = false"))["steps"]


@AS_ROOT
def test_program_of_another_user_is_refused(tmp_path: Path) -> None:
    """The owner can change the mode."""
    drain = program(tmp_path / "drain")
    os.chown(drain, NOBODY, NOBODY)
    with pytest.raises(ConfigWritable, match="drain"):
        read_config(config(tmp_path, [str(drain)]))


@pytest.mark.parametrize(
    "words",
    [
        ["sh", "{0}"],
        ["python3.11", "-u", "{0}", "--now"],
        ["env", "A=b", "sh", "{0}"],
        ["nice", "{0}"],
        ["{0}.runs-it"],
        ["{0}.found-by-env"],
        ["{0}.links-to-it"],
    ],
    ids=" ".join,
)
def test_program_behind_another_word_is_checked(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script, an argument that is a program, an interpreter, the target of a link."""
    path = program(tmp_path / "bin" / "x")
    program(tmp_path / "bin" / "x.runs-it", f"#!{path}\n")
    program(tmp_path / "bin" / "x.found-by-env", "#!/usr/bin/env -S x\n")
    (tmp_path / "bin" / "x.links-to-it").symlink_to("../bin/x")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    command = [word.format(path) for word in words]
    assert read_config(config(tmp_path, command))["steps"]
    path.chmod(0o777)
    with pytest.raises(ConfigWritable, match="/bin/x"):
        read_config(config(tmp_path, command))


def test_directory_of_the_path_before_the_program_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can add a program there is found first; directories behind the program do not count."""
    program(tmp_path / "second" / "drain")
    for name in ("first", "third"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    path = config(tmp_path, ["drain"])
    monkeypatch.setenv("PATH", f"{tmp_path}/second:{tmp_path}/third")
    assert read_config(path)["steps"]
    monkeypatch.setenv("PATH", f"{tmp_path}/first:{tmp_path}/second")
    with pytest.raises(ConfigWritable, match="first, on the way"):
        read_config(path)


def closed(directory: Path) -> None:
    """Leave a directory as it is."""


def link_of(directory: Path) -> None:
    """Make a directory's program a link to another one."""
    (directory / "x").rename(directory.parent / "x")
    (directory / "x").symlink_to(directory.parent / "x")


@pytest.mark.parametrize("change", [closed, link_of])
def test_sticky_directory_holds_what_its_owner_puts_there(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """In /tmp nobody can replace another user's file; a missing one anybody can create."""
    place = tmp_path / "tmp"
    path = program(place / "x")
    change(place)
    place.chmod(0o1777)
    refuse_writable([path])
    with pytest.raises(ConfigWritable, match="tmp, on the way to"):
        refuse_writable([place / "missing"])
    with pytest.raises(ConfigWritable, match=r"tmp\."):
        refuse_writable([place])
    refuse_writable([place / "missing"], creates=True)


@AS_ROOT
def test_link_of_another_user_in_a_sticky_directory_is_refused(tmp_path: Path) -> None:
    """Its owner can let it lead elsewhere."""
    place = tmp_path / "tmp"
    path = program(tmp_path / "x")
    place.mkdir()
    (place / "x").symlink_to(path)
    os.lchown(place / "x", NOBODY, NOBODY)
    place.chmod(0o1777)
    with pytest.raises(ConfigWritable):
        refuse_writable([place / "x"])


def test_way_behind_a_link_and_back_is_the_systems(tmp_path: Path) -> None:
    """`..` behind a link leads to the parent of the link's target."""
    program(tmp_path / "open" / "x")
    (tmp_path / "open" / "deep").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "open" / "deep")
    refuse_writable([tmp_path / "link" / ".." / "x"])
    (tmp_path / "open" / "x").chmod(0o777)
    with pytest.raises(ConfigWritable):
        refuse_writable([f"{tmp_path}/link/../x"])
    (tmp_path / "loop").symlink_to("loop")
    refuse_writable([tmp_path / "loop"])


@pytest.mark.parametrize("what", ["state", "state/hooks", "state/steps", "state/journal.0", "."])
def test_state_directory_that_others_can_write_is_refused(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The agent runs commands that are stored there. Source: C-9."""
    place = tmp_path / "agent"
    (place / "state" / "hooks").mkdir(parents=True)
    (place / "state" / "steps").mkdir()
    program(place / "state" / "journal.0")
    path = config(tmp_path, ["sh", "-c", "true"])
    text = Path(path).read_text().replace("/state", "/agent/state")
    Path(path).write_text(text)
    assert load(path).state_dir == str(place / "state")
    (place / what).chmod(0o777)
    with pytest.raises(NotUsable, match="can write"):
        load(path)
    assert main(["check", "--config", path]) == 2
    assert "can write" in capsys.readouterr().err


@AS_ROOT
def test_root_checks_the_state_of_an_agent_of_another_user(tmp_path: Path) -> None:
    """`check` is typed as root, also where the agent has a user of its own."""
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, NOBODY, NOBODY)
    path = config(tmp_path, ["sh", "-c", "true"])
    assert main(["check", "--config", path]) == 0
    with pytest.raises(NotUsable):
        load(path)
    refuse_open_state(str(state), user=NOBODY)


@pytest.mark.parametrize(
    "table",
    [
        '[status]\nlisten = "127.0.0.1:0"\ncert = "{0}"\nkey = "{0}"\n',
        '[notify]\nwebhook = "https://x/"\nca_file = "{0}"\n',
        '[coordination]\nvia = "consul"\ntoken_file = "{0}"\n',
        '[step.hook]\nuse = "webhook"\nurl = "https://x/"\nsecret_file = "{0}"\n',
    ],
    ids=["status", "notify", "coordination", "step"],
)
def test_secret_that_others_can_write_is_refused(tmp_path: Path, table: str) -> None:
    """Who can write a certificate can answer in the place of a trusted server."""
    secret = program(tmp_path / "secret")
    path = config(tmp_path, ["true"], table.format(secret))
    assert read_config(path)["steps"]
    secret.chmod(0o666)
    with pytest.raises(ConfigWritable, match="secret"):
        read_config(path)


def test_own_code_is_the_interpreter_and_the_loaded_modules() -> None:
    """Root's agent is refused where others can write them."""
    paths = set(own_code())
    assert {sys.executable, load.__code__.co_filename, errors.__file__} <= paths
    assert subprocess.__file__ not in paths


@AS_ROOT
def test_read_only_file_system_is_written_by_nobody(tmp_path: Path) -> None:
    """Kubernetes mounts a ConfigMap with mode 777, and read-only."""
    program = (
        "import sys; from forewarn.agent.permissions import refuse_writable;"
        "refuse_writable([f'{sys.argv[1]}/agent.toml'])"
    )
    script = (
        'mount -t tmpfs -o mode=777 none "$1" && touch "$1/agent.toml" &&'
        ' chmod 666 "$1/agent.toml" && mount -o remount,$2 "$1" && exec "$3" -c "$4" "$1"'
    )

    def mounted(how: str) -> subprocess.CompletedProcess[str]:
        words = ["sh", "-c", script, "-", str(tmp_path), how, sys.executable, program]
        command = ["unshare", "--mount", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    open_to_all = mounted("rw")
    if "Operation not permitted" in open_to_all.stderr:
        pytest.skip("mounting is not permitted here")
    assert "ConfigWritable" in open_to_all.stderr
    assert mounted("ro").stderr == ""
