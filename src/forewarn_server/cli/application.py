"""Commands as applications of cyclopts, and errors of a command line in Forewarn's words.

Each module of a noun has an `App`, named like the noun, with a function for each action. The
function's parameters are the arguments of the action, and its docstring is the help.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from functools import partial
from io import StringIO

from cyclopts import App, Parameter
from cyclopts.exceptions import (
    CoercionError,
    ConsumeMultipleError,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from forewarn_base.errors import CallerError, CommandLineInvalid, nearest
from forewarn_base.exit_codes import OK
from forewarn_base.extensions import ExtensionMissing, ExtensionUnusable
from forewarn_server.cli.completed_names import in_options, with_suggestion, words_for
from forewarn_server.cli.familiar_words import familiar_actions, familiar_option
from forewarn_server.cli.installed_commands import COMMANDS
from forewarn_server.cli.nouns import NOUNS
from forewarn_server.cli.program_name import NAME

#: Most suggestions in an error message.
NAMED_MAX = 12
#: Most nouns suggested after an action without a noun.
NOUNS_MAX = 3
#: Width of a help that no terminal wraps, in characters: `grep` finds an option with all its text.
PIPE_WIDTH = 1000
#: Minimum similarity between an unknown option and a suggested option.
OPTION_LIKENESS = 0.8
#: Options of every command.
COMMON_OPTIONS = frozenset(
    {"--json", "--output", "--server", "--token-file", "--ca", "--watch", "--help"}
)
#: Option -> the noun of its values, if it is another word.
_THINGS = {"for": "state", "output": "form"}
_HELP = frozenset({"--help", "-h"})
#: How every argument is read and shown.
PARAMETER = Parameter(negative=(), show_default=False, allow_repeating=True)


def application(name: str, purpose: str = "") -> App:
    """Return an application for a noun below another noun; `purpose`: its help in one line."""
    return App(
        name=name,
        help=purpose[:1].upper() + purpose[1:] + ("." if purpose else ""),
        help_format="plaintext",
        help_formatter="default" if sys.stdout.isatty() else "plain",
        version_flags=(),
        default_parameter=PARAMETER,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )


def noun_app(name: str) -> App:
    """Return the application of a noun of `NOUNS`."""
    return application(name, NOUNS[name][1])


def root(*names: str) -> App:
    """Return the application `forewarn` with the commands of these nouns; none: of all nouns.

    Raises:
        ExtensionMissing, ExtensionUnusable: the package of a named noun is not installed, or cannot
            be loaded.
    """
    app = application(NAME)
    for name in names or NOUNS:
        try:
            app.command(_app_of(name))
        except (ExtensionMissing, ExtensionUnusable):
            if names:
                raise
    return app


def _app_of(noun: str) -> App:
    """Return the application of a noun."""
    extension = COMMANDS.find(noun)
    assert extension is not None, noun
    app: App = extension.load()
    return app


def run(words: Sequence[str]) -> int:
    """Run a command, whose first word is a noun of `NOUNS`, and return its exit status.

    Raises:
        CommandLineInvalid: the command line is invalid.
    """
    app = root(words[0])
    try:
        _check_complete(app, words)
        command, bound, _ = app.parse_args(
            list(words), exit_on_error=False, print_error=False, help_on_error=False
        )
    except CycloptsError as error:
        raise _invalid(error) from error
    bound.apply_defaults()
    act = partial(command, *bound.args, **bound.kwargs)
    common = bound.arguments.get("common")
    if common is not None and getattr(common, "watch", False):
        from forewarn_server.cli.watching import watch  # noqa: PLC0415 - seldom wanted

        return watch(act, common)
    try:
        status = act()
    except CallerError as refusal:
        if common is None:
            raise
        raise with_suggestion(in_options(refusal, _option_names(app, words)), common) from refusal
    return status if isinstance(status, int) else OK


def _option_names(app: App, words: Sequence[str]) -> list[str]:
    """Return the names of all options and arguments of a command."""
    _, apps, _ = app.parse_commands(list(words))
    return [name for each in apps[-1].assemble_argument_collection() for name in each.names]


def nouns_with(action: str) -> list[str]:
    """Return the first nouns that have this action."""
    app = root()
    return [name for name in NOUNS if name in app and action in app[name]][:NOUNS_MAX]


def _check_complete(app: App, words: Sequence[str]) -> None:
    """Report a missing action, with the possible actions; add examples to a help."""
    chain, apps, left = app.parse_commands(list(words))
    if not _HELP.isdisjoint([*chain, *left]):
        from forewarn_server.cli.examples import examples_of  # noqa: PLC0415 - only for a help

        nouns = [word for word in chain if word not in _HELP]
        lines = "\n".join(f"  {each}" for each in examples_of(" ".join(nouns)))
        apps[len(nouns)].help_epilogue = f"Examples:\n{lines}"
        if not sys.stdout.isatty():
            from rich.console import Console  # noqa: PLC0415 - only for a help

            app.console = Console(width=PIPE_WIDTH)
    actions, program = _actions(apps[-1]), " ".join((NAME, *chain))
    if actions and left and not left[0].startswith("-"):  # no noun with actions takes names
        raise CommandLineInvalid(problem=_no_action(left[0], chain, actions), program=program)
    if not left and apps[-1].default_command is None:
        problem = f"The action is missing{near('', actions)}."
        raise CommandLineInvalid(problem=problem, program=program)


def _no_action(typed: str, chain: Sequence[str], actions: Sequence[str]) -> str:
    """Return the sentence about an action that a noun does not have."""
    familiar = " or ".join(familiar_actions(typed, actions))
    if familiar:
        return f"There is no action {typed!r}; did you mean {familiar}?"
    others = [] if nearest(typed, actions) else nouns_with(typed)
    if others:
        named = " or ".join(f"`{NAME} {noun} {typed}`" for noun in others)
        return f"`{NAME} {' '.join(chain)}` has no action {typed!r}; did you mean {named}?"
    end = near(typed, actions)
    return f"There is no action {typed!r}{end}{'' if end.endswith('?') else '.'}"


def _actions(app: App) -> list[str]:
    return [name for name in app if not name.startswith("-")]


def complete(words: Sequence[str]) -> list[str]:
    """Return the words that may end a command line, whose last word is incomplete.

    Each is followed by a tab and its help, if it has one.
    """
    noun = next((word for word in words[:-1] if word in NOUNS), "")
    typed = list(words[words.index(noun) :]) if noun else list(words[-1:])
    if not noun:
        names = [*NOUNS, "help", "--help", "--version", "--json", "--server"]
        shown = [name for name in names if name.startswith(typed[-1])]
        return [f"{name}\t{NOUNS[name][1]}" if name in NOUNS else name for name in shown]
    app = root(noun)
    action = next((word for word in typed[1:-1] if not word.startswith("-")), "")
    completer = partial(words_for, noun, action)
    app.default_parameter = Parameter.combine(PARAMETER, Parameter(completer=completer))
    os.environ["CYCLOPTS_COMPLETION_WORDS"] = "".join(f"{word}\x1f" for word in typed)
    with redirect_stdout(StringIO()) as printed:
        app(["__complete"])
    _, _, records = printed.getvalue().partition("\x1fbegin\n")
    return [line for line in records.splitlines() if line and not line.startswith("\x1f")]


def check(words: Sequence[str]) -> None:
    """Parse a command line without running the command.

    Raises:
        CommandLineInvalid: the command line is invalid.
    """
    app = root(words[0])
    try:
        app.parse_args(list(words), exit_on_error=False, print_error=False, help_on_error=False)
    except CycloptsError as error:
        raise _invalid(error) from error


def _invalid(error: CycloptsError) -> CommandLineInvalid:
    chain = tuple(error.command_chain or ())
    problem = _problem(error, chain)
    stop = "" if problem.endswith("?") else "."
    return CommandLineInvalid(
        problem=f"{problem[:1].upper()}{problem[1:]}{stop}", program=" ".join((NAME, *chain))
    )


def _problem(error: CycloptsError, chain: Sequence[str]) -> str:
    """Return the mistake in a command line, without the full stop."""
    name = _name(error)
    if isinstance(error, UnknownOptionError):
        typed = (error.token.keyword or error.token.value).partition("=")[0]
        options = [each for one in error.argument_collection for each in one.names]
        if instead := familiar_option(typed, options):
            return f"there is no option {typed}: {instead}"
        return f"there is no option {typed}{near(typed, options) or _options(options)}"
    if isinstance(error, ConsumeMultipleError):
        return f"argument {name}: expected fewer values"
    if isinstance(error, MissingArgumentError):
        if error.keyword:
            return f"argument {name}: expected one argument"
        from forewarn_server.cli.examples import examples_of  # noqa: PLC0415 - only after a mistake

        example = examples_of(" ".join(chain))[0]
        return f"the following arguments are required: {name}; for example: {example}"
    if isinstance(error, CoercionError) and error.argument is not None:
        if choices := error.argument.get_choices(force=True):
            typed = error.token.value if error.token else ""
            return f"{_place(error)}there is no {_thing(error)} {typed!r}{near(typed, choices)}"
        if error.argument.hint is bool:
            return f"{name} takes no value"
        return f"{_place(error)}{error.msg or 'the value is invalid'}"
    if isinstance(error, UnusedCliTokensError | UnknownCommandError):
        typed = (error.unused_tokens or [""])[0]
        return f"unexpected argument {typed!r}"
    return str(error)


def _options(names: Sequence[str]) -> str:
    """Return the options of a command, except those of all commands, as the end of a sentence."""
    own = [each for each in names if each.startswith("--") and each not in COMMON_OPTIONS]
    return f"; the options are {', '.join(own[:NAMED_MAX])}" if own else ""


def _name(error: CycloptsError) -> str:
    argument = error.argument
    return "" if argument is None else getattr(error, "keyword", None) or argument.name


def _place(error: CycloptsError) -> str:
    """Return the option that an error is about, as the beginning of a sentence."""
    name = _name(error)
    return f"argument {name}: " if name.startswith("-") else ""


def _thing(error: CycloptsError) -> str:
    name = _name(error).lstrip("-").lower().replace("-", "_")
    return _THINGS.get(name, name)


def near(word: str, known: Iterable[str]) -> str:
    """Return suggestions for a word as the end of a sentence; suggest all of few choices."""
    names = list(known)
    suggestion = nearest(word, names, OPTION_LIKENESS if word.startswith("-") else 0.6)
    if suggestion:
        return f"; did you mean {suggestion}?"
    if word.startswith("-") or len(names) > NAMED_MAX:
        return ""
    return f"; choose one of {', '.join(names)}"
