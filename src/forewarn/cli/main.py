"""The command `forewarn`: import the module of the typed noun, and run the action.

Modules are imported on demand, so that `forewarn --help` and short commands start fast.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING

from forewarn import exit_codes
from forewarn.cli.parsing import CommandGroup, Parser, add_json_option, add_server_options
from forewarn.cli.program_name import typed_name
from forewarn.errors import CallerError, ForewarnError, PeerError
from forewarn.untrusted_text import EscapedOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    # `parser_for` imports these modules by name; the imports here help tools that search for uses.
    from forewarn.cli import (  # noqa: F401
        access,
        agent,
        audit,
        completion,
        conformance,
        doctor,
        driver,
        emulator,
        emulator_run,
        events,
        explain,
        fleet,
        history,
        maintenance,
        node,
        operations,
        outbox,
        policy,
        serve,
        status,
        store,
        topology,
    )

#: Each noun, and each command without a noun: its module and its help.
NOUNS: dict[str, tuple[str, str]] = {
    "emulate": ("emulator_run", "run a metadata service on this machine, for trials and tests"),
    "status": ("status", "show the service and waiting work"),
    "show": ("status", "show a record by its id or name"),
    "host": ("fleet", "physical machines: add, list, and work on them"),
    "group": ("fleet", "groups of VMs that share a document"),
    "vm": ("fleet", "virtual machines: add, list, and work on them"),
    "topology": ("topology", "the whole fleet as one file: apply, show, import"),
    "operation": ("operations", "work on hosts and VMs: list, explain, approve, cancel"),
    "event": ("events", "events shown to VMs"),
    "maintenance": ("maintenance", "work on many hosts, in waves"),
    "policy": ("policy", "limits and windows of maintenances"),
    "history": ("history", "changes and who made them: list, export"),
    "watch": ("history", "follow new entries of history"),
    "serve": ("serve", "run the service"),
    "node": ("node", "run a metadata node, one on every hypervisor"),
    "agent": ("agent", "the agent in a VM: prepare the VM's workload for events"),
    "document": ("events", "show a VM's document"),
    "emulator": ("emulator", "the emulator: run it, move its clock, play scenarios, set faults"),
    "conformance": ("conformance", "check a server or a client of Scheduled Events"),
    "access": ("access", "roles and tokens of principals"),
    "whoami": ("access", "show your identity and roles"),
    "confirmation": ("access", "calls that wait for a second operator"),
    "audit": ("audit", "audit of changes and refused calls: list, export, verify"),
    "doctor": ("doctor", "find the faults of an installation"),
    "leader": ("serve", "the active process among several control planes"),
    "reload": ("serve", "reload the settings of the service"),
    "store": ("store", "the store of a service: back up, verify, restore, upgrade"),
    "upgrade": ("upgrade", "upgrade to this version: check the next step"),
    "driver": ("driver", "drivers of the settings: list, check, discover"),
    "outbox": ("outbox", "delivery of transitions to other systems"),
    "explain": ("explain", "explain an error code"),
    "completion": ("completion", "print a completion script for a shell"),
}

#: Rarely used commands, which `forewarn --help` lists without a description.
RARE = {
    "access": ("access", "whoami", "confirmation", "audit"),
    "service": ("doctor", "leader", "reload", "store", "upgrade", "driver", "outbox"),
    "trials and tests": ("document", "emulator", "conformance"),
    "this program": ("explain", "completion"),
}
RARE_NAMES = frozenset(name for names in RARE.values() for name in names)

#: The environment variables of every command, for `forewarn --help`.
_ENVIRONMENT = (
    "environment:",
    "  FOREWARN_SERVER, FOREWARN_TOKEN   as --server; the token itself",
    "  FOREWARN_CA                       CA certificate of the server, if it is not a public one",
    "  FOREWARN_CERTIFICATE, _KEY        client certificate and key",
)
#: Options before the command whose next word is a value.
_WITH_VALUE = frozenset({"--server", "--token-file"})


#: Errors of a write to standard output.
_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
#: HTTP statuses of answers to invalid input.
_MISTAKES = frozenset({400, 404, 422})


class PackagesMissing(CallerError):
    """A server-side command needs packages that are not installed."""

    code = "packages-missing"
    status = 501
    message = "`forewarn {command}` needs the package {package}, which is not installed."
    advice = (
        "Install the server side, from a clone of Forewarn: pip install './forewarn[server]'; from"
        " a wheel: pip install 'FILE.whl[server]'."
    )


class OutputUnwritable(CallerError):
    """Standard output cannot be written, for example because the disk is full."""

    code = "output-unwritable"
    status = 507
    message = "The output cannot be written: {reason}."
    advice = "Free space, or send the output elsewhere."


class _ShowVersion(argparse.Action):
    """Option that prints the version; reads the version from files only when used."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the version and exit."""
        from forewarn.version import version  # noqa: PLC0415 - slow to import

        print(f"forewarn {version()}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # On Windows a pipe uses a legacy code page, which cannot encode some characters.
        sys.stdout.reconfigure(errors="backslashreplace")
    with EscapedOutput():
        return _run(words)


def _run(words: list[str]) -> int:
    as_json = "--json" in words
    if not words:
        parser_for().print_help(sys.stderr)
        return exit_codes.USAGE
    try:
        arguments = parser_for(_command_in(words)).parse_args(words)
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except SystemExit as end:  # argparse has already printed the help or error
        return end.code if isinstance(end.code, int) else exit_codes.USAGE
    except ForewarnError as error:
        return _refuse(error, as_json=as_json)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "forewarn":
            raise
        refusal = PackagesMissing(command=_command_in(words), package=missing.name)
        return _refuse(refusal, as_json=as_json)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return exit_codes.INTERRUPTED
    except OSError as error:
        return _end_without_output(error, as_json=as_json)
    return status


def _end_without_output(error: OSError, *, as_json: bool) -> int:
    """Report that standard output cannot be written; re-raise any other error."""
    closed = isinstance(error, BrokenPipeError)
    if not closed and (error.errno not in _OUTPUT_ERRORS or error.filename is not None):
        raise error
    # Discard the buffered output, which Python would write again at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if closed:
        return exit_codes.PIPE_CLOSED
    return _refuse(OutputUnwritable(reason=error.strerror), as_json=as_json)


def parser_for(command: str = "") -> Parser:
    """Return a parser with one complete command and stubs of the others; `*`: all complete."""
    parser = Parser(
        prog="forewarn",
        description="Scheduled Events for any cloud.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", nargs=0, action=_ShowVersion, help="show the version and exit")
    add_json_option(parser, default=False)
    add_server_options(parser, default="")
    parser.set_defaults(every_command=lambda: parser_for("*"))
    commands = CommandGroup(
        parser,
        {name: line for name, (_, line) in NOUNS.items()},
        "COMMAND",
        unlisted=frozenset() if command == "*" else RARE_NAMES,
    )
    wanted = {module for name, (module, _) in NOUNS.items() if command in {name, "*"}}
    loaded = set()
    for name, (module, _) in NOUNS.items():
        if module not in wanted:
            commands.stub(name)
        elif module not in loaded:
            loaded.add(module)
            importlib.import_module(f"forewarn.cli.{module}").add_commands(commands)
    return parser


def _epilog() -> str:
    """Return the end of `forewarn --help`: the rarely used commands, and a pointer to more help."""
    rare = [f"  {topic + ':':<18}{', '.join(names)}" for topic, names in RARE.items()]
    shows = (
        "`forewarn COMMAND --help` shows the actions of a command; the default is mostly `list`."
    )
    return "\n".join(["more commands:", *rare, "", *_ENVIRONMENT, "", shows])


def _command_in(words: Sequence[str]) -> str:
    """Return the command among the arguments, or an empty string."""
    before = ""
    for word in words:
        if not word.startswith("-") and before not in _WITH_VALUE:
            return word if word in NOUNS else ""
        before = word
    return ""


def _refuse(error: ForewarnError, *, as_json: bool) -> int:
    """Print an error to standard error: code, cause and remedy."""
    message, advice = (
        text.replace("`forewarn ", f"`{typed_name()} ")
        for text in (str(error), error.advice_text())
    )
    if as_json:
        import json  # noqa: PLC0415 - only then

        form = {"error": {"code": error.code, "message": message, "advice": advice}}
        print(json.dumps(form), file=sys.stderr)
    else:
        print(f"forewarn: {message} [{error.code}]", file=sys.stderr)
        if advice:
            print(f"  {advice}", file=sys.stderr)
    return status_of(error)


def status_of(error: ForewarnError) -> int:
    """Return the exit status for the kind of an error."""
    from forewarn.cli.api_client import ApiRefused  # noqa: PLC0415 - only where something is wrong

    if isinstance(error, PeerError):
        return exit_codes.UNREACHABLE
    typed = isinstance(error, CallerError) and not isinstance(error, ApiRefused)
    return exit_codes.USAGE if typed and error.status in _MISTAKES else exit_codes.REFUSED


if __name__ == "__main__":
    sys.exit(main())
