"""Files with secrets: settings files that contain some, and the files that settings name.

`settings.SECRETS` and `settings.SECRET_FILES` list the settings. In a table of a driver, gate or
destination, each option `…_file` names a file with a secret, except certificates (`ca_file`).
Source: U-4.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from forewarn_base.settings import SECRET_FILES, SECRETS, Settings
from forewarn_server.settings_loader import WITH_TABLES, read_settings_file, with_fragments

#: Permission bits of other users; a file with secrets must have none of these.
OTHERS = 0o007
#: Options of tables that name a file without a secret.
PUBLIC_FILES = frozenset({"ca_file"})
#: Options of tables, also of kinds in other packages, whose values are secrets.
_SECRET_OPTION = re.compile(r"(?:.*_)?(?:secret|token|password|key)|urls").fullmatch
#: Scheme of stores in a file, and schemes whose user without a password is not a secret.
_SQLITE, _USERS = "sqlite", frozenset({"postgresql", "postgres", "http", "https", "qemu+ssh"})


def exposed_files(files: Iterable[Path], settings: Settings) -> Iterator[Path]:
    """Yield each file with secrets that every user of this machine can read or write.

    Args:
        files: the settings files, without their fragments.
        settings: the settings of these files and of the environment.
    """
    if os.name != "posix":
        return
    written = [each for file in files for each in with_fragments(file)]
    for file in written:
        if _is_open(file) and any(_secrets(read_settings_file(file))):
            yield file
    for file in dict.fromkeys(_secret_files(settings)):
        if _is_open(file):
            yield file


def _is_open(file: Path) -> bool:
    try:
        return file.is_file() and bool(file.stat().st_mode & OTHERS)
    except OSError:  # this user cannot read its directory
        return False


def _secrets(written: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Yield the secrets in the content of a settings file."""
    for section, values in written.items():
        for name, value in values.items():
            if section in WITH_TABLES and isinstance(value, dict):
                yield from _secret_options(value)
            elif name in SECRETS.get(section, ()):
                yield from filter(None, [str(value)])
            else:
                yield from filter(_has_password, _texts(value))


def _secret_options(table: Mapping[str, object]) -> Iterator[str]:
    for name, value in table.items():
        texts = list(_texts(value))
        yield from texts if _SECRET_OPTION(name) else filter(_has_password, texts)


def _secret_files(settings: Settings) -> Iterator[Path]:
    """Yield the files with secrets that the settings name, and the file of the store."""
    for section, names in SECRET_FILES.items():
        for name in names:
            yield from map(Path, filter(None, [getattr(getattr(settings, section), name)]))
    for section in sorted(WITH_TABLES):
        for table in getattr(settings, section).tables:
            for name, value in table.values.items():
                if name.endswith("_file") and name not in PUBLIC_FILES:
                    yield from map(Path, filter(None, _texts(value)))
    scheme, _, place = settings.store.url.partition("://")
    if scheme == _SQLITE:
        yield Path(place)


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a value of a settings file."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list | tuple):
            left += each


def _has_password(text: str) -> bool:
    """Whether a text is a URL with a password, or with a token in place of a user."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    if "://" not in text:
        return False
    user = bool(parts.username) and parts.scheme not in _USERS
    return bool(parts.password) or user or "password" in parse_qs(parts.query)
