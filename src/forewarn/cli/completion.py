"""`forewarn completion`: what a shell needs to complete our commands.

The scripts are made by the package shtab, which only the server side installs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.exit_codes import OK

if TYPE_CHECKING:
    import argparse

    from forewarn.cli.parsing import CommandGroup

SHELLS = ("bash", "zsh", "fish", "tcsh")
#: What our arguments call a file that is named.
_FILES = frozenset({"FILE", "NAME|FILE", "PATH"})


def add_commands(commands: CommandGroup) -> None:
    """Add `completion`."""
    completion = commands.command("completion", run=_completion, remote=False, answers=False)
    completion.add_argument(
        "shell",
        choices=SHELLS,
        help="eval what is printed when the shell starts;"
        " for fish, put it into ~/.config/fish/completions/forewarn.fish",
    )


def _completion(arguments: argparse.Namespace) -> int:
    import shtab  # noqa: PLC0415 - only where it is installed

    parser = arguments.every_command()
    parsers = [parser]
    for each in parsers:  # grows while it is walked
        for argument in each.arguments:
            if argument.metavar in _FILES:
                vars(argument)["complete"] = shtab.FILE  # where shtab looks for it
            if isinstance(argument.choices, dict):
                parsers += argument.choices.values()
    print(shtab.complete(parser, shell=arguments.shell))
    return OK
