"""`forewarn explain`: explain an error code offline."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from forewarn.cli.output import print_facts, print_json
from forewarn.errors import CallerError, every_error
from forewarn.exit_codes import OK

if TYPE_CHECKING:
    import argparse

    from forewarn.cli.parsing import CommandGroup


class CodeUnknown(CallerError):
    """An unknown error code."""

    code = "code-unknown"
    status = 404
    message = "This release has no error code {code_asked}."
    advice = "Copy the code from the brackets at the end of an error's first line."


def add_commands(commands: CommandGroup) -> None:
    """Add `explain`."""
    explain = commands.command("explain", run=_explain, remote=False)
    explain.add_argument("code", metavar="CODE", help="the code in brackets after an error")


def _explain(arguments: argparse.Namespace) -> int:
    import forewarn  # noqa: PLC0415 - all of it, so only here

    for module in pkgutil.walk_packages(forewarn.__path__, "forewarn.", onerror=lambda _: None):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:
                continue  # a module of the server side, which is not installed
    kind = next((each for each in every_error() if each.code == arguments.code), None)
    if kind is None:
        raise CodeUnknown(code_asked=arguments.code)
    facts = {
        "code": kind.code,
        "status": kind.status,
        "meaning": (kind.__doc__ or "").partition("\n")[0],
        "message": kind.message,
        "advice": kind.advice,
    }
    if arguments.json:
        return print_json(facts)
    print_facts(facts.items())
    return OK
