"""The command `forewarn`: import the module of the typed noun, and run the action.

Modules are imported on demand, so that `forewarn --help` and short commands start fast. The agent's
commands, `--help` and `--version` need no third-party package.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

from forewarn_base import exit_codes
from forewarn_base.errors import CallerError, CommandLineInvalid, ForewarnError, PeerError, nearest
from forewarn_base.untrusted_text import EscapedOutput
from forewarn_server.cli.defaults import DEFAULT_SERVER
from forewarn_server.cli.nouns import NOUNS, RARE, RARE_NAMES, package_of
from forewarn_server.cli.program_name import typed_name

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Options of every command, which may also stand before the command: placeholder and help.
_OPTIONS = {
    "--json": ("", "print JSON, errors included"),
    "--output": ("FORM", "-o: table, wide, json, yaml, csv or name"),
    "--server": ("URL", f"operator API (default: FOREWARN_SERVER, then {DEFAULT_SERVER})"),
    "--ca": ("FILE", "CA certificate of the server (default: FOREWARN_CA)"),
    "--token-file": ("FILE", "file with the bearer token (default: FOREWARN_TOKEN)"),
}
_HELP, _VERSION = frozenset({"--help", "-h", "help"}), frozenset({"--version", "-V", "version"})
_HELP_TEXT = """\
Usage: forewarn [OPTIONS] COMMAND ...

Scheduled Events for any cloud.

Options:
{options}

Commands:
{commands}

More commands:
{rare}

Environment:
  FOREWARN_SERVER, FOREWARN_TOKEN   as --server; the token itself
  FOREWARN_CA                       CA certificate of the server, if it is not a public one
  FOREWARN_CERTIFICATE, _KEY        client certificate and key

`forewarn COMMAND --help` shows the actions of a command; the default is mostly `list`."""


#: Errors of a write to standard output.
_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
#: Hidden command of the completion scripts.
_COMPLETE = "__complete"
#: Packages of the extra `cli`.
_CLI_PACKAGES = frozenset({"attrs", "attr", "cyclopts", "rich"})
#: HTTP statuses of answers to invalid input.
_MISTAKES = frozenset({400, 404, 422})


class PackagesMissing(CallerError):
    """A command needs packages that are not installed."""

    code = "packages-missing"
    status = 501
    message = "`forewarn {command}` needs the package {package}, which is not installed."
    advice = (
        "Install the {part}, from a clone of Forewarn: pip install './forewarn[{extra}]'{beside};"
        " from a wheel: pip install 'FILE.whl[{extra}]'. `forewarn agent` works without it."
    )


class OutputUnwritable(CallerError):
    """Standard output cannot be written, for example because the disk is full."""

    code = "output-unwritable"
    status = 507
    message = "The output cannot be written: {reason}."
    advice = "Free space, or send the output elsewhere."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # On Windows a pipe uses a legacy code page, which cannot encode some characters.
        sys.stdout.reconfigure(errors="backslashreplace")
    with EscapedOutput():
        return _run_safely(words)


def _run_safely(words: Sequence[str]) -> int:
    """Run a command; print its error, and return its exit status."""
    as_json = _wants_json(words)
    if not words:
        print(_help(), file=sys.stderr)
        return exit_codes.USAGE
    try:
        status = _run(words)
        sys.stdout.flush()
    except ForewarnError as error:
        return _refuse(error, as_json=as_json)
    except ModuleNotFoundError as missing:
        return _refuse(_packages_missing(missing, words), as_json=as_json)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return exit_codes.INTERRUPTED
    except OSError as error:
        return _end_without_output(error, as_json=as_json)
    return status


def _wants_json(words: Sequence[str]) -> bool:
    """Whether errors are printed as JSON."""
    named = {f"{one} {two}" for one, two in pairwise(words)}
    return not {"--json", "-o json", "--output json", "--output=json"}.isdisjoint({*words, *named})


def _run(words: Sequence[str]) -> int:
    """Run a command, or print the help or the version."""
    before, rest = _split_options(words)
    command = rest[0] if rest else ""
    if command in _HELP and len(rest) > 1:
        command, rest = rest[1], [*rest[1:], "--help"]
    if command in _VERSION:
        command = rest[0] = "version"
    if command in _HELP:
        print(_help())
    elif command == "version" and len(words) == 1:
        from forewarn_base.version import version  # noqa: PLC0415 - slow to import

        print(f"forewarn {version()}")
    elif command == _COMPLETE:
        from forewarn_server.cli.application import complete  # noqa: PLC0415 - as below

        print(*complete(rest[1:]), sep="\n", end="\n")
    elif command == "agent":
        from forewarn.agent.cli import execute  # noqa: PLC0415 - only there

        return execute([*rest[1:], *(each for each in before if each == "--json")])
    elif command in NOUNS:
        from forewarn_server.cli.application import run  # noqa: PLC0415 - a package that may be missing

        end = rest.index("--") if "--" in rest else len(rest)
        return run([*rest[:end], *before, *rest[end:]])
    else:
        return _run_installed(rest, before)
    return exit_codes.OK


def _run_installed(rest: Sequence[str], before: Sequence[str]) -> int:
    """Run a command of another package.

    Raises:
        CommandLineInvalid: there is no such command.
    """
    from forewarn_server.cli.installed_commands import run_installed  # noqa: PLC0415 - a slow search

    status = run_installed(rest[0], [*rest[1:], *before]) if rest and rest[0] else None
    if status is None:
        raise _command_unknown([*rest])
    return status


def _split_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options before the command, and the other words.

    Raises:
        CommandLineInvalid: there is no such option, or it has no value.
    """
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in _HELP | _VERSION:
        name, equals, _ = words[at].partition("=")
        name = "--output" if name == "-o" else name
        if name not in _OPTIONS:
            near = nearest(name, [*_OPTIONS, *_HELP, *_VERSION])
            end = f"; did you mean {near}?" if near else "."
            raise CommandLineInvalid(problem=f"There is no option {name}{end}", program="forewarn")
        at += 2 if _OPTIONS[name][0] and not equals else 1
        if at > len(words):
            problem = f"Argument {name}: expected one argument."
            raise CommandLineInvalid(problem=problem, program="forewarn")
    return list(words[:at]), list(words[at:])


def _command_unknown(words: list[str]) -> CommandLineInvalid:
    """Return the error for an unknown command, with suggestions."""
    if not words or not words[0]:
        return CommandLineInvalid(problem="The command is missing.", program="forewarn")
    from forewarn_server.cli.familiar_words import (  # noqa: PLC0415 - only after a mistake
        familiar_command,
        noun_of,
    )

    word, familiar = words[0], familiar_command(words, NOUNS)
    noun = noun_of(word, NOUNS) or nearest(word, NOUNS)
    near = f"`{familiar}`" if familiar else f"`forewarn {noun}`" if noun else ""
    if not near:
        from forewarn_server.cli.application import nouns_with  # noqa: PLC0415 - only after a mistake

        near = " or ".join(f"`forewarn {noun} {word}`" for noun in nouns_with(word))
    end = f"; did you mean {near}?" if near else "."
    return CommandLineInvalid(problem=f"There is no command {word!r}{end}", program="forewarn")


def _packages_missing(missing: ModuleNotFoundError, words: Sequence[str]) -> PackagesMissing:
    """Return the error for a package that is not installed; re-raise for a module of ours."""
    package = (missing.name or "").partition(".")[0]
    if package.startswith("forewarn"):
        raise missing
    command = next((each for each in words if each in NOUNS), "")
    part, extra = "command line", "cli"
    if package not in _CLI_PACKAGES:
        part, extra = "server side", "server"
    own = package_of(command) if command else ""
    beside = f" ./forewarn/packages/{own}" if own else ""
    return PackagesMissing(command=command, package=package, part=part, extra=extra, beside=beside)


def _help() -> str:
    """Return the help of `forewarn`."""
    options = {"-h, --help": "show this help", "-V, --version": "show the version"}
    options |= {f"{name} {value}".strip(): text for name, (value, text) in _OPTIONS.items()}
    return _HELP_TEXT.format(
        options="\n".join(f"  {name:<18}  {text}" for name, text in options.items()),
        commands="\n".join(
            f"    {name:<12} {text}" for name, (_, text) in NOUNS.items() if name not in RARE_NAMES
        ),
        rare="\n".join(f"  {topic + ':':<18}{', '.join(names)}" for topic, names in RARE.items()),
    )


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
    from forewarn_server.cli.api_client import ApiRefused  # noqa: PLC0415 - only where something is wrong

    if isinstance(error, PeerError):
        return exit_codes.UNREACHABLE
    typed = isinstance(error, CallerError) and not isinstance(error, ApiRefused)
    return exit_codes.USAGE if typed and error.status in _MISTAKES else exit_codes.REFUSED


if __name__ == "__main__":
    sys.exit(main())
