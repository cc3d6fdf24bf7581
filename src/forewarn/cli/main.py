"""The command `forewarn`: finds the module of the command that was typed, and runs it.

Modules are imported when one of their commands is typed, so that `forewarn --help` and every
short command start fast.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING

from forewarn import exit_codes
from forewarn.cli.parsing import CommandGroup, Parser, add_json_option, add_server_options
from forewarn.cli.program_name import typed_name
from forewarn.errors import CallerError, ForewarnError, PeerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    # Loaded by their names below; named here for those who look for users of a module.
    from forewarn.cli import (  # noqa: F401
        access,
        agent,
        audit,
        completion,
        conformance,
        driver,
        emulate,
        emulator_commands,
        fleet,
        maintenance,
        metadata,
        operations,
        outbox,
        policy,
        queries,
        serve,
        topology,
        watch,
    )

#: Every command: the module of this package that defines it, and what it is for.
COMMANDS: dict[str, tuple[str, str]] = {
    "emulate": ("emulate", "run a metadata service of your own, for trying and testing"),
    "serve": ("serve", "run the service"),
    "metadata": ("metadata", "run a metadata node of its own, one on every hypervisor"),
    "agent": ("agent", "follow this machine's events and do what a workload needs done"),
    "host": ("fleet", "the physical machines: add, list, and work on them"),
    "group": ("fleet", "the groups of VMs that share a document"),
    "vm": ("fleet", "the virtual machines: add, list, and work on them"),
    "topology": ("topology", "hosts, groups and VMs from one file"),
    "maintenance": ("maintenance", "work on many hosts, in waves: plan, start, pause, follow"),
    "policy": ("policy", "budgets, windows and pauses of maintenances, from one file"),
    "window": ("policy", "when maintenance may run in the coming days"),
    "events": ("queries", "what the VMs are shown now"),
    "document": ("queries", "the document as a VM reads it"),
    "operations": ("queries", "the work that is planned, announced, running or over"),
    "why": ("operations", "what an operation waits for"),
    "approve": ("operations", "approve an event from outside its VM"),
    "cancel": ("operations", "withdraw work that has not started"),
    "complete": ("operations", "say that running work has ended"),
    "retry": ("operations", "begin running work once more"),
    "history": ("queries", "everything that happened, and who did it"),
    "access": ("access", "who may do what: roles, tokens"),
    "whoami": ("access", "who you are to the service, and your roles"),
    "audit": ("audit", "who changed what, and whether the record of it is whole"),
    "outbox": ("outbox", "where transitions are delivered, and how far that is"),
    "watch": ("watch", "follow what happens"),
    "clock": ("emulator_commands", "the emulator's clock: show, advance, speed, pause"),
    "scenario": ("emulator_commands", "the emulator's stories: list, run, stop"),
    "fault": ("emulator_commands", "faults on demand of the emulator"),
    "conformance": ("conformance", "check whether a server speaks Scheduled Events"),
    "driver": ("driver", "the drivers of the settings: check one, ask it what there is"),
    "completion": ("completion", "print the completion script of a shell"),
}

#: Options before the command that take a value: the next word is not a command.
_WITH_VALUE = frozenset({"--server", "--token-file"})


#: What is wrong with something that was given; other errors are about what is there already.
_MISTAKES = frozenset({400, 404, 422})


class PackagesMissing(CallerError):
    """A command of the server side in an installation that has only the client side."""

    code = "packages-missing"
    status = 501
    message = "`forewarn {command}` needs the package {package}, which is not installed."
    advice = "Install the server side, from a clone of Forewarn: pip install './forewarn[server]'."


class _ShowVersion(argparse.Action):
    """Prints the version; asks for it only then, because that reads files."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print and end."""
        from forewarn.version import version  # noqa: PLC0415 - slow to import

        print(f"forewarn {version()}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Not every encoding has every character: Windows gives a pipe its old code page.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        arguments = parser_for(_command_in(words)).parse_args(words)
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except SystemExit as end:  # argparse has said what there was to say
        return end.code if isinstance(end.code, int) else exit_codes.USAGE
    except ForewarnError as error:
        return _refuse(error)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "forewarn":
            raise
        return _refuse(PackagesMissing(command=_command_in(words), package=missing.name))
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader of the output is gone; Python must not try to write the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.PIPE_CLOSED
    return status


def parser_for(command: str = "") -> Parser:
    """Return the parser that knows one command and names the others; all of them for `*`."""
    parser = Parser(
        prog="forewarn",
        description="Scheduled Events for any cloud.",
        epilog="`forewarn COMMAND --help` says more, and so does 'Commands' in the documentation.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", nargs=0, action=_ShowVersion, help="print the version and end")
    add_json_option(parser, default=False)
    add_server_options(parser, default="")
    parser.set_defaults(every_command=lambda: parser_for("*"))
    commands = CommandGroup(parser, {name: line for name, (_, line) in COMMANDS.items()}, "COMMAND")
    wanted = {module for name, (module, _) in COMMANDS.items() if command in {name, "*"}}
    loaded = set()
    for name, (module, _) in COMMANDS.items():
        if module not in wanted:
            commands.stub(name)
        elif module not in loaded:
            loaded.add(module)
            importlib.import_module(f"forewarn.cli.{module}").add_commands(commands)
    return parser


def _command_in(words: Sequence[str]) -> str:
    """Return the command that was typed; empty if there is none."""
    before = ""
    for word in words:
        if not word.startswith("-") and before not in _WITH_VALUE:
            return word if word in COMMANDS else ""
        before = word
    return ""


def _refuse(error: ForewarnError) -> int:
    """Say on standard error why not, and what to do."""
    message, advice = (
        text.replace("`forewarn ", f"`{typed_name()} ")
        for text in (str(error), error.advice_text())
    )
    print(f"forewarn: {message}", file=sys.stderr)
    if advice:
        print(f"  {advice}", file=sys.stderr)
    return status_of(error)


def status_of(error: ForewarnError) -> int:
    """Return the exit status of an error: who must act decides, and what a server said is its."""
    from forewarn.cli.api_client import ApiRefused  # noqa: PLC0415 - only where something is wrong

    if isinstance(error, PeerError):
        return exit_codes.UNREACHABLE
    typed = isinstance(error, CallerError) and not isinstance(error, ApiRefused)
    return exit_codes.USAGE if typed and error.status in _MISTAKES else exit_codes.REFUSED


if __name__ == "__main__":
    sys.exit(main())
