"""Who may write what the agent reads or runs: nobody but root and the agent's own user.

What stands in the files is not looked at here.
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
    """Others could change what the agent runs; nothing was started."""

    code = "agent-config-writable"
    message = "{path} can be written by other users than {user} and root."
    advice = "chown it to {user} or root and chmod go-w, or set [agent] check_permissions = false."


def refuse_writable(paths: Iterable[Path]) -> None:
    """Refuse files and directories that others can write; those that are not there are passed over.

    Raises:
        ConfigWritable: one can be written by its group, by everybody, or by another user.
    """
    if not hasattr(os, "geteuid"):
        return
    user = os.geteuid()
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue  # reading it says why
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (0, user):
            raise ConfigWritable(path=path, user=f"user {user}")
