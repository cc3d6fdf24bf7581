"""Permissions: refuses paths that the agent executes or trusts and that other users can write.

A user who can replace one of these paths, or a directory on the way to one, can run programs as the
agent. Links are followed, and the directories on both ways are checked.

A short-lived process runs this module (see `config.py`).
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.agent.json_fields import words
from forewarn_base.errors import CallerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LINKS_MAX = 40  # links on the way to one path, the limit of Linux
LINE_BYTES_MAX = 256  # limit of the line `#!INTERPRETER`, the same as that of Linux
#: Programs whose first word that is not an option is a script; a version may follow the name.
INTERPRETERS = ("sh", "bash", "dash", "ksh", "zsh", "python", "perl", "ruby", "node", "php", "lua")

#: Parts of the state directory with commands, marks and notes.
STATE_PARTS = ("journal.0", "journal.1", "hooks", "steps")


class ConfigWritable(CallerError):
    """Other users can write a path that the agent executes or trusts."""

    code = "agent-config-writable"
    message = "Users other than {user} and root can write {path}{way}."
    advice = (
        "Make {user} or root its owner, run chmod go-w, or set [agent] check_permissions = false."
    )


def refuse_writable(
    paths: Iterable[str | Path], *, user: int | None = None, creates: bool = False
) -> None:
    """Refuse paths that users other than root and `user` can write.

    Args:
        paths: Files and directories that the agent executes or trusts. A missing path is refused if
            other users can create it.
        user: The user who runs the agent; None: this process's.
        creates: Whether the agent creates missing paths, and checks their owner.

    Raises:
        ConfigWritable: another user can write a path, or a directory on the way to it.
    """
    if not hasattr(os, "geteuid"):
        return
    trusted = (0, os.geteuid() if user is None else user)
    sound: set[str] = set()
    for path in paths:
        place = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118  `..` stays behind links
        _Walk(place, trusted, sound, creates=creates).check()


def refuse_open_state(directory: str, *, user: int | None = None) -> None:
    """Refuse a state directory that other users can write; see `refuse_writable`."""
    parts = [f"{directory}/{part}" for part in STATE_PARTS]
    refuse_writable([directory, *parts], user=user, creates=True)


def step_paths(steps: Iterable[Mapping[str, object]], phases: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths that the steps of a configuration execute and trust."""
    for step in steps:
        spec = step["spec"]
        assert isinstance(spec, dict)
        for phase in phases:
            command = words(spec, phase)
            yield from executed_paths(command) if command else ()
        yield from settings_paths(spec.get("settings", {}))


def executed_paths(command: list[str]) -> Iterator[str]:
    """Yield the paths that a command executes, as far as its words name them."""
    candidates = tuple(_candidates(command[0]))
    yield from candidates
    yield from _interpreter(candidates[-1])
    yield from _script(command)
    for word in command[1:]:
        if _is_program(word):
            yield word
            yield from _interpreter(word)


def settings_paths(form: Mapping[str, object]) -> Iterator[str]:
    """Yield the files that a table of settings names: secrets, tokens, certificates and keys."""
    for name, path in form.items():
        if (name.endswith("_file") or name in ("status_cert", "status_key")) and path:
            yield str(path)


def is_root() -> bool:
    """Return whether this process may do everything."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def own_code() -> Iterator[str]:
    """Yield the interpreter and the loaded modules of this program."""
    yield sys.executable
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in {"forewarn", "forewarn_base"} and file:
            yield file


class _Walk:
    """The way from the root directory to a path, along links."""

    def __init__(
        self, path: str, trusted: tuple[int, ...], sound: set[str], *, creates: bool
    ) -> None:
        self._path = path
        self._trusted = trusted
        self._creates = creates
        #: Directories that were found sound, shared by all walks.
        self._sound = sound

    def check(self) -> None:
        """Check each directory on the way, and the path itself."""
        place, names, links = "/", self._path.split("/")[::-1], 0
        while names:
            name = names.pop()
            path = os.path.normpath(os.path.join(place, name))  # noqa: PTH118  it has no links
            shared = self._directory(place)
            try:
                status = os.lstat(path)
            except OSError:
                self._refuse_if(shared and not self._creates, place)
                return
            if stat.S_ISLNK(status.st_mode):
                self._refuse_if(shared and status.st_uid not in self._trusted, place)
                target = os.readlink(path)  # noqa: PTH115  it is text
                names += target.split("/")[::-1]
                place = "/" if target.startswith("/") else place
                links += 1
                if links > LINKS_MAX:
                    return
            elif stat.S_ISDIR(status.st_mode):
                place = path
            else:
                regular = stat.S_ISREG(status.st_mode)
                self._refuse_if(regular and self._is_open(path, status), path)
                return
        self._refuse_if(self._directory(place), place)

    def _directory(self, path: str) -> bool:
        """Refuse a directory whose entries others can replace; return whether they can add some."""
        if path in self._sound:
            return False
        status = os.stat(path)  # noqa: PTH116  the same
        if not self._is_open(path, status):
            self._sound.add(path)
            return False
        sticky = status.st_mode & stat.S_ISVTX and status.st_uid in self._trusted
        self._refuse_if(not sticky, path)
        return True

    def _is_open(self, path: str, status: os.stat_result) -> bool:
        """Return whether other users can write a file or a directory."""
        others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not others and status.st_uid in self._trusted:
            return False
        return not os.statvfs(path).f_flag & os.ST_RDONLY

    def _refuse_if(self, wrong: object, path: str) -> None:
        if wrong:
            way = "" if path == self._path else f", on the way to {self._path}"
            raise ConfigWritable(path=path, user=f"user {self._trusted[-1]}", way=way)


def _candidates(program: str) -> Iterator[str]:
    """Yield the paths at which the system looks for a program, up to the program itself."""
    if os.path.dirname(program):  # noqa: PTH120  it is text
        yield program
        return
    for directory in os.get_exec_path():
        path = os.path.join(directory, program)  # noqa: PTH118  the same
        yield path
        if _is_program(path):
            return


def _is_program(path: str) -> bool:
    named = bool(os.path.dirname(path))  # noqa: PTH120  it is text
    return named and os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113  the same


def _interpreter(program: str) -> Iterator[str]:
    """Yield the interpreter in the first line of a script."""
    try:
        with Path(program).open("rb") as file:
            line = file.readline(LINE_BYTES_MAX)
    except OSError:
        return
    if line.startswith(b"#!"):
        called = line[2:].decode("utf-8", "replace").split()
        yield from _named_by_env(called) if called else ()


def _named_by_env(called: list[str]) -> Iterator[str]:
    yield called[0]
    if os.path.basename(called[0]) == "env":  # noqa: PTH119  it is text
        names = [word for word in called[1:] if not word.startswith("-") and "=" not in word]
        yield from _candidates(names[0]) if names else ()


def _script(command: list[str]) -> Iterator[str]:
    """Yield the script that an interpreter reads."""
    name = os.path.basename(command[0]).rstrip("0123456789.")  # noqa: PTH119  it is text
    rest = command[1:]
    if name == "env":
        while rest and (rest[0].startswith("-") or "=" in rest[0]):
            rest = rest[1:]
        yield from executed_paths(rest) if rest else ()
    elif name in INTERPRETERS:
        for word in rest:
            if word in ("-c", "-e", "-m"):
                return
            if not word.startswith("-"):
                yield from (word,) if os.path.isfile(word) else ()  # noqa: PTH113  the same
                return
