"""Check of write permissions: only root and the agent's user may change the agent's commands.

This module checks only owners and modes of files.
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
    """Other users can write a file with commands for the agent."""

    code = "agent-config-writable"
    message = "Users other than {user} and root can write {path}."
    advice = (
        "Make {user} or root its owner, run chmod go-w, or set [agent] check_permissions = false."
    )


def refuse_writable(paths: Iterable[Path]) -> None:
    """Refuse files and directories that other users can write; ignore missing files.

    Raises:
        ConfigWritable: the group, everybody, or another user can write one of the paths.
    """
    if not hasattr(os, "geteuid"):
        return
    user = os.geteuid()
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue  # `read_config` reports the error
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (0, user):
            raise ConfigWritable(path=path, user=f"user {user}")
