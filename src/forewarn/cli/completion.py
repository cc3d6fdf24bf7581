"""`forewarn completion`: print a shell's completion script.

The package shtab, part of the server-side installation, generates the scripts.
"""

from __future__ import annotations

import argparse

from forewarn.cli.parsing import CommandGroup
from forewarn.exit_codes import OK

SHELLS = ("bash", "zsh", "fish", "tcsh")
#: Placeholders of file arguments in help texts.
_FILES = frozenset({"FILE", "NAME|FILE", "PATH"})


def add_commands(commands: CommandGroup) -> None:
    """Add `completion`."""
    completion = commands.command("completion", run=_completion, remote=False, answers=False)
    completion.add_argument(
        "shell",
        choices=SHELLS,
        help="evaluate the output when the shell starts;"
        " for fish, put it into ~/.config/fish/completions/forewarn.fish",
    )


def _completion(arguments: argparse.Namespace) -> int:
    import shtab  # noqa: PLC0415 - only where it is installed

    parser = arguments.every_command()
    parsers = [parser]
    for each in parsers:  # the list grows during the loop
        for argument in each.arguments:
            if argument.metavar in _FILES:
                vars(argument)["complete"] = shtab.FILE  # shtab reads this attribute
            if isinstance(argument.choices, dict):
                parsers += argument.choices.values()
    print(shtab.complete(parser, shell=arguments.shell))
    return OK
