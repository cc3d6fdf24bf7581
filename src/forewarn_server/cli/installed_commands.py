"""Commands as entry points: `forewarn NOUN`, where NOUN is an entry point.

The commands of Forewarn and of its packages are in `nouns.py`: applications of cyclopts, with the
same help, errors and completion. They are found without a search of the installed packages. A
command of somebody else's package is a callable with the words after the noun, which returns the
exit status; it may read them with any library.
"""

from __future__ import annotations

from collections.abc import Sequence

from forewarn_base.errors import ForewarnError
from forewarn_base.exit_codes import OK
from forewarn_base.extensions import ExtensionGroup, reason_in
from forewarn_server.cli.nouns import NOUNS, package_of

COMMANDS = ExtensionGroup(
    "command",
    {noun: f"{module}:{noun}" for noun, (module, _) in NOUNS.items()},
    {noun: package for noun in NOUNS if (package := package_of(noun))},
)


def run_installed(noun: str, words: Sequence[str]) -> int | None:
    """Run a command with its words, and return its exit status; None: there is no such command.

    Raises:
        ExtensionUnusable: the command's package cannot be loaded, or has failed.
    """
    extension = COMMANDS.find(noun)
    if extension is None:
        return None
    act = extension.load()
    try:
        status = act(list(words))
    except (ForewarnError, OSError):
        raise
    except Exception as error:
        raise extension.unusable(reason_in(error)) from error
    return status if isinstance(status, int) else OK
