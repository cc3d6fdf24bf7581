"""Argument parsers and common options of the commands."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from forewarn.core.actions import ACTIONS
from forewarn.errors import CallerError, nearest

DEFAULT_SERVER = "http://127.0.0.1:8470"
#: Default settings file, installed by the packages.
DEFAULT_CONFIG = Path("/etc/forewarn/forewarn.toml")
#: Names of argument types in errors, instead of Python's type names.
_NUMBERS: dict[object, str] = {float: "a number", int: "an integer"}
#: Most suggestions in an error message.
NAMED_MAX = 12
#: Most nouns suggested after an action without a noun.
NOUNS_MAX = 3
#: Minimum similarity between an unknown option and a suggested option.
OPTION_LIKENESS = 0.7
_NEGATIVE = re.compile(r"-[0-9]+[a-z]+")
#: Filters of history.
HISTORY_FILTERS = ("operation", "event", "host", "vm", "group", "action")
#: Default of `--limit`.
LIST_MAX = 100


def add_json_option(parser: Parser, *, default: object) -> None:
    """Add the option `--json`."""
    parser.flag("--json", "print JSON, errors included", default=default)


def add_yes_option(parser: Parser) -> None:
    """Add the option `--yes`, for commands that ask a person first."""
    parser.flag("--yes", "do not ask for confirmation on a terminal")


def add_server_options(parser: Parser, *, default: object) -> None:
    """Add the options `--server` and `--token-file`."""
    text = f"operator API (default: FOREWARN_SERVER, then {DEFAULT_SERVER})"
    parser.option("--server URL", text, default=default)
    text = "file with the bearer token (default: FOREWARN_TOKEN)"
    parser.option("--token-file FILE", text, default=default)


def add_config_option(parser: Parser, text: str = "settings of the service (TOML)") -> None:
    """Add `--config`, for commands that use the settings of the service on this machine."""
    parser.option("--config FILE", text, type=Path, action="append", default=[])


def settings_files(arguments: argparse.Namespace) -> list[Path]:
    """Return the settings files of `--config`, or else the default file if it exists."""
    return arguments.config or ([DEFAULT_CONFIG] if DEFAULT_CONFIG.is_file() else [])


def add_store_options(parser: Parser) -> None:
    """Add `--store` and `--config`, for commands that open the store."""
    parser.option(
        "--store ADDRESS", "the store: a file or a database URL (default: from the settings)"
    )
    add_config_option(parser)


def add_filters(parser: Parser, names: tuple[str, ...]) -> None:
    """Add options that filter records."""
    for name in names:
        metavar = "ID" if name in {"operation", "event"} else "NAME"
        choices = tuple(ACTIONS) if name == "action" else None
        text = f"only of this {written_kind(name)}" + (
            ", such as operation.started" if choices else ""
        )
        parser.option(f"--{name} {metavar}", text, choices=choices)


def written_kind(kind: str) -> str:
    """Return the name of a kind of record as it appears in sentences."""
    return "VM" if kind == "vm" else kind


def whole_number(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a positive integer")
    return int(text)


def seconds(text: str) -> float:
    """Parse a positive time in seconds."""
    try:
        duration_s = float(text)
    except ValueError:
        duration_s = math.nan
    if not 0 < duration_s < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} must be a positive number of seconds")
    return duration_s


def add_list_options(
    parser: Parser, *, states: Sequence[str] = (), since: str = "", limit: int | None = LIST_MAX
) -> None:
    """Add the options common to all lists.

    Args:
        parser: the parser of the list.
        states: the states that `--state` accepts; empty: no `--state`.
        since: participle for the compared time in the help of `--since`, such as `created`; empty:
            no `--since`.
        limit: the default of `--limit`.
    """
    if states:
        text = "only in this state; repeatable"
        parser.option("--state", text, choices=tuple(states), action="append", default=[])
    if since:
        text = f"only {since} since this time: 2h (ago), or 2026-11-21T18:30:00Z"
        parser.option("--since TIME", text)
    text = f"list at most N (default: {limit or 'all'})"
    parser.option("--limit N", text, type=whole_number, default=limit)


def set_members(parser: Parser, known: Iterable[str] = ()) -> None:
    """Set `members` to the destinations of the parser's options, except the known ones."""
    others = {*known, "help", "json", "server", "token_file"}
    names = (each.dest for each in parser.arguments if each.option_strings)
    parser.set_defaults(members=tuple(name for name in names if name not in others))


class CommandLineInvalid(CallerError):
    """The command line is invalid."""

    code = "command-line-invalid"
    message = "{problem}"
    advice = "See `{program} --help`."


class Parser(argparse.ArgumentParser):
    """A parser that reports unknown arguments with its own usage and suggestions.

    argparse alone would report unknown arguments with the usage of the parent parser.
    """

    #: Default action of a noun, such as `list`; empty: the user must name an action.
    default_action = ""

    def parse_known_args(
        self,
        args: Iterable[str] | None = None,
        namespace: Any = None,  # noqa: ANN401 - whatever argparse lets it be
    ) -> Any:  # noqa: ANN401 - the same
        """Parse the arguments, and reject unknown arguments."""
        words = list(sys.argv[1:] if args is None else args)
        asks_help = words[:1] in (["-h"], ["--help"])
        if self.default_action and not asks_help and (not words or words[0].startswith("-")):
            words.insert(0, self.default_action)
        elif not words:
            self._check_complete()
        for word in self._options_among(words):
            self._check_option(word)
        parsed, left = super().parse_known_args(words, namespace)
        for word in left:
            if word.startswith("-"):
                self._check_option(word)
            self.error(f"unexpected argument {word!r}")
        return parsed, left

    def option(self, name: str, text: str | None = None, **more: Any) -> None:  # noqa: ANN401 - as argparse
        """Add an option with a value, such as `--gate NAME`; `more`: as for `add_argument`."""
        name, _, metavar = name.partition(" ")
        self.add_argument(name, metavar=metavar or None, help=text, **more)

    def flag(self, name: str, text: str, **more: Any) -> None:  # noqa: ANN401 - the same
        """Add an option without a value, which sets true, or `const` if that is given."""
        action = "store_const" if "const" in more else "store_true"
        self.add_argument(name, action=action, help=text, **more)

    @property
    def arguments(self) -> Sequence[argparse.Action]:
        """The parser's arguments; the choices of a subcommand argument are parsers."""
        return self._actions

    def error(self, message: str) -> NoReturn:
        """Report an invalid command line in one sentence."""
        stop = "" if message.endswith("?") else "."
        raise CommandLineInvalid(
            problem=f"{message[:1].upper()}{message[1:]}{stop}", program=self.prog
        )

    def _check_complete(self) -> None:
        """Report a missing action, with the possible actions."""
        for action in self._actions:
            if action.required and action.choices:
                near = _near("", action.choices)
                self.error(f"the {action.dest} is missing{near}")

    def _check_option(self, word: str) -> None:
        name = word.partition("=")[0]
        if name not in self._option_string_actions:
            self.error(f"there is no option {name}{_near(name, self._option_string_actions)}")

    def _options_among(self, words: Iterable[str]) -> Iterable[str]:
        """Return the options among arguments, up to a command that passes on its arguments.

        Also return negative durations such as -5m, which argparse treats as unknown options.
        """
        for word in words:
            if word == "--" or (self._subparsers and not word.startswith("-")):
                return
            if (word.startswith("--") and " " not in word) or _NEGATIVE.fullmatch(word):
                yield word

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:  # noqa: ANN401 - the same
        """Convert an argument; report errors in Forewarn's words."""
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            wanted = _NUMBERS.get(action.type)
            if wanted is None:
                raise
            raise argparse.ArgumentError(action, f"{arg_string!r} must be {wanted}") from error

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Report an invalid choice, with suggestions."""
        if action.choices is None or value in action.choices:
            return
        named = action if action.option_strings else None
        near = self._with_noun(value) or _near(str(value), action.choices)
        raise argparse.ArgumentError(named, f"there is no {action.dest} {value!r}{near}")

    def _with_noun(self, word: object) -> str:
        """Return the nouns with this action as a suggestion, the end of a sentence."""
        every_command = self.get_default("every_command")
        commands = [
            f"`{noun} {word}`"
            for choice in (every_command().arguments if every_command else ())
            for noun, parser in (choice.choices or {}).items()
            if any(each.dest == "action" and word in each.choices for each in parser.arguments)
        ]
        return f"; did you mean {', '.join(commands[:NOUNS_MAX])}?" if commands else ""


def _near(word: str, known: Iterable[str]) -> str:
    """Return suggestions for a word as the end of a sentence; suggest all of few choices."""
    names = list(known)
    near = nearest(word, names, OPTION_LIKENESS if word.startswith("-") else 0.6)
    if near:
        return f"; did you mean {near}?"
    if word.startswith("-") or len(names) > NAMED_MAX:
        return ""
    return f"; choose one of {', '.join(names)}"


class CommandGroup:
    """The top-level commands, or the actions of one noun."""

    def __init__(
        self,
        parser: Parser,
        helps: Mapping[str, str],
        metavar: str,
        *,
        unlisted: frozenset[str] = frozenset(),
    ) -> None:
        """Prepare a parser for commands.

        Args:
            parser: the parser.
            helps: the help of each top-level command; empty below the top level.
            metavar: placeholder of the command word in the usage line.
            unlisted: commands without a line in the parser's own help.
        """
        self._unlisted = unlisted
        self._helps = helps
        self._subparsers = parser.add_subparsers(
            metavar=metavar, dest=metavar.lower(), required=True, title=f"{metavar.lower()}s"
        )

    def command(
        self,
        name: str,
        help: str = "",  # noqa: A002 - the word argparse uses
        *,
        run: Callable[[argparse.Namespace], int],
        remote: bool = True,
        answers: bool = True,
    ) -> Parser:
        """Add a command; return its parser, so that the caller can add arguments.

        Args:
            name: the command word.
            help: its help in one line; top-level commands take it from `main.NOUNS`.
            run: executes the command and returns the exit status.
            remote: whether the command calls a server.
            answers: whether the command prints an answer and therefore has `--json`.
        """
        parser = self._add(name, help)
        if answers:
            add_json_option(parser, default=argparse.SUPPRESS)
        if remote:
            add_server_options(parser, default=argparse.SUPPRESS)
        parser.set_defaults(run=run)
        return parser

    def group(
        self,
        name: str,
        help: str = "",  # noqa: A002 - the word argparse uses
        *,
        default: str = "list",
    ) -> CommandGroup:
        """Add a noun, and return the group for its actions.

        Args:
            name: the command word.
            help: its help, as in `command`.
            default: the action of the bare noun; may be empty.
        """
        parser = self._add(name, help)
        parser.default_action = default
        return CommandGroup(parser, {}, "ACTION")

    def _add(self, name: str, help_line: str, *, add_help: bool = True) -> Parser:
        line = help_line or self._helps[name]
        listed: dict[str, Any] = {} if name in self._unlisted else {"help": line}
        parser = self._subparsers.add_parser(
            name,
            **listed,
            description=line[:1].upper() + line[1:] + ".",
            allow_abbrev=False,
            add_help=add_help,
        )
        assert isinstance(parser, Parser), "a subparsers action holds the commands"
        return parser

    def stub(self, name: str) -> None:
        """Add a command without arguments, for `--help` only."""
        self._add(name, "", add_help=False)  # this parser is never used for parsing
