"""The typed name of this program, for commands in messages."""

from __future__ import annotations

import sys

NAME = "forewarn"


def typed_name() -> str:
    """Return `forewarn` if the program is on the search path, else the program's path."""
    from pathlib import Path  # noqa: PLC0415 - only where a command is shown
    from shlex import quote  # noqa: PLC0415 - the same
    from shutil import which  # noqa: PLC0415 - the same

    here = Path.cwd()
    started = here / sys.argv[0]
    if started.stem != NAME:  # the process was started by a Python module or a test
        return NAME
    path = which(NAME)
    if path and Path(path).resolve() == started.resolve():
        return NAME
    if started.parent != here and started.is_relative_to(here):
        started = started.relative_to(here)
    return quote(str(started))
