"""Commands of other packages: `forewarn NOUN`, where NOUN is an entry point.

A command is an entry point of the group `forewarn.commands`: a callable with the words after the
noun, which returns the exit status. It may read them with any library. Forewarn's own nouns have
priority, and are found without a search of the installed packages. A noun of Forewarn's that is in
another of its packages is an application of cyclopts, with the same help, errors and completion as
all of Forewarn's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forewarn.errors import ForewarnError
from forewarn.exit_codes import OK
from forewarn.extensions import ExtensionGroup, reason_in

#: The commands of other packages; those of Forewarn are in `nouns.py`.
COMMANDS = ExtensionGroup(
    "command",
    {
        "conformance": "forewarn_conformance.command:conformance",
        "emulate": "forewarn_emulator.run_command:emulate",
        "emulator": "forewarn_emulator.commands:emulator",
    },
    {
        "conformance": "forewarn-conformance",
        "emulate": "forewarn-emulator",
        "emulator": "forewarn-emulator",
    },
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


def installed_app(noun: str) -> Any:  # noqa: ANN401 - an `App` of cyclopts, whose import is slow
    """Return the application of a noun that another package of Forewarn has.

    Raises:
        ExtensionMissing, ExtensionUnusable: the package is not installed, or cannot be loaded.
    """
    extension = COMMANDS.find(noun)
    assert extension is not None, noun
    return extension.use_unlimited(lambda app: app)
