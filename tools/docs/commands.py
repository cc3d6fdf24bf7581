"""Writes the reference page of the command line from its applications.

The function of a command contains its description. The agent has its own parser, without packages.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cyclopts import App
from cyclopts.argument import Argument as Parameter

from forewarn.agent.cli import ACTIONS, add_arguments
from forewarn_base import exit_codes
from forewarn_server.cli.application import PARAMETER, root
from forewarn_server.cli.nouns import NOUNS
from tools.docs.reference import page, table

Row = tuple[str, str]
#: Number of commands from which a common option is explained only once.
SHARED_BY = 3


@dataclass(frozen=True)
class Argument:
    """One argument of a command."""

    #: Names of an option; empty for a positional argument.
    options: tuple[str, ...]
    #: Placeholder of the value; empty for a switch.
    value: str
    meaning: str = ""
    required: bool = False
    #: Whether a positional argument can be repeated.
    many: bool = False
    #: Whether the value of an option can be left out.
    value_optional: bool = False


@dataclass(frozen=True)
class Command:
    """One command with its purpose and arguments."""

    words: str
    purpose: str
    arguments: Sequence[Argument]


def cli_page() -> str:
    """Return every command with its arguments, grouped by its first word."""
    common = common_arguments()
    lines = [
        "Every command, as `forewarn COMMAND --help` prints it.",
        "The lists omit the word `forewarn`.",
        "Within a section, the first command that takes an argument or option explains it.",
        "Those that talk to a service find it by `--server`, or by `FOREWARN_SERVER`.",
        "Without either, they use the current context, then a service on this machine.",
        "They answer JSON with `--json`, in the shape of the API.",
        "With `-o json` and `-o yaml`, a list has its records in `items`; unknown values are null.",
        "On a terminal, tables have colours and leave out the last columns that do not fit.",
        "Columns without any value are left out; `-o wide` prints every column.",
        "Times are UTC and end in `Z`, or stand below a heading with UTC.",
        "A time on the command line needs its zone, or is a duration from now.",
        "Where an owner chooses a time, the local time follows in parentheses, with its offset.",
        "Durations have units: `2 d`, `1 h 30 min`; options and files also accept `1h30m`.",
        "In JSON, members with a duration end in `_s` or `_ms`.",
        "NO_COLOR, FORCE_COLOR and TERM=dumb are respected.",
        "",
        "## Options of every command",
        "",
        *table(("option", "meaning"), (argument_row(each) for each in common)),
        "",
        "## Exit statuses",
        "",
        *table(
            ("status", "meaning"), ((f"`{n}`", text) for n, text in exit_codes.MEANINGS.items())
        ),
    ]
    commands = [
        (each, [one for one in each.arguments if one not in common]) for each in every_command()
    ]
    counts = Counter(argument_row(each) for _, own in commands for each in own)
    often = {
        row[0]: row for row, count in reversed(counts.most_common()) if count >= SHARED_BY
    }  # use the most frequent meaning of an option
    shared = [row for row in often.values() if row[0].startswith("`-")]
    lines += ["", "## Options of several commands", ""]
    lines += table(("option", "meaning"), sorted(shared))
    noun, shown = "", dict[str, set[Row]]()  # the arguments of each command above
    for command, own in commands:
        first = command.words.split()[0]
        if first != noun:
            noun = first
            purpose = NOUNS[noun][1]
            lines += ["", f"## {noun}", ""]
            lines += [] if command.words == noun else [sentence(purpose), ""]
        lines += command_lines(command, own, shared, shown)
        shown[command.words] = {argument_row(each) for each in own}
    return page("Commands", *lines)


def command_lines(
    command: Command,
    own: Sequence[Argument],
    shared: Collection[Row],
    shown: Mapping[str, set[Row]],
) -> Iterator[str]:
    """Yield a command with the arguments that neither `shared` nor an earlier command explains."""
    rows = [argument_row(each) for each in own]
    earlier = max(
        (words for words, theirs in shown.items() if theirs <= set(rows)),
        key=lambda words: len(shown[words]),
        default="",
    )
    if earlier and len(shown[earlier]) >= SHARED_BY:
        also = f" Takes the options of `{earlier}`"
        rows = [row for row in rows if row not in shown[earlier]]
    else:
        also = ""
    noun = command.words.split()[0]
    above = {row for words, theirs in shown.items() if words.split()[0] == noun for row in theirs}
    names = [option_name(row) for row in rows if row in shared or (row in above and is_option(row))]
    if names:
        also += ", and `" if also else " Also takes `"
        also += "`, `".join(names) + "`"
    also += "." if also else ""
    yield f"- `{usage(command.words, own)}`: {sentence(command.purpose)}{also}"
    for row in rows:
        if row not in shared and row not in above and (row[1] or is_option(row)):
            yield f"  - {row[0]}: {row[1]}".rstrip(": ")


def is_option(row: Row) -> bool:
    """Return whether a row explains an option, not a positional argument."""
    return row[0].startswith("`-")


def option_name(row: Row) -> str:
    """Return the name of the option that a row explains."""
    return row[0].split()[0].strip("`,")


def every_command() -> Iterator[Command]:
    """Yield every command in the order of the help."""
    app = root()
    for name in NOUNS:
        if name == "agent":
            yield from _commands_of_the_agent()
        else:
            yield from _commands_of(app[name], name)


def every_name() -> Iterator[str]:
    """Yield the words of every command but the agent's: its arguments take longer."""
    app = root()
    for name in NOUNS:
        if name != "agent":
            yield from (words for words, _ in _applications(app[name], name))


def common_arguments() -> list[Argument]:
    """Return the options of every command that calls a server."""
    return _arguments_of(root("status")["status"])


def _commands_of(app: App, words: str) -> Iterator[Command]:
    for full, each in _applications(app, words):
        yield Command(full, each.help.partition("\n")[0], _arguments_of(each))


def _applications(app: App, words: str) -> Iterator[tuple[str, App]]:
    names = [name for name in app if not name.startswith("-")]
    if not names:
        yield words, app
    for name in names:
        yield from _applications(app[name], f"{words} {name}")


def _arguments_of(app: App) -> list[Argument]:
    arguments = app.assemble_argument_collection(default_parameter=PARAMETER)
    return [_argument_of(each) for each in arguments if each.show]


def _argument_of(each: Parameter) -> Argument:
    options = tuple(name for name in each.names if name.startswith("-"))
    parameter = each.parameter
    is_switch, counted = each.hint in {bool, bool | None}, parameter.consume_multiple
    value = "" if is_switch else parameter.metavar or ""
    if not options:
        value = each.name
    elif not is_switch and not parameter.metavar:
        choices = each.get_choices(force=True)
        value = "|".join(choices) if choices else each.name.strip("-").upper().replace("-", "_")
    return Argument(
        options,
        value,
        parameter.help or "",
        required=each.required,
        many=each.field_info.kind is each.field_info.VAR_POSITIONAL,
        value_optional=isinstance(counted, tuple) and counted[0] == 0,
    )


def _commands_of_the_agent() -> Iterator[Command]:
    for name, (purpose, _) in ACTIONS.items():
        parser = argparse.ArgumentParser(add_help=False)
        add_arguments(name, parser)
        arguments = [
            Argument(
                tuple(each.option_strings),
                str(each.metavar or ""),
                each.help or "",
                required=not each.option_strings,
            )
            for each in parser._actions  # noqa: SLF001 - argparse has no public list
        ]
        yield Command(f"agent {name}", purpose, arguments)


def usage(words: str, arguments: Sequence[Argument]) -> str:
    """Return a command with its required arguments; `[options]` stands for other options."""
    parts = [words]
    options = [each for each in arguments if each.options]
    parts += [with_value(each.options[-1], each) for each in options if each.required]
    parts += ["[options]"] if any(not each.required for each in options) else []
    for each in arguments:
        if not each.options:
            word = each.value + (" …" if each.many else "")
            parts.append(word if each.required else f"[{word}]")
    return " ".join(parts)


def with_value(option: str, argument: Argument) -> str:
    """Return an option with its value, in brackets if the value is optional."""
    if not argument.value:
        return option
    return (
        f"{option} [{argument.value}]" if argument.value_optional else f"{option} {argument.value}"
    )


def argument_row(argument: Argument) -> Row:
    """Return one row of a table of arguments."""
    shown = with_value(", ".join(argument.options) or argument.value, argument)
    return f"`{shown if argument.options else argument.value}`", argument.meaning


def sentence(text: str) -> str:
    """Return a help line as a sentence."""
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")
