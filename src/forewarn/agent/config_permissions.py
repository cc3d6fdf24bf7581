"""Check of write permissions: only root and the agent's user may change what the agent runs.

This module does not read the content of the files.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from forewarn.errors import CallerError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class ConfigWritable(CallerError):
    """A file that other users can write and whose commands the agent would run."""

    code = "agent-config-writable"
    message = "{path} can be written by other users than {user} and root."
    advice = "chown it to {user} or root and chmod go-w, or set [agent] check_permissions = false."


def refuse_writable(paths: Iterable[Path]) -> None:
    """Refuse files and directories that other users can write; ignore missing ones.

    Raises:
        ConfigWritable: the group, everybody, or another user can write one of them.
    """
    if not hasattr(os, "geteuid"):
        return
    user = os.geteuid()
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue  # reading the file reports the reason
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (0, user):
            raise ConfigWritable(path=path, user=f"user {user}")
